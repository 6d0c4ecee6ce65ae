"""Reads the sections of a configuration (pools, policies, recorded traces), and finds contradictions.

Each field is read by its table; then the rules across fields are checked, with the lines of both sides. Policies become layers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from spotwright.clouds.provider_records import PROVIDERS
from spotwright.config import fields
from spotwright.config.document import Entry, Items, Location, Node, Scalar, Table, closest, plain, read_text
from spotwright.config.fields import POOL, SIMULATE, Field, read_fields
from spotwright.errors import ConfigError
from spotwright.model.policy import FIELDS, Layer, Policy, PolicyValueError, Spot, check, parse_policy, resolve
from spotwright.model.pools import Capacity, Pool, Resources, Simulate, Trace
from spotwright.model.quantities import parse_price
from spotwright.model.task_names import refusal

__all__ = [
    "POLICY",
    "POLICY_MEANINGS",
    "Policies",
    "check_policies",
    "load_trace",
    "read_policies",
    "read_pools",
]


POLICY = (
    Field("default", "a mapping of policy fields", fields.table, None, "none", "The policy of every task."),
    Field(
        "tasks",
        "a mapping of policies by pattern",
        fields.table,
        None,
        "none",
        "The policy of tasks whose path or the end of it matches; a later pattern wins over an earlier one, key by key.",
    ),
)
"""The keys of ``policy``."""

POLICY_MEANINGS: Mapping[str, str] = {
    "spot": "Spot only, spot first, or on-demand only. If unset, Spotwright leaves the task's placement alone.",
    "ladder": "The pools an attempt may use, in this order.",
    "interruptions.max": "Number of interruptions that a task survives. An interruption never counts as an error. "
    "Under a deadline: number of interrupted attempts in a row without more progress; after more, spot is left for good.",
    "interruptions.backoff": "Wait before an attempt that returns to the pool that reclaimed its node.",
    "interruptions.factor": "Factor by which each further wait grows.",
    "interruptions.max_backoff": "Maximum wait.",
    "errors.retries": "Number of errors after which a task is tried again. An error never counts as an interruption.",
    "errors.backoff": "Wait after an error.",
    "errors.factor": "Factor by which each further wait grows.",
    "errors.max_backoff": "Maximum wait.",
    "fall_back_after": "Number of interruptions after which the task stays on on-demand. Only with `spot: prefer`.",
    "pending_timeout": "Time for which an attempt waits for a node of one pool before it tries the next pool."
    " On a cluster, time during which a node is being provisioned does not count.",
    "deadline": "Time by which the work must be done. It decides the pool, in place of `fall_back_after` and `pending_timeout`.",
    "expected_duration": "Duration of the task, for a deadline to plan with.",
    "grace_period": "Time that the code gets between SIGTERM and SIGKILL.",
    "timeout": "Maximum duration of one attempt.",
    "checkpoint": "Place of the code's checkpoints, which the code reads from the environment variable SPOTWRIGHT_CHECKPOINT.",
    "image_pull_secrets": "Secrets with which the cluster pulls the image.",
}
"""The meaning of each policy field."""


_GROUPS: dict[str, dict[str, str]] = {}
for _field in FIELDS:
    _group, _, _name = _field.rpartition(".")
    _GROUPS.setdefault(_group, {})[_name] = _field
_KEYS = (*_GROUPS[""], *(group for group in _GROUPS if group))


class Policies(NamedTuple):
    """The policies of a file: the default of all tasks, and the policies by pattern in file order."""

    default: Layer | None = None
    tasks: tuple[tuple[str, Layer], ...] = ()


def read_policies(node: Table, location: Location) -> Policies:
    """Read ``policy``. A layer's source is the file's name with the line of the layer's key."""
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
    for key, entry in location.entries(node, _KEYS).items():
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
    for name, entry in location.entries(node, _GROUPS[group]).items():
        if name in _GROUPS[group]:
            values.update(_value({group: {name: plain(entry.node)}}, entry, location.key(name), source))
        else:
            location.unknown(entry.line, name, _GROUPS[group])
    return values


def _value(mapping: Mapping[str, Any], entry: Entry, location: Location, source: str) -> Mapping[str, Any]:
    """Let the model read one field. Each field is read separately, so that its error has its line."""
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
    """Report contradictions in the default combined with each pattern, and policies without a matching pool.

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
            location.item(index).wrong(item.line, f"{item.text!r} is not a pool, {closest(item.text, pools)}")


def _missing_pools(policy: Policy, pools: Mapping[str, Pool]) -> Iterator[str]:
    """The problem of a policy without a pool. ``prefer`` always has one: without one capacity type it uses the other."""
    if policy.spot not in (Spot.REQUIRE, Spot.NEVER):
        return
    needs = "a spot pool" if policy.spot is Spot.REQUIRE else "an on-demand pool"
    names = policy.ladder if policy.ladder is not None else tuple(pools)
    candidates = [pools[name] for name in names if name in pools]
    if not any(pool.is_spot == (policy.spot is Spot.REQUIRE) for pool in candidates):
        among = (
            f"the ladder ({policy.sources['ladder']}) has none" if policy.ladder is not None else "none is configured"
        )
        yield f"spot: {policy.spot} ({policy.sources['spot']}) needs {needs}, and {among}: add one"


MAX_BYTES = 100_000_000  # 45 days in steps of 195 s are 60 kB
MAX_GAP = 366 * 86400  # seconds


def load_trace(path: str | Path, max_price: Fraction | None = None) -> Trace:
    """Read a recorded trace. While its price is above ``max_price``, no node is available.

    Raises :class:`ConfigError` that names the file and the expected content.
    """
    text = read_text(path, MAX_BYTES)
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: not valid JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
        raise ConfigError(f"{path}: not a trace: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError(f'{path}: expected {{"metadata": {{"gap_seconds": n}}, "data": [counts]}}')
    counts = _counts(document, path)
    prices = _prices(document, path, len(counts))
    if max_price is not None and prices:
        counts = tuple(0 if price > max_price else count for count, price in zip(counts, prices, strict=True))
    return Trace(_gap(document, path), counts)


def _gap(document: dict[str, Any], path: str | Path) -> float:
    metadata = document.get("metadata")
    gap = metadata.get("gap_seconds") if isinstance(metadata, dict) else None
    if isinstance(gap, bool) or not isinstance(gap, int | float) or not 0 < gap <= MAX_GAP or math.isnan(gap):
        raise ConfigError(f"{path}: metadata.gap_seconds: expected the seconds between two counts, more than 0")
    return float(gap)


def _counts(document: dict[str, Any], path: str | Path) -> tuple[int, ...]:
    data = document.get("data")
    if not isinstance(data, list) or not data:
        raise ConfigError(f"{path}: data: expected a list of numbers of available nodes, one or more")
    for index, count in enumerate(data):
        if type(count) is not int or count < 0:
            raise ConfigError(
                f"{path}: data[{index}]: expected a whole number, 0 or more, found {json.dumps(count)[:60]}"
            )
    return tuple(data)


def _prices(document: dict[str, Any], path: str | Path, count: int) -> tuple[Fraction, ...]:
    prices = document.get("prices", [])
    if not isinstance(prices, list) or (prices and len(prices) != count):
        raise ConfigError(f"{path}: prices: expected a list with a price for each count of data ({count})")
    return tuple(_price(price, f"{path}: prices[{index}]") for index, price in enumerate(prices))


def _price(price: Any, field: str) -> Fraction:
    try:
        return parse_price(price if isinstance(price, int | float | str) else "")
    except ValueError:
        raise ConfigError(f"{field}: expected an amount per hour, 0 or more, found {json.dumps(price)[:60]}") from None


_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # an RFC 1123 label
_ONLY_SPOT = ("interrupt_every", "expected_duration", "trace", "start")


def read_pools(node: Table, location: Location, folder: Path, *, traces_exist: bool) -> dict[str, Pool]:
    """Read all pools in the order of the file. Paths of traces are relative to ``folder``.

    The traces are read only if ``traces_exist``. Problems are reported at ``location``; a pool with a problem is left out.
    """
    if not node.entries:
        location.wrong(node.line, "expected at least one pool, found none")
    pools = {}
    for name, entry in node.entries.items():
        here = location.key(name)
        if not _NAME.fullmatch(name):
            here.wrong(
                entry.line, "expected a name of at most 63 lower-case letters, digits and -, as Kubernetes asks for"
            )
        if not isinstance(entry.node, Table):
            here.expected(entry.node, "a mapping such as {capacity: spot}")
            continue
        pool = _pool(name, entry.node, here)
        if pool is not None and pool.simulate.trace is not None:
            pool = replace(pool, simulate=pool.simulate._replace(trace=str(folder / pool.simulate.trace)))
            if traces_exist:
                _check_trace(pool.simulate, entry.node.entries["simulate"].node, here.key("simulate"))
        if pool is not None:
            pools[name] = pool
    return _with_nodes_of_same_machine(pools)


def _pool(name: str, node: Table, location: Location) -> Pool | None:
    before = len(location.problems)
    values = read_fields(node, location, POOL)
    simulate = values.get("simulate")
    values["simulate"] = Simulate()
    if simulate is not None:
        values["simulate"] = _simulate(simulate, location.key("simulate"), values.get("capacity"))
    if len(location.problems) > before:
        return None
    if values["notice"] is None:
        values["notice"] = PROVIDERS[values["provider"]].notice
    pool = Pool(name=name, **values)
    _check_together(pool, node.entries, location)
    return pool


def _check_together(pool: Pool, entries: Mapping[str, Entry], location: Location) -> None:
    if pool.min_nodes > pool.max_nodes:
        location.key("min_nodes").wrong(
            entries["min_nodes"].line, f"expected at most max_nodes ({pool.max_nodes}), found {pool.min_nodes}"
        )
    if pool.automatic and not PROVIDERS[pool.provider].makes_pools:
        makers = [one for one in PROVIDERS.values() if one.makes_pools]
        of_clouds = " and ".join(
            f"{one.makes_pools_of} are provider: {one.name}" for one in makers if one.makes_pools_of
        )
        location.key("automatic").wrong(
            entries["automatic"].line,
            f"only {' and '.join(one.title for one in makers)} make node pools by themselves: {of_clouds}",
        )
    if pool.max_price is not None and not pool.is_spot:
        location.key("max_price").wrong(entries["max_price"].line, "only spot pools have a maximum price: remove it")


def _simulate(node: Table, location: Location, capacity: Capacity | None) -> Simulate:
    entries = location.entries(node, [field.name for field in SIMULATE])
    if capacity is Capacity.ON_DEMAND:
        for name in _ONLY_SPOT:
            if name in entries:
                location.key(name).wrong(
                    entries[name].line, "on-demand nodes are not reclaimed: remove it, or set capacity: spot"
                )
    elif "interrupt_every" in entries and "trace" in entries:
        line = max(entries["interrupt_every"].line, entries["trace"].line)
        location.wrong(line, "expected interrupt_every or trace, found both: remove one")
    else:
        _needs("expected_duration", "interrupt_every", entries, location)
        _needs("start", "trace", entries, location)
    return Simulate(**read_fields(node, location, SIMULATE))


def _needs(name: str, other: str, entries: Mapping[str, Entry], location: Location) -> None:
    if name in entries and other not in entries:
        location.key(name).wrong(entries[name].line, f"has an effect only with {other}: add that, or remove this")


def _check_trace(simulate: Simulate, node: Node, location: Location) -> None:
    """Report an unreadable or too short trace."""
    entries = node.entries if isinstance(node, Table) else {}
    try:
        trace = load_trace(str(simulate.trace))
    except ConfigError as error:
        location.key("trace").wrong(entries["trace"].line, str(error))
        return
    if simulate.start >= trace.length:
        location.key("start").wrong(entries["start"].line, f"expected less than the {trace.length:g}s of the trace")


def _with_nodes_of_same_machine(pools: Mapping[str, Pool]) -> dict[str, Pool]:
    """Give a pool without ``node`` the ``node`` of the first pool with the same machine type."""
    nodes: dict[str, Resources] = {}
    for pool in pools.values():
        if pool.machine and pool.node is not None:
            nodes.setdefault(pool.machine, pool.node)
    return {
        name: pool if pool.node is not None else replace(pool, node=nodes.get(pool.machine))
        for name, pool in pools.items()
    }
