"""A layout by a hostile writer is refused, or loads its content, and never more than that."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.checkpoint.places import FACTS, MemoryStore
from tests.torch.sharded import save_sharded

from spotwright.checkpoint import BrokenCheckpoint, CheckpointError
from spotwright.checkpoint.save_log import SaveLog
from spotwright.checkpoint.save_manager import SaveManager
from spotwright.checkpoint.shard_layout import Layout
from spotwright.checkpoint.sharded_state import load_sharded

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def tensor(**changed: Any) -> dict[str, Any]:
    facts = {"dtype": "float32", "size": [4, 3], "chunks": [[[0, 0], [4, 3], 0, 0]]} | changed
    return {"tensors": {"x": facts}, "values": {}, "planner": None}


def test_a_layout_is_read() -> None:
    assert Layout("state", tensor(), 1).metadata.state_dict_metadata["x"].size == torch.Size([4, 3])


@pytest.mark.parametrize(
    "data",
    [
        None, [], {}, "x", tensor(dtype="save"), tensor(dtype="nothing"), tensor(dtype=3), tensor(dtype="Tensor"),
        tensor(dtype="qint8"),
        tensor(size=[4, -3]), tensor(size=[4, 3.0]), tensor(size=[4, True]), tensor(size="43"), tensor(size=[1 << 63, 1]),
        tensor(size=[1] * 100), tensor(size=None),
        tensor(chunks=[[[0, 0], [4, 3], 1, 0]]),
        tensor(chunks=[[[0, 0], [4, 3], -1, 0]]),
        tensor(chunks=[[[0, 0], [4, 3], 0, -1]]), tensor(chunks=[[[1, 0], [4, 3], 0, 0]]), tensor(chunks=[[[0], [4], 0, 0]]),
        tensor(chunks=[[[0, 0], [4, 3], 0]]), tensor(chunks=7), tensor() | {"values": {"y": 1}},
        tensor() | {"values": {"y": None}},
        tensor() | {"tensors": []},
    ],
)  # fmt: skip
def test_a_malformed_layout_is_refused(data: Any) -> None:
    with pytest.raises(BrokenCheckpoint, match="state: its layout is malformed"):
        Layout("state", data, 1)


Box = tuple[list[int], list[int]]  # offsets and sizes


@st.composite
def tilings(draw: st.DrawFn) -> tuple[list[int], list[Box]]:
    """Draw a size, and boxes that make it up: the whole, cut again and again at any place."""
    size = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    boxes: list[Box] = [([0] * len(size), size)]
    for _ in range(draw(st.integers(0, 6))):
        begin, sizes = boxes.pop(draw(st.integers(0, len(boxes) - 1)))
        dim = draw(st.integers(0, len(size) - 1))
        cut = draw(st.integers(0, sizes[dim]))
        first, second, onward = list(sizes), list(sizes), list(begin)
        first[dim], second[dim], onward[dim] = cut, sizes[dim] - cut, begin[dim] + cut
        boxes += [(begin, first), (onward, second)]
    return size, draw(st.permutations(boxes))


def layout_of_boxes(size: list[int], boxes: list[Box]) -> dict[str, Any]:
    return tensor(size=size, chunks=[[begin, sizes, 0, number] for number, (begin, sizes) in enumerate(boxes)])


@settings(max_examples=200, deadline=None)
@given(drawn=tilings(), data=st.data())
def test_chunks_that_leave_a_gap_or_overlap_are_refused_with_the_name_of_their_tensor(
    drawn: tuple[list[int], list[Box]], data: st.DataObject
) -> None:
    size, boxes = drawn
    assert Layout("state", layout_of_boxes(size, boxes), 1).metadata.state_dict_metadata["x"].size == torch.Size(size)
    counts = torch.zeros(size, dtype=torch.int64)
    changed = data.draw(st.lists(st.sampled_from(boxes), max_size=len(boxes) + 1))
    for begin, sizes in changed:
        counts[tuple(slice(first, first + length) for first, length in zip(begin, sizes, strict=True))] += 1
    layout = layout_of_boxes(size, changed)
    if bool((counts == 1).all()):
        Layout("state", layout, 1)
        return
    with pytest.raises(BrokenCheckpoint, match="state: the chunks of x do not make up the tensor"):
        Layout("state", layout, 1)


def test_a_tensor_without_elements_needs_no_chunk_and_one_without_dimensions_has_one() -> None:
    whole: list[tuple[list[int], list[Box]]] = [([0, 3], []), ([0, 3], [([0, 0], [0, 3])]), ([], [([], [])])]
    for size, boxes in whole:
        Layout("state", layout_of_boxes(size, boxes), 1)
    with pytest.raises(BrokenCheckpoint, match="the chunks of x do not"):
        Layout("state", layout_of_boxes([], []), 1)


def test_a_tensor_that_is_split_in_more_dimensions_than_any_training_does_is_refused_at_once() -> None:
    with pytest.raises(BrokenCheckpoint, match="split in 40 dimensions"):
        Layout("state", tensor(size=[2] * 40, chunks=[[[0] * 40, [1] * 40, 0, 0]]), 1)


def test_a_save_whose_layout_has_lost_a_chunk_is_refused_with_the_name_of_the_tensor() -> None:
    _, manager = a_save()
    entry = next(manager.log.saves())
    layout = manager.read(entry)
    layout["tensors"]["y"]["chunks"] = []
    changed = manager.commit_shards(manager.begin_shards(), layout, entry.shards, FACTS, 0.0)
    state = {"x": torch.zeros(4, 3), "y": torch.zeros(5), "number": 0}
    with pytest.raises(BrokenCheckpoint, match="the chunks of y do not make up the tensor"):
        load_sharded(manager, changed, state)


def a_save() -> tuple[MemoryStore, SaveManager]:
    store = MemoryStore()
    manager = SaveManager(store, program="", keep=1, allow_pickle=False)
    manager.claim(None)
    save_sharded(manager, {"x": torch.arange(12.0).reshape(4, 3), "y": torch.ones(5), "number": 3}, FACTS)
    return store, manager


@pytest.mark.parametrize(
    "change",
    [
        {"shards": [["../state-1", 1, 1]]}, {"shards": [["state-1", 1]]}, {"shards": [["state-1", "1", 1]]}, {"shards": 3},
        {"shards": [[7, 1, 1]]}, {"shards": [["state-1", 1, 1]] * 100_001}, {"shards": None},
    ],
)  # fmt: skip
def test_an_entry_with_malformed_shards_does_not_count(change: dict[str, Any]) -> None:
    store, _ = a_save()
    body = json.dumps(json.loads(store.files["entry-0000000002"][9:]) | change).encode()
    store.files["entry-0000000002"] = b"%08x " % zlib.crc32(body) + body
    assert list(SaveLog(store).saves()) == []


def test_a_layout_beyond_the_limit_is_refused_before_it_is_read() -> None:
    store, _ = a_save()
    body = json.dumps(json.loads(store.files["entry-0000000002"][9:]) | {"size": (64 << 20) + 1}).encode()
    store.files["entry-0000000002"] = b"%08x " % zlib.crc32(body) + body
    manager = SaveManager(store, program="", keep=1, allow_pickle=False)
    with pytest.raises(BrokenCheckpoint, match="larger than"):
        load_sharded(manager, next(manager.log.saves()), {})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 20) | st.integers() | st.text(max_size=3),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=3), each, max_size=3),
)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_change_of_a_layout_is_refused_or_loaded(data: st.DataObject) -> None:
    """Anyone who can write to the place can write a layout with the right checksums too."""
    _, manager = a_save()
    entry = next(manager.log.saves())
    layout = manager.read(entry)
    node: Any = layout["tensors"]["x"]
    key: Any = data.draw(st.sampled_from(["dtype", "size", "chunks"]))
    if key == "chunks" and data.draw(st.booleans()):
        node, key = node["chunks"][0], data.draw(st.integers(0, 3))
    node[key] = data.draw(
        JSON
        | st.sampled_from(
            ["bfloat16", "float64", "qint8", "bits8", "float4_e2m1fn_x2", "complex64", "uint8", [4, 3], [12], [2, 6]]
        )
    )
    changed = manager.commit_shards(manager.begin_shards(), layout, entry.shards, FACTS, 0.0)
    state = {"x": torch.zeros(4, 3), "y": torch.zeros(5), "number": 0}
    try:
        load_sharded(manager, changed, state)
    except CheckpointError:
        return
    assert state["x"].shape == (4, 3)


def test_names_that_dcp_uses_for_its_own_files_mean_nothing_here(tmp_path: Path) -> None:
    """A pickle that somebody puts into the place is never opened."""
    manager = SaveManager(MemoryStore(), program="", keep=1, allow_pickle=False)
    assert manager.is_empty()
    (tmp_path / ".metadata").write_bytes(b"cos\nsystem\n(S'touch owned'\ntR.")
    from spotwright.checkpoint.dcp import StoreReader

    with pytest.raises(dcp.CheckpointException, match="no save here yet"):
        dcp.load({"x": torch.zeros(1)}, storage_reader=StoreReader(tmp_path))
