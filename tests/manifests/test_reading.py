"""The reader of the self-check says yes only to what a document says yes to, and where things stand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.manifests.documents import parse
from spotwright.manifests.reading import read_as
from spotwright.manifests.splice import block

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
_OBJECTS = st.dictionaries(st.text(max_size=4), _VALUES, min_size=1, max_size=3)


def written(value: Any) -> str:
    return "\n".join([*block(value, 0), ""])


@given(value=_OBJECTS, other=_OBJECTS)
def test_it_agrees_with_a_document(value: dict[str, Any], other: dict[str, Any]) -> None:
    [document] = parse(written(value), "it.yaml")
    key = next(iter(value))
    at = (0, key, *(() if not isinstance(value[key], dict | list) else ("nowhere",)))
    says = read_as(written(value), 0, [other], at)

    assert says is None if document.get(()) != other else (says is not None or "nowhere" in at)


def test_it_knows_where_a_value_and_the_documents_stand() -> None:
    text = "# a comment\n---\nkind: One\n---\n---\nkind: Two\nname: 'it''s'\n---\nlast: 1\n"
    [_, second, third] = parse(text, "it.yaml")
    found = read_as(text, second.index, [second.get(()), third.get(())], (0, "name"))

    assert found is not None
    whole, name = found
    assert text[name.start : name.end] == "'it''s'"
    assert (whole.start, whole.end) == (second.start, third.end)


@pytest.mark.parametrize(
    "text",
    [
        "a: &x {b: 1}\nc: *x\n",
        "base: &x {b: 1}\na: {<<: *x}\n",
        "a: !!str 1\n",
        "a: 1\na: 1\n",
        "? [a]\n: 1\n",
        "a: [1\n",
        "a: 1\nb: 2\n",
        "a: [1, 2]\n",
        "{}\n",
        "",
    ],
)
def test_it_is_not_sure_of_anything_unusual_or_different(text: str) -> None:
    assert read_as(text, 0, [{"a": 1}], (0, "a")) is None
    assert read_as(text, 0, [{"a": [1]}], (0, "a")) is None
