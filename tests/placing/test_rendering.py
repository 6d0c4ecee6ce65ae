"""A written value reads back as the same value wherever it stands: the half of the self-check that needs no document."""

from __future__ import annotations

import json
from typing import Any

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from spotwright.placing.documents import parse
from spotwright.placing.patch import is_same
from spotwright.placing.yaml_writer import block, flow, inline

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
_LOOKALIKES = [
    *(
        "yes",
        "No",
        "null",
        "~",
        "0x1f",
        "1e3",
        "1_000",
        "012",
        "1:30",
        "2024-01-01",
        "<<",
        "=",
        "---",
        "|",
        "a: b",
        "a #b",
    ),
    *(" a", "a ", "line\nline\n", "a\n\nb\n", "\ta\n", "\x7f", "\u2028", "\ufeff", "\U0001f600", "\U000e0001"),
]
_TEXTS = st.text(alphabet="ab'\"\\:#-{}[]!&*%@`|>,? \n\t.0123456789eE+_", max_size=12) | st.sampled_from(_LOOKALIKES)
_VALUES = st.recursive(
    _SCALARS | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS | st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_BLOCKS = st.dictionaries(_TEXTS, _VALUES, min_size=1, max_size=4) | st.lists(_VALUES, min_size=1, max_size=4)


def _read(text: str) -> Any:
    [document] = parse(text, "rendered.yaml")
    return document.get(())


@given(value=_BLOCKS, column=st.integers(0, 8))
@example(value={"a": [[["b"], {}], {"c": {"d": []}}]}, column=2)
@example(value=[{"script": "#!/bin/sh\nset -e\n"}], column=4)
def test_a_block_reads_as_its_value_at_any_column(value: Any, column: int) -> None:
    lines = block(value, column)

    assert is_same(_read("\n".join(lines) + "\n"), value)
    assert all(line.startswith(" " * column) for line in lines if line)


@given(value=_VALUES)
def test_a_line_reads_as_its_value(value: Any) -> None:
    assert is_same(_read(f"x: {flow(value)}\n"), {"x": value})
    assert "\n" not in flow(value)


@given(value=_BLOCKS)
def test_other_readers_read_the_same(value: Any) -> None:
    assert yaml.safe_load("\n".join(block(value, 0)) + "\n") == value


@given(value=_VALUES)
def test_what_is_written_into_json_is_json(value: Any) -> None:
    [document] = parse('{"kind": "Pod"}', "rendered.json")
    text = inline(document, value)

    assert json.loads(text) == value
    assert "\n" not in text
