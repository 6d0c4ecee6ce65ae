"""When simulated nodes are taken: a seeded model of interruptions, and recorded traces of how many nodes could be had.

The model draws, for each attempt, how much of it its node lives to see. The draw depends on the seed, the task and the
attempt's number alone, so a fast and a slow machine see the same interruptions:

* an attempt that reports progress loses its node at a *share of its own work*. With ``work`` (the stated length of such an
  attempt, ``taken_every`` where nothing is stated) the share is exponential with mean ``taken_every / work``; one or more
  means that the attempt is let through;
* an attempt that reports none loses its node at an *age*, exponential with mean ``taken_every``.

Of several attempts on a node the oldest one's draw counts, so that a node is taken as often however many it holds.

A trace is ``{"metadata": {"gap_seconds": n}, "data": [...]}`` with the number of nodes that could be had at each tick; it
starts again when it is over.
"""

from __future__ import annotations

import hashlib
import math

from spotwright.model.pools import Simulate
from spotwright.model.traces import Trace

__all__ = ["LATEST_SHARE", "Fate", "fate", "next_change", "nodes_at", "uniform"]

LATEST_SHARE = 0.85
"""The latest share of its work at which a reporting attempt loses its node: so that the end of a fast attempt cannot
overtake the interruption on one machine and not on another."""


class Fate:
    """What the seed holds for one attempt on a pool: ``share`` of its reported work, or ``age`` in seconds."""

    __slots__ = ("age", "share")

    def __init__(self, share: float | None, age: float) -> None:
        self.share = share  # None: an attempt that reports progress is let through
        self.age = age

    def threshold(self, first: float) -> float | None:
        """The progress at which the node goes, for an attempt whose first report was ``first``; ``None``: never."""
        if self.share is None or first >= 1.0:
            return None
        return first + self.share * (1.0 - first)


def uniform(seed: int, *parts: object) -> float:
    """A number in [0, 1) that depends on nothing but its arguments, the same on every machine and version of Python."""
    text = "\x1f".join(str(part) for part in (seed, *parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") / 2.0**64


def fate(simulate: Simulate, seed: int, task: str, attempt: int) -> Fate | None:
    """The fate of one attempt on a pool; ``None`` where the pool's nodes are never taken by the model."""
    if simulate.taken_every is None:
        return None
    life = -math.log1p(-uniform(seed, "life", task, attempt))
    share = life * simulate.taken_every / (simulate.work or simulate.taken_every or 1.0)
    return Fate(min(share, LATEST_SHARE) if share < 1.0 else None, life * simulate.taken_every)


def nodes_at(trace: Trace, moment: float) -> int:
    """How many nodes could be had ``moment`` seconds into the trace."""
    return trace.counts[_tick(trace, moment) % len(trace.counts)]


def next_change(trace: Trace, moment: float) -> float | None:
    """When the number changes next, in seconds into the trace; ``None`` for a trace that never changes."""
    tick = _tick(trace, moment)
    size = len(trace.counts)
    now = trace.counts[tick % size]
    for ahead in range(1, size + 1):
        if trace.counts[(tick + ahead) % size] != now:
            return (tick + ahead) * trace.gap
    return None


def _tick(trace: Trace, moment: float) -> int:
    """The tick that a moment lies in. The moment of a tick itself is in it, whatever its float was rounded to."""
    return math.floor(moment / trace.gap + 1e-9)
