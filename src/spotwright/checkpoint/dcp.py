"""Sharded checkpoints: storage for ``torch.distributed.checkpoint`` (DCP) at the places and with the guarantees of this package.

::

    from spotwright.checkpoint.dcp import StoreReader, StoreWriter

    reader = StoreReader()
    if reader.has_save():
        dcp.load(state, storage_reader=reader)
    dcp.save(state, storage_writer=StoreWriter())  # or dcp.async_save

Every rank writes one shard, a separate state file, and rank 0 commits all shards with one log entry: a save is whole or absent,
whenever a rank is killed. Rank 0 claims the place at its first save; its token is in the name of each shard, and a save of an
older attempt is refused with :class:`StaleWriter` (inside DCP's ``CheckpointException``). The entry's state file is the layout
(:mod:`spotwright.checkpoint.shard_layout`). Metadata and non-tensor values are stored as JSON with the bytes of arrays beside
it (:mod:`spotwright.checkpoint.encoding`) instead of DCP's pickles, so loading never unpickles.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

try:
    from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.planner import (
        LoadItemType,
        LoadPlan,
        LoadPlanner,
        ReadItem,
        SavePlan,
        SavePlanner,
        WriteItem,
        WriteItemType,
    )
    from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
    from torch.futures import Future
except ImportError as error:
    raise ImportError(
        f"spotwright.checkpoint.dcp needs PyTorch with torch.distributed ({error}): pip install torch"
    ) from error

from spotwright.checkpoint.encoding import decode
from spotwright.checkpoint.errors import BrokenCheckpoint, NotLoaded, UnstorableState
from spotwright.checkpoint.place_owners import in_use
from spotwright.checkpoint.save_log import LogEntry
from spotwright.checkpoint.save_manager import SaveManager
from spotwright.checkpoint.shard_layout import Layout, Piece, fill, layout_of, value_of, write_shard
from spotwright.checkpoint.store import open_store
from spotwright.checkpoint.torch import unpack

__all__ = ["StoreReader", "StoreWriter", "reader_of"]


class _Attempt:
    """This process's state for a place: its saves, whether it loaded or saved one, and its claim."""

    def __init__(self, manager: SaveManager, *, loaded: bool = False) -> None:
        self.manager, self.loaded, self.saved = manager, loaded, False
        self.began = time.monotonic()
        self._reader: weakref.ref[object] | None = None

    def begin(self, reader: object, *, again: bool) -> None:
        """Start a training with its reader. Raises :class:`PlaceError` if another training of this process has started here."""
        is_second = self._reader is not None and self._reader() is not reader and (self.loaded or self.saved)
        if is_second and not again:
            raise in_use(self.manager.store.place, _OWN_PLACE)
        self._reader = weakref.ref(reader)


_OWN_PLACE = (
    'give each training its own place, such as StoreReader(name="fold1") and StoreWriter(name="fold1"). To read again in the '
    "same training, use StoreReader(again=True)"
)
_claiming = threading.Lock()
_attempts: dict[tuple[int, str], _Attempt] = {}  # by process and place: all writers of a process are one attempt


def _attempt_at(
    place: str | os.PathLike[str] | None, name: str, program: str, keep: int, options: Mapping[str, Any] | None
) -> _Attempt:
    store = open_store(place, options, name=name)
    key = (os.getpid(), store.place)
    if key not in _attempts:
        _attempts[key] = _Attempt(SaveManager(store, program=program, keep=keep, allow_pickle=False))
    return _attempts[key]


@dataclass(frozen=True)
class _Task:
    """Rank 0's message to a rank with its plan: the rank's number, the save's number, and the claim for its writes."""

    rank: int
    count: int
    token: int
    claim: Mapping[str, Any]


class StoreWriter(StorageWriter):
    """Saves shards at a place; the arguments are as for :class:`spotwright.checkpoint.Checkpoint`.

    Every node must reach the place: a volume that all nodes mount, or an object store. All writers of a process for one place
    are one attempt, with one claim.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | None = None,
        *,
        name: str = "",
        program: str = "",
        keep: int = 2,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: at least the newest checkpoint must be kept")
        self._place, self._settings = place, (name, program, keep, storage_options)
        self.attempt = _attempt_at(place, *self._settings)
        self._began: dict[int, float] = {}  # by thread: each save, as in async_save, has one
        self._counts: dict[int, int] = {}  # the same

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Save at another place from now on, if given."""
        if checkpoint_id is not None:
            self._place, self.attempt = checkpoint_id, _attempt_at(checkpoint_id, *self._settings)

    def set_up_storage_writer(
        self, is_coordinator: bool, *args: Any, use_collectives: bool = True, **kwargs: Any
    ) -> None:
        """See DCP's ``StorageWriter``."""
        if not use_collectives:
            raise ValueError("StoreWriter commits the shards of all ranks together: leave out use_collectives=False")
        self._began[threading.get_ident()] = time.monotonic()

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """See DCP's ``StorageWriter``."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Claim the place before the first save, and refuse a late save before anything is written."""
        manager = self.attempt.manager
        with _claiming:  # concurrent saves would each claim, and one would be a late writer
            self._claim(manager)
            count = manager.begin_shards()
        self._counts[threading.get_ident()] = count
        token, claim = manager.log.token, manager.log.claim.data if manager.log.claim else {}
        tasks = [_Task(rank, count, token, claim) for rank in range(len(plans))]
        return [replace(plan, storage_data=task) for plan, task in zip(plans, tasks, strict=True)]

    def _claim(self, manager: SaveManager) -> None:
        if manager.log.claim is None:
            if not self.attempt.loaded and not manager.is_empty():
                raise NotLoaded(
                    f"{manager.store.place}: holds a checkpoint that was not loaded, and this save would replace it: load it "
                    "first with dcp.load(state, storage_reader=StoreReader())"
                )
            manager.claim(None)
            self.attempt.began = time.monotonic()

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the shard of this rank."""
        return _done(self._write(plan.items, plan.storage_data, planner) if plan.items else [])

    def _write(self, items: list[WriteItem], task: _Task, planner: SavePlanner) -> list[WriteResult]:
        manager = self.attempt.manager
        manager.log.expect(task.token, task.claim)
        self.attempt.saved = True
        values = {item.index.fqn: value_of(item, planner) for item in items if item.type == WriteItemType.BYTE_IO}
        tensors = (
            (item.index, item.index.fqn, planner.resolve_data(item))
            for item in items
            if item.type != WriteItemType.BYTE_IO
        )
        shard, firsts = write_shard(manager, task.token, task.count, task.rank, values, tensors)
        return [
            WriteResult(item.index, item.tensor_storage_size() or 0, (shard, firsts.get(item.index, 0)))
            for item in items
        ]

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Commit the save. Raises :class:`StaleWriter` if another attempt took over."""
        pieces: dict[Any, Piece] = {
            (each.index.fqn, each.index.offset): each.storage_data for result in results for each in result
        }
        shards = list(dict.fromkeys(shard for shard, _ in pieces.values()))
        began, count = self._began.pop(threading.get_ident()), self._counts.pop(threading.get_ident())
        facts = {"finished": False, "age": began - self.attempt.began}
        layout = layout_of(metadata, pieces, shards)
        self.attempt.manager.commit_shards(count, layout, shards, facts, began)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """See DCP's ``StorageWriter``."""
        return True

    def __reduce__(self) -> Any:
        """Pass the task to an asynchronous save's process, which is a separate attempt."""
        self.attempt.saved = True
        return _writer_at, (self._place, self._settings, self.attempt.loaded)


def _writer_at(place: str | os.PathLike[str] | None, settings: tuple[str, str, int, Any], loaded: bool) -> StoreWriter:
    name, program, keep, options = settings
    writer = StoreWriter(place, name=name, program=program, keep=keep, storage_options=options)
    writer.attempt.loaded |= loaded
    return writer


def reader_of(manager: SaveManager, entry: LogEntry) -> StorageReader:
    """Return a reader of one save of a place."""
    return _Reader(_Attempt(manager), entry)


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


class _Reader(StorageReader):
    """Reads an attempt's newest save, or the one of an entry."""

    def __init__(self, attempt: _Attempt, only: LogEntry | None = None) -> None:
        self.attempt, self._only = attempt, only
        self._entry: LogEntry
        self._layout: Layout

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """See DCP's ``StorageReader``."""

    def read_metadata(self) -> Metadata:
        """Return the layout of the newest save, in DCP's terms."""
        manager = self.attempt.manager
        entry = self._only or next(manager.log.saves(), None)
        if entry is None:
            raise BrokenCheckpoint(f"{manager.store.place}: no save here yet; ask has_save() first")
        self._open(entry)
        return self._layout.metadata

    def _open(self, entry: LogEntry) -> None:
        with self._naming_place():
            layout = Layout(entry.state, self.attempt.manager.read_layout(entry), len(entry.shards))
        self._entry, self._layout = entry, layout

    @contextmanager
    def _naming_place(self) -> Iterator[None]:
        """Add the place to the error about an incomplete file."""
        try:
            yield
        except BrokenCheckpoint as error:
            raise BrokenCheckpoint(f"{self.attempt.manager.store.place}: {error}") from error

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """See DCP's ``StorageReader``."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Report the save that this rank has found."""
        return replace(plan, storage_data=self._entry.number)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Let all ranks load the same save: an older attempt may commit another one meanwhile."""
        agreed = min(plan.storage_data for plan in plans)
        return [replace(plan, storage_data=agreed) for plan in plans]

    def _agree(self, plan: LoadPlan, planner: LoadPlanner) -> LoadPlan:
        """Return the plan for the agreed save, if this rank has found another one."""
        if plan.storage_data == self._entry.number:
            return plan
        manager = self.attempt.manager
        entry = next((entry for entry in manager.log.saves() if entry.number == plan.storage_data), None)
        if entry is None or not isinstance(planner, DefaultLoadPlanner):
            raise BrokenCheckpoint(f"{manager.store.place}: another process saves here; load again")
        self._open(entry)
        planner.metadata = self._layout.metadata
        return planner.create_local_plan()

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read this rank's items."""
        plan = self._agree(plan, planner)
        by_shard: dict[int, list[ReadItem]] = {}
        for item in plan.items:
            name, offsets = item.storage_index.fqn, item.storage_index.offset
            is_value = item.type == LoadItemType.BYTE_IO
            shard = self._layout.values[name] if is_value else self._layout.chunk(name, offsets)[0]
            by_shard.setdefault(shard, []).append(item)
        for shard, items in sorted(by_shard.items()):
            with self._naming_place():
                self._read_shard(shard, items, planner)
        self.attempt.loaded = True
        return _done(None)

    def _read_shard(self, shard: int, items: list[ReadItem], planner: LoadPlanner) -> None:
        reader = self.attempt.manager.open(*self._entry.shards[shard])
        try:
            values: Any = None
            for item in items:
                name, offsets = item.storage_index.fqn, item.storage_index.offset
                if item.type == LoadItemType.BYTE_IO:
                    if values is None:
                        values = decode(reader, lambda _: ())
                    _give(planner, item, unpack(values[name]))
                else:
                    target = planner.resolve_tensor(item).detach()
                    fill(reader, self._layout.chunk(name, offsets), item.storage_offsets, target)
                    planner.commit_tensor(item, target)
        finally:
            reader.close()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """See DCP's ``StorageReader``."""
        return True


class StoreReader(_Reader):
    """Loads the newest save of a place; the arguments are as for :class:`StoreWriter`.

    A process reads a place with one reader, to resume its training. A second reader raises :class:`PlaceError` after the first
    has loaded or a save was made, because it would be another training's; ``again`` reads in the same training.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | None = None,
        *,
        name: str = "",
        again: bool = False,
        program: str = "",
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._settings, self._again = (name, program, 2, storage_options), again
        super().__init__(_attempt_at(place, *self._settings))

    def read_metadata(self) -> Metadata:
        """Return the layout of the newest save, in DCP's terms."""
        self.attempt.begin(self, again=self._again)
        return super().read_metadata()

    def has_save(self) -> bool:
        """True if the place has a save."""
        self.attempt.begin(self, again=self._again)
        return not self.attempt.manager.is_empty()

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Load from another place from now on, if given."""
        if checkpoint_id is not None:
            self.attempt = _attempt_at(checkpoint_id, *self._settings)


def _give(planner: LoadPlanner, item: ReadItem, value: Any) -> None:
    """Put a value into the state of DCP's planner, whose ``load_bytes`` would unpickle it."""
    name = item.dest_index.fqn
    if not isinstance(planner, DefaultLoadPlanner):
        raise UnstorableState(f"{name}: not a tensor, and {type(planner).__name__} takes its bytes only")
    if planner.flatten_state_dict:
        from torch.distributed.checkpoint._traverse import set_element

        set_element(planner.original_state_dict, planner.mappings[name], value)
    else:
        planner.state_dict[name] = value
