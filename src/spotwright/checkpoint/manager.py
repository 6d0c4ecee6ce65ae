"""Saves and loads states: a save is a state file and its entry in the log, a load reads the newest whole save."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from spotwright.checkpoint.errors import BrokenCheckpoint, CheckpointError, OtherProgram, PlaceError, StaleWriter
from spotwright.checkpoint.interval import Hazard
from spotwright.checkpoint.state import state_file
from spotwright.checkpoint.state.decoding import decode
from spotwright.checkpoint.state.encoding import encode
from spotwright.checkpoint.storage.save_log import LogEntry, SaveLog, describe_writer
from spotwright.checkpoint.storage.store import Store

__all__ = ["Loaded", "SaveManager"]

_TRIES = 3  # a writer may have replaced a save before the reader opens it


class Loaded:
    """A loaded state with its entry. ``passed_over`` has a line for each newer save that is not whole."""

    __slots__ = ("entry", "passed_over", "state")

    def __init__(self, state: Any, entry: LogEntry, passed_over: tuple[str, ...]) -> None:
        self.state, self.entry, self.passed_over = state, entry, passed_over


class SaveManager:
    """The saves of one place, for one attempt. ``program`` must be that of the existing saves, if both are named."""

    def __init__(self, store: Store, *, program: str, keep: int, allow_pickle: bool) -> None:
        self.store, self.log = store, SaveLog(store)
        self._program, self._keep, self._allow_pickle = program, keep, allow_pickle
        self._count = 0

    def claim(self, hazard: float | None) -> Hazard:
        """Become the writer of the place. Returns the rate of interruptions with the counts of earlier attempts.

        ``hazard`` is the pool's ``taken_every``. The counts are passed on in the claim. Raises :class:`OtherProgram` before it
        claims anything, because the other program may be running.
        """
        earlier = self.log.latest_claim()
        if earlier is not None:
            self._check(earlier)
        taken, lived = earlier.data["past"] if earlier else (0, 0.0)
        prior = Hazard(hazard)
        last = next(self.log.saves(), None)
        if last is not None and earlier is not None and last.token == earlier.number:
            lived += prior.exposure(last.data["age"])
            taken += not last.data["finished"]
        past = [taken, lived]
        self.log.claim_token({"who": describe_writer(), "program": self._program, "past": past, "at": time.time()})
        self.log.prune(self._keep)
        return Hazard(hazard, taken, lived)

    def is_empty(self) -> bool:
        """True if the place has no save."""
        return next(self.log.saves(), None) is None

    def save(self, state: Any, facts: Mapping[str, Any]) -> LogEntry:
        """Save a state. ``facts`` go into its entry, with the duration of the save.

        Raises :class:`StaleWriter` if another attempt has taken over, where possible before anything is written.
        """
        began = time.monotonic()
        self.log.check()
        tree, blobs = encode(state, allow_pickle=self._allow_pickle)
        self._count += 1
        name = f"state-{self.log.token:010d}-{self._count:06d}-{os.urandom(4).hex()}"
        with self.store.write(name) as file:
            written = state_file.write(file, tree, blobs)
        own = {"state": name, "program": self._program, "seconds": time.monotonic() - began, "at": time.time()}
        try:
            entry = self.log.commit({**facts, **written, **own})
        except StaleWriter:
            self.store.remove(name)
            raise
        except CheckpointError:
            with suppress(CheckpointError):  # frees the space of the failed save; the error above matters
                self.log.prune(self._keep)
            raise
        self.log.prune(self._keep)
        return entry

    def load(self) -> Loaded | None:
        """Return the newest whole state; ``None`` if the place has no save.

        Raises :class:`BrokenCheckpoint` if it has saves, and none of them is whole.
        """
        broken: list[str] = []
        for _ in range(_TRIES):
            broken = []
            for entry in self.log.saves():
                self._check(entry)
                try:
                    return Loaded(self._read(entry), entry, tuple(broken))
                except BrokenCheckpoint as error:
                    broken.append(str(error))
            if not broken:
                return None
        raise BrokenCheckpoint(
            f"{self.store.place}: none of the checkpoints is whole: {'; '.join(broken)}. To start without them, "
            "remove the place or name another one"
        )

    def _check(self, entry: LogEntry) -> None:
        theirs = entry.data["program"]
        if theirs and self._program and theirs != self._program:
            raise OtherProgram(
                f"{self.store.place}: belongs to {theirs!r}, and this is {self._program!r}: name another "
                "place, or remove this one"
            )

    def _read(self, entry: LogEntry) -> Any:
        reader = self._open(entry)
        try:
            return decode(reader, lambda index: self._stream(entry, index), allow_pickle=self._allow_pickle)
        finally:
            reader.close()

    def _stream(self, entry: LogEntry, index: int) -> Iterator[bytes]:
        """The bytes of a file in an earlier loaded state."""
        reader = self._open(entry)
        try:
            yield from reader.stream(index)
        finally:
            reader.close()

    def _open(self, entry: LogEntry) -> state_file.Reader:
        file = self.store.open(entry.state)
        if file is None:
            raise BrokenCheckpoint(f"{entry.state} is not there any more")
        try:
            return state_file.Reader(file, entry.state, entry.data["size"], entry.data["sum"])
        except OSError as error:
            file.close()
            raise PlaceError(f"{self.store.place}: {entry.state} cannot be read ({error})") from error
        except BaseException:
            file.close()
            raise
