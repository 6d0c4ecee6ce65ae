"""Holds windows of a market: for every pool, window and tick whether spot is up, and its price.

A simulation of jobs reads nothing else. Windows come from recordings (:func:`spotwright.market.recordings.windows_of`) or from
the model (:mod:`spotwright.market.spells`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from spotwright.deadlines.hazards import AGES, BUCKETS, SHIPPED, HazardTable
from spotwright.errors import InputError

__all__ = ["Windows"]


class Windows(NamedTuple):
    """Windows of a market. ``up[pool, tick, window]`` tells whether spot is up from a tick on, for ``tick`` seconds.

    ``prices`` has the same shape and holds prices of spot per hour; ``None``: the price of the job holds throughout. ``names``
    are the names of the pools, ``sources`` where each window comes from (a recording's name), for grouping.
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
        """Return the windows. Raises :class:`InputError` where there are none, or they are shorter than ``ticks``."""
        if not self.size or not self.pools:
            raise InputError("the market has no windows: the recording is shorter than one, or none was asked for")
        if self.ticks < ticks:
            raise InputError(
                f"windows of {self.ticks * self.tick / 3600:g} h are too short: "
                f"the job may take {ticks * self.tick / 3600:g} h"
            )
        return self

    def ages(self, hazards: HazardTable = SHIPPED) -> Any:
        """The age of the present spell in seconds, at the end of the first tick that it was seen in: [pool, tick, window].

        A spell that had begun before the window is given the age of :meth:`Spells.first_age`.
        """
        ages = np.empty(self.up.shape, np.float32)
        first = np.where(self.up[:, 0], np.float32(hazards.up.first_age()), np.float32(hazards.down.first_age()))
        ages[:, 0] = first + np.float32(self.tick)
        for index in range(1, self.ticks):
            same = self.up[:, index] == self.up[:, index - 1]
            ages[:, index] = np.where(same, ages[:, index - 1], 0.0) + np.float32(self.tick)
        return ages

    def observations(self, hazards: HazardTable = SHIPPED) -> Any:
        """What a policy sees: the age bucket of the present spell, with :data:`BUCKETS` added where spot is down."""
        found = np.searchsorted(np.array(AGES), self.ages(hazards) - 1e-3, side="left").astype(np.uint8)
        found[~self.up] += BUCKETS
        return found
