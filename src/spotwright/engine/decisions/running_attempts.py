"""Decides whether an attempt that runs on spot under a deadline stays there, or is moved to on-demand at the last safe moment.

Spot may be lost in the next instant, and with it all that is not saved. On-demand then needs a launch and the work that is left::

    last safe moment = deadline - work * (1 - saved progress) - overhead - drain

At that moment the attempt is told to end, with its grace period (the drain), and the next one begins on on-demand; the move
spends no budget. Progress that is saved before puts the moment off, so it is looked at again then. Where on-demand could not
finish in time any more (an engine came back too late, a launch took longer than was known), a move would promise nothing: the
attempt stays, and is on time if spot is not lost. Version 1 of the decision functions let running attempts be.
"""

from __future__ import annotations

from spotwright.engine.deadline.events import AttemptKept
from spotwright.engine.decisions.rung_selection import effective_plan, outlook_without_advice
from spotwright.engine.events import AttemptHalted, Event
from spotwright.engine.state import RunState, TaskState
from spotwright.errors import InputError
from spotwright.model.attempts import Cause, Ending
from spotwright.model.quantities import format_duration
from spotwright.scheduling.budgets import Decision, FollowUp

__all__ = ["after_move", "look"]

_PARTS = 500  # looks at a running attempt in the time of its whole work, at most


def look(state: RunState, task: TaskState, now: float) -> Event:
    """The decision about a task whose attempt runs on spot: it stays until a moment, or is moved."""
    attempt = task.last
    try:
        outlook = outlook_without_advice(state, task, effective_plan(state, task), task.spent.interruptions, now)
    except InputError as error:
        return AttemptKept(now, task.path, attempt.number, why=f"stays on spot: {error}")
    last = outlook.last_moment
    if last is None:
        return AttemptKept(now, task.path, attempt.number, why="stays on spot: no 'work' is stated")
    work = format_duration((outlook.work or 0.0) * (1.0 - outlook.progress))
    numbers = (
        f"{work} of work {'are not saved yet' if outlook.saves else 'would be lost with the node'}, on-demand needs "
        f"{format_duration(outlook.overhead)} more to launch and spot {format_duration(outlook.drain)} to be left, and the "
        f"deadline is in {format_duration(outlook.deadline - now)}"
    )
    if last - outlook.drain - now > (outlook.work or 0.0) / _PARTS:
        return AttemptKept(now, task.path, attempt.number, until=last - outlook.drain, why=f"stays on spot: {numbers}")
    if now <= last:
        return AttemptHalted(
            now, task.path, attempt.number, why=f"to on-demand, at the last safe moment: {numbers}", moves=True
        )
    why = f"stays on spot: on-demand could not finish in time any more; {numbers}"
    return AttemptKept(now, task.path, attempt.number, why=why)


def after_move(task: TaskState, ending: Ending, on_demand: tuple[int, ...]) -> Decision | None:
    """What follows an attempt that was moved: the next one, on on-demand. ``None`` for one that ended otherwise."""
    if not task.last.moving or ending.cause is not Cause.DISRUPTED or not on_demand:
        return None
    return Decision(FollowUp.RETRY, "goes on on on-demand; the move spends no budget", on_demand[0])
