"""Parameter values as the backend converts them."""

from __future__ import annotations

from typing import Any

import pytest

from spotwright.kfp.values import coerce, parse_text, to_text, whole_numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("a", "a"),
        (True, "true"),
        (3, "3"),
        (3.0, "3"),
        (0.0000001, "0.0000001"),
        (2.5, "2.5"),
        ([1.0, "ä"], '[1,"ä"]'),
        ({"b": 1, "a": "<&>"}, '{"a":"\\u003c\\u0026\\u003e","b":1}'),
    ],
)
def test_a_value_becomes_the_same_text_as_in_go(value: Any, text: str) -> None:
    assert to_text(value) == text


def test_whole_floats_inside_lists_and_mappings_become_ints() -> None:
    values = whole_numbers({"a": [1.0, 2.5, {"b": 3.0}], "c": True})
    assert values == {"a": [1, 2.5, {"b": 3}], "c": True}
    assert [type(item) for item in values["a"][:2]] == [int, float]


def test_a_whole_float_keeps_its_type_where_a_double_is_declared() -> None:
    assert type(coerce(3.0, "NUMBER_DOUBLE")) is float
    assert type(coerce(3.0, "NUMBER_INTEGER")) is int


def test_a_whole_number_becomes_a_float_where_a_double_is_declared() -> None:
    assert type(coerce(3, "NUMBER_DOUBLE")) is float


def test_the_keys_of_a_mapping_are_in_order_at_every_depth() -> None:
    assert repr(coerce([{"b": 1, "a": {"d": 2, "c": 3}}], "LIST")) == "[{'a': {'c': 3, 'd': 2}, 'b': 1}]"


def test_every_type_becomes_text_where_text_is_declared() -> None:
    assert coerce({"a": [1.0]}, "STRING") == '{"a":[1]}'


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, "NUMBER_INTEGER"),
        ("1", "NUMBER_INTEGER"),
        (float("nan"), "NUMBER_DOUBLE"),
        (float("inf"), "NUMBER_DOUBLE"),
        (1, "BOOLEAN"),
        ({}, "LIST"),
        ([], "STRUCT"),
    ],
)
def test_a_value_of_another_type_is_refused(value: Any, kind: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        coerce(value, kind)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        (" x ", "STRING", " x "),
        ("-12", "NUMBER_INTEGER", -12),
        ("1e3\n", "NUMBER_DOUBLE", 1000.0),
        ("True", "BOOLEAN", True),
        ("0", "BOOLEAN", False),
        ('[1, {"a": 2.0}]', "LIST", [1, {"a": 2}]),
        ('{"a": null}', "STRUCT", {"a": None}),
    ],
)
def test_text_is_parsed_by_its_declared_type(text: str, kind: str, value: Any) -> None:
    assert parse_text(text, kind) == value


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1.5", "NUMBER_INTEGER"),
        ("", "NUMBER_INTEGER"),
        ("one", "NUMBER_DOUBLE"),
        ("nan", "NUMBER_DOUBLE"),
        ("yes", "BOOLEAN"),
        ("{}", "LIST"),
        ("[NaN]", "LIST"),
        ("[1", "STRUCT"),
    ],
)
def test_text_of_another_type_is_refused(text: str, kind: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words are json's and float's own
        parse_text(text, kind)
