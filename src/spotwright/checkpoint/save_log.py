"""The log of a place: claims and saves in one order, where only one writer can write the next entry.

Every entry is a small, numbered file that is created only if it does not exist: with ``O_EXCL`` in a folder, with a conditional
write in an object store. A new attempt writes a *claim*, whose number is the attempt's token. The entry of a *save* commits it.
Both take the next number, so a save and a successor's claim compete for one number, and one of them loses: a late save of an
older attempt can never count after its successor's claim.

A claim also names the save that it is based on (``base``). Entries that an older attempt completes between the two are ignored.
Claims are small and kept: a suspended older attempt would write its next entry at their number.

An entry contains its checksum. A cut entry was never committed; its number stays used.

The entry of a sharded save also names its shards, one for each rank that wrote, each with its size and the checksum of its
table (:mod:`spotwright.checkpoint.state_file`). So one entry commits all shards or none.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from spotwright.checkpoint.errors import OtherProgram, PlaceError, StaleWriter
from spotwright.checkpoint.store import Store
from spotwright.links_below import is_plain

__all__ = ["FORMAT", "LogEntry", "SaveLog", "describe_writer"]


FORMAT = 2
"""The newest version of written entries, for sharded saves; all others have 1. Every version up to it is readable."""

_MOST_SHARDS = 100_000

_SHARED_TIMEOUT = 5.0  # seconds after which a volume of several nodes surely shows one node's writes
_EMPTY_TIMEOUT = 1.0  # seconds for which an empty entry is reread, because it may still be written


class LogEntry:
    """One entry. ``data`` has its ``kind`` (``claim`` or ``save``) and the fields of that kind."""

    __slots__ = ("data", "number")

    def __init__(self, number: int, data: Mapping[str, Any]) -> None:
        self.number, self.data = number, data

    @property
    def token(self) -> int:
        """Token of the attempt that wrote the entry."""
        return self.number if self.data["kind"] == "claim" else int(self.data["token"])

    def is_of(self, ranks: int) -> bool:
        """Whether this is a claim of the ranks whose first token was ``ranks``."""
        return ranks in (self.number, self.data.get("ranks"))

    @property
    def state(self) -> str:
        """Name of the state file of a save, and the prefix of its shards' names."""
        return str(self.data["state"])

    @property
    def shards(self) -> list[tuple[str, int, int]]:
        """Each shard's name, size, and checksum of its table; empty for a save of one process."""
        return [(name, size, total) for name, size, total in self.data.get("shards", ())]

    @property
    def is_sharded(self) -> bool:
        """Whether the state file is the layout of shards."""
        return "shards" in self.data


class SaveLog:
    """The log of a place, for one attempt. One thread at a time may change it or call :meth:`check`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.claim: LogEntry | None = None
        self._cached: dict[int, LogEntry] = {}
        self._last = 0  # the highest number that is surely used
        self._doubtful = 0  # the number of a failed entry of ours

    @property
    def token(self) -> int:
        """Token of this attempt; 0 before its claim."""
        return self.claim.number if self.claim else 0

    def saves(self) -> Iterator[LogEntry]:
        """Iterate over the valid saves, newest first. Raises :class:`OtherProgram` for a newer format."""
        return self._chain(self._numbers())

    def latest_claim(self) -> LogEntry | None:
        """Return the claim of the newest attempt."""
        return self._latest_claim(self._numbers())

    def _latest_claim(self, numbers: list[int]) -> LogEntry | None:
        for number in numbers:
            entry = self._read(number)
            if entry and entry.data["kind"] == "claim":
                return entry
        return None

    def claim_token(self, about: Mapping[str, Any], *, ranks: int = 0) -> LogEntry:
        """Claim a token higher than every other; from then on older attempts cannot commit.

        ``about`` goes into the claim. ``ranks`` is the first token of an attempt with several ranks, if another of them claimed
        last. Raises :class:`StaleWriter` if that was another attempt, or if other attempts win a hundred times.
        """
        if ranks:
            about = {**about, "ranks": ranks}
        for _ in range(100):
            numbers = self._numbers()
            if ranks and (latest := self._latest_claim(numbers)) is not None and not latest.is_of(ranks):
                raise self._stale(latest.number)
            base = next(self._chain(numbers), None)
            number = (numbers[0] if numbers else 0) + 1
            claim = {**about, "kind": "claim", "base": base.number if base else None}
            if self._create(number, claim):
                self.claim, self._last = LogEntry(number, claim), number
                return self.claim
        raise StaleWriter(
            f"{self._store.place}: a hundred other attempts claimed this place at the same time: give each task its own place"
        )

    def commit(self, save: Mapping[str, Any]) -> LogEntry:
        """Commit a save, whose state file is durable. Raises :class:`StaleWriter` if another attempt took over."""
        data = {**save, "kind": "save", "token": self.token}
        while True:
            number = self._last + 1
            self._check_beyond(number)
            try:
                created = self._create(number, data)
            except BaseException:  # also an interrupt, after which the program may save again
                self._doubtful = number  # the entry may exist or not
                raise
            if not created:
                existing = self._read(number)
                ours = existing is not None and existing.token == self.token and existing.data["kind"] == "save"
                if not ours and not (existing is None and number == self._doubtful):
                    raise self._stale(number)
                if existing is None or existing.state != data["state"]:
                    self._last = number  # the remains of a failed entry, whose number stays used
                    continue
            self._last = number  # also if a client retried and met its own first try
            return LogEntry(number, data)

    def _check_beyond(self, number: int) -> None:
        """Refuse to reuse the number of a failed entry that was written after all and then removed by a successor."""
        higher = [each for each in self._numbers() if each > number] if number == self._doubtful else []
        if higher:
            raise self._stale(min(higher))

    def check(self) -> None:
        """Raise :class:`StaleWriter` if :meth:`commit` surely would."""
        number = self._last + 1
        if number != self._doubtful and self._store.read(_name(number)) is not None:
            raise self._stale(number)

    def expect(self, token: int, claim: Mapping[str, Any]) -> None:
        """Raise :class:`PlaceError` if another process's claim for this attempt is not visible here."""
        deadline = time.monotonic() + _SHARED_TIMEOUT
        while (entry := self._read(token)) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if entry is None or any(entry.data.get(key) != value for key, value in claim.items()):
            raise PlaceError(
                f"{self._store.place}: the claim of rank 0 on {claim['who']['host']} is not seen on {os.uname().nodename}: name "
                "a folder on a volume that all nodes mount, or an object store"
            )

    def prune(self, count: int) -> None:
        """Remove all saves except the newest ``count``, and every state file without a save."""
        names = self._store.names()
        saves = list(self._chain(_numbers_in(names)))
        for save in reversed(saves[count:]):  # oldest first, so that the newest always remain
            self._store.remove(_name(save.number))  # before its state file, so that entries never name a missing file
            self._cached.pop(save.number, None)
        kept = {save.state for save in saves[:count]}
        kept.update(name for save in saves[:count] for name, _, _ in save.shards)
        for name in names:
            if name.startswith("state-") and name not in kept and _claimed_at(name) <= self.token:
                self._store.remove(name)

    def _numbers(self) -> list[int]:
        return _numbers_in(self._store.names())

    def _chain(self, numbers: list[int]) -> Iterator[LogEntry]:
        """Iterate over saves, newest first: those after their own attempt's claim, then those from that claim's base on."""
        pending: list[LogEntry] = []
        below = numbers[0] + 1 if numbers else 0
        for number in numbers:
            if number >= below:
                continue
            entry = self._read(number)
            if entry is None:
                continue
            if entry.data["kind"] == "save":
                pending.append(entry)
                continue
            yield from (save for save in pending if save.token == number)
            base = entry.data["base"]
            if base not in numbers:
                return  # no base, or it was removed with all older saves
            pending, below = [], base + 1

    def _read(self, number: int) -> LogEntry | None:
        """Return an entry; ``None`` if it is truncated or was removed meanwhile. A complete entry never changes."""
        if number in self._cached:
            return self._cached[number]
        text = self._store.read(_name(number))
        if text is None or len(text) < 10 or text[:9] != b"%08x " % zlib.crc32(text[9:]):
            return None
        import json

        try:
            data = json.loads(text[9:])
            is_newer = dict(data)["format"] > FORMAT
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        if is_newer:
            raise OtherProgram(
                f"{self._store.place}: written by a newer Spotwright (format {data['format']}, this one reads up to "
                f"{FORMAT}): install that version, or name another place"
            )
        return self._cached.setdefault(number, LogEntry(number, data)) if _is_entry(data) else None

    def _create(self, number: int, data: Mapping[str, Any]) -> bool:
        import json

        body = json.dumps({**data, "format": FORMAT if "shards" in data else 1}).encode()
        return self._store.create(_name(number), b"%08x " % zlib.crc32(body) + body)

    def _stale(self, number: int) -> StaleWriter:
        deadline = time.monotonic() + _EMPTY_TIMEOUT
        while (entry := self._read(number)) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        who = entry.data.get("who", {}) if entry else {}
        writer = ", ".join(f"{key} {value}" for key, value in who.items() if value) or "its claim cannot be read"
        return StaleWriter(
            f"{self._store.place}: another attempt took over ({writer}); this one must stop, and the other repeats its work"
            " since its last save"
        )


def describe_writer() -> dict[str, Any]:
    """Return the description of this attempt in its claim, for people."""
    environment = os.environ
    return {
        "run": environment.get("SPOTWRIGHT_RUN", ""),
        "task": environment.get("SPOTWRIGHT_TASK", ""),
        "attempt": environment.get("SPOTWRIGHT_ATTEMPT", ""),
        "pod": environment.get("SPOTWRIGHT_POD_UID", ""),
        "host": os.uname().nodename,
        "process": os.getpid(),
    }


def _is_entry(data: Any) -> bool:
    """Whether data has the entry fields that the log reads."""
    if data.get("kind") == "claim":
        return isinstance(data.get("base", ""), int | None)
    shards = data.get("shards", [])
    if data.get("kind") != "save" or not _is_name(data.get("state")) or not isinstance(data.get("token"), int):
        return False
    return isinstance(shards, list) and len(shards) <= _MOST_SHARDS and all(map(_is_shard, shards))


def _is_name(name: Any) -> bool:
    """Whether this may name a state file or a shard: these are beside the entry, so their names contain no folder."""
    return isinstance(name, str) and is_plain(name) and "/" not in name


def _is_shard(shard: Any) -> bool:
    return (
        isinstance(shard, list)
        and len(shard) == 3
        and _is_name(shard[0])
        and all(type(each) is int for each in shard[1:])
    )


def _name(number: int) -> str:
    return f"entry-{number:010d}"


def _numbers_in(names: list[str]) -> list[int]:
    """Return the numbers of the entries, highest first."""
    numbers = (name.removeprefix("entry-") for name in names if name.startswith("entry-"))
    return sorted((int(number) for number in numbers if number.isascii() and number.isdecimal()), reverse=True)


def _claimed_at(name: str) -> int:
    """Return the token in a state file's name; without one, a number above all tokens, so that the file stays."""
    token = name.split("-")[1]
    return int(token) if token.isascii() and token.isdecimal() else 1 << 62
