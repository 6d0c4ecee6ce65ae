"""Decides the rung of a task with a deadline: spot while there is slack, then on-demand (row 8 of the design's table).

A task may wait for spot as long as an on-demand node could still finish it afterwards. That ends at the last safe moment::

    last moment = deadline - work left at most - launch at most

Both figures begin with what is stated and end with what was measured (:mod:`spotwright.scheduling.estimates`).

Work that is not saved is lost with its node. So an attempt that saves no work is launched on spot only while on-demand could
still do everything again after it, and one that saves leaves spot at the last moment from which on-demand can still finish,
less the time that it needs to end (:mod:`spotwright.engine.decide`).

Without a stated ``work`` no wait is known to be safe, so the task goes to on-demand at once. The formula is that of the safety
net in "Can't Be Late" (Wu et al., NSDI 2024).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from spotwright.model.quantities import format_duration
from spotwright.scheduling.estimates import Estimate, Needs
from spotwright.scheduling.ladder import Ladder

__all__ = [
    "Advice",
    "Choice",
    "Outlook",
    "any_room",
    "choose",
    "choose_on_demand",
    "choose_while_pending",
    "countdown",
    "without_on_demand",
]


_LOOKS = 5  # checks for room on spot, in the time of one ``patience``, while an attempt has no on-demand node
_SHORT = 1.0  # seconds: a decision at the last moment comes a moment after it


class Advice(NamedTuple):
    """The cheapest safe action on average from now on, as :mod:`spotwright.deadlines.choice` finds it.

    ``rung`` is the spot rung to launch on (``launches``) or to wait on, ``None`` for on-demand. ``until`` (Unix seconds) is
    when to ask again, ``why`` the figures in words. For a running attempt, ``gain`` is what a move there saves on average, in
    the currency of the prices (0: it stays), and ``move`` says that in words.
    """

    rung: int | None
    launches: bool
    until: float
    why: str
    gain: float = 0.0
    move: str = ""


class Outlook(NamedTuple):
    """Input of the decision about one task. Moments are Unix seconds, durations seconds of real time.

    ``work`` is the duration of the whole task on a node that is never reclaimed (``None``: not stated), ``progress`` the share
    of it, 0 to 1, that is done and saved, ``overhead`` the time that an on-demand attempt is expected to need before the work
    continues. ``useless`` is the number of interrupted attempts in a row on spot that did not advance, ``max_interruptions``
    its limit. ``patience`` is how long an attempt waits on one rung if the deadline itself does not end the wait. ``saves``
    says whether the work is saved, ``drain`` how long an attempt takes to end after SIGTERM. ``advice`` is the cheapest safe
    action. ``estimated`` is what the task needs by measurement, expected and at most; ``None``: exactly what is stated.
    """

    now: float
    deadline: float
    work: float | None
    progress: float
    overhead: float
    useless: int
    max_interruptions: int
    patience: float = 600.0
    saves: bool = True
    drain: float = 0.0
    advice: Advice | None = None
    estimated: Needs | None = None

    @property
    def needs(self) -> Needs:
        """The work left, the whole work and a launch. Only if work is stated."""
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
        """True if only on-demand rungs are allowed now: spot attempts do not advance, or waiting is no longer safe."""
        last = self.spot_ends
        return self.useless > self.max_interruptions or last is None or self.now >= last


class Choice(NamedTuple):
    """The rung of the next attempt, and the end of its wait for a node there (Unix seconds; ``None``: no end)."""

    rung: int
    why: str
    until: float | None = None


def choose(outlook: Outlook, ladder: Ladder, has_room: Callable[[str], bool], stay: int | None = None) -> Choice:
    """Choose the rung of the next attempt under a deadline.

    With slack, the first spot rung with room, else the first spot rung, to wait there. ``stay`` is the rung that
    rows 4 and 5 keep the attempt on while there is slack. A ladder without on-demand rungs (``spot: require`` with a best-effort
    deadline) leaves spot rungs only.

    If on-demand is wanted but has no room, a spot rung with room is better than none. A lack of room on on-demand is noticed
    before it is needed.
    """
    return _with_room(_choose(outlook, ladder, has_room, stay), outlook, ladder, has_room)


def choose_on_demand(outlook: Outlook, ladder: Ladder, has_room: Callable[[str], bool], why: str) -> Choice:
    """Choose the on-demand rung of an attempt, for the reason ``why``."""
    choice = _on_demand(outlook, _on_demand_rung(ladder, has_room), why)
    return _with_room(choice, outlook, ladder, has_room)


def _with_room(choice: Choice, outlook: Outlook, ladder: Ladder, has_room: Callable[[str], bool]) -> Choice:
    """Adjust the choice if on-demand has no room: see :func:`choose`."""
    if choice.rung in ladder.on_demand and _spot(ladder) and outlook.now < outlook.deadline:
        choice = choice._replace(until=outlook.now + outlook.patience / _LOOKS)
    if not ladder.on_demand or any_room(ladder, ladder.on_demand, has_room):
        return choice
    if choice.rung not in ladder.on_demand:
        return choice._replace(why=f"{choice.why}; {without_on_demand(outlook)}")
    spot = next((index for index in _spot(ladder) if any_room(ladder, [index], has_room)), None)
    if spot is None or outlook.useless > outlook.max_interruptions:
        return choice._replace(why=f"{choice.why}; no on-demand pool has room now")
    ends = outlook.now + outlook.patience
    return Choice(spot, "spot: no on-demand pool has room now, and work done on spot counts", ends)


def any_room(ladder: Ladder, rungs: Iterable[int], has_room: Callable[[str], bool]) -> bool:
    """Whether a pool of one of these rungs has room."""
    return any(has_room(pool) for index in rungs for pool in ladder.rungs[index].pools)


def without_on_demand(outlook: Outlook) -> str:
    """The warning that on-demand is unavailable now, with the time until it is needed."""
    ends = outlook.spot_ends
    margin = "" if ends is None else f", and in {format_duration(max(0.0, ends - outlook.now))} it may be needed"
    return f"no on-demand pool has room now{margin}"


def _choose(outlook: Outlook, ladder: Ladder, has_room: Callable[[str], bool], stay: int | None) -> Choice:
    spot = _spot(ladder)
    if not spot or (outlook.only_on_demand and ladder.on_demand):
        return _on_demand(outlook, _on_demand_rung(ladder, has_room, stay), _reason(outlook, spot))
    if stay is None and outlook.advice is not None and ladder.on_demand:
        return _advised(outlook, outlook.advice, ladder, has_room)
    if stay is None:
        return _on_spot(outlook, ladder, has_room, spot)
    why = "the same rung: there is slack before the deadline"
    if stay in ladder.on_demand:
        return _on_demand(outlook, stay, why)
    return Choice(stay, why, _end_of_wait(outlook, ladder, spot))


def choose_while_pending(outlook: Outlook, ladder: Ladder, has_room: Callable[[str], bool], rung: int) -> Choice | None:
    """Choose the next rung for an attempt whose wait for a node on ``rung`` has ended; ``None``: no rung is left.

    While there is slack the attempt waits on one spot rung after another, then on the on-demand rungs in order. The deadline
    ends these turns: the attempt then tries only the remaining rungs of the same kind, and a spot rung with room. It does not
    wait again for missing room.
    """
    spot = _spot(ladder)
    same_kind = ladder.on_demand if rung in ladder.on_demand else tuple(spot)
    below = next((index for index in same_kind if index > rung), None)
    is_better = any_room(ladder, spot, has_room) and not any_room(ladder, ladder.on_demand, has_room)
    if rung in ladder.on_demand and below is not None and not is_better:
        return _on_demand(outlook, below, _reason(outlook, spot))
    if outlook.only_on_demand and ladder.on_demand:
        choice = choose(outlook, ladder, has_room)
        was_tried = choice.rung == rung or (rung in ladder.on_demand and choice.rung in ladder.on_demand)
        return None if was_tried and outlook.now >= outlook.deadline else choice
    if not spot or (below is None and outlook.now >= outlook.deadline):
        return None
    if outlook.advice is not None and ladder.on_demand and rung not in ladder.on_demand:
        return _with_room(_advised(outlook, outlook.advice, ladder, has_room), outlook, ladder, has_room)
    turn = spot if below is None else [*spot[spot.index(below) :], *spot[: spot.index(below)]]
    return _with_room(_on_spot(outlook, ladder, has_room, turn), outlook, ladder, has_room)


def _spot(ladder: Ladder) -> list[int]:
    return [index for index, rung in enumerate(ladder.rungs) if rung.spot is not False]


def _on_demand_rung(ladder: Ladder, has_room: Callable[[str], bool], stay: int | None = None) -> int:
    """The on-demand rung to launch on: ``stay`` if it is one, else the first one; if that has no room, one with room."""
    wanted = stay if stay is not None and stay in ladder.on_demand else ladder.on_demand[0]
    with_room = (index for index in (wanted, *ladder.on_demand) if any_room(ladder, [index], has_room))
    return next(with_room, wanted)


def _advised(outlook: Outlook, advice: Advice, ladder: Ladder, has_room: Callable[[str], bool]) -> Choice:
    """The rung of the cheapest action. A waiting attempt looks again soon: other pools may have room by then."""
    if advice.rung is None:
        return _on_demand(outlook, _on_demand_rung(ladder, has_room), f"on-demand: {advice.why}")
    return Choice(advice.rung, f"{'spot' if advice.launches else 'waits for spot'}: {advice.why}", advice.until)


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

    Without an on-demand rung the deadline replaces the last safe moment.
    """
    patience_ends = outlook.now + outlook.patience
    last = outlook.spot_ends if ladder.on_demand else None
    if last is None:
        last = max(outlook.deadline, patience_ends)
    return min(patience_ends, last) if len(spot) > 1 else last


def _reason(outlook: Outlook, spot: list[int]) -> str:
    if not spot:
        return "on-demand: the ladder has no spot rung"
    if outlook.useless > outlook.max_interruptions:
        row = "an attempt" if outlook.useless == 1 else f"{outlook.useless} attempts in a row"
        return f"on-demand: {row} on spot got nowhere, and interruptions.max is {outlook.max_interruptions}"
    if outlook.last_moment is None:
        return "on-demand: without 'expected_duration' waiting for spot is not safe"
    if outlook.only_on_demand and outlook.now - outlook.last_moment > _SHORT:
        late = outlook.now - outlook.last_moment
        return f"on-demand: it ends {late:.4g}s after its deadline at the earliest; a deadline later by that can be met"
    if outlook.only_on_demand:
        return f"on-demand: {_too_little(outlook)}"
    return "on-demand: the earlier attempt ran there"


def countdown(left: float) -> str:
    """The distance of a deadline, as a clause; ``left`` is in seconds, negative once it has passed."""
    return (
        f"the deadline is in {format_duration(left)}"
        if left >= 0
        else f"the deadline passed {format_duration(-left)} ago"
    )


def _too_little(outlook: Outlook) -> str:
    """Why the time left is too short for spot, with figures."""
    needs = outlook.needs
    work = format_duration(needs.left.at_most if outlook.saves else needs.whole.at_most)
    launch, left = format_duration(needs.launch.at_most), countdown(outlook.deadline - outlook.now)
    if outlook.saves:
        return (
            f"a later switch could not finish in time: {work} of work, {launch} for a launch and"
            f" {format_duration(outlook.drain)} to leave spot first, and {left}"
        )
    return (
        f"its work is not saved, and a loss at the end of an attempt on spot would leave too little time for another one: each "
        f"takes {launch} to launch and {work} of work, and {left}"
    )
