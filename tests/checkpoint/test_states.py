"""A loaded state equals the saved one, with values, types and order; other values are refused with their path."""

from __future__ import annotations

import array
import math
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.checkpoint.places import MemoryStore, round_trip

from spotwright.checkpoint import Checkpoint, OtherProgram, UnstorableState
from spotwright.checkpoint.save_manager import SaveManager

KEYS = st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.binary(), st.tuples(st.text(), st.integers()))
PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.binary().map(bytearray)
)
DTYPES = st.one_of(
    hnp.scalar_dtypes(), hnp.array_dtypes(), hnp.unicode_string_dtypes(min_len=1), hnp.byte_string_dtypes(min_len=1)
)
ARRAYS = hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
STATES = st.recursive(
    st.one_of(PLAIN, ARRAYS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(inner, max_size=4).map(tuple), st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    """Equal in value and in type, down to the bits of every number."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        pairs = zip(one.items(), other.items(), strict=True)
        return len(one) == len(other) and all(same(a, c) and same(b, d) for (a, b), (c, d) in pairs)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return one.hex() == other.hex()
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape) == (other.dtype, other.shape) and one.tobytes() == other.tobytes()
    return bool(one == other)


@given(state=STATES)
def test_every_state_of_plain_data_and_arrays_comes_back_as_it_was(state: Any) -> None:
    assert same(round_trip(state), state)


@pytest.mark.parametrize(
    "state",
    [
        2**53, -(2**53) - 1, 10**5000, -(10**5000), math.inf, -math.inf, -0.0, 5e-324, "\ud800", "~", {"~": 1},
        {"~": "tuple", "v": []}, {1: {"1": 2}}, {(): ((),)}, {None: 0, b"": 1}, {(1, ("a",)): 2},
    ],
    ids=lambda state: repr(state)[:30] if not isinstance(state, int) else f"{state.bit_length()} bits",
)  # fmt: skip
def test_awkward_values_come_back(state: Any) -> None:
    assert same(round_trip(state), state)


def test_nan_comes_back_as_nan() -> None:
    assert math.isnan(round_trip([math.nan])[0])


def test_an_ordered_dict_comes_back_as_a_dict_in_its_order() -> None:
    assert list(round_trip(OrderedDict([("b", 1), ("a", 2)]))) == ["b", "a"]


def test_arrays_keep_their_memory_order_and_can_be_written_to() -> None:
    loaded = round_trip(np.asfortranarray(np.arange(6.0).reshape(2, 3)))

    loaded[0, 0] = 7
    assert loaded.flags.f_contiguous


def test_one_array_in_two_places_is_one_array_again() -> None:
    array = np.zeros(3)

    loaded = round_trip({"a": array, "b": [array, np.zeros(3)]})
    assert loaded["b"][0] is loaded["a"]
    assert loaded["b"][1] is not loaded["a"]


@pytest.mark.parametrize(
    "view",
    [
        np.arange(20)[::3], np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2), np.broadcast_to(np.float32(1), (3, 2)),
        np.arange(4)[::-1],
    ],
    ids=["strided", "transposed", "broadcast", "reversed"],
)  # fmt: skip
def test_views_of_arrays_come_back_with_their_values(view: Any) -> None:
    assert np.array_equal(round_trip(view), view)


def test_structured_arrays_keep_their_layout() -> None:
    dtype = np.dtype({"names": ["a", "b"], "formats": ["i1", ("f8", (2,))], "offsets": [0, 8], "itemsize": 32})
    value = np.zeros(3, dtype)
    value["b"] = [[1, 2], [3, 4], [5, 6]]

    loaded = round_trip(value)
    assert loaded.dtype == dtype
    assert np.array_equal(loaded["b"], value["b"])


@pytest.mark.parametrize("scalar", [np.float32(1.5), np.int64(-1), np.bool_(True), np.datetime64("2026-01-02", "us")])
def test_numpy_scalars_keep_their_type(scalar: Any) -> None:
    assert same(round_trip(scalar), scalar)


def test_arrays_of_the_standard_library_come_back() -> None:
    values = array.array("d", [1.0, math.pi])

    assert round_trip([values, array.array("b")]) == [values, array.array("b")]


def test_an_object_that_exposes_its_memory_comes_back_as_an_array() -> None:
    class Foreign:
        def __init__(self) -> None:
            self._values = np.arange(3)

        @property
        def __array_interface__(self) -> Any:
            return self._values.__array_interface__

    assert np.array_equal(round_trip(Foreign()), np.arange(3))


class Model:
    pass


@pytest.mark.parametrize(
    ("state", "path", "kind"),
    [
        ({"model": {"opt": [0, 1, 2, Model()]}}, "state['model']['opt'][3]", "Model"),
        ({"f": len}, "state['f']", "builtin_function_or_method"),
        ([{1, 2}], "state[0]", "set"),
        ({Model: 1}, "a key of type type", "type"),
        ({"d": defaultdict(int)}, "state['d']", "collections.defaultdict"),
        ({"a": np.array([None])}, "state['a']", "dtype object"),
        ({"m": np.ma.masked_array([1], [True])}, "state['m']", "MaskedArray"),
        (1j, "state", "complex"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_value_that_cannot_be_stored_is_named_with_its_path_and_type(state: Any, path: str, kind: str) -> None:
    with pytest.raises(UnstorableState) as error:
        round_trip(state)

    assert path in str(error.value)
    assert kind in str(error.value)


def test_a_state_within_itself_is_refused() -> None:
    state: list[Any] = []
    state.append({"again": state})

    with pytest.raises(UnstorableState, match="within itself"):
        round_trip(state)


def test_nothing_is_written_for_a_state_that_cannot_be_stored(tmp_path: Path) -> None:
    ckpt = Checkpoint(tmp_path)
    ckpt.load()
    before = sorted(tmp_path.iterdir())

    with pytest.raises(UnstorableState):
        ckpt.save([np.zeros(10), Model()])
    assert sorted(tmp_path.iterdir()) == before


def test_pickle_is_used_and_loaded_only_where_both_sides_allow_it() -> None:
    store = MemoryStore()
    trusting = SaveManager(store, program="", keep=1, allow_pickle=True)
    trusting.claim(None)
    trusting.save({"odd": {1, 2}, "plain": 1}, {"step": 0, "finished": False, "age": 0.0, "step_seconds": None})
    loaded = trusting.load()

    assert loaded is not None
    assert loaded.state == {"odd": {1, 2}, "plain": 1}
    with pytest.raises(OtherProgram, match="allow_pickle=True"):
        SaveManager(store, program="", keep=1, allow_pickle=False).load()
