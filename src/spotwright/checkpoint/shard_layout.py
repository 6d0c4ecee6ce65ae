"""The location of the tensors of a sharded save: the layout as JSON, and the bytes of a chunk to and from memory.

A tensor is stored in chunks, boxes each written by one rank (DCP's ``ChunkStorageMetadata``): the chunk's elements in C order,
in pieces of 1 MiB with a checksum each. So a rank reads and checks only the pieces with its part of a chunk, whatever the
number of ranks was. A layout is untrusted, like all files of a place: it is checked before use.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import SavePlanner, WriteItem

from spotwright.checkpoint import state_file
from spotwright.checkpoint.encoding import encode
from spotwright.checkpoint.errors import BrokenCheckpoint, OtherProgram, UnstorableState
from spotwright.checkpoint.save_manager import SaveManager, Shard, new_name
from spotwright.checkpoint.state_file import Blob
from spotwright.checkpoint.torch import pack

__all__ = ["Layout", "Piece", "fill", "layout_of", "value_of", "write_shard"]


Piece = tuple[Shard, int]
"""The location of a plan's item: a shard, and the number of its first blob there."""

_INTEGERS = {
    *(torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.int8, torch.int16, torch.int32, torch.int64),
}
_BLOCK = 16 << 20  # bytes buffered while a part of a chunk is read for memory elsewhere
_MOST_SPLIT = 4  # dimensions in which one tensor is split; pipeline, data, tensor and context parallelism are four
_MOST_DIMENSIONS = 64  # as in PyTorch (c10/util/SmallVector has no limit; NumPy and its users stop at 64)


def _bytes_of(name: str, tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a tensor in C order, without a copy if possible. ``name`` is for the message."""
    if tensor.layout != torch.strided or not _is_storable(tensor.dtype):
        raise UnstorableState(
            f"{name}: a tensor of {tensor.dtype} and layout {tensor.layout} cannot be stored; make it dense and of a plain type"
        )
    flat = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy())


def value_of(item: WriteItem, planner: SavePlanner) -> Any:
    """Return the value of a non-tensor item, as the encoding stores it."""
    if not isinstance(planner, DefaultSavePlanner):
        raise UnstorableState(f"{item.index.fqn}: not a tensor, and {type(planner).__name__} gives its bytes only")
    return pack(planner.lookup_object(item.index))


def write_shard(
    manager: SaveManager,
    token: int,
    count: int,
    rank: int,
    values: Mapping[str, Any],
    tensors: Iterable[tuple[Any, str, torch.Tensor]],
) -> tuple[Shard, dict[Any, int]]:
    """Write the shard of a rank: values in the form of :func:`value_of`, and tensors, each with a key and its name.

    ``token`` and ``count`` belong to the attempt and its save. Returns the shard, and by key the number of each tensor's first
    blob there.
    """
    tree, blobs = encode(values)
    firsts: dict[Any, int] = {}
    name = f"{new_name(token, count)}-{rank:05d}"
    with manager.store.write(name) as file:
        written = state_file.write(file, tree, _blobs(blobs, tensors, firsts))
    return (name, written["size"], written["sum"]), firsts


def _blobs(
    before: list[Blob], tensors: Iterable[tuple[Any, str, torch.Tensor]], firsts: dict[Any, int]
) -> Iterator[Blob]:
    yield from before
    count = len(before)
    for key, name, tensor in tensors:
        firsts[key] = count
        for piece in state_file.pieces(_bytes_of(name, tensor)):
            yield _one(piece)
            count += 1


def _one(piece: memoryview) -> Blob:
    return lambda: (piece,)


def layout_of(metadata: Metadata, pieces: Mapping[Any, Piece], shards: list[Shard]) -> dict[str, Any]:
    """Return the layout of a save. ``pieces`` are by name and offsets; the shards are named by their numbers."""
    numbers = {shard: number for number, shard in enumerate(shards)}
    tensors: dict[str, Any] = {}
    values: dict[str, int] = {}
    for name, facts in metadata.state_dict_metadata.items():
        if isinstance(facts, TensorStorageMetadata):
            chunks = []
            for chunk in facts.chunks:
                shard, first = pieces[name, chunk.offsets]
                chunks.append([list(chunk.offsets), list(chunk.sizes), numbers[shard], first])
            dtype = str(facts.properties.dtype).removeprefix("torch.")
            tensors[name] = {"dtype": dtype, "size": list(facts.size), "chunks": chunks}
        else:
            values[name] = numbers[pieces[name, None][0]]
    return {"tensors": tensors, "values": values, "planner": metadata.planner_data}


class Layout:
    """The layout of a save in DCP's terms. Raises :class:`BrokenCheckpoint` for anything else."""

    def __init__(self, name: str, data: Any, shards: int) -> None:
        self._name, self._shards = name, shards
        self._chunks: dict[tuple[str, tuple[int, ...]], tuple[int, int, torch.Size, torch.dtype]] = {}
        try:
            tensors = {key: self._tensor(key, facts) for key, facts in data["tensors"].items()}
            self.values: dict[str, int] = {key: self._shard(shard) for key, shard in data["values"].items()}
            self.metadata = Metadata(
                {**tensors, **{key: BytesStorageMetadata() for key in self.values}}, planner_data=data["planner"]
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BrokenCheckpoint(f"{name}: its layout is malformed ({error!r})") from error

    def _tensor(self, name: str, facts: Mapping[str, Any]) -> TensorStorageMetadata:
        dtype = getattr(torch, facts["dtype"])
        if not isinstance(dtype, torch.dtype) or not _is_storable(dtype):
            raise TypeError(f"{facts['dtype']} is not a tensor type")
        size = _size(facts["size"])
        chunks = []
        for offsets, sizes, shard, first in facts["chunks"]:
            chunk = ChunkStorageMetadata(_size(offsets), _size(sizes))
            ends = [begin + length for begin, length in zip(chunk.offsets, chunk.sizes, strict=True)]
            if any(end > whole for end, whole in zip(ends, size, strict=True)):
                raise ValueError(f"a chunk of {name} reaches outside the tensor")
            chunks.append(chunk)
            self._chunks[name, chunk.offsets] = (self._shard(shard), _number(first), chunk.sizes, dtype)
        if not _is_tiled(size, [(chunk.offsets, chunk.sizes) for chunk in chunks]):
            raise BrokenCheckpoint(
                f"{self._name}: the chunks of {name} do not make up the tensor: one is missing, or two overlap"
            )
        return TensorStorageMetadata(TensorProperties(dtype), size, chunks)

    def _shard(self, number: Any) -> int:
        if _number(number) >= self._shards:
            raise ValueError(f"no shard {number}")
        return int(number)

    def chunk(self, name: str, offsets: Any) -> tuple[int, int, torch.Size, torch.dtype]:
        """Return a chunk's shard number, first blob number, sizes and type."""
        return self._chunks[name, offsets]


def _is_tiled(whole: Sequence[int], boxes: Sequence[tuple[Sequence[int], Sequence[int]]]) -> bool:
    """Whether boxes, given by offsets and sizes, tile the whole exactly, without gaps or overlaps.

    The boxes' indicator functions add up to the whole's if and only if their corners, counted with the sign of their side, do:
    so boxes need not be compared with each other. Raises ``ValueError`` for too many split dimensions.
    """
    full = [box for box in boxes if all(box[1])]
    split = [dim for dim, size in enumerate(whole) if any(begin[dim] or sizes[dim] != size for begin, sizes in full)]
    if len(split) > _MOST_SPLIT:
        raise ValueError(f"a tensor is split in {len(split)} dimensions")
    corners: Counter[tuple[int, ...]] = Counter()
    for begin, sizes in full:
        sides = [((begin[dim], 1), (begin[dim] + sizes[dim], -1)) for dim in split]
        for corner in itertools.product(*sides):
            corners[tuple(place for place, _ in corner)] += math.prod(sign for _, sign in corner)
    for corner in itertools.product(*[((0, 1), (whole[dim], -1)) for dim in split]) if all(whole) else ():
        corners[tuple(place for place, _ in corner)] -= math.prod(sign for _, sign in corner)
    return not any(corners.values())


def _is_storable(dtype: torch.dtype) -> bool:
    """Whether the elements are numbers; a quantized tensor's are meaningless without its scale."""
    return dtype.is_floating_point or dtype.is_complex or dtype in _INTEGERS


def _size(values: Any) -> torch.Size:
    if len(values) > _MOST_DIMENSIONS:
        raise ValueError(f"{len(values)} dimensions")
    return torch.Size(map(_number, values))


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r} is not a number")
    return value


def fill(
    reader: state_file.Reader, chunk: tuple[int, int, torch.Size, torch.dtype], offsets: Any, target: torch.Tensor
) -> None:
    """Fill a tensor with the part of a chunk at ``offsets``, of the tensor's size."""
    _, first, sizes, dtype = chunk
    if not target.numel():
        return
    across = next((dim for dim, size in enumerate(sizes) if size > 1), 0)  # the dimension whose elements are the rows
    rows, start = (target.shape[across], offsets[across]) if sizes else (1, 0)
    row = math.prod(sizes[across + 1 :]) * dtype.itemsize
    is_whole = all(target.shape[dim] == size for dim, size in enumerate(sizes) if dim != across)
    if is_whole and target.dtype == dtype and target.is_contiguous() and target.device.type == "cpu":
        reader.into_pieces(first, start * row, memoryview(target.reshape(-1).view(torch.uint8).numpy()))
        return
    step = max(1, _BLOCK // row)
    for begin in range(0, rows, step):
        count = min(step, rows - begin)
        block = torch.empty((count, *sizes[across + 1 :]) if sizes else (1,), dtype=dtype)
        reader.into_pieces(first, (start + begin) * row, memoryview(block.reshape(-1).view(torch.uint8).numpy()))
        for dim in range(across + 1, len(sizes)):
            block = block.narrow(dim - across, offsets[dim], target.shape[dim])
        part = target.narrow(across, begin, count) if sizes else target
        try:
            part.copy_(block.reshape(part.shape))
        except RuntimeError as error:
            raise OtherProgram(
                f"a tensor of {dtype} in the checkpoint cannot be loaded as {target.dtype}: {error}"
            ) from error
