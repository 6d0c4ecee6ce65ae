"""Cuts recordings of spot capacity into windows: at even distances, or drawn by zone, always within one part of the time.

A recording says how many nodes could be had at each moment of a fixed gap (:class:`spotwright.model.pools.Trace`). It is looked
at once a tick: the value at or before the moment of the tick counts, as a policy that looks once a tick sees it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spotwright.deadlines.hazards import HazardTable, counted
from spotwright.errors import InputError
from spotwright.market.windows import Windows
from spotwright.model.pools import Trace

__all__ = ["TICK", "hazards_of", "looks", "part", "pools_of", "windows_of"]

TICK = 600.0
"""The default seconds between two looks at the market."""


def looks(trace: Trace, tick: float = TICK, nodes: int = 1) -> Any:
    """Whether ``nodes`` nodes could be had, at each tick of a recording."""
    counts = np.asarray(trace.counts)
    moments = np.arange(int(trace.length / tick + 1e-9)) * tick
    return counts[np.floor(moments / trace.gap + 1e-9).astype(int)] >= nodes


def part(trace: Trace, begin: float, end: float) -> Trace:
    """The samples of a recording between two shares of its length, 0 to 1: to fit on one part and judge on another."""
    first, last = int(len(trace.counts) * begin), int(len(trace.counts) * end)
    if last <= first:
        raise InputError(f"the part from {begin:g} to {end:g} of a recording of {len(trace.counts)} samples is empty")
    return trace._replace(counts=trace.counts[first:last])


def hazards_of(traces: Sequence[Trace], tick: float = TICK) -> HazardTable:
    """Count the spells of recordings (:func:`spotwright.deadlines.hazards.counted`)."""
    return counted([looks(trace, tick).tolist() for trace in traces], tick)


def windows_of(
    traces: Mapping[str, Trace],
    length: float,
    *,
    each: int = 30,
    tick: float = TICK,
    seed: int | None = None,
    nodes: int = 1,
) -> Windows:
    """Windows of ``length`` seconds, ``each`` of every recording, as windows of one pool.

    They begin at even distances; with a ``seed`` at drawn ticks. Raises :class:`InputError` that names a recording that is too
    short.
    """
    ticks = int(np.ceil(length / tick - 1e-9))
    columns, sources = [], []
    for index, (name, trace) in enumerate(traces.items()):
        seen = looks(trace, tick, nodes)
        columns.append(seen[_begins(name, len(seen), ticks, each, seed, index)[:, None] + np.arange(ticks)])
        sources += [name] * each
    if not columns:
        raise InputError("no recording was given")
    up = np.ascontiguousarray(np.concatenate(columns).T[None])
    return Windows(tick, up, None, ("spot",), tuple(sources))


def pools_of(
    traces: Mapping[str, Trace],
    length: float,
    *,
    each: int = 30,
    tick: float = TICK,
    seed: int | None = None,
    nodes: int = 1,
) -> Windows:
    """Windows over several pools at the same moments: each recording is one pool, so that what falls together stays together."""
    if not traces:
        raise InputError("no recording was given")
    ticks = int(np.ceil(length / tick - 1e-9))
    seen = [looks(trace, tick, nodes) for trace in traces.values()]
    shortest = min(map(len, seen))
    begins = _begins(", ".join(traces), shortest, ticks, each, seed, 0)
    index = begins[None, :] + np.arange(ticks)[:, None]
    up = np.stack([states[:shortest][index] for states in seen])
    return Windows(tick, up, None, tuple(traces), ("all",) * each)


def _begins(name: str, size: int, ticks: int, each: int, seed: int | None, index: int) -> Any:
    room = size - ticks
    if room < 0 or each < 1:
        raise InputError(f"{name}: a window of {ticks} ticks does not fit into a recording of {size} ticks")
    if seed is None:
        return np.linspace(0, room, each).astype(int)
    return np.random.default_rng([seed, index]).integers(0, room + 1, each)
