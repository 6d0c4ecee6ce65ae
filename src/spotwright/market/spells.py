"""Draws markets from a model: spells with and without spot that alternate, with hazards that depend on their age.

The hazards are those of a table (:data:`spotwright.deadlines.hazards.SHIPPED` by default). The table's hazards of losing spot are
scaled so that a node is lost as often as is asked for; those of getting it back are scaled so that spot is there for the share of
time that is asked for. The shape stays: most spells are short, and most of the time lies in long ones.

Windows begin in the middle of spells, as recordings do. The same seed gives the same windows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from spotwright.deadlines.hazards import AGES, BUCKETS, SHIPPED, HazardTable, Spells, bucket
from spotwright.errors import InputError
from spotwright.market.windows import Windows

__all__ = ["MarketModel", "ceiling", "drawn", "individual_losses", "scaled"]

_EXACT = int(AGES[-1])  # seconds of age up to which a hazard depends on the age


class MarketModel(NamedTuple):
    """A market to draw from.

    ``rate`` is the mean number of losses in an hour with spot: 0.1 for 10 % an hour, 0 for spot that is never lost, 1 for one
    loss an hour; by default that of the table. ``availability`` is the share of time with spot, 0 to 1; by default it follows
    from the hazards. ``pools`` is the number of pools, ``together`` the share of windows, 0 to 1, in which a pool follows a
    signal that all of these pools have in common: pools of one region are lost at the same time more often than chance has it.
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
    """The market as a node with a ``max_price`` sees it: spot is gone while its price is above that.

    Windows without prices are returned as they are.
    """
    if windows.prices is None:
        return windows
    return windows._replace(up=windows.up & (windows.prices <= max_price))


def individual_losses(windows: Windows, nodes: int, *, seed: int, together: float = 0.92) -> Any:
    """Whether each of ``nodes`` nodes is lost at each tick: ``[pool, node, tick, window]``.

    When a pool loses spot all of its nodes go: supply is one signal a pool, and 92 % of interruptions come with others within
    three minutes ("Spot-and-Scoot", arXiv 2604.16457, as told in our notes). The rest, ``1 - together`` of all events, hit one
    node alone, at drawn moments while the pool has spot.
    """
    if nodes < 1 or not 0.0 < together <= 1.0:
        raise InputError("losses of nodes need a node or more, and a share 'together' above 0 and up to 1")
    rng = np.random.default_rng(seed)
    common = np.zeros_like(windows.up)
    common[:, 1:] = windows.up[:, :-1] & ~windows.up[:, 1:]
    alone = common.sum() * (1.0 - together) / together / max(1, windows.up.sum())
    shape = (windows.pools, nodes, windows.ticks, windows.size)
    hit = (rng.uniform(size=shape) < alone / nodes) & windows.up[:, None]
    return hit | common[:, None]


def _scaled(spells: Spells, tick: float, mean: float) -> Spells:
    """The spells with a mean length of ``mean`` seconds: each chance of going on is raised to the same power."""
    low, high = 1e-6, 1e6
    for _ in range(80):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _mean(spells, tick, middle) > mean else (low, middle)
    chances = [1.0 - (1.0 - spells.chance(index)) ** high for index in range(BUCKETS)]
    return Spells((1e6,) * BUCKETS, tuple(1e6 * chance for chance in chances))


def _mean(spells: Spells, tick: float, power: float) -> float:
    """The mean length of spells in seconds, with their chances of going on raised to a power."""
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
    """Drawn ages of the spells that somebody meets who looks at some moment; the last one stands for all later ones."""
    alive = np.concatenate([[1.0], np.cumprod(1.0 - ending)])[:-1]
    alive[-1] /= max(1e-12, ending[-1])
    return np.searchsorted(np.cumsum(alive) / alive.sum(), rng.uniform(size=size))
