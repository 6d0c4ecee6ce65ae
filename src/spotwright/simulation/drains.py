"""Schedule drains of simulated nodes, as upgrades, consolidations or ``kubectl drain`` cause them in a cluster.

A drain is a disruption, not an interruption: the engine tries an evicted attempt again on the same rung, charges no budget and
bounds the number of such moves (row 4 of the design's table).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spotwright.supply.node_fit import uniform

__all__ = ["Drains"]


@dataclass(frozen=True, slots=True)
class Drains:
    """Drains at given moments, at a rate, or both. Durations are seconds of virtual time after the start.

    ``at`` lists moments; ``every`` is the mean time between drawn ones (exponential, as for independent arrivals). Each time one
    node with attempts is drained, drawn by the seed of the simulation; nothing happens if there is none. ``why`` is the reason in
    the signals of evicted attempts: "drained", "consolidated", ...
    """

    at: Sequence[float] = ()
    every: float | None = None
    why: str = "drained"

    def next_gap(self, seed: int, count: int) -> float:
        """Seconds between the drawn drains ``count - 1`` and ``count``. Only where there is a rate."""
        return -math.log1p(-uniform(seed, "drain", count)) * (self.every or math.inf)

    def choose(self, seed: int, count: int, nodes: Sequence[str]) -> str:
        """The node that the drain of this count takes."""
        return min(nodes, key=lambda node: uniform(seed, "drain", count, node))
