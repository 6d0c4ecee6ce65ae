"""Spot markets as arrays: for every pool, window and tick whether spot is up, and its price. Needs numpy.

It is the only input of a simulation of jobs. Windows are cut from recordings (:func:`windows_of`), at even distances or drawn
by zone, always within one part of the time; or they are drawn from a model: alternating spells with and without spot, with
hazards by age.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from spotwright.deadlines.hazards import AGES, BUCKETS, SHIPPED, HazardTable, Spells, bucket, counted
from spotwright.errors import InputError
from spotwright.model.pools import Trace

__all__ = [
    "TICK",
    "MarketModel",
    "Windows",
    "ceiling",
    "drawn",
    "hazards_of",
    "looks",
    "part",
    "pools_of",
    "scaled",
    "windows_of",
]


class Windows(NamedTuple):
    """Windows of a market. ``up[pool, tick, window]`` says whether spot is up from a tick on, for ``tick`` seconds.

    ``prices`` has the same shape and holds prices of spot per hour; ``None``: the price of the job holds throughout. ``names``
    are the names of the pools, ``sources`` each window's origin (a recording's name), for grouping.
    """

    tick: float
    up: Any
    prices: Any = None
    names: tuple[str, ...] = ("spot",)
    sources: tuple[str, ...] = ()

    @property
    def pools(self) -> int:
        """The number of pools."""
        return int(self.up.shape[0])

    @property
    def ticks(self) -> int:
        """The number of ticks of each window."""
        return int(self.up.shape[1])

    @property
    def size(self) -> int:
        """The number of windows."""
        return int(self.up.shape[2])

    def availability(self) -> float:
        """The share of time in which a pool has spot, over all pools and windows."""
        return float(self.up.mean())

    def pool(self, index: int) -> Windows:
        """The windows of one pool alone."""
        prices = None if self.prices is None else self.prices[index : index + 1]
        return Windows(self.tick, self.up[index : index + 1], prices, (self.names[index],), self.sources)

    def some(self, chosen: Any) -> Windows:
        """Some of the windows: indexes, or a mask."""
        prices = None if self.prices is None else self.prices[:, :, chosen]
        sources = tuple(np.array(self.sources)[chosen].tolist()) if self.sources else ()
        return Windows(self.tick, np.ascontiguousarray(self.up[:, :, chosen]), prices, self.names, sources)

    def checked(self, ticks: int) -> Windows:
        """Return the windows. Raises :class:`InputError` if they are empty, or shorter than ``ticks``."""
        if not self.size or not self.pools:
            raise InputError("the market has no windows: the recording is shorter than one, or none was asked for")
        if self.ticks < ticks:
            raise InputError(
                f"windows of {self.ticks * self.tick / 3600:g} h are too short: "
                f"the job may take {ticks * self.tick / 3600:g} h"
            )
        return self


TICK = 600.0
"""The default seconds between two looks at the market."""


def looks(trace: Trace, tick: float = TICK, nodes: int = 1) -> Any:
    """Whether ``nodes`` nodes were available at each tick of a recording."""
    counts = np.asarray(trace.counts)
    moments = np.arange(int(trace.length / tick + 1e-9)) * tick
    return counts[np.floor(moments / trace.gap + 1e-9).astype(int)] >= nodes


def part(trace: Trace, begin: float, end: float) -> Trace:
    """The samples of a recording between two shares of its length, 0 to 1: to fit on one part and judge on another."""
    first, last = int(len(trace.counts) * begin), int(len(trace.counts) * end)
    if last <= first:
        raise InputError(f"the part from {begin:g} to {end:g} of a recording of {len(trace.counts)} samples is empty")
    return trace._replace(counts=trace.counts[first:last])


def hazards_of(traces: Sequence[Trace]) -> HazardTable:
    """Count the spells of recordings (:func:`spotwright.deadlines.hazards.counted`)."""
    return counted([looks(trace).tolist() for trace in traces], TICK)


def windows_of(
    traces: Mapping[str, Trace],
    length: float,
    *,
    each: int = 30,
    tick: float = TICK,
    seed: int | None = None,
) -> Windows:
    """Windows of ``length`` seconds, ``each`` of every recording, as windows of one pool.

    They begin at even distances; with a ``seed`` at drawn ticks. Raises :class:`InputError` that names a recording that is too
    short.
    """
    ticks = int(np.ceil(length / tick - 1e-9))
    columns, sources = [], []
    for index, (name, trace) in enumerate(traces.items()):
        seen = looks(trace, tick)
        columns.append(seen[_begins(name, len(seen), ticks, each, seed, index)[:, None] + np.arange(ticks)])
        sources += [name] * each
    if not columns:
        raise InputError("no recording was given")
    up = np.ascontiguousarray(np.concatenate(columns).T[None])
    return Windows(tick, up, None, ("spot",), tuple(sources))


def pools_of(traces: Mapping[str, Trace], length: float, *, each: int = 30, seed: int | None = None) -> Windows:
    """Windows over several pools at the same moments: each recording is one pool, so that joint losses stay joint."""
    if not traces:
        raise InputError("no recording was given")
    ticks = int(np.ceil(length / TICK - 1e-9))
    seen = [looks(trace) for trace in traces.values()]
    shortest = min(map(len, seen))
    begins = _begins(", ".join(traces), shortest, ticks, each, seed, 0)
    index = begins[None, :] + np.arange(ticks)[:, None]
    up = np.stack([states[:shortest][index] for states in seen])
    return Windows(TICK, up, None, tuple(traces), ("all",) * each)


def _begins(name: str, size: int, ticks: int, each: int, seed: int | None, index: int) -> Any:
    room = size - ticks
    if room < 0 or each < 1:
        raise InputError(f"{name}: a window of {ticks} ticks does not fit into a recording of {size} ticks")
    if seed is None:
        return np.linspace(0, room, each).astype(int)
    return np.random.default_rng([seed, index]).integers(0, room + 1, each)


_EXACT = int(AGES[-1])  # seconds of age up to which a hazard depends on the age


class MarketModel(NamedTuple):
    """A market to draw from.

    ``rate`` is the mean number of losses in an hour with spot: 0.1 for 10 % an hour, 0 for spot that is never lost, 1 for one
    loss an hour; by default the table's. ``availability`` is the share of time with spot, 0 to 1; by default it follows
    from the hazards. ``pools`` is the number of pools, ``together`` the share of windows, 0 to 1, in which a pool follows a
    signal common to all pools: pools of one region are lost together more often than by chance.
    """

    rate: float | None = None
    availability: float | None = None
    hazards: HazardTable = SHIPPED
    pools: int = 1
    together: float = 0.0


def drawn(model: MarketModel, length: float, size: int, *, seed: int, tick: float = 600.0) -> Windows:
    """Draw ``size`` windows of ``length`` seconds of a market.

    Raises :class:`InputError` for figures out of range, and for a rate of more than one loss a tick.
    """
    if not 0.0 <= model.together <= 1.0 or model.pools < 1 or size < 1 or not 0 < tick <= length:
        raise InputError("a drawn market needs a pool, a window and a tick or more, and 'together' from 0 to 1")
    table = scaled(model.hazards, tick, model.rate, model.availability)
    ticks = int(np.ceil(length / tick - 1e-9))
    rng = np.random.default_rng(seed)
    always = model.rate == 0.0 or model.availability == 1.0
    states = np.stack([_states(table, ticks, size, tick, rng, always=always) for _ in range(model.pools)])
    if model.together and model.pools > 1:
        common = _states(table, ticks, size, tick, rng, always=always)
        follows = rng.uniform(size=(model.pools, 1, size)) < model.together
        states = np.where(follows, common[None], states)
    if model.availability == 0.0:
        states[:] = False
    return Windows(tick, np.ascontiguousarray(states), None, tuple(f"pool-{n + 1}" for n in range(model.pools)))


def scaled(hazards: HazardTable, tick: float, rate: float | None, availability: float | None) -> HazardTable:
    """The table with its hazards scaled to a mean rate of losses an hour with spot, and to a share of time with spot."""
    if rate is not None and not 0.0 <= rate <= 3600.0 / tick:
        raise InputError(
            f"rate: expected 0 to {3600.0 / tick:g} losses an hour with decisions every {tick:g} s, found {rate:g}"
        )
    if availability is not None and not 0.0 <= availability <= 1.0:
        raise InputError(f"availability: expected a share from 0 to 1, found {availability:g}")
    up, down = hazards.up, hazards.down
    if rate:
        up = _scaled(up, tick, 3600.0 / rate)
    if availability not in {None, 0.0, 1.0}:
        share = float(availability or 0.0)
        down = _scaled(down, tick, max(tick, _mean(up, tick, 1.0) * (1.0 - share) / share))
    return HazardTable(up, down)


def ceiling(windows: Windows, max_price: float) -> Windows:
    """The market for a node with a ``max_price``: spot is unavailable while its price is higher.

    Windows without prices are returned as they are.
    """
    if windows.prices is None:
        return windows
    return windows._replace(up=windows.up & (windows.prices <= max_price))


def _scaled(spells: Spells, tick: float, mean: float) -> Spells:
    """The spells with a mean length of ``mean`` seconds: each chance of continuing is raised to the same power."""
    low, high = 1e-6, 1e6
    for _ in range(80):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _mean(spells, tick, middle) > mean else (low, middle)
    chances = [1.0 - (1.0 - spells.chance(index)) ** high for index in range(BUCKETS)]
    return Spells((1e6,) * BUCKETS, tuple(1e6 * chance for chance in chances))


def _mean(spells: Spells, tick: float, power: float) -> float:
    """The mean length of spells in seconds, with their chances of continuing raised to a power."""
    ending = _endings(spells, tick, power)
    alive = np.concatenate([[1.0], np.cumprod(1.0 - ending)])
    return float(tick * (alive[:-1].sum() + alive[-1] / max(1e-12, ending[-1])))


def _endings(spells: Spells, tick: float, power: float = 1.0) -> Any:
    """The chance of ending in a tick by the number of ticks that a spell has lasted, from one on."""
    count = int(_EXACT / tick) + 2
    by_bucket = np.array([1.0 - (1.0 - spells.chance(index, tick)) ** power for index in range(BUCKETS)])
    return by_bucket[[bucket((index + 1) * tick) for index in range(count)]]


def _states(hazards: HazardTable, ticks: int, size: int, tick: float, rng: Any, *, always: bool) -> Any:
    """Windows of one pool, [tick, window], each begun at a drawn age of a drawn spell."""
    if always:
        return np.ones((ticks, size), bool)
    endings = {kind: _endings(hazards.of(up=kind), tick) for kind in (True, False)}
    lengths = {kind: _mean(hazards.of(up=kind), tick, 1.0) for kind in (True, False)}
    up = rng.uniform(size=size) < lengths[True] / (lengths[True] + lengths[False])
    age = np.where(up, _first_ages(endings[True], size, rng), _first_ages(endings[False], size, rng))
    last = len(endings[True]) - 1
    states = np.empty((ticks, size), bool)
    for index in range(ticks):
        states[index] = up
        column = np.minimum(age, last)
        ends = rng.uniform(size=size) < np.where(up, endings[True][column], endings[False][column])
        up, age = up ^ ends, np.where(ends, 0, age + 1)
    return states


def _first_ages(ending: Any, size: int, rng: Any) -> Any:
    """Drawn ages of the spells at a random moment; the last one represents all later ones."""
    alive = np.concatenate([[1.0], np.cumprod(1.0 - ending)])[:-1]
    alive[-1] /= max(1e-12, ending[-1])
    return np.searchsorted(np.cumsum(alive) / alive.sum(), rng.uniform(size=size))
