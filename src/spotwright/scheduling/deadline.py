"""The deadline decision (row 8 of the design's table): spot while there is slack, on-demand from the last moment it can finish.

A task with a deadline may wait for spot as long as an on-demand node could still finish it afterwards. The last moment is
``deadline - work left - overhead``; work left is the stated work less the progress that is saved. Where nobody states the work
it is not known how long waiting is safe, so on-demand is used at once. The algebra is that of the safety net in "Can't Be
Late" (Wu et al., NSDI 2024).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spotwright.scheduling.ladder import Ladder

__all__ = ["Choice", "Outlook", "choose", "choose_while_pending"]


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the decision knows of one task. Moments are Unix seconds, durations seconds of real time.

    ``work`` is how long the whole task takes on a node that is never taken (``None``: not known), ``progress`` the share of
    it that is done and saved, ``overhead`` what an on-demand attempt needs before work goes on. ``patience`` is how long an
    attempt waits on one rung where the deadline itself sets no end to it.
    """

    now: float
    deadline: float
    work: float | None
    progress: float
    overhead: float
    interruptions: int
    max_interruptions: int
    patience: float = 600.0

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


def choose(outlook: Outlook, ladder: Ladder, has_room: Callable[[str], bool], stay: int | None = None) -> Choice:
    """Choose the rung of the next attempt under a deadline.

    The first spot rung with room, else the first spot rung to wait on. Without an on-demand rung (``spot: require`` with a
    best-effort deadline) spot rungs are all there is. ``stay`` is the rung that rows 4 and 5 keep the attempt on while there
    is slack.
    """
    spot = _spot(ladder)
    if not spot or (outlook.only_on_demand and ladder.on_demand):
        return _on_demand(outlook, stay if stay in ladder.on_demand else ladder.on_demand[0], _reason(outlook, spot))
    if stay is None:
        return _on_spot(outlook, ladder, has_room, spot)
    why = "the same rung: there is slack to the deadline"
    if stay in ladder.on_demand:
        return _on_demand(outlook, stay, why)
    return Choice(stay, why, _patient_until(outlook, ladder, spot))


def choose_while_pending(outlook: Outlook, ladder: Ladder, has_room: Callable[[str], bool], rung: int) -> Choice | None:
    """Choose again for an attempt that found no node on ``rung`` for as long as it might wait; ``None``: nothing is left.

    While there is slack it waits on one spot rung after another; then it goes through the on-demand rungs. Spot rungs alone
    are gone through a last time once the deadline has passed.
    """
    spot = _spot(ladder)
    wanted = ladder.on_demand if rung in ladder.on_demand else tuple(spot)
    below = next((index for index in wanted if index > rung), None)
    if rung in ladder.on_demand and below is not None:
        return _on_demand(outlook, below, _reason(outlook, spot))
    if outlook.only_on_demand and ladder.on_demand:
        return None if rung in ladder.on_demand else choose(outlook, ladder, has_room)
    if not spot or (below is None and outlook.now >= outlook.deadline):
        return None
    turn = spot if below is None else [*spot[spot.index(below) :], *spot[: spot.index(below)]]
    return _on_spot(outlook, ladder, has_room, turn)


def _spot(ladder: Ladder) -> list[int]:
    return [index for index, rung in enumerate(ladder.rungs) if rung.spot is not False]


def _on_demand(outlook: Outlook, rung: int, why: str) -> Choice:
    return Choice(rung, why, outlook.now + outlook.patience)


def _on_spot(outlook: Outlook, ladder: Ladder, has_room: Callable[[str], bool], turn: list[int]) -> Choice:
    ready = next((index for index in turn if any(has_room(pool) for pool in ladder.rungs[index].pools)), None)
    until = _patient_until(outlook, ladder, turn)
    if ready is not None:
        return Choice(ready, "spot: there is slack to the deadline", until)
    why = "waits for spot: on-demand can still finish in time later" if ladder.on_demand else "waits for spot"
    return Choice(turn[0], why, until)


def _patient_until(outlook: Outlook, ladder: Ladder, spot: list[int]) -> float:
    """Until the last moment; no longer than its patience on one of several spot rungs; to the deadline without on-demand."""
    patient = outlook.now + outlook.patience
    last = outlook.last_moment if ladder.on_demand else None
    if last is None:
        last = max(outlook.deadline, patient)
    return min(patient, last) if len(spot) > 1 else last


def _reason(outlook: Outlook, spot: list[int]) -> str:
    if not spot:
        return "on-demand: there is no spot rung"
    if outlook.interruptions >= outlook.max_interruptions:
        return "on-demand: the interruption budget is spent"
    if outlook.last_moment is None:
        return "on-demand: a deadline without a stated 'work' leaves no safe time to wait for spot"
    if outlook.only_on_demand:
        return "on-demand: the last moment at which it can still finish in time has come"
    return "on-demand: it had been there before"
