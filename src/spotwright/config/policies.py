"""The policies of a configuration: layers that know their line, and the contradictions between them and the pools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

from spotwright.config.fields import POLICY, read_fields
from spotwright.config.nodes import Entry, Items, Node, Scalar, Table, plain
from spotwright.config.patterns import refusal
from spotwright.config.problems import Place, closest
from spotwright.model.policy import FIELDS, Layer, Policy, Spot, resolve
from spotwright.model.policy_values import PolicyValueError, check, parse_policy
from spotwright.model.pools import Pool

__all__ = ["Policies", "check_policies", "read_policies"]

_GROUPS: dict[str, dict[str, str]] = {}
for _field in FIELDS:
    _group, _, _name = _field.rpartition(".")
    _GROUPS.setdefault(_group, {})[_name] = _field
_KEYS = (*_GROUPS[""], *(group for group in _GROUPS if group))


class Policies(NamedTuple):
    """The policies of a file: that of every task, and those by pattern in the order of the file."""

    default: Layer | None = None
    tasks: tuple[tuple[str, Layer], ...] = ()


def read_policies(node: Table, place: Place) -> Policies:
    """Read ``policy``. Each layer's source is the file's name and the line of its key."""
    values = read_fields(node, place, POLICY)
    default, tasks = values.get("default"), values.get("tasks")
    layer = None
    if default is not None:
        layer = _layer(default, node.entries["default"].line, place.key("default"))
    return Policies(layer, tuple(_tasks(tasks, place.key("tasks"))) if tasks is not None else ())


def _tasks(node: Table, place: Place) -> Iterator[tuple[str, Layer]]:
    for pattern, entry in node.entries.items():
        here = place.key(pattern)
        reason = refusal(pattern)
        if reason:
            here.wrong(entry.line, reason)
        if isinstance(entry.node, Table):
            yield pattern, _layer(entry.node, entry.line, here)
        else:
            here.expected(entry.node, "a mapping of policy fields such as {spot: never}")


def _layer(node: Table, line: int, place: Place) -> Layer:
    source = f"{PurePath(place.problems.name).name}:{line}"
    values: dict[str, Any] = {}
    for key, entry in node.entries.items():
        here = place.key(key)
        if key in _GROUPS[""]:
            values.update(_value({key: plain(entry.node)}, entry, here, source))
        elif key not in _GROUPS:
            place.unknown(entry.line, key, _KEYS)
        elif not isinstance(entry.node, Table):
            here.expected(entry.node, f"a mapping with {', '.join(_GROUPS[key])}")
        else:
            values.update(_group_values(key, entry.node, here, source))
    return Layer(source, values)


def _group_values(group: str, node: Table, place: Place, source: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, entry in node.entries.items():
        if name in _GROUPS[group]:
            values.update(_value({group: {name: plain(entry.node)}}, entry, place.key(name), source))
        else:
            place.unknown(entry.line, name, _GROUPS[group])
    return values


def _value(mapping: Mapping[str, Any], entry: Entry, place: Place, source: str) -> Mapping[str, Any]:
    """One field, read by the model; one call a field, so that each error has its own line."""
    try:
        return parse_policy(mapping, source).values
    except PolicyValueError as error:
        if not _wrong_items(entry.node, place):
            place.expected(entry.node, error.expected)
        return {}


def _wrong_items(node: Node, place: Place) -> bool:
    """Name the items that make a list wrong; False where it is something else."""
    before = len(place.problems)
    seen = set()
    for index, item in enumerate(node.nodes if isinstance(node, Items) else ()):
        if not isinstance(item, Scalar) or item.kind != "str" or not item.text:
            place.item(index).expected(item, "a name (in quotes where it looks like a number)")
        elif item.text in seen:
            place.item(index).wrong(item.line, f"{item.text!r} is said twice: remove one")
        else:
            seen.add(item.text)
    return len(place.problems) > before


def check_policies(policies: Policies, node: Table | None, pools: Mapping[str, Pool], place: Place) -> None:
    """Note what contradicts itself once the default and one pattern are taken together, and what no pool can answer.

    ``node`` is the mapping ``policy`` of the file, ``place`` its place. Call it only where reading found no problem.
    """
    if node is None:
        return
    said: set[str] = set()
    layers = [policies.default] if policies.default is not None else []
    if layers:
        entry = node.entries["default"]
        _check_layer(layers, entry, pools, place.key("default"), said)
    for pattern, layer in policies.tasks:
        tasks = node.entries["tasks"].node
        if isinstance(tasks, Table):
            _check_layer([*layers, layer], tasks.entries[pattern], pools, place.key("tasks").key(pattern), said)


def _check_layer(layers: list[Layer], entry: Entry, pools: Mapping[str, Pool], place: Place, said: set[str]) -> None:
    """``said`` holds what was noted already, so that a fault of the default is not repeated for every pattern."""
    _check_ladder(entry.node, pools, place.key("ladder"))
    policy = resolve(layers)
    for text in (*check(policy, layers), *_against_pools(policy, pools)):
        if text not in said:
            said.add(text)
            place.wrong(entry.line, text)


def _check_ladder(node: Node, pools: Mapping[str, Pool], place: Place) -> None:
    ladder = node.entries.get("ladder") if isinstance(node, Table) else None
    if ladder is None or not isinstance(ladder.node, Items):
        return
    for index, item in enumerate(ladder.node.nodes):
        if isinstance(item, Scalar) and item.text not in pools:
            place.item(index).wrong(item.line, f"{item.text!r} is no pool, {closest(item.text, pools)}")


def _against_pools(policy: Policy, pools: Mapping[str, Pool]) -> Iterator[str]:
    """A policy that leaves no pool at all. Prefer is none: without one kind it goes on with the other."""
    if policy.spot not in (Spot.REQUIRE, Spot.NEVER):
        return
    needs = "a spot pool" if policy.spot is Spot.REQUIRE else "an on-demand pool"
    names = policy.ladder if policy.ladder is not None else tuple(pools)
    allowed = [pools[name] for name in names if name in pools]
    if not any(pool.is_spot == (policy.spot is Spot.REQUIRE) for pool in allowed):
        among = f"the ladder ({policy.sources['ladder']}) has none" if policy.ladder is not None else "there is none"
        yield f"spot: {policy.spot} ({policy.sources['spot']}) needs {needs}, and {among}: add one"
