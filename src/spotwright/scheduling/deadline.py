"""The deadline decision (row 8 of the design's table): spot while there is slack, on-demand from the last moment it can finish.

A task with a deadline may wait for spot as long as an on-demand node could still finish it afterwards. The last moment is
``deadline - work left - overhead``; work left is the stated work less the reported progress. Where nobody states the work
it is not known how long waiting is safe, so on-demand is used at once. The algebra is that of the safety net in "Can't Be
Late" (Wu et al., NSDI 2024).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spotwright.scheduling.ladder import Ladder

__all__ = ["Choice", "Outlook", "choose"]


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the decision knows of one task. Moments are Unix seconds, durations seconds of real time.

    ``work`` is how long the whole task takes on a node that is never taken (``None``: not known), ``progress`` the share of
    it that is done and saved, ``overhead`` what an on-demand attempt needs before work goes on.
    """

    now: float
    deadline: float
    work: float | None
    progress: float
    overhead: float
    interruptions: int
    max_interruptions: int

    @property
    def last_moment(self) -> float | None:
        """The last moment at which on-demand can still finish in time; ``None`` where the work is not known."""
        if self.work is None:
            return None
        return self.deadline - self.work * (1.0 - self.progress) - self.overhead

    @property
    def only_on_demand(self) -> bool:
        """Whether nothing but on-demand may be used now."""
        last = self.last_moment
        return self.interruptions >= self.max_interruptions or last is None or self.now >= last


@dataclass(frozen=True, slots=True)
class Choice:
    """Where the next attempt is placed, and until when it may wait there (Unix seconds; ``None``: as long as it takes)."""

    rung: int
    why: str
    until: float | None = None


def choose(outlook: Outlook, ladder: Ladder, has_room: Callable[[str], bool]) -> Choice:
    """Choose the rung of the next attempt under a deadline.

    The first spot rung with room, else the first spot rung to wait on until the last moment. Without an on-demand rung
    (``spot: require`` with a best-effort deadline) spot rungs are all there is.
    """
    spot = [index for index, rung in enumerate(ladder.rungs) if rung.spot is not False]
    if not spot or (outlook.only_on_demand and ladder.on_demand):
        return Choice(ladder.on_demand[0], _reason(outlook))
    ready = next((index for index in spot if any(has_room(pool) for pool in ladder.rungs[index].pools)), None)
    last = outlook.last_moment if ladder.on_demand else None
    if ready is not None:
        return Choice(ready, "spot: there is slack to the deadline", last)
    return Choice(spot[0], "waits for spot: on-demand can still finish in time later", last)


def _reason(outlook: Outlook) -> str:
    if outlook.interruptions >= outlook.max_interruptions:
        return "on-demand: the interruption budget is spent"
    if outlook.last_moment is None:
        return "on-demand: a deadline without a stated 'work' leaves no safe time to wait for spot"
    return "on-demand: the last moment at which it can still finish in time has come"
