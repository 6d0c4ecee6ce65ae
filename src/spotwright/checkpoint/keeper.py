"""Puts the parts together: a state goes into a state file and an entry of the log, and comes back from the newest whole one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from spotwright.checkpoint import container
from spotwright.checkpoint.decoding import decode
from spotwright.checkpoint.encoding import encode
from spotwright.checkpoint.errors import BrokenCheckpoint, CheckpointError, OtherProgram, PlaceError, StaleWriter
from spotwright.checkpoint.interval import Hazard
from spotwright.checkpoint.log import Entry, Log, who_am_i
from spotwright.checkpoint.store import Store

__all__ = ["Keeper", "Loaded"]

_TRIES = 3  # a reader beside a writer may find a save that has just been replaced


class Loaded:
    """A state with what was saved beside it. ``passed_over`` says why newer saves were not taken, one line each."""

    __slots__ = ("entry", "passed_over", "state")

    def __init__(self, state: Any, entry: Entry, passed_over: tuple[str, ...]) -> None:
        self.state, self.entry, self.passed_over = state, entry, passed_over


class Keeper:
    """The saves of one place, for one attempt. ``program`` must be that of the saves which are there, where both name one."""

    def __init__(self, store: Store, *, program: str, keep: int, allow_pickle: bool) -> None:
        self.store, self.log = store, Log(store)
        self._program, self._keep, self._allow_pickle = program, keep, allow_pickle
        self._count = 0

    def claim(self, hazard: float | None) -> Hazard:
        """Begin to write. What earlier attempts have seen of interruptions comes back, and is handed on in the claim.

        Raises :class:`OtherProgram` before anything is claimed: the other program may well be running.
        """
        earlier = self.log.latest_claim()
        if earlier is not None:
            self._check(earlier)
        taken, lived = earlier.data["past"] if earlier else (0, 0.0)
        known = Hazard(hazard)
        last = next(self.log.saves(), None)
        if last is not None and earlier is not None and last.token == earlier.number:
            lived += known.exposure(last.data["age"])
            taken += not last.data["finished"]
        past = [taken, lived]
        self.log.take_over({"who": who_am_i(), "program": self._program, "past": past, "at": time.time()})
        self.log.keep(self._keep)
        return Hazard(hazard, taken, lived)

    def is_empty(self) -> bool:
        """Whether nothing was ever saved here."""
        return next(self.log.saves(), None) is None

    def save(self, state: Any, facts: Mapping[str, Any]) -> Entry:
        """Save a state; ``facts`` are kept in its entry, with what the save took.

        Raises :class:`StaleWriter` where another attempt has begun, if possible before anything is written.
        """
        began = time.monotonic()
        self.log.check()
        tree, blobs = encode(state, allow_pickle=self._allow_pickle)
        self._count += 1
        name = f"state-{self.log.token:010d}-{self._count:06d}-{os.urandom(4).hex()}"
        with self.store.write(name) as file:
            written = container.write(file, tree, blobs)
        own = {"state": name, "program": self._program, "seconds": time.monotonic() - began, "at": time.time()}
        try:
            entry = self.log.commit({**facts, **written, **own})
        except StaleWriter:
            self.store.remove(name)
            raise
        except CheckpointError:
            with suppress(CheckpointError):  # the room it took; what matters is the error above
                self.log.keep(self._keep)
            raise
        self.log.keep(self._keep)
        return entry

    def load(self) -> Loaded | None:
        """The newest whole state; ``None`` where nothing was ever saved.

        Raises :class:`BrokenCheckpoint` where something was, and none of it is whole.
        """
        wrong: list[str] = []
        for _ in range(_TRIES):
            wrong = []
            for entry in self.log.saves():
                self._check(entry)
                try:
                    return Loaded(self._read(entry), entry, tuple(wrong))
                except BrokenCheckpoint as error:
                    wrong.append(str(error))
            if not wrong:
                return None
        raise BrokenCheckpoint(
            f"{self.store.place}: none of the checkpoints is whole: {'; '.join(wrong)}. To begin again without them, "
            "remove the place or name another one"
        )

    def _check(self, entry: Entry) -> None:
        theirs = entry.data["program"]
        if theirs and self._program and theirs != self._program:
            raise OtherProgram(
                f"{self.store.place}: belongs to {theirs!r}, and this is {self._program!r}: name another "
                "place, or remove this one"
            )

    def _read(self, entry: Entry) -> Any:
        reader = self._open(entry)
        try:
            return decode(reader, lambda index: self._later(entry, index), allow_pickle=self._allow_pickle)
        finally:
            reader.close()

    def _later(self, entry: Entry, index: int) -> Iterator[bytes]:
        """The bytes of a file in a state that was loaded earlier."""
        reader = self._open(entry)
        try:
            yield from reader.stream(index)
        finally:
            reader.close()

    def _open(self, entry: Entry) -> container.Reader:
        file = self.store.open(entry.state)
        if file is None:
            raise BrokenCheckpoint(f"{entry.state} is not there any more")
        try:
            return container.Reader(file, entry.state, entry.data["size"], entry.data["sum"])
        except OSError as error:
            file.close()
            raise PlaceError(f"{self.store.place}: {entry.state} cannot be read ({error})") from error
        except BaseException:
            file.close()
            raise
