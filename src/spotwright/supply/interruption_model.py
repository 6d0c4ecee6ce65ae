"""Decide when simulated nodes are taken: a seeded model of interruptions, and recorded traces of available nodes.

The model draws for each attempt the point at which its node is taken. The draw depends on the seed, the task and
the attempt's number alone, so a fast and a slow machine see the same interruptions:

* an attempt that reports progress loses its node at a *share of its own work*. With ``work`` (the stated length of such an
  attempt, by default ``taken_every``) the share is exponential with mean ``taken_every / work``; a share of one or more
  means that the attempt keeps its node;
* an attempt that reports no progress loses its node at an *age*, exponential with mean ``taken_every``.

Only the draw of the oldest attempt on a node counts, so the number of attempts on a node does not change how often it is taken.

A trace is ``{"metadata": {"gap_seconds": n}, "data": [...]}`` with the number of available nodes at each tick. After its end it
starts again.
"""

from __future__ import annotations

import hashlib
import math

from spotwright.model.pools import Simulate, Trace

__all__ = ["LATEST_SHARE", "InterruptionDraw", "draw_interruption", "next_change", "nodes_at", "uniform"]

LATEST_SHARE = 0.85
"""The latest share of its work at which a reporting attempt loses its node: with a later one, an attempt could end before the
interruption on a fast machine and after it on a slow one."""


class InterruptionDraw:
    """When the node of one attempt is taken: at a ``share`` of its reported work, or at an ``age`` in seconds."""

    __slots__ = ("age", "share")

    def __init__(self, share: float | None, age: float) -> None:
        self.share = share  # None: a reporting attempt keeps its node
        self.age = age

    def threshold(self, first: float) -> float | None:
        """The progress at which the node is taken, for an attempt whose first report was ``first``; ``None``: never."""
        if self.share is None or first >= 1.0:
            return None
        return first + self.share * (1.0 - first)


def uniform(seed: int, *parts: object) -> float:
    """A number in [0, 1) that depends on its arguments alone: the same on every machine and version of Python."""
    text = "\x1f".join(str(part) for part in (seed, *parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") / 2.0**64


def draw_interruption(simulate: Simulate, seed: int, task: str, attempt: int) -> InterruptionDraw | None:
    """Draw the interruption of one attempt on a pool; ``None`` where the model takes none of the pool's nodes."""
    if simulate.taken_every is None:
        return None
    life = -math.log1p(-uniform(seed, "life", task, attempt))
    share = life * simulate.taken_every / (simulate.work or simulate.taken_every or 1.0)
    return InterruptionDraw(min(share, LATEST_SHARE) if share < 1.0 else None, life * simulate.taken_every)


def nodes_at(trace: Trace, moment: float) -> int:
    """The number of available nodes ``moment`` seconds into the trace."""
    return trace.counts[_tick(trace, moment) % len(trace.counts)]


def next_change(trace: Trace, moment: float) -> float | None:
    """The next moment at which the number changes, in seconds into the trace; ``None`` for a trace that never changes."""
    tick = _tick(trace, moment)
    size = len(trace.counts)
    now = trace.counts[tick % size]
    for ahead in range(1, size + 1):
        if trace.counts[(tick + ahead) % size] != now:
            return (tick + ahead) * trace.gap
    return None


def _tick(trace: Trace, moment: float) -> int:
    """The tick in which a moment lies. The moment of a tick belongs to that tick, however its float was rounded."""
    return math.floor(moment / trace.gap + 1e-9)
