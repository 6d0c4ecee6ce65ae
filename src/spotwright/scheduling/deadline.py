"""Decides the rung of a task with a deadline: spot while there is slack, then on-demand (row 8 of the design's table).

A task may wait for spot as long as an on-demand node could still finish it afterwards. That ends at the last safe moment::

    last moment = deadline - work left at most - launch at most

Both figures begin with what is stated and end with what was measured (:mod:`spotwright.scheduling.estimates`).

Work that is not saved is lost with its node. So an attempt that saves nothing is launched on spot only while on-demand could
still do everything again after it, and one that saves is taken off spot at the last moment from which on-demand can still finish,
less the time that it needs to end (:mod:`spotwright.engine.decide`).

Without a stated ``work`` no wait is known to be safe, so the task goes to on-demand at once. The formula is that of the safety
net in "Can't Be Late" (Wu et al., NSDI 2024).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from spotwright.model.quantities import format_duration
from spotwright.scheduling.estimates import Estimate, Needs
from spotwright.scheduling.ladder import Ladder

__all__ = ["Choice", "Outlook", "RungAdvice", "choose", "choose_while_pending"]


_SHORT = 1.0  # seconds: a decision at the last moment comes a moment after it


class RungAdvice(NamedTuple):
    """What the cheapest plan says about one spot rung: whether a launch pays, and from when on no wait for a node there pays.

    ``numbers`` are the figures that it used, in words. It decides only what is safe anyway.
    """

    rung: int
    launches: bool
    leaves_at: float
    numbers: str


class Outlook(NamedTuple):
    """Input of the decision about one task. Moments are Unix seconds, durations seconds of real time.

    ``work`` is the duration of the whole task on a node that is never taken (``None``: not stated), ``progress`` the share of it,
    0 to 1, that is done and saved, ``overhead`` the time that an on-demand attempt is expected to need before the work goes on.
    ``patience`` is how long an attempt waits on one rung where the deadline itself does not end the wait. ``saves`` tells whether
    the work is saved, ``drain`` how long an attempt takes to end when it is told to. ``rungs`` is the advice for each spot rung,
    the best one first. ``estimated`` is what the task needs by what was measured, expected and at most; ``None``: exactly what is
    stated.
    """

    now: float
    deadline: float
    work: float | None
    progress: float
    overhead: float
    interruptions: int
    max_interruptions: int
    patience: float = 600.0
    saves: bool = True
    drain: float = 0.0
    rungs: tuple[RungAdvice, ...] = ()
    estimated: Needs | None = None

    @property
    def needs(self) -> Needs:
        """The work left, the whole work and a launch. Only where work is stated."""
        if self.estimated is not None:
            return self.estimated
        whole, left = self.work or 0.0, (self.work or 0.0) * (1.0 - self.progress)
        return Needs(Estimate(left, left), Estimate(whole, whole), Estimate(self.overhead, self.overhead))

    @property
    def spot_ends(self) -> float | None:
        """The last moment at which an attempt may begin on spot, or wait for it; ``None`` without a stated ``work``."""
        last = self.last_moment
        if last is None or self.work is None:
            return last
        return last - self.drain - (0.0 if self.saves else self.needs.whole.at_most + self.needs.launch.at_most)

    @property
    def last_moment(self) -> float | None:
        """The last moment from which on-demand can still finish in time; ``None`` without a stated ``work``."""
        if self.work is None:
            return None
        return self.deadline - self.needs.left.at_most - self.needs.launch.at_most

    @property
    def only_on_demand(self) -> bool:
        """True if only on-demand rungs are allowed now: the budget is spent, or waiting is not safe any more."""
        last = self.spot_ends
        return self.interruptions >= self.max_interruptions or last is None or self.now >= last


class Choice(NamedTuple):
    """The rung of the next attempt, and the end of its wait for a node there (Unix seconds; ``None``: no end)."""

    rung: int
    why: str
    until: float | None = None


def choose(outlook: Outlook, ladder: Ladder, has_room: Callable[[str], bool], stay: int | None = None) -> Choice:
    """Choose the rung of the next attempt under a deadline.

    While there is slack that is the first spot rung with room, else the first spot rung, to wait there. ``stay`` is the rung that
    rows 4 and 5 keep the attempt on while there is slack. A ladder without on-demand rungs (``spot: require`` with a best-effort
    deadline) leaves spot rungs only.
    """
    spot = _spot(ladder)
    if not spot or (outlook.only_on_demand and ladder.on_demand):
        return _on_demand(outlook, stay if stay in ladder.on_demand else ladder.on_demand[0], _reason(outlook, spot))
    if stay is None and outlook.rungs and ladder.on_demand:
        return _by_rung(outlook, ladder, has_room)
    if stay is None:
        return _on_spot(outlook, ladder, has_room, spot)
    why = "the same rung: there is slack before the deadline"
    if stay in ladder.on_demand:
        return _on_demand(outlook, stay, why)
    return Choice(stay, why, _end_of_wait(outlook, ladder, spot))


def choose_while_pending(outlook: Outlook, ladder: Ladder, has_room: Callable[[str], bool], rung: int) -> Choice | None:
    """Choose the next rung for an attempt whose wait for a node on ``rung`` has ended; ``None``: no rung is left.

    While there is slack the attempt waits on one spot rung after another, then on the on-demand rungs in order. On a
    ladder of spot rungs only, the deadline ends the turns: the attempt still tries the rungs after ``rung``, then none is left.
    """
    spot = _spot(ladder)
    same_kind = ladder.on_demand if rung in ladder.on_demand else tuple(spot)
    below = next((index for index in same_kind if index > rung), None)
    if rung in ladder.on_demand and below is not None:
        return _on_demand(outlook, below, _reason(outlook, spot))
    if outlook.only_on_demand and ladder.on_demand:
        return None if rung in ladder.on_demand else choose(outlook, ladder, has_room)
    if not spot or (below is None and outlook.now >= outlook.deadline):
        return None
    if outlook.rungs and ladder.on_demand and rung not in ladder.on_demand:
        return _by_rung(outlook, ladder, has_room, after=rung)
    turn = spot if below is None else [*spot[spot.index(below) :], *spot[: spot.index(below)]]
    return _on_spot(outlook, ladder, has_room, turn)


def _spot(ladder: Ladder) -> list[int]:
    return [index for index, rung in enumerate(ladder.rungs) if rung.spot is not False]


def _by_rung(outlook: Outlook, ladder: Ladder, has_room: Callable[[str], bool], after: int | None = None) -> Choice:
    """The best spot rung with room where a launch pays, else a wait that pays, else on-demand.

    An attempt waits for its patience on each rung in turn; ``after`` is the one that it has waited on last.
    """
    ends = min(outlook.spot_ends or outlook.now, outlook.now + outlook.patience)
    room = {each.rung: any(has_room(pool) for pool in ladder.rungs[each.rung].pools) for each in outlook.rungs}
    for each in outlook.rungs:
        if each.launches and room[each.rung]:
            return Choice(each.rung, f"spot: {each.numbers}", ends)
    waits = [each for each in outlook.rungs if not room[each.rung] and each.leaves_at > outlook.now]
    turn = [each for each in waits if after is not None and each.rung > after] or waits
    if not turn:
        return _on_demand(outlook, ladder.on_demand[0], f"on-demand: {outlook.rungs[0].numbers}")
    first = min(turn, key=lambda each: each.rung) if after is not None else turn[0]
    until = min(first.leaves_at, outlook.spot_ends or outlook.now)
    return Choice(first.rung, f"waits for spot: {first.numbers}", min(until, ends) if len(waits) > 1 else until)


def _on_demand(outlook: Outlook, rung: int, why: str) -> Choice:
    return Choice(rung, why, outlook.now + outlook.patience)


def _on_spot(outlook: Outlook, ladder: Ladder, has_room: Callable[[str], bool], turn: list[int]) -> Choice:
    with_room = next((index for index in turn if any(has_room(pool) for pool in ladder.rungs[index].pools)), None)
    until = _end_of_wait(outlook, ladder, turn)
    if with_room is not None:
        return Choice(with_room, "spot: there is slack before the deadline", until)
    why = "waits for spot: on-demand can still finish in time later" if ladder.on_demand else "waits for spot"
    return Choice(turn[0], why, until)


def _end_of_wait(outlook: Outlook, ladder: Ladder, spot: list[int]) -> float:
    """End of the wait on a spot rung: the last safe moment, or ``patience`` if sooner and there is another spot rung.

    Without an on-demand rung the deadline takes the place of the last safe moment.
    """
    patience_ends = outlook.now + outlook.patience
    last = outlook.spot_ends if ladder.on_demand else None
    if last is None:
        last = max(outlook.deadline, patience_ends)
    return min(patience_ends, last) if len(spot) > 1 else last


def _reason(outlook: Outlook, spot: list[int]) -> str:
    if not spot:
        return "on-demand: there is no spot rung"
    if outlook.interruptions >= outlook.max_interruptions:
        return "on-demand: the interruption budget is spent"
    if outlook.last_moment is None:
        return "on-demand: without a stated 'work' no wait for spot is safe"
    if outlook.only_on_demand and outlook.now - outlook.last_moment > _SHORT:
        late = outlook.now - outlook.last_moment
        return f"on-demand: it ends {late:.4g}s after its deadline at the earliest; a deadline later by that can be met"
    if outlook.only_on_demand:
        return f"on-demand: {_too_little(outlook)}"
    return "on-demand: the earlier attempt ran there"


def _too_little(outlook: Outlook) -> str:
    """Why what is left is too little for spot, with its numbers."""
    needs = outlook.needs
    work = format_duration(needs.left.at_most if outlook.saves else needs.whole.at_most)
    launch, left = format_duration(needs.launch.at_most), format_duration(outlook.deadline - outlook.now)
    if outlook.saves:
        return (
            f"later it could not finish in time any more: {work} of work, {launch} for a launch and "
            f"{format_duration(outlook.drain)} to leave spot before, and the deadline is in {left}"
        )
    return (
        f"its work is not saved, and a loss at the end of an attempt on spot would leave too little time for another one: each "
        f"takes {launch} to launch and {work} of work, and the deadline is in {left}"
    )
