"""The deadline of a run: whether it was met, and if missed, the delay and where the time went. Pure.

On a cluster a deadline has no effect, and the plan of such a run has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from spotwright.engine.state import AttemptState, RunState, TaskState
from spotwright.views.text import plural, span

__all__ = ["RunDeadline", "deadline_json", "missed_text", "missed_words", "run_deadline"]

_LEAST_SHARE = 0.05  # of the time until the end: shorter parts are not named


class RunDeadline(NamedTuple):
    """The deadline of a run: Unix time, and whether it was missed; ``None`` while that is open.

    If tasks have their own deadlines, it is the first one that is missed or still open, else the last one. ``late`` is the
    delay of the last ``task`` in seconds, and ``why`` says where its time went; 0 and empty unless missed.
    """

    at: float
    missed: bool | None
    late: float = 0.0
    task: str = ""
    why: str = ""


def run_deadline(state: RunState, now: float | None = None) -> RunDeadline | None:
    """The deadline of a run; ``None`` without one. ``now`` as for :func:`~spotwright.views.account.account`."""
    until = state.known_until(now)
    by_moment: dict[float, list[TaskState]] = {}
    for task in state.tasks.values():
        deadline = task.plan.policy.deadline
        if deadline is not None and task.plan.spec.dag is None:
            by_moment.setdefault(deadline.moment(state.started_at), []).append(task)
    if not by_moment:
        return None
    found = {at: [_is_late(task, at, until) for task in tasks] for at, tasks in by_moment.items()}
    missed = {at: True if True in every else None if None in every else False for at, every in found.items()}
    at = min((at for at, is_missed in missed.items() if is_missed is not False), default=max(missed))
    if not missed[at]:
        return RunDeadline(at, missed[at])
    late = [task for task, is_late in zip(by_moment[at], found[at], strict=True) if is_late]
    last = max(late, key=lambda task: _end_of(task, until))
    end = _end_of(last, until)
    return RunDeadline(at, missed=True, late=end - at, task=last.path, why=_why(state, last, end))


def _is_late(task: TaskState, at: float, until: float) -> bool | None:
    """Whether a task missed its deadline; ``None`` while both are open."""
    if not task.status.is_good:
        return True if until > at else None
    ended_at = task.attempts[-1].ended_at if task.attempts else None
    return ended_at is not None and ended_at > at


def _end_of(task: TaskState, until: float) -> float:
    """The end of a task; ``until`` for an unfinished one."""
    ended_at = task.attempts[-1].ended_at if task.attempts else None
    return until if ended_at is None or not task.status.is_good else ended_at


def _why(state: RunState, task: TaskState, end: float) -> str:
    """Where the time until the end of a task went, the longest part first."""
    least = _LEAST_SHARE * (end - state.started_at)
    parts = sorted((part for part in _parts(state, task, end) if part[0] >= least), reverse=True)
    return ", ".join(f"{span(seconds)} {words}" for seconds, words in parts)


def _parts(state: RunState, task: TaskState, end: float) -> Iterator[tuple[float, str]]:
    """The parts of the time from the run's start to a task's end: seconds, and their use."""
    attempts = task.attempts
    if not attempts:
        yield end - state.started_at, "until it could start"
        return
    yield attempts[0].placed_at - state.started_at, "until it could start"
    waited = sum((_runs_since(each, end) - each.placed_at for each in attempts), 0.0)
    yield waited, "of waiting for nodes"
    yield (
        sum((each.placed_at - (last.ended_at or each.placed_at) for last, each in pairwise(attempts)), 0.0),
        ("between its attempts"),
    )
    *lost, last = attempts
    taken = [each for each in lost if each.cause is not None and each.cause.is_interruption]
    failed = [each for each in lost if each.cause is not None and each.cause.is_error]
    moved = [each for each in lost if each not in taken and each not in failed]
    for some, what in ((taken, "interrupted"), (failed, "failed"), (moved, "moved")):
        yield sum((_ran(each, end) for each in some), 0.0), f"in {plural(len(some), f'{what} attempt')}"
    work = task.plan.policy.expected_duration
    stated = f" (its work is stated as {span(work)})" if work else ""
    yield _ran(last, end), f"in its {'last' if lost else 'only'} attempt{stated}"


def _runs_since(attempt: AttemptState, end: float) -> float:
    """When an attempt began to run on its node, or its wait for one ended."""
    if attempt.runs_since is not None:
        return attempt.runs_since
    return attempt.ended_at if attempt.ended_at is not None else end


def _ran(attempt: AttemptState, end: float) -> float:
    return (attempt.ended_at if attempt.ended_at is not None else end) - _runs_since(attempt, end)


def deadline_json(deadline: RunDeadline | None) -> dict[str, Any] | None:
    """The deadline in JSON views."""
    return None if deadline is None else deadline._asdict()


def missed_words(deadline: Mapping[str, Any] | None) -> str:
    """A missed deadline of a JSON view in a few words; empty without one."""
    return f"{span(deadline['late'])} late" if deadline is not None and deadline["missed"] else ""


def missed_text(deadline: Mapping[str, Any] | None) -> str:
    """A missed deadline of a JSON view, in full; empty without one."""
    if deadline is None or not deadline["missed"]:
        return ""
    why = f": {deadline['why']}" if deadline["why"] else ""
    return f"missed by {span(deadline['late'])} ({deadline['task']}){why}"
