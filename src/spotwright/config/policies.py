"""Reads the policies of a configuration into layers with their lines, and finds contradictions among them and the pools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

from spotwright.config.fields import read_fields
from spotwright.config.patterns import refusal
from spotwright.config.policy_fields import POLICY
from spotwright.config.problems import Location, closest
from spotwright.config.yaml_nodes import Entry, Items, Node, Scalar, Table, plain
from spotwright.model.policy import FIELDS, Layer, Policy, PolicyValueError, Spot, check, parse_policy, resolve
from spotwright.model.pools import Pool

__all__ = ["Policies", "check_policies", "read_policies"]

_GROUPS: dict[str, dict[str, str]] = {}
for _field in FIELDS:
    _group, _, _name = _field.rpartition(".")
    _GROUPS.setdefault(_group, {})[_name] = _field
_KEYS = (*_GROUPS[""], *(group for group in _GROUPS if group))


class Policies(NamedTuple):
    """The policies of a file: the default for every task, and the policies by pattern in the order of the file."""

    default: Layer | None = None
    tasks: tuple[tuple[str, Layer], ...] = ()


def read_policies(node: Table, location: Location) -> Policies:
    """Read ``policy``. The source of each layer is the name of the file with the line of the layer's key."""
    values = read_fields(node, location, POLICY)
    default, tasks = values.get("default"), values.get("tasks")
    layer = None
    if default is not None:
        layer = _layer(default, node.entries["default"].line, location.key("default"))
    return Policies(layer, tuple(_tasks(tasks, location.key("tasks"))) if tasks is not None else ())


def _tasks(node: Table, location: Location) -> Iterator[tuple[str, Layer]]:
    for pattern, entry in node.entries.items():
        here = location.key(pattern)
        reason = refusal(pattern)
        if reason:
            here.wrong(entry.line, reason)
        if isinstance(entry.node, Table):
            yield pattern, _layer(entry.node, entry.line, here)
        else:
            here.expected(entry.node, "a mapping of policy fields such as {spot: never}")


def _layer(node: Table, line: int, location: Location) -> Layer:
    source = f"{PurePath(location.problems.name).name}:{line}"
    values: dict[str, Any] = {}
    for key, entry in node.entries.items():
        here = location.key(key)
        if key in _GROUPS[""]:
            values.update(_value({key: plain(entry.node)}, entry, here, source))
        elif key not in _GROUPS:
            location.unknown(entry.line, key, _KEYS)
        elif not isinstance(entry.node, Table):
            here.expected(entry.node, f"a mapping with {', '.join(_GROUPS[key])}")
        else:
            values.update(_group_values(key, entry.node, here, source))
    return Layer(source, values)


def _group_values(group: str, node: Table, location: Location, source: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, entry in node.entries.items():
        if name in _GROUPS[group]:
            values.update(_value({group: {name: plain(entry.node)}}, entry, location.key(name), source))
        else:
            location.unknown(entry.line, name, _GROUPS[group])
    return values


def _value(mapping: Mapping[str, Any], entry: Entry, location: Location, source: str) -> Mapping[str, Any]:
    """Let the model read one field; one call for each field, so that each error has its own line."""
    try:
        return parse_policy(mapping, source).values
    except PolicyValueError as error:
        if not _wrong_items(entry.node, location):
            location.expected(entry.node, error.expected)
        return {}


def _wrong_items(node: Node, location: Location) -> bool:
    """Report the wrong items of a list; False if none of its items is wrong."""
    before = len(location.problems)
    seen = set()
    for index, item in enumerate(node.nodes if isinstance(node, Items) else ()):
        if not isinstance(item, Scalar) or item.kind != "str" or not item.text:
            location.item(index).expected(item, "a name (in quotes where it looks like a number)")
        elif item.text in seen:
            location.item(index).wrong(item.line, f"{item.text!r} is given twice: remove one")
        else:
            seen.add(item.text)
    return len(location.problems) > before


def check_policies(policies: Policies, node: Table | None, pools: Mapping[str, Pool], location: Location) -> None:
    """Report contradictions in the default taken together with each pattern, and policies for which there is no pool.

    ``node`` is the mapping ``policy`` of the file. Call this only if reading reported no problem.
    """
    if node is None:
        return
    reported: set[str] = set()
    layers = [policies.default] if policies.default is not None else []
    if layers:
        entry = node.entries["default"]
        _check_layer(layers, entry, pools, location.key("default"), reported)
    for pattern, layer in policies.tasks:
        tasks = node.entries["tasks"].node
        if isinstance(tasks, Table):
            _check_layer([*layers, layer], tasks.entries[pattern], pools, location.key("tasks").key(pattern), reported)


def _check_layer(
    layers: list[Layer], entry: Entry, pools: Mapping[str, Pool], location: Location, reported: set[str]
) -> None:
    """``reported`` holds the problems so far, so that a problem of the default is not repeated for every pattern."""
    _check_ladder(entry.node, pools, location.key("ladder"))
    policy = resolve(layers)
    for text in (*check(policy, layers), *_missing_pools(policy, pools)):
        if text not in reported:
            reported.add(text)
            location.wrong(entry.line, text)


def _check_ladder(node: Node, pools: Mapping[str, Pool], location: Location) -> None:
    ladder = node.entries.get("ladder") if isinstance(node, Table) else None
    if ladder is None or not isinstance(ladder.node, Items):
        return
    for index, item in enumerate(ladder.node.nodes):
        if isinstance(item, Scalar) and item.text not in pools:
            location.item(index).wrong(item.line, f"{item.text!r} is no pool, {closest(item.text, pools)}")


def _missing_pools(policy: Policy, pools: Mapping[str, Pool]) -> Iterator[str]:
    """Problem of a policy that leaves no pool. ``prefer`` always leaves one: without one capacity type it uses the other."""
    if policy.spot not in (Spot.REQUIRE, Spot.NEVER):
        return
    needs = "a spot pool" if policy.spot is Spot.REQUIRE else "an on-demand pool"
    names = policy.ladder if policy.ladder is not None else tuple(pools)
    candidates = [pools[name] for name in names if name in pools]
    if not any(pool.is_spot == (policy.spot is Spot.REQUIRE) for pool in candidates):
        among = f"the ladder ({policy.sources['ladder']}) has none" if policy.ladder is not None else "there is none"
        yield f"spot: {policy.spot} ({policy.sources['spot']}) needs {needs}, and {among}: add one"
