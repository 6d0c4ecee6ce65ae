"""The decisions of a run: ``decide(state, snapshot, now)`` is pure and answers with events.

It looks only at what needs a decision: the tasks in ``state.todo`` and the timers that are due. The loop folds the answer,
asks again until there is nothing more to say, commits everything in one transaction and then performs it. What follows an
attempt is the design's table (:mod:`spotwright.scheduling.budgets`), where the next one goes is chosen in
:mod:`spotwright.engine.choosing`; this module puts both into events.

Attempts that have ended are closed before anything else is decided, and alone: so an engine that takes a run up can close
what it found and look again before something new starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from spotwright.engine.choosing import effective, first_choice, next_choice, under_deadline
from spotwright.engine.claims import claimed
from spotwright.engine.events import Event
from spotwright.engine.plan import Planned
from spotwright.engine.signals import read_signals
from spotwright.engine.snapshot import Snapshot
from spotwright.engine.state import AttemptState, RunState, RunStatus, TaskState, TaskStatus
from spotwright.engine.timers import due_tasks
from spotwright.engine.values import check_inputs, condition_inputs, dag_outputs, imported, loop_items
from spotwright.errors import InputError
from spotwright.model.attempts import Cause, Ending
from spotwright.pipelines.spec import RUNS_NOWHERE, Importer
from spotwright.scheduling import budgets
from spotwright.scheduling.budgets import Next, Then
from spotwright.scheduling.cause import classify
from spotwright.scheduling.deadline import Choice

__all__ = ["decide"]


def decide(state: RunState, snapshot: Snapshot, now: float) -> list[Event]:
    """Everything that can be decided from this state at ``now`` (Unix seconds). Empty: nothing to do but wait."""
    if state.status is not RunStatus.RUNNING:
        return []
    todo = [state.tasks[path] for path in state.todo]
    closed = [_close(state, task, snapshot, now) for task in todo if task.is_unjudged]
    if closed:
        return closed
    if _is_late(state, now):
        return [Event("expired", now, data={"why": _late(state)})]
    if state.halting:
        return _halt(state, now)
    if not state.unfolded:
        return [Event("unfolded", now)]
    decisions = [event for task in todo for event in _decide_task(state, task, snapshot, now)]
    failed = [event for event in decisions if event.kind == "failed"]
    if failed:
        return failed  # and nothing beside them: what they keep from beginning may be among the rest
    if state.expired:
        decisions += [_halt_attempt(task, state.expired, now) for task in _not_halted(state) if state.is_over(task)]
    decisions += _due(state, snapshot, now)
    return decisions or _finish(state, now)


# A task may start


def _decide_task(state: RunState, task: TaskState, snapshot: Snapshot, now: float) -> Iterator[Event]:
    if task.status in (TaskStatus.READY, TaskStatus.BACKOFF) and state.is_over(task):
        yield Event("failed", now, task.path, data={"why": state.expired})
    elif task.status is TaskStatus.OPEN:
        yield _close_pipeline(state, task, now)
    elif task.status is TaskStatus.READY:
        yield _start(state, task, snapshot, now)
    elif task.status is TaskStatus.WAITING:
        yield Event("skipped", now, task.path, data={"why": f"it follows {task.skipped}, which was skipped"})
    elif task.status is TaskStatus.PENDING and not task.last.halted and not state.is_over(task):
        yield _halt_attempt(task, "another task failed", now)


def _close_pipeline(state: RunState, task: TaskState, now: float) -> Event:
    opened = task.loop or task.inside
    failed = opened.failed if opened is not None else ""
    if failed:
        first = state.tasks[failed]
        why = first.why if first.plan.spec.dag is not None else f"{failed} failed: {first.why}"
        return Event("failed", now, task.path, data={"why": why})
    return Event("completed", now, task.path, data=dag_outputs(state, task))


def _start(state: RunState, task: TaskState, snapshot: Snapshot, now: float) -> Event:
    spec = task.plan.spec
    try:
        if spec.condition is not None and not task.attempts and not spec.condition.holds(condition_inputs(state, task)):
            return Event("skipped", now, task.path, data={"why": f"its condition does not hold: {spec.condition}"})
        items = loop_items(state, task)
        check_inputs(state, task)
    except ValueError as error:
        return Event("failed", now, task.path, data={"why": str(error)})
    if items is not None:
        return Event("unfolded", now, task.path, data={"items": items})
    if spec.dag is not None:
        return Event("unfolded", now, task.path)
    if isinstance(spec.executor, RUNS_NOWHERE):
        return _without_attempt(state, task, now)
    hit = None if task.attempts else snapshot.cached(task)
    if hit is not None:
        return Event("cached", now, task.path, data=hit)
    return _place(state, task, snapshot, now)


def _without_attempt(state: RunState, task: TaskState, now: float) -> Event:
    executor = task.plan.spec.executor
    try:
        data = imported(state, task, executor) if isinstance(executor, Importer) else claimed(state, task)
    except ValueError as error:
        return Event("failed", now, task.path, data={"why": str(error)})
    return Event("completed", now, task.path, data=data)


def _place(state: RunState, task: TaskState, snapshot: Snapshot, now: float) -> Event:
    try:
        planned = effective(state, task)
    except InputError as error:  # a value that came out of an upstream task asks for what cannot be
        return Event("failed", now, task.path, data={"why": str(error)})
    choice = first_choice(state, task, planned, snapshot, now)
    return _placed("placed", task, len(task.attempts) + 1, planned, choice, now)


def _placed(kind: str, task: TaskState, number: int, planned: Planned, choice: Choice, now: float) -> Event:
    data = {"rung": choice.rung, "pools": list(planned.ladder.rungs[choice.rung].pools), "until": choice.until}
    if choice.why:
        data["why"] = choice.why
    return Event(kind, now, task.path, number, data)


# An attempt has ended


def _close(state: RunState, task: TaskState, snapshot: Snapshot, now: float) -> Event:
    """Close an ended attempt: its one cause, and what follows by the table."""
    attempt = task.last
    ending = classify(read_signals(attempt.ended or {}))
    planned = effective(state, task)
    following = budgets.after_attempt(ending.cause, task.spent, attempt.place, planned.policy, planned.ladder)
    if following.then is Then.RETRY and planned.policy.deadline is not None:
        following = under_deadline(state, task, planned, ending.cause, following, snapshot, now)
    return _decided(state, task, attempt, ending, following, now)


def _decided(
    state: RunState, task: TaskState, attempt: AttemptState, ending: Ending, following: Next, now: float
) -> Event:
    data: dict[str, Any] = {
        "cause": ending.cause.value,
        "why": ending.why,
        "then": following.then.value,
        "next": following.why,
    }
    if following.then is Then.RETRY:
        data["rung"] = following.rung
    if following.wait:
        data["due"], data["wait"] = now + following.wait / state.time_scale, following.wait
    if ending.evidence:
        data["evidence"] = dict(ending.evidence)
    return Event("decided", now, task.path, attempt.number, data)


# Time has passed


def _due(state: RunState, snapshot: Snapshot, now: float) -> list[Event]:
    """Timers that have come: the end of a backoff, or of the patience with a rung."""
    tasks = due_tasks(state, now)
    return [(_place if t.status is TaskStatus.BACKOFF else _climb)(state, t, snapshot, now) for t in tasks]


def _climb(state: RunState, task: TaskState, snapshot: Snapshot, now: float) -> Event:
    """Row 7: no node on this rung for ``pending_timeout``: the next allowed rung, after the last one unschedulable.

    Where this run's own attempts hold nodes of its pools it only waits its turn: then it begins at the top again.
    """
    planned, attempt = effective(state, task), task.last
    why = f"no node on {', '.join(attempt.pools)} for {now - attempt.rung_at:.3g}s: {snapshot.why_pending(task)}"
    choice = next_choice(state, task, planned, snapshot, now)
    if choice is not None:
        return _placed("moved", task, attempt.number, planned, replace(choice, why=why), now)
    why = "; ".join([*attempt.tried, why])
    following = budgets.after_attempt(Cause.UNSCHEDULABLE, task.spent, attempt.place, planned.policy, planned.ladder)
    ending = Ending(Cause.UNSCHEDULABLE, why)
    return _decided(state, task, attempt, ending, Next(following.then, f"unschedulable: {why}"), now)


# The end of a run


def _is_late(state: RunState, now: float) -> bool:
    """Whether the time of the whole run is over while it has something left to do."""
    done = state.root is not None and state.root.ended
    return state.ends_by is not None and now >= state.ends_by and not state.halting and not done


def _late(state: RunState) -> str:
    seconds = state.plan.pipeline.active_deadline or 0.0
    return f"the run has taken longer than the {seconds:g}s that its pipeline allows (active_deadline_seconds)"


def _halt(state: RunState, now: float) -> list[Event]:
    """Stop everything: ask what is live to end, finish when nothing is."""
    why = "the run was cancelled" if state.cancelling else state.stopping
    if state.under_way:
        return [_halt_attempt(task, why, now) for task in _not_halted(state)]
    status = RunStatus.CANCELLED if state.cancelling else RunStatus.STOPPED
    return [Event("finished", now, data={"status": status.value, "why": why})]


def _finish(state: RunState, now: float) -> list[Event]:
    """The end of the run, once nothing is under way and nothing more can start."""
    if state.root is None or not state.root.ended:
        return []
    if not state.root.failed:
        return [Event("finished", now, data={"status": "succeeded"})]
    first = state.tasks[state.failed[0]]
    why = state.expired or f"task {first.path} failed: {first.why}"
    return [Event("finished", now, data={"status": "failed", "why": why})]


def _not_halted(state: RunState) -> Iterator[TaskState]:
    return (task for task in map(state.tasks.__getitem__, state.under_way) if not task.last.halted)


def _halt_attempt(task: TaskState, why: str, now: float) -> Event:
    return Event("halt", now, task.path, task.last.number, {"why": why})
