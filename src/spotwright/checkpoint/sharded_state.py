"""A state with tensors on all ranks of a group: each rank's part of a save, copied or not, and its loading.

A ``DTensor`` is stored in chunks, each by one of the ranks that have it; the first rank stores tensors that all ranks have, and
all other values. The tensors' meshes alone determine which rank stores what, so ranks need not ask each other. The stored form
is that of :mod:`spotwright.checkpoint.dcp`, whose reader loads it.
"""

from __future__ import annotations

import copy
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.planner import WriteItem
from torch.distributed.tensor import DTensor

from spotwright.checkpoint.dcp import reader_of
from spotwright.checkpoint.errors import BrokenCheckpoint, OtherProgram, UnstorableState
from spotwright.checkpoint.file_values import Directory, File
from spotwright.checkpoint.save_log import LogEntry
from spotwright.checkpoint.save_manager import SaveManager, Shard
from spotwright.checkpoint.shard_layout import Layout, write_shard
from spotwright.checkpoint.torch import pack

__all__ = ["RankShard", "copied", "holds_files", "layout_of_shards", "load_sharded"]

_STATE = "~state"
_OWN = "~own-"
_SHARDED = "~sharded"  # a key that no state has


class RankShard:
    """One rank's part of a saved state: its values, and its tensors' chunks.

    ``rank`` is its number in the group; ``savers`` are the save's ranks as global numbers, of which ``me`` is this one. ``own``
    has the values that differ between ranks, such as states of random generators. With ``copies`` the state may change before
    :meth:`write` is called; it holds the memory of earlier copies and receives these. Raises :class:`UnstorableState` for a
    tensor that cannot be stored.
    """

    def __init__(
        self, state: Any, rank: int, me: int, savers: Sequence[int], *, own: Any, copies: dict[str, Any] | None
    ) -> None:
        self._rank = rank
        tensors: dict[str, Any] = {}
        tree = _without_tensors(state, "", tensors)
        is_first = me == savers[0]
        self._values = {
            f"{_OWN}{rank}": pack(own),
            **({_STATE: pack(tree if copies is None else copied(tree))} if is_first else {}),
        }
        self._whole = [name for name, tensor in tensors.items() if not isinstance(tensor, DTensor)]
        planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
        planner.set_up_planner(tensors, is_coordinator=is_first)
        self._items: list[tuple[WriteItem, torch.Tensor]] = []
        for item in planner.create_local_plan().items:
            tensor = tensors[item.index.fqn]
            writer = _writer_of(item.index.fqn, tensor, savers) if isinstance(tensor, DTensor) else savers[0]
            if writer == me:
                data = planner.resolve_data(item)
                if copies is not None:
                    name = f"{item.index.fqn} {item.index.offset}"
                    data = copies[name] = copied(data, copies.get(name))
                self._items.append((item, data))

    def write(self, manager: SaveManager, token: int, count: int, claim: Mapping[str, Any]) -> dict[str, Any]:
        """Write the shard for an attempt's save of this number; return the rank's part of the layout, as JSON.

        Raises :class:`SaveFailed`, and :class:`PlaceError` if this rank does not see the claim of the attempt.
        """
        manager.log.expect(token, claim)
        items = [(item, data) for item, data in self._items if data.numel()]
        pairs = ((item.index, item.index.fqn, data) for item, data in items)
        shard, firsts = write_shard(manager, token, count, self._rank, self._values, pairs)
        tensors: dict[str, Any] = {}
        for item, data in self._items:
            about = item.tensor_data
            dtype = str(data.dtype).removeprefix("torch.")
            facts = tensors.setdefault(item.index.fqn, {"dtype": dtype, "size": list(about.size), "chunks": []})
            if item.index in firsts:
                facts["chunks"].append([list(about.chunk.offsets), list(about.chunk.sizes), firsts[item.index]])
        return {"shard": shard, "values": list(self._values), "tensors": tensors, "whole": self._whole}


def layout_of_shards(parts: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[Shard]]:
    """Return the layout and the shards of a save from its ranks' parts, the first rank's first.

    Raises :class:`UnstorableState` if the ranks together do not have a whole tensor.
    """
    tensors: dict[str, Any] = {}
    values: dict[str, int] = {}
    shards: list[Shard] = []
    stored: set[tuple[Any, ...]] = set()
    for number, part in enumerate(parts):
        name, size, total = part["shard"]
        shards.append((name, size, total))
        values |= dict.fromkeys(part["values"], number)
        for key, facts in part["tensors"].items():
            known = tensors.setdefault(key, {**facts, "chunks": []})
            for offsets, sizes, first in facts["chunks"]:
                if (key, *offsets) not in stored:  # a tensor on one dimension of the mesh is on each of its rows
                    stored.add((key, *offsets))
                    known["chunks"].append([offsets, sizes, number, first])
    for number, part in enumerate(parts):
        if missing := [name for name in part["whole"] if name not in tensors]:
            raise UnstorableState(
                f"{missing[0]}: only rank {number} has this tensor, not the first rank, so it is not saved: give each rank the"
                " same names, or make it a DTensor"
            )
    layout = {"tensors": tensors, "values": values, "planner": None}
    try:
        Layout("this save", layout, len(shards))
    except BrokenCheckpoint as error:
        raise UnstorableState(str(error)) from error
    return layout, shards


def load_sharded(manager: SaveManager, entry: LogEntry, state: Any, group: Any = None) -> Any:
    """Fill a state in place from a sharded save; every rank of the group calls this with the same entry.

    Returns ``own`` of the saving rank with this number; ``None`` if there were fewer ranks. Raises :class:`OtherProgram` if the
    state has other tensors, and :class:`BrokenCheckpoint` if the save is not whole; the state is then partly overwritten.
    """
    is_distributed = group is not None or (torch.distributed.is_available() and torch.distributed.is_initialized())
    rank = torch.distributed.get_rank(group) if is_distributed else 0
    tensors: dict[str, Any] = {}
    _without_tensors(state, "", tensors)
    reader = reader_of(manager, entry)
    saved = reader.read_metadata().state_dict_metadata
    _check_model(manager.store.place, tensors, saved)
    own = f"{_OWN}{rank}"
    parts = {**tensors, **{name: None for name in (_STATE, own) if name in saved}}
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    try:
        dcp.load(parts, process_group=group, no_dist=not is_distributed, storage_reader=reader, planner=planner)
    except dcp.CheckpointException as error:  # it contains the ranks' errors
        raise next((failure for failure, _ in error.failures.values()), error) from error
    _put(state, parts[_STATE])
    return parts.get(own)


def copied(value: Any, old: Any = None, known: dict[int, Any] | None = None) -> Any:
    """Return a copy of a value in CPU memory, which later training steps do not change.

    ``old`` is an unneeded copy; the memory of its tensors and arrays is reused if it fits: allocating memory takes longer than
    filling it. A value that occurs twice is copied once: ``known`` has the copied values, as for :func:`copy.deepcopy`, and the
    reused ones.
    """
    known = {} if known is None else known
    if isinstance(value, torch.Tensor | np.ndarray):
        if id(value) not in known:
            known[id(value)] = _copied_numbers(value, None if old is None or id(old) in known else old)
            known[id(known[id(value)])] = known[id(value)]
        return known[id(value)]
    if type(value) in (dict, OrderedDict):
        parts = old if isinstance(old, dict) else {}
        return {key: copied(each, parts.get(key), known) for key, each in value.items()}
    if type(value) in (list, tuple):
        pairs = old if type(old) is type(value) and len(old) == len(value) else [None] * len(value)
        return type(value)(copied(each, part, known) for each, part in zip(value, pairs, strict=True))
    try:
        return copy.deepcopy(value, known)
    except TypeError:  # it cannot be stored either: that error names its path
        return value


def _copied_numbers(value: Any, old: Any) -> Any:
    """Return a copy of a tensor or an array, in an old one's memory if it fits."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        fits = isinstance(old, torch.Tensor) and all(
            getattr(old, name) == getattr(value, name) for name in ("shape", "dtype", "layout")
        )
        return old.copy_(value) if fits else value.to("cpu", copy=True)
    fits = type(value) is type(old) is np.ndarray and (old.shape, old.dtype) == (value.shape, value.dtype)
    if not fits or value.dtype.hasobject or not old.flags.writeable:
        return copy.deepcopy(value)
    np.copyto(old, value)
    return old


def holds_files(value: Any) -> bool:
    """True if a state names files or folders, whose content is read during the save."""
    if isinstance(value, Mapping):
        return any(holds_files(each) for each in value.values())
    if isinstance(value, list | tuple):
        return any(holds_files(each) for each in value)
    return isinstance(value, File | Directory)


def _writer_of(name: str, tensor: DTensor, savers: Sequence[int]) -> int:
    """Return which of the ranks with a chunk of a tensor stores it. The choice by name spreads the work."""
    mesh, coordinate = tensor.device_mesh, tensor.device_mesh.get_coordinate()
    if coordinate is None:
        return -1
    if any(placement.is_partial() for placement in tensor.placements):
        raise UnstorableState(f"{name}: is a pending (partial) sum over ranks: redistribute it before the save")
    index = tuple(
        slice(None) if placement.is_replicate() else coordinate[dim] for dim, placement in enumerate(tensor.placements)
    )
    found = set(mesh.mesh[index].flatten().tolist())
    holders = [rank for rank in savers if rank in found]
    return holders[zlib.crc32(name.encode()) % len(holders)]


def _without_tensors(value: Any, path: str, tensors: dict[str, Any]) -> Any:
    """Return a state with each tensor replaced by its path; ``tensors`` receives the tensors by their paths."""
    if isinstance(value, torch.Tensor):
        tensors[path] = value
        return {_SHARDED: path}
    if isinstance(value, Mapping):
        return {key: _without_tensors(each, f"{path}.{key}".lstrip("."), tensors) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_without_tensors(each, f"{path}[{index}]", tensors) for index, each in enumerate(value))
    return value


def _check_model(place: str, tensors: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Refuse a state whose tensors differ from the save's."""
    saved = {name: facts.size for name, facts in metadata.items() if isinstance(facts, TensorStorageMetadata)}
    problems = [f"{name} is not in the checkpoint" for name in tensors if name not in saved]
    problems += [f"{name} is only in the checkpoint" for name in saved if name not in tensors]
    problems += [
        f"{name} has the shape {list(saved[name])} in the checkpoint, and {list(tensor.shape)} in this program"
        for name, tensor in tensors.items()
        if name in saved and saved[name] != tensor.shape
    ]
    if problems:
        more = f", and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise OtherProgram(
            f"{place}: the checkpoint is of a different model: {'; '.join(problems[:5])}{more}. Use the model that was saved, "
            "or name another place"
        )


def _put(state: Any, saved: Any) -> None:
    """Put the saved non-tensor values into a state."""
    for key, value in saved.items() if isinstance(saved, dict) else enumerate(saved):
        if isinstance(value, dict) and _SHARDED in value:
            continue
        has_key = key in state if isinstance(state, Mapping) else key < len(state)
        kind = Mapping if isinstance(value, dict) else list  # the state may have an OrderedDict, as modules do
        if isinstance(value, dict | list) and value and has_key and isinstance(state[key], kind):
            _put(state[key], value)
        else:
            state[key] = value
