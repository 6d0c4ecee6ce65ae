"""The saves of a training with several ranks, for ``Checkpoint(group=...)``: they are one attempt, and save the same step.

Rank 0 claims the place. It saves a state that every rank has (``DistributedDataParallel``) alone; all ranks save a state with
``DTensor`` values in shards. They agree on the step (:mod:`.save_coordinator`). If ranks are dead, one survivor with the whole
state, or one replica of a hybrid-sharded state, claims the place again and saves.

A merely due save copies the state at the agreed step, and a thread of each rank writes the copy. The next save waits for its
end.
"""

from __future__ import annotations

import base64
import functools
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

import torch
import torch.distributed as dist

from spotwright.checkpoint import errors
from spotwright.checkpoint.errors import BrokenCheckpoint, CheckpointError, PlaceError, SaveFailed, StaleWriter
from spotwright.checkpoint.save_coordinator import SaveCoordinator
from spotwright.checkpoint.save_log import LogEntry
from spotwright.checkpoint.save_manager import Loaded, SaveManager, Shard
from spotwright.checkpoint.save_policy import Hazard
from spotwright.checkpoint.shard_layout import Layout
from spotwright.checkpoint.sharded_state import RankShard, copied, holds_files, layout_of_shards, load_sharded
from spotwright.checkpoint.shared_save import SaveInThread, SharedSave, SilentRank
from spotwright.checkpoint.store import FolderStore
from spotwright.checkpoint.torch import Shards, is_sharded, own_random_state, pack, random_states

__all__ = ["GroupSaves"]

_log = logging.getLogger("spotwright.checkpoint")

_WHOLE, _BROKEN, _FAILED = 0, 1, 2  # a rank's report on a save that it tried to load


class GroupSaves:
    """The saves of one place, for one rank of a process group. It replaces a :class:`SaveManager` for all ranks.

    The constructor, :meth:`claim` and :meth:`load` are collective operations of all ranks.
    """

    def __init__(self, group: Any, manager: SaveManager, needed: Callable[[], float]) -> None:
        self._group, self._manager, self._needed = group, manager, needed
        self.agreement = SaveCoordinator.of_group(group, store=manager.store)
        self.agreement.needed = needed
        self.rank, self.size = self.agreement.rank, self.agreement.size
        self._first_token = 0  # of these ranks
        self._hazard: float | None = None
        self._sharded: bool | None = None  # unknown before the first save
        self._numbers = _numbers_in(group, self.size)  # of these ranks in the global group
        self._needs_wait = (
            True  # the first save shows that the place is writable; a save that reads files cannot be later
        )
        self._reads_files = False
        self._copies: dict[str, Any] = {}  # of this rank's chunks, by name, for the next save in a thread
        self._copy: Any = None  # of the whole state
        self._thread: SaveInThread | None = None
        self._ended: SaveInThread | None = None
        self._announced: SharedSave | None = None  # the last save whose end this rank announced
        self.agreement.is_writing = lambda: self.is_writing and not self._is_late

    def claim(self, hazard: float | None) -> Hazard:
        """Let rank 0 claim the place; see :meth:`SaveManager.claim`. Every rank raises its error."""
        self._hazard = hazard

        def claim() -> list[Any]:
            found = self._manager.claim(hazard)
            return [found.taken, found.lived, self._manager.log.token]

        taken, lived, self._first_token = self._from_first(claim)
        return Hazard(hazard, taken, lived)

    def is_empty(self) -> bool:
        """True if the place has no save, as rank 0 sees it."""
        return bool(self._from_first(self._manager.is_empty))

    # -- loading

    def load(self) -> Loaded | None:
        """Return the newest save that is whole for every rank, a sharded one as :class:`Shards`; see :meth:`SaveManager.load`."""
        numbers = self._from_first(lambda: [entry.number for entry in self._manager.log.saves()])
        seen = {entry.number: entry for entry in self._manager.log.saves()}
        broken: list[str] = []
        for number in numbers:
            state, problem = self._try(seen.get(number), number)
            worst = self._worst(problem)
            if worst == _WHOLE:
                return Loaded(state, seen[number], tuple(broken))
            if worst == _FAILED:
                raise problem or PlaceError(
                    f"{self._manager.store.place}: another rank cannot load; its error says why"
                )
            broken.append(str(problem) if problem else f"save {number} is incomplete on another rank")
        if broken:
            raise BrokenCheckpoint(
                f"{self._manager.store.place}: every checkpoint is incomplete: {'; '.join(broken)}. To start without them, "
                "remove the place or name another one"
            )
        return None

    def _try(self, entry: LogEntry | None, number: int) -> tuple[Any, Exception | None]:
        try:
            if entry is None:
                return None, PlaceError(
                    f"{self._manager.store.place}: rank {self.rank} does not find save {number} of rank 0: all ranks must use"
                    " the same place, such as a volume that every node mounts, or an object store"
                )
            if not entry.is_sharded:
                return self._manager.read_state(entry), None
            Layout(entry.state, self._manager.read_layout(entry), len(entry.shards))
            for shard in entry.shards[self.rank :: self.size]:
                self._check(shard)
            return Shards(functools.partial(self._fill, entry)), None
        except CheckpointError as error:
            return None, error

    def _check(self, shard: Shard) -> None:
        """Raise if a shard is not whole. In a folder all its bytes are read; an object store checks its own."""
        store = self._manager.store
        with closing(self._manager.open(*shard)) as reader:
            if isinstance(store, FolderStore):
                try:
                    reader.check()
                except OSError as error:
                    raise PlaceError(f"{store.place}: {shard[0]} cannot be read ({error})") from error

    def _fill(self, entry: LogEntry, state: Any) -> Any:
        try:
            return load_sharded(self._manager, entry, state, self._group)
        except BrokenCheckpoint as error:
            raise BrokenCheckpoint(
                f"{error}. Remove {entry.state} there and start again, to load the save before it"
            ) from error

    def _worst(self, problem: Exception | None) -> int:
        """Return the worst result that any rank reports for a save."""
        mine = _WHOLE if problem is None else _BROKEN if isinstance(problem, BrokenCheckpoint) else _FAILED
        if self.size == 1:
            return mine
        worst = torch.tensor([mine], device=self._device())
        dist.all_reduce(worst, dist.ReduceOp.MAX, group=self._group)
        return int(worst.item())

    # -- saving

    def save(
        self, state: Callable[[], Any], facts: Mapping[str, Any], left: Callable[[], float], *, later: bool
    ) -> bool:
        """Save with the ranks of :attr:`SaveCoordinator.savers`. ``left`` returns the seconds until this rank's end.

        With ``later`` this returns ``False`` once the state is copied, unless the save cannot be made in a thread;
        :meth:`take_ended` returns its outcome. A state without ``DTensor`` values is saved by the first of these ranks alone,
        or by another one if that is unresponsive. ``state`` is called on ranks that write; the first time on all. Raises
        :class:`SaveFailed` on all ranks.
        """
        committed = False
        save = SharedSave(self.agreement, self.agreement.begin_save(), self.agreement.savers, left)
        try:
            later = later and not self._needs_wait
            with save.telling_errors():
                self._end_thread(left)
                work = self._work(save, state, facts, later=later)
            if later and not self._reads_files:
                with suppress(RuntimeError):  # no thread available: it is written here
                    place, usual = self._manager.store.place, self._needed()
                    self._thread = SaveInThread(save, work, facts["step"], place, usual)
                    committed = True
                    return False
            work()
            self._needs_wait = self._reads_files
            committed = True
            return True
        finally:
            self.agreement.saved(committed=committed)

    def _work(
        self, save: SharedSave, state: Callable[[], Any], facts: Mapping[str, Any], *, later: bool
    ) -> Callable[[], None]:
        """Return this rank's work for a save; with ``later``, on a copy of the state."""
        is_first, began = self.rank == save.first, time.monotonic()
        value: Any = None
        if self._sharded is not False or is_first:
            value = state()
            self._reads_files |= holds_files(value)
        if self._sharded is None:
            self._sharded = is_sharded(value)
            self._set_replicas(value)
        if self._sharded:
            savers = [self._numbers[rank] for rank in save.savers]
            me = self._numbers[self.rank]
            shard = RankShard(value, self.rank, me, savers, own=random_states(), copies=self._copies if later else None)
            return lambda: self._save_shard(save, shard, facts, began)
        if is_first:
            if later:
                value = self._copy = copied(value, self._copy)
            own = own_random_state()
            return lambda: self._save_whole(save, value, own, facts)
        own = own_random_state()
        return lambda: self._follow(save, own, None if later else state, facts)

    def _save_shard(self, save: SharedSave, shard: RankShard, facts: Mapping[str, Any], began: float) -> None:
        """Write this rank's shard; the first rank commits all shards."""
        manager = self._manager
        with save.telling_errors():
            if self.rank != save.first:
                save.tell(f"part/{self.rank}", shard.write(manager, **save.hear("begin", save.first)))
                save.hear("saved", save.first)
                return
            with self._unless_relieved():
                self._claim(facts)
                count, claim = manager.begin_shards(), manager.log.claim
                task: dict[str, Any] = {
                    "token": manager.log.token,
                    "count": count,
                    "claim": claim.data if claim else {},
                }
                save.tell("begin", task)
                layout, shards = layout_of_shards([shard.write(manager, **task), *save.hear_parts()])
                manager.commit_shards(count, layout, shards, facts, began)
            self._tell_saved(save)

    def _save_whole(self, save: SharedSave, value: Any, own: torch.Tensor, facts: Mapping[str, Any]) -> None:
        """Save the state that all ranks have, with the random states of responsive ranks."""
        with save.telling_errors(), self._unless_relieved():
            self._claim(facts)
            try:
                parts = [_tensor_of(part) for part in save.hear_parts(reserve=self.agreement.needed())]
            except SaveFailed as error:
                _log.warning("the ranks' random generators are not saved: %s", error)
            else:
                if (
                    len(save.savers) == self.size > 1
                    and isinstance(value, dict)
                    and isinstance(value.get("random"), dict)
                ):
                    value["random"]["ranks"] = pack(torch.stack([own.cpu(), *parts]))
            self._manager.save(value, facts)
            self._tell_saved(save)

    def _follow(
        self, save: SharedSave, own: torch.Tensor, state: Callable[[], Any] | None, facts: Mapping[str, Any]
    ) -> None:
        """Wait for the first rank's save. If it is unresponsive, another rank saves its ``state``, if it still has it."""
        with save.telling_errors():
            save.tell(f"part/{self.rank}", _text_of(own))
            try:
                save.hear("saved", save.first)
            except SilentRank:
                if state is None or save.left() < self.agreement.needed():  # a claim would only refuse the first one
                    raise
                saver = save.elect()
                if saver != self.rank:
                    save.hear("saved", saver)
                    return
                with self._unless_relieved():
                    self._claim(facts)
                    self._manager.save(state(), facts)
                    self._tell_saved(save)

    def _tell_saved(self, save: SharedSave) -> None:
        with suppress(SaveFailed):  # the save is committed; the unreachable ranks were logged
            save.tell("saved", {})
            if self._announced is not None and save.has_all_parts:  # so these ranks are all done with that save
                self._announced.forget()
        self._announced = save if len(save.savers) == self.size else None

    @contextmanager
    def _unless_relieved(self) -> Iterator[None]:
        """Fail the save instead of the training, if another of these ranks saved while this one was unresponsive."""
        try:
            yield
        except StaleWriter as error:
            latest = self._manager.log.latest_claim()
            if latest is None or not latest.is_of(self._first_token):
                raise
            raise SaveFailed(
                f"{self._manager.store.place}: another rank of this training saved while this one was unresponsive"
            ) from error

    def _end_thread(self, left: Callable[[], float]) -> None:
        """Wait for the save under way while the next one still fits; if ranks are missing, not at all.

        With concurrent saves an old step could count after a later one. Raises :class:`SaveFailed` if it has not ended.
        """
        if self._thread is None:
            return
        is_complete = len(self.agreement.savers) == self.size
        if not self._thread.end(left() - self.agreement.needed() if is_complete else 0.0):
            raise SaveFailed(f"{self._thread.describe()}, and this one cannot begin until it ends")
        self._ended, self._thread = self._thread, None

    def take_ended(self) -> SaveInThread | None:
        """Return the save in a thread that ended since the last call, if any."""
        if self._thread is not None and self._thread.is_over:
            self._ended, self._thread = self._thread, None
        ended, self._ended = self._ended, None
        if ended is not None:
            ended.taken.set()
        return ended

    @property
    def _is_late(self) -> bool:
        return (thread := self._thread) is not None and thread.is_late

    @property
    def is_writing(self) -> bool:
        """True while a save is under way in a thread."""
        return (thread := self._thread) is not None and not thread.is_over

    def rest(self, usual: float) -> float:
        """Return the remaining seconds of the save under way, if it takes ``usual`` seconds."""
        thread = self._thread
        return max(0.0, usual - (time.monotonic() - thread.began)) if thread is not None and not thread.is_over else 0.0

    def _set_replicas(self, value: Any) -> None:
        """Note which ranks hold the whole state: each rank of a replicated one, each mesh row of a hybrid-sharded one."""
        if not self._sharded:
            self.agreement.replicas = [[rank] for rank in range(self.size)]
            return
        meshes = {id(each.device_mesh): each for each in _sharded_tensors(value)}
        first = next(iter(meshes.values()))
        mesh, placements = first.device_mesh, first.placements
        if len(meshes) == 1 and mesh.ndim == 2 and placements[0].is_replicate() and not placements[1].is_replicate():
            group = dist.group.WORLD if self._group is None else self._group
            self.agreement.replicas = [
                [dist.get_group_rank(group, rank) for rank in replica] for replica in mesh.mesh.tolist()
            ]

    def _claim(self, facts: Mapping[str, Any]) -> None:
        """Let this rank, which commits, claim the place, if another of these ranks claimed last.

        If another attempt has claimed, the save is refused on all ranks. Raises :class:`SaveFailed` if another of these ranks
        has saved a later step than that of ``facts``.
        """
        log = self._manager.log
        if (latest := log.latest_claim()) is None or latest.number == log.token:
            return
        if log.claim is None or latest.is_of(self._first_token):
            self._manager.claim(self._hazard, ranks=self._first_token)
            newest = next(log.saves(), None)
            if newest is not None and newest.data.get("step", 0) > facts["step"]:
                raise SaveFailed(f"{self._manager.store.place}: another rank of this training has saved a later step")

    # -- between ranks

    def _device(self) -> Any:
        return dist.distributed_c10d._get_object_coll_device(self._group)  # noqa: SLF001  # where collectives take tensors

    def _from_first(self, function: Callable[[], Any]) -> Any:
        """Return on every rank a function's JSON value from rank 0; every rank raises its error."""
        if self.size == 1:
            return function()
        answer: dict[str, Any] = {}
        raised: CheckpointError | None = None
        if self.rank == 0:
            try:
                answer = {"value": function()}
            except CheckpointError as error:
                raised, answer = error, {"error": type(error).__name__, "message": str(error)}
        answer = json.loads(self._broadcast(json.dumps(answer).encode()))
        if raised is not None:
            raise raised
        if "error" in answer:
            raise getattr(errors, answer["error"], CheckpointError)(answer["message"])
        return answer["value"]

    def _broadcast(self, text: bytes) -> bytes:
        length = torch.tensor([len(text)], device=self._device())
        dist.broadcast(length, group=self._group, group_src=0)
        data = torch.zeros(int(length.item()), dtype=torch.uint8)
        if self.rank == 0:
            data = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        data = data.to(self._device())
        dist.broadcast(data, group=self._group, group_src=0)
        return bytes(data.cpu().numpy())

    def close(self, left: float) -> None:
        """Wait for the save under way, at most ``left`` seconds or until it is late, and end the agreement."""
        if self._thread is not None and not self._thread.end(left, hurried=True):
            _log.error("%s; the training ends without it", self._thread.describe())
        self.agreement.close()


def _numbers_in(group: Any, size: int) -> list[int]:
    """Return the numbers of a group's ranks in the global group."""
    if size == 1:
        return [dist.get_rank() if dist.is_available() and dist.is_initialized() else 0]
    group = dist.group.WORLD if group is None else group
    return [dist.get_global_rank(group, rank) for rank in range(size)]


def _text_of(state: torch.Tensor) -> str:
    return base64.b64encode(state.cpu().numpy().tobytes()).decode()


def _tensor_of(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)


def _sharded_tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        if is_sharded(value):
            yield value
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _sharded_tensors(part)
