"""Frozen values: their common behavior with dataclasses, and the work deferred until a value is made."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from spotwright.frozen import REQUIRED, Frozen


class Base(Frozen):
    name: ClassVar[str] = "base"

    at: float
    task: str = ""


class Kind(Base, kw_only=True):
    name = "kind"

    node: str
    values: Mapping[str, Any] = {}
    why: str = "none"


class Sibling(Base, kw_only=True):
    node: str
    values: Mapping[str, Any] = {}
    why: str = "none"


def test_fields_come_from_the_constructor_or_are_their_defaults() -> None:
    value = Kind(1.0, "a", node="n")
    assert (value.at, value.task, value.node, value.values, value.why) == (1.0, "a", "n", {}, "none")


def test_the_fields_of_a_class_are_known_without_a_value() -> None:
    assert list(Kind.fields()) == ["at", "task", "node", "values", "why"]
    assert Kind.fields()["node"] is REQUIRED
    assert Kind.fields()["why"] == "none"


def test_a_class_variable_is_no_field() -> None:
    assert Kind(1.0, node="n").name == "kind"
    assert "name" not in Kind.fields()


@pytest.mark.parametrize(
    ("positional", "named"),
    [
        ((), {"node": "n"}),
        ((1.0,), {}),
        ((1.0, "a", "n"), {}),
        ((1.0,), {"node": "n", "other": 1}),
        ((1.0,), {"at": 1.0}),
    ],
    ids=["no_positional_one", "no_named_one", "named_by_position", "unknown", "twice"],
)
def test_wrong_values_are_a_type_error(positional: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Kind(*positional, **named)


def test_a_value_does_not_change() -> None:
    value: Any = Kind(1.0, node="n")
    with pytest.raises(AttributeError, match="cannot set 'node': Kind is frozen"):
        value.node = "other"
    with pytest.raises(AttributeError, match="cannot delete 'node': Kind is frozen"):
        del value.node
    with pytest.raises(AttributeError, match="cannot set 'other'"):
        value.other = 1


def test_a_default_dict_belongs_to_one_value_alone() -> None:
    first, second = Kind(1.0, node="n"), Kind(1.0, node="n")
    assert first.values is not second.values
    given: dict[str, Any] = {}
    assert Kind(1.0, node="n", values=given).values is given


def test_values_of_one_class_are_equal_by_their_fields() -> None:
    assert Kind(1.0, node="n") == Kind(1.0, node="n")
    assert Kind(1.0, node="n") != Kind(1.0, node="m")


def test_values_of_two_classes_are_never_equal() -> None:
    one: object = Kind(1.0, node="n")
    assert one != Sibling(1.0, node="n")


def test_equal_values_have_one_hash() -> None:
    assert len({Base(1.0, "a"), Base(1.0, "a"), Base(1.0, "b")}) == 2


def test_a_value_is_shown_with_its_fields() -> None:
    assert repr(Base(1.0, "a")) == "Base(at=1.0, task='a')"


def test_a_value_with_changes_is_another_value() -> None:
    value = Kind(1.0, node="n")
    assert value.replaced(node="m", at=2.0) == Kind(2.0, node="m")
    assert value.node == "n"
    with pytest.raises(TypeError):
        value.replaced(other=1)


def test_a_value_is_made_of_its_fields_in_their_order() -> None:
    value = Kind(1.0, "a", node="n", values={"x": 1}, why="w")
    assert Kind.of_values(1.0, "a", "n", {"x": 1}, "w") == value


def test_a_value_survives_pickling() -> None:
    value = Kind(1.0, "a", node="n", values={"x": 1})
    assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301 (our own bytes)


def test_positional_fields_can_be_matched() -> None:
    match Base(1.0, "a"):
        case Base(at, task):
            assert (at, task) == (1.0, "a")


def test_a_constructor_is_compiled_with_the_first_value() -> None:
    class Unused(Frozen):
        name: str

    before = vars(Unused)["__init__"]
    Unused("a")
    assert vars(Unused)["__init__"] is not before
    assert Unused("b").name == "b"


def test_a_class_below_one_with_values_has_its_own_constructor() -> None:
    class Above(Frozen):
        name: str

    assert Above("a").name == "a"

    class Below(Above):
        size: int

    assert Below("a", 1).size == 1
    assert Below.of_values("a", 1) == Below("a", 1)


def test_what_is_given_by_name_alone_stays_so_in_a_class_below() -> None:
    class Below(Kind):
        size: int = 0

    value = Below(1.0, "a", 7, node="n")
    assert (value.size, value.node, value.values, value.why) == (7, "n", {}, "none")
    assert (Below.__match_args__, list(Below.fields())[-1]) == (("at", "task", "size"), "size")
    assert Below.of_values(1.0, "a", "n", {}, "none", 7) == value

    class Lowest(Below, kw_only=True):
        name_of_it: str

    assert Lowest(1.0, "a", 7, node="n", name_of_it="x").name_of_it == "x"
    with pytest.raises(TypeError):
        Lowest(1.0, "a", 7, "x", node="n")  # type: ignore[call-arg, misc]
