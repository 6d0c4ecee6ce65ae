"""The markets of a forecast: sampled windows of every spot pool, with the moment at which each spell ends.

Tasks begin at any moment, and a window has one state a tick. So each window is shifted by a drawn part of a tick: a loss of spot
is then as likely at any moment of a task, also where tasks are shorter than a tick. After its end a window begins again, as a
recorded trace does for the local engine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from spotwright.errors import InputError
from spotwright.market import MarketModel, drawn, windows_of
from spotwright.model.pools import Trace
from spotwright.model.quantities import format_duration

__all__ = ["Source", "Supply", "supply_from", "supply_of"]

_SHORTEST, _LONGEST = 60.0, 600.0  # seconds of a tick
_TICKS = 1500  # a market has about so many ticks, where they are no shorter and no longer than that
_MOST_TICKS = 4000
_LEAST_DAYS = 5.0  # a market that begins again too soon would have the same short spells for ever
_NEVER = 1 << 30


class Source(NamedTuple):
    """Where markets come from: recordings by name, or the model with a mean ``rate`` of losses an hour with spot.

    ``pools`` gives single pools their own recording, by the pool's name. Without a rate the model has the shipped hazards.
    """

    traces: Mapping[str, Trace] = {}
    pools: Mapping[str, Trace] = {}
    rate: float | None = None


class Supply(NamedTuple):
    """Markets of all spot pools, with each market's shift in seconds.

    ``up[pool, tick, market]`` tells whether spot is up, ``change`` the ticks until that changes, ``lasted`` those since it did.

    ``words`` say where the markets come from, ``notes`` what a reader of the forecast should know of them.
    """

    tick: float
    up: Any
    change: Any
    lasted: Any
    shift: Any
    words: str = ""
    notes: tuple[str, ...] = ()

    @property
    def markets(self) -> int:
        """The number of markets."""
        return int(self.up.shape[2])

    def began(self, pool: Any, market: Any, now: Any) -> Any:
        """When the present spells began, in seconds from the start of the run; minus infinity if they always were."""
        index = np.floor((now + self.shift[market]) / self.tick + 1e-9).astype(np.int64)
        lasted = self.lasted[pool, index % self.up.shape[1], market]
        return np.where(lasted >= _NEVER, -np.inf, (index - lasted) * self.tick - self.shift[market])

    def look(self, pool: Any, market: Any, now: Any) -> tuple[Any, Any]:
        """Whether pools are up at these moments, and when that changes (infinite: never); arrays of one length."""
        index = np.floor((now + self.shift[market]) / self.tick + 1e-9).astype(np.int64)
        place = pool, index % self.up.shape[1], market
        left = self.change[place]
        ends = (index + left) * self.tick - self.shift[market]
        return self.up[place], np.where(left >= _NEVER, np.inf, np.maximum(ends, now + 1e-3))

    def losses_an_hour(self, pool: int) -> float:
        """The mean number of losses in an hour with spot, over all markets of a pool."""
        up = self.up[pool]
        hours = float(up.sum()) * self.tick / 3600.0
        losses = float((up & ~np.roll(up, -1, axis=0))[:-1].sum())
        return losses / hours if hours else 0.0

    def availability(self, pool: int) -> float:
        """The share of time with spot, over all markets of a pool."""
        return float(self.up[pool].mean())


def supply_of(source: Source, pools: Sequence[str], span: float, markets: int, seed: int) -> Supply:
    """Sample markets for pools, which come and go independently of each other, for runs that take about ``span`` seconds.

    A market is three times as long, and five days at least. The same seed gives the same markets. Raises
    :class:`InputError` for a rate out of range.
    """
    if markets < 1:
        raise InputError(f"--markets {markets}: expected 1 or more")
    horizon = max(3.0 * span, _LEAST_DAYS * 86400.0)
    gaps = [trace.gap for trace in (*source.traces.values(), *source.pools.values())]
    tick = max(min([_SHORTEST, *gaps]), min(_LONGEST, horizon / _TICKS))
    ticks = max(2, math.ceil(horizon / tick) + 1)
    notes: list[str] = []
    if ticks > _MOST_TICKS:
        ticks = _MOST_TICKS
        notes.append(f"markets are {format_duration(ticks * tick)} long and begin again after that")
    states = np.empty((max(1, len(pools)), ticks, markets), bool)
    for index, pool in enumerate(pools or ("spot",)):
        own = {pool: source.pools[pool]} if pool in source.pools else source.traces
        if own:
            states[index] = _recorded(own, tick, ticks, markets, [seed, index], notes)
            notes += _overlap(own, span, markets)
        else:
            model = MarketModel(rate=source.rate)
            states[index] = drawn(model, ticks * tick, markets, seed=seed + 7919 * index, tick=tick).up[0]
    shift = np.random.default_rng([seed, 1 << 20]).uniform(0.0, tick, markets)
    return supply_from(tick, states, shift)._replace(words=_words(source), notes=tuple(dict.fromkeys(notes)))


def supply_from(tick: float, up: Any, shift: Any) -> Supply:
    """The supply of markets that are there already: ``up[pool, tick, market]`` with each market's shift in seconds."""
    change = _until_change(up)
    return Supply(tick, up, change, _until_change(up[:, ::-1])[:, ::-1] - 1, shift)


def _recorded(
    traces: Mapping[str, Trace], tick: float, ticks: int, markets: int, seed: Sequence[int], notes: list[str]
) -> Any:
    """Windows of recordings, each of them as often, in a drawn order."""
    length = ticks * tick
    whole = {name: _repeated(name, trace, length, tick, notes) for name, trace in traces.items()}
    rng = np.random.default_rng([*seed, 1])
    found = windows_of(whole, length, each=-(-markets // len(whole)), tick=tick, seed=int(rng.integers(1 << 30))).up[0]
    return found[:, rng.permutation(found.shape[1])[:markets]]


def _overlap(traces: Mapping[str, Trace], span: float, markets: int) -> list[str]:
    """A note where recordings hold fewer runs that do not overlap than there are markets."""
    worth = max(1, int(sum(trace.length for trace in traces.values()) / max(span, 1.0)))
    if worth >= markets:
        return []
    return [f"windows of the recordings overlap: {markets:,} of them are worth about {worth:,} that do not"]


def _repeated(name: str, trace: Trace, length: float, tick: float, notes: list[str]) -> Trace:
    """The recording, repeated where a window does not fit into it."""
    if trace.length >= length + tick:
        return trace
    notes.append(
        f"the recording {name} of {format_duration(trace.length)} is shorter than the {format_duration(length)} of a market: "
        "it begins again after its end"
    )
    times = math.ceil((length + trace.length + tick) / trace.length)
    return trace._replace(counts=trace.counts * times)


def _until_change(up: Any) -> Any:
    """The number of ticks until the state changes, in a window that begins again after its end."""
    left = np.full(up.shape, _NEVER, np.int32)
    ticks = up.shape[1]
    for index in (*range(ticks - 1, -1, -1), *range(ticks - 1, -1, -1)):  # a second time for spells across the end
        following = (index + 1) % ticks
        same = up[:, index] == up[:, following]
        left[:, index] = np.where(same, np.minimum(left[:, following] + 1, _NEVER), 1)
    return left


def _words(source: Source) -> str:
    names = list(dict.fromkeys([*source.traces, *source.pools]))
    if names:
        return f"windows of {', '.join(names) if len(names) <= 3 else f'{len(names)} recordings'}"
    if source.rate is not None:
        return f"drawn with losses of {source.rate * 100:.3g} %/h"
    return "drawn with the shipped hazards"
