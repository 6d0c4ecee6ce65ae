"""Reads the pools of a configuration: every field by its table, then the rules that span several fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from spotwright.clouds.providers import default_notice
from spotwright.config.fields import POOL, SIMULATE, read_fields
from spotwright.config.problems import Location
from spotwright.config.traces import load_trace
from spotwright.config.yaml_nodes import Entry, Node, Table
from spotwright.errors import ConfigError
from spotwright.model.pools import Capacity, Pool, Resources, Simulate

__all__ = ["read_pools"]

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # an RFC 1123 label
_ONLY_SPOT = ("taken_every", "work", "trace", "start")


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
        values["notice"] = default_notice(values["provider"])
    pool = Pool(name=name, **values)
    _check_together(pool, node.entries, location)
    return pool


def _check_together(pool: Pool, entries: Mapping[str, Entry], location: Location) -> None:
    if pool.min_nodes > pool.max_nodes:
        location.key("min_nodes").wrong(
            entries["min_nodes"].line, f"expected at most max_nodes ({pool.max_nodes}), found {pool.min_nodes}"
        )
    if pool.max_price is not None and not pool.is_spot:
        location.key("max_price").wrong(entries["max_price"].line, "only spot pools have a maximum price: remove it")


def _simulate(node: Table, location: Location, capacity: Capacity | None) -> Simulate:
    entries = node.entries
    if capacity is Capacity.ON_DEMAND:
        for name in _ONLY_SPOT:
            if name in entries:
                location.key(name).wrong(
                    entries[name].line, "on-demand nodes are not taken: remove it, or set capacity: spot"
                )
    elif "taken_every" in entries and "trace" in entries:
        line = max(entries["taken_every"].line, entries["trace"].line)
        location.wrong(line, "expected taken_every or trace, found both: remove one")
    else:
        _needs("work", "taken_every", entries, location)
        _needs("start", "trace", entries, location)
    return Simulate(**read_fields(node, location, SIMULATE))


def _needs(name: str, other: str, entries: Mapping[str, Entry], location: Location) -> None:
    if name in entries and other not in entries:
        location.key(name).wrong(entries[name].line, f"has a meaning only with {other}: add that, or remove this")


def _check_trace(simulate: Simulate, node: Node, location: Location) -> None:
    """Report a trace that cannot be read, or that is too short."""
    entries = node.entries if isinstance(node, Table) else {}
    try:
        trace = load_trace(str(simulate.trace))
    except ConfigError as error:
        location.key("trace").wrong(entries["trace"].line, str(error))
        return
    if simulate.start >= trace.length:
        location.key("start").wrong(entries["start"].line, f"expected less than the {trace.length:g}s of the trace")


def _with_nodes_of_same_machine(pools: Mapping[str, Pool]) -> dict[str, Pool]:
    """Give a pool without ``node`` that of the first pool with the same machine type."""
    nodes: dict[str, Resources] = {}
    for pool in pools.values():
        if pool.machine and pool.node is not None:
            nodes.setdefault(pool.machine, pool.node)
    return {
        name: pool if pool.node is not None else replace(pool, node=nodes.get(pool.machine))
        for name, pool in pools.items()
    }
