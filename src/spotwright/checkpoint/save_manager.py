"""The saves of one place, for one attempt: claim the place, save a state, load the newest whole one.

A save is a state file and its entry in the log. The entry of a sharded save also names its shards; its state file is their
layout (:mod:`spotwright.checkpoint.dcp`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from spotwright.checkpoint import state_file
from spotwright.checkpoint.encoding import decode, encode
from spotwright.checkpoint.errors import (
    BrokenCheckpoint,
    CheckpointError,
    OtherProgram,
    PlaceError,
    SaveFailed,
    StaleWriter,
    UnstorableState,
)
from spotwright.checkpoint.place_owners import PlaceOwner
from spotwright.checkpoint.save_log import LogEntry, SaveLog, describe_writer
from spotwright.checkpoint.save_policy import Hazard
from spotwright.checkpoint.store import Store

__all__ = ["Loaded", "SaveManager", "Shard", "new_name"]


Shard = tuple[str, int, int]
"""A shard: its name, its size, and the checksum of its table."""

_LARGEST_LAYOUT = 64 << 20  # bytes
_TRIES = 3  # a writer may have replaced a save before the reader opens it


class Loaded:
    """A loaded state with its entry. ``passed_over`` has a line for each newer save that is not whole."""

    __slots__ = ("entry", "passed_over", "state")

    def __init__(self, state: Any, entry: LogEntry, passed_over: tuple[str, ...]) -> None:
        self.state, self.entry, self.passed_over = state, entry, passed_over


class SaveManager:
    """The saves of one place, for one attempt. ``program`` must equal the existing saves' program, if both are named.

    ``owner`` is the training of the saves; ``None``: any training of this process. Threads may save concurrently: each
    operation that reads and then changes the place waits for the one under way. Otherwise a thread would take an entry of
    another thread for a successor's, or remove files that the other is about to commit.
    """

    def __init__(
        self, store: Store, *, program: str, keep: int, allow_pickle: bool, owner: PlaceOwner | None = None
    ) -> None:
        self.store, self.log, self._owner = store, SaveLog(store), owner
        self._program, self._keep, self._allow_pickle = program, keep, allow_pickle
        self._count = 0
        self._alone = threading.RLock()  # a signal handler of the program may save during its thread's save

    def claim(self, hazard: float | None, *, ranks: int = 0) -> Hazard:
        """Become the writer of the place. Returns the rate of interruptions with the counts of earlier attempts.

        ``hazard`` is the pool's ``interrupt_every``. The counts are passed on in the claim. ``ranks`` is as in
        :meth:`SaveLog.claim_token`. Raises :class:`OtherProgram` before the claim, because the other program may be running,
        and :class:`PlaceError` if another training of this process has the place.
        """
        earlier = self.log.latest_claim()
        if earlier is not None:
            self.check_program(earlier)
        taken, lived = (0, 0.0)
        prior = Hazard(hazard)
        last = next(self.log.saves(), None)
        with suppress(KeyError, TypeError, ValueError):  # a foreign entry: the past is unknown
            taken, lived = earlier.data["past"] if earlier else (0, 0.0)
            if last is not None and earlier is not None and last.token == earlier.number:
                lived += prior.exposure(last.data["age"])
                taken += not last.data["finished"]
        past = [taken, lived]
        about = {"who": describe_writer(), "program": self._program, "past": past, "at": time.time()}
        if self._owner is not None:
            self._owner.check(self.store.place, is_claimed=earlier is not None)
        self.log.claim_token(about, ranks=ranks)
        if self._owner is not None:
            self._owner.set(self.store.place)
        self.log.prune(self._keep)
        return Hazard(hazard, taken, lived)

    def is_empty(self) -> bool:
        """True if the place has no save."""
        return next(self.log.saves(), None) is None

    def save(self, state: Any, facts: Mapping[str, Any]) -> LogEntry:
        """Save a state. ``facts`` go into its entry, with the duration of the save.

        Raises :class:`StaleWriter` if another attempt took over, if possible before writing.
        """
        began = time.monotonic()
        with self._alone:
            self.log.check()
            self._count += 1
            return self._commit(state, facts, began)

    def begin_shards(self) -> int:
        """Begin a sharded save, and return its number in this attempt. Files of failed or abandoned saves are removed.

        Waits for a commit under way in another thread. Raises :class:`StaleWriter` if another attempt took over.
        """
        with self._alone:
            self.log.check()
            self._count += 1
            self.log.prune(self._keep)
            return self._count

    def commit_shards(
        self, count: int, layout: Any, shards: list[Shard], facts: Mapping[str, Any], began: float
    ) -> LogEntry:
        """Commit a sharded save with durable shards, as :meth:`save` does a state.

        ``began`` is its start on the monotonic clock.

        Raises :class:`SaveFailed` if a later save has begun and so removed the shards, and :class:`UnstorableState` for a
        layout too large to be loaded.
        """
        with self._alone:
            if count != self._count:
                raise SaveFailed(
                    f"{self.store.place}: a later save began before this one was committed: wait for the future of"
                    " async_save() before the next save"
                )
            try:
                self.log.check()
                return self._commit(layout, {**facts, "shards": [list(shard) for shard in shards]}, began)
            except StaleWriter:
                for name, _, _ in shards:
                    self.store.remove(name)
                raise

    def _commit(self, state: Any, facts: Mapping[str, Any], began: float) -> LogEntry:
        tree, blobs = encode(state, allow_pickle=self._allow_pickle)
        name = new_name(self.log.token, self._count)
        with self.store.write(name) as file:
            written = state_file.write(file, tree, blobs)
        own = {"state": name, "program": self._program, "seconds": time.monotonic() - began, "at": time.time()}
        if "shards" in facts and written["size"] > _LARGEST_LAYOUT:
            self.store.remove(name)
            raise UnstorableState(
                f"{self.store.place}: the layout of this save has {written['size']} bytes, and one of more than "
                f"{_LARGEST_LAYOUT} cannot be loaded: save with fewer ranks, or fewer and larger tensors"
            )
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
        """Return the newest complete state; ``None`` if the place has no save.

        Raises :class:`BrokenCheckpoint` if all existing saves are incomplete.
        """
        broken: list[str] = []
        for _ in range(_TRIES):
            broken = []
            for entry in self.log.saves():
                try:
                    return Loaded(self.read_state(entry), entry, tuple(broken))
                except BrokenCheckpoint as error:
                    broken.append(str(error))
            if not broken:
                return None
        raise BrokenCheckpoint(
            f"{self.store.place}: every checkpoint is incomplete: {'; '.join(broken)}. To start without them, "
            "remove the place or name another one"
        )

    def check_program(self, entry: LogEntry) -> None:
        """Raise :class:`OtherProgram` for an entry of another program."""
        theirs = entry.data.get("program", "")
        if theirs and self._program and theirs != self._program:
            raise OtherProgram(
                f"{self.store.place}: belongs to {theirs!r}, and this is {self._program!r}: name another "
                "place, or remove this one"
            )

    def read_state(self, entry: LogEntry) -> Any:
        """Return the state of a single-process save. Raises :class:`OtherProgram` for a sharded or another program's save."""
        self.check_program(entry)
        if entry.is_sharded:
            raise OtherProgram(
                f"{self.store.place}: holds the shards of several ranks: load it with Checkpoint(group=...), or with "
                "spotwright.checkpoint.dcp.StoreReader"
            )
        return self.read(entry)

    def read_layout(self, entry: LogEntry) -> Any:
        """Return the layout of a sharded save. Raises :class:`OtherProgram` for a single-process or another program's save."""
        self.check_program(entry)
        if not entry.is_sharded:
            raise OtherProgram(
                f"{self.store.place}: holds the state of one process: load it with spotwright.checkpoint.Checkpoint"
            )
        return self.read(entry)

    def read(self, entry: LogEntry) -> Any:
        """Return the content of an entry's state file: a state, or the layout of shards."""
        reader = self._open(entry)
        try:
            return decode(reader, lambda index: self._stream(entry, index), allow_pickle=self._allow_pickle)
        finally:
            reader.close()

    def _stream(self, entry: LogEntry, index: int) -> Iterator[bytes]:
        """The bytes of a file in a previously loaded state."""
        reader = self._open(entry)
        try:
            yield from reader.stream(index)
        finally:
            reader.close()

    def _open(self, entry: LogEntry) -> state_file.Reader:
        try:
            size, total = int(entry.data["size"]), int(entry.data["sum"])
        except (KeyError, TypeError, ValueError) as error:
            raise BrokenCheckpoint(f"{entry.state}: its entry is malformed ({error!r})") from error
        if entry.is_sharded and size > _LARGEST_LAYOUT:
            raise BrokenCheckpoint(f"{entry.state}: a layout of {size} bytes is larger than {_LARGEST_LAYOUT}")
        return self.open(entry.state, size, total)

    def open(self, name: str, size: int, total: int) -> state_file.Reader:
        """Open a state file or a shard, which must have this size and checksum of its table."""
        file = self.store.open(name)
        if file is None:
            raise BrokenCheckpoint(f"{name} no longer exists")
        try:
            return state_file.Reader(file, name, size, total)
        except OSError as error:
            file.close()
            raise PlaceError(f"{self.store.place}: {name} cannot be read ({error})") from error
        except BaseException:
            file.close()
            raise


def new_name(token: int, count: int) -> str:
    """Return a new name for the state file of a save, the prefix of its shards' names."""
    return f"state-{token:010d}-{count:06d}-{os.urandom(4).hex()}"
