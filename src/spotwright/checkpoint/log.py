"""What was saved, by whom, in which order: a log whose next entry only one of several writers can write.

Every entry is a small file with a number, and is created only where there is none: with ``O_EXCL`` in a folder, with a
conditional write in an object store. An attempt that begins writes a *claim*; its number is the attempt's token. A *save* is
committed by its entry. Both take the next number, so a save and the claim of a successor meet at the same number and one of
them loses: there is no moment in which a late save of a dead attempt can slip in behind its successor's back.

A claim also names the save that it found (``base``). Whatever an older attempt may still complete between the two is never
looked at. Claims are kept, as small as they are, because an older attempt that has been asleep would write its next entry there.

An entry carries its own checksum. One that is cut was never committed; its number stays taken.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from spotwright.checkpoint.errors import OtherProgram, SaveFailed, StaleWriter
from spotwright.checkpoint.store import Store

__all__ = ["FORMAT", "Entry", "Log", "who_am_i"]

FORMAT = 1
"""The version of entries and state files that this module writes; it reads every version up to it."""

_PATIENCE = 1.0  # seconds for which an entry without content is looked at again, while its writer may be writing it


class Entry:
    """One entry. ``data`` is what it says: ``kind`` (``claim`` or ``save``) and what belongs to it."""

    __slots__ = ("data", "number")

    def __init__(self, number: int, data: Mapping[str, Any]) -> None:
        self.number, self.data = number, data

    @property
    def token(self) -> int:
        """The token of the attempt that wrote it."""
        return self.number if self.data["kind"] == "claim" else int(self.data["token"])

    @property
    def state(self) -> str:
        """The name of the state file of a save."""
        return str(self.data["state"])


class Log:
    """The log of a place, as one attempt reads and writes it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.claim: Entry | None = None
        self._known: dict[int, Entry] = {}
        self._last = 0  # the highest number that is known to be taken
        self._doubtful = 0  # the number of a try of ours that failed

    @property
    def token(self) -> int:
        """The token of this attempt; 0 before it has claimed one."""
        return self.claim.number if self.claim else 0

    def saves(self) -> Iterator[Entry]:
        """The saves that count, newest first. Those of another format raise :class:`OtherProgram`."""
        return self._chain(self._numbers())

    def latest_claim(self) -> Entry | None:
        """The claim of the newest attempt."""
        for number in self._numbers():
            entry = self._read(number)
            if entry and entry.data["kind"] == "claim":
                return entry
        return None

    def take_over(self, about: Mapping[str, Any]) -> Entry:
        """Claim a token that is higher than every other; from then on no older attempt can commit.

        ``about`` goes into the claim. Raises :class:`StaleWriter` where others do the same again and again.
        """
        for _ in range(100):
            numbers = self._numbers()
            base = next(self._chain(numbers), None)
            number = (numbers[0] if numbers else 0) + 1
            claim = {**about, "kind": "claim", "base": base.number if base else None}
            if self._create(number, claim):
                self.claim, self._last = Entry(number, claim), number
                return self.claim
        raise StaleWriter(f"{self._store.place}: a hundred other attempts began at the same moment; are there so many?")

    def commit(self, save: Mapping[str, Any]) -> Entry:
        """Add a save, whose state file is durable. Raises :class:`StaleWriter` when another attempt has begun since."""
        data = {**save, "kind": "save", "token": self.token}
        while True:
            number = self._last + 1
            self._look_beyond(number)
            try:
                created = self._create(number, data)
            except SaveFailed:
                self._doubtful = number  # there may be something now, or nothing
                raise
            if not created:
                found = self._read(number)
                ours = found is not None and found.token == self.token and found.data["kind"] == "save"
                if not ours and not (found is None and number == self._doubtful):
                    raise self._stale(number)
                if found is None or found.state != data["state"]:
                    self._last = number  # what is left of a try that failed: its number stays taken
                    continue
            self._last = number  # also where a client that tried twice has met its own first try
            return Entry(number, data)

    def _look_beyond(self, number: int) -> None:
        """After a try that failed, its number may be free again: it was written after all, and a successor has removed it."""
        beyond = [each for each in self._numbers() if each > number] if number == self._doubtful else []
        if beyond:
            raise self._stale(min(beyond))

    def check(self) -> None:
        """Raise :class:`StaleWriter` where it is certain already that :meth:`commit` would."""
        number = self._last + 1
        if number != self._doubtful and self._store.read(_name(number)) is not None:
            raise self._stale(number)

    def keep(self, count: int) -> None:
        """Remove all saves but the newest ``count``, and every state file that belongs to none of them."""
        names = self._store.names()
        saves = list(self._chain(_numbers_in(names)))
        for save in reversed(saves[count:]):  # the oldest first, so that what is left is always the newest ones
            self._store.remove(_name(save.number))  # before its state: an entry never names what is not there
            self._known.pop(save.number, None)
        states = {save.state for save in saves[:count]}
        for name in names:
            if name.startswith("state-") and name not in states and _claimed_at(name) <= self.token:
                self._store.remove(name)

    def _numbers(self) -> list[int]:
        return _numbers_in(self._store.names())

    def _chain(self, numbers: list[int]) -> Iterator[Entry]:
        """Saves, newest first: those that follow their own attempt's claim, then from that claim's base on."""
        waiting: list[Entry] = []
        below = numbers[0] + 1 if numbers else 0
        for number in numbers:
            if number >= below:
                continue
            entry = self._read(number)
            if entry is None:
                continue
            if entry.data["kind"] == "save":
                waiting.append(entry)
                continue
            yield from (save for save in waiting if save.token == number)
            base = entry.data["base"]
            if base not in numbers:
                return  # there was none, or it has been removed, and then whatever is older has been too
            waiting, below = [], base + 1

    def _read(self, number: int) -> Entry | None:
        """An entry; ``None`` for one that is cut, or has been removed meanwhile. A whole one never changes."""
        if number in self._known:
            return self._known[number]
        text = self._store.read(_name(number))
        if text is None or len(text) < 10 or text[:9] != b"%08x " % zlib.crc32(text[9:]):
            return None
        import json

        data = json.loads(text[9:])
        if data["format"] > FORMAT:
            raise OtherProgram(
                f"{self._store.place}: written by a newer Spotwright (format {data['format']}, this one reads up to "
                f"{FORMAT}): install that version, or name another place"
            )
        return self._known.setdefault(number, Entry(number, data))

    def _create(self, number: int, data: Mapping[str, Any]) -> bool:
        import json

        body = json.dumps({**data, "format": FORMAT}).encode()
        return self._store.create(_name(number), b"%08x " % zlib.crc32(body) + body)

    def _stale(self, number: int) -> StaleWriter:
        deadline = time.monotonic() + _PATIENCE
        while (entry := self._read(number)) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        who = entry.data.get("who", {}) if entry else {}
        known = ", ".join(f"{key} {value}" for key, value in who.items() if value) or "who it is cannot be read"
        return StaleWriter(
            f"{self._store.place}: another attempt has taken over ({known}); this one must stop, and what it did since its "
            "last save is done again there"
        )


def who_am_i() -> dict[str, Any]:
    """What a claim says of its attempt, for people."""
    given = os.environ
    return {
        "run": given.get("SPOTWRIGHT_RUN", ""),
        "task": given.get("SPOTWRIGHT_TASK", ""),
        "attempt": given.get("SPOTWRIGHT_ATTEMPT", ""),
        "host": os.uname().nodename,
        "process": os.getpid(),
    }


def _name(number: int) -> str:
    return f"entry-{number:010d}"


def _numbers_in(names: list[str]) -> list[int]:
    """The numbers of the entries, highest first."""
    found = (name.removeprefix("entry-") for name in names if name.startswith("entry-"))
    return sorted((int(number) for number in found if number.isascii() and number.isdecimal()), reverse=True)


def _claimed_at(name: str) -> int:
    """The token in the name of a state file; one that says none is nobody's and is left alone."""
    token = name.split("-")[1]
    return int(token) if token.isascii() and token.isdecimal() else 1 << 62
