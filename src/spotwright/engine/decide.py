"""The decisions of a run: ``decide(state, snapshot, now)`` is pure and answers with events.

It looks only at what needs a decision: the tasks in ``state.todo`` and the timers that are due. The loop folds the answer,
asks again until there is nothing more to say, commits everything in one transaction and then performs it. What follows an
attempt is the design's table (:mod:`spotwright.scheduling.budgets`); this module only puts it into events.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from spotwright.engine.events import Event
from spotwright.engine.plan import Planned
from spotwright.engine.signals import read_signals
from spotwright.engine.state import AttemptState, RunState, RunStatus, TaskState, TaskStatus
from spotwright.engine.values import dag_outputs, inputs_of
from spotwright.model.attempts import Cause, Ending
from spotwright.scheduling import deadline
from spotwright.scheduling.budgets import Next, Then, after_attempt, first_rung, next_rung_while_pending
from spotwright.scheduling.cause import classify

__all__ = ["Snapshot", "StillSnapshot", "decide", "next_moment"]


class Snapshot(Protocol):
    """What a decision may know of the world beside the journal, taken once per turn."""

    def cached(self, task: TaskState) -> Mapping[str, Any] | None:
        """An earlier result of the same work (``parameters``, ``artifacts``, ``run``, ``task``), where one may be used."""

    def why_pending(self, task: TaskState) -> str:
        """Why the task's attempt has no node yet, for people."""

    def has_room(self, pool: str) -> bool:
        """Whether a node of the pool could be had now, as far as is known."""


@dataclass(frozen=True, slots=True)
class StillSnapshot:
    """A snapshot of a world that says nothing: no results to reuse, room everywhere. For replays and tests."""

    reasons: Mapping[str, str] = field(default_factory=dict)
    full: frozenset[str] = frozenset()

    def cached(self, task: TaskState) -> Mapping[str, Any] | None:
        """No earlier results."""
        return None

    def why_pending(self, task: TaskState) -> str:
        """The reason that was given for the task's path."""
        return self.reasons.get(task.path, "no node")

    def has_room(self, pool: str) -> bool:
        """Room everywhere but in ``full``."""
        return pool not in self.full


def decide(state: RunState, snapshot: Snapshot, now: float) -> list[Event]:
    """Everything that can be decided from this state at ``now`` (Unix seconds). Empty: nothing to do but wait."""
    if state.status is not RunStatus.RUNNING:
        return []
    if state.halting:
        return _halt(state, now)
    if not state.unfolded:
        return [Event("unfolded", now)]
    decisions = [event for path in state.todo for event in _decide_task(state, state.tasks[path], snapshot, now)]
    decisions += _due(state, snapshot, now)
    return decisions or _finish(state, now)


def next_moment(state: RunState) -> float | None:
    """When the next timer is due (Unix seconds); ``None`` where no decision waits for time to pass."""
    while state.timers and not _is_current(state, *state.timers[0]):
        heapq.heappop(state.timers)  # entries are left behind when a task moves on
    return state.timers[0][0] if state.timers else None


def _decide_task(state: RunState, task: TaskState, snapshot: Snapshot, now: float) -> Iterator[Event]:
    if _is_open_end(task):
        yield _after(state, task, now)
    elif task.status is TaskStatus.OPEN:
        yield Event("completed", now, task.path, data=dag_outputs(state, task))
    elif task.status is TaskStatus.READY and not state.failed:
        yield _start(state, task, snapshot, now)


def _start(state: RunState, task: TaskState, snapshot: Snapshot, now: float) -> Event:
    if task.plan.spec.dag is not None:
        return Event("unfolded", now, task.path)
    hit = None if task.attempts else snapshot.cached(task)
    if hit is not None:
        return Event("cached", now, task.path, data=hit)
    return _place(state, task, snapshot, now)


def _place(state: RunState, task: TaskState, snapshot: Snapshot, now: float) -> Event:
    planned = effective(state, task)
    if not planned.ladder.rungs:
        reasons = "; ".join(f"{pool}: {why}" for pool, why in planned.ladder.refusals.items())
        return Event("failed", now, task.path, data={"why": f"it fits no pool: {reasons}"})
    number = len(task.attempts) + 1
    if planned.policy.deadline is not None:
        choice = deadline.choose(_outlook(state, task, planned, now), planned.ladder, snapshot.has_room)
        return _placed(state, task, planned, number, choice.rung, choice.why, now, until=choice.until)
    rung = task.next_rung
    if rung is None:
        rung = first_rung(task.spent, planned.policy, planned.ladder)
    until = now + planned.policy.pending_timeout / state.time_scale
    return _placed(state, task, planned, number, rung, "", now, until=until)


def _placed(
    state: RunState,
    task: TaskState,
    planned: Planned,
    number: int,
    rung: int,
    why: str,
    now: float,
    *,
    until: float | None,
    kind: str = "placed",
) -> Event:
    data = {"rung": rung, "pools": list(planned.ladder.rungs[rung].pools), "until": until}
    if why:
        data["why"] = why
    return Event(kind, now, task.path, number, data)


def effective(state: RunState, task: TaskState) -> Planned:
    """The task's plan, with the settings that depend on its inputs filled in once they are known."""
    if not task.plan.spec.deferred:
        return task.plan
    return state.plan.settle(task.plan, inputs_of(state, task).parameters)


def _after(state: RunState, task: TaskState, now: float) -> Event:
    """Close an ended attempt: its one cause, and what follows by the table."""
    attempt = task.last
    ending = classify(read_signals(attempt.ended or {}))
    planned = effective(state, task)
    following = after_attempt(ending.cause, task.spent, attempt.place, planned.policy, planned.ladder)
    if following.then is Then.RETRY and planned.policy.deadline is not None:
        following = _under_deadline(state, task, planned, ending, following, now)
    due = now + following.wait / state.time_scale if following.wait else None
    return _decided(task, attempt, ending, following, due, now)


def _decided(
    task: TaskState, attempt: AttemptState, ending: Ending, following: Next, due: float | None, now: float
) -> Event:
    data: dict[str, Any] = {
        "cause": ending.cause.value,
        "why": ending.why,
        "then": following.then.value,
        "next": following.why,
    }
    if following.then is Then.RETRY:
        data["rung"] = following.rung
    if due is not None:
        data["due"], data["wait"] = due, following.wait
    if ending.evidence:
        data["evidence"] = dict(ending.evidence)
    return Event("decided", now, task.path, attempt.number, data)


def _under_deadline(
    state: RunState, task: TaskState, planned: Planned, ending: Ending, following: Next, now: float
) -> Next:
    """Row 8: no backoff once only on-demand can still finish; the rung is chosen when the attempt is placed."""
    outlook = _outlook(state, task, planned, now, spent=task.spent.after(ending.cause).interruptions)
    wait = 0.0 if outlook.only_on_demand else following.wait
    return Next(following.then, following.why, following.rung, wait)


def _outlook(
    state: RunState, task: TaskState, planned: Planned, now: float, *, spent: int | None = None
) -> deadline.Outlook:
    limit = planned.policy.deadline
    if limit is None:
        raise ValueError(f"task {task.path} has no deadline")
    reported = max((a.progress or 0.0 for a in task.attempts), default=0.0)
    return deadline.Outlook(
        now=now,
        deadline=limit.moment(state.started_at) - planned.downstream,
        work=planned.policy.work,
        progress=reported,
        overhead=max(
            (state.plan.config.pools[p].simulate.boot for r in planned.ladder.rungs for p in r.pools), default=0.0
        )
        / state.time_scale,
        interruptions=task.spent.interruptions if spent is None else spent,
        max_interruptions=planned.policy.max_interruptions,
    )


def _due(state: RunState, snapshot: Snapshot, now: float) -> Iterator[Event]:
    """Timers that have come: the end of a backoff, or of the patience with a rung."""
    seen: set[str] = set()
    for at, path in _timers_until(state, now):
        if path in seen or not _is_current(state, at, path):
            continue
        seen.add(path)
        task = state.tasks[path]
        if task.status is TaskStatus.BACKOFF:
            if not state.failed:
                yield _place(state, task, snapshot, now)
        else:
            yield _climb(state, task, snapshot, now)


def _climb(state: RunState, task: TaskState, snapshot: Snapshot, now: float) -> Event:
    """Row 7: no node on this rung for ``pending_timeout``: the next allowed rung, after the last one unschedulable."""
    planned, attempt = effective(state, task), task.last
    why = f"no node on {', '.join(attempt.pools)} for {now - attempt.rung_at:.3g}s: {snapshot.why_pending(task)}"
    rung: int | None
    if planned.policy.deadline is not None:
        rung = next(iter(planned.ladder.on_demand), None)
        until = None
    else:
        rung = next_rung_while_pending(attempt.rung, task.spent, planned.policy, planned.ladder)
        until = now + planned.policy.pending_timeout / state.time_scale
    if rung is not None and rung != attempt.rung:
        return _placed(state, task, planned, attempt.number, rung, why, now, until=until, kind="moved")
    reasons = [*attempt.tried, why]
    following = after_attempt(Cause.UNSCHEDULABLE, task.spent, attempt.place, planned.policy, planned.ladder)
    ending = Ending(Cause.UNSCHEDULABLE, "; ".join(reasons))
    return _decided(task, attempt, ending, Next(following.then, f"unschedulable: {'; '.join(reasons)}"), None, now)


def _timers_until(state: RunState, now: float) -> Iterator[tuple[float, str]]:
    """The entries of the heap that are due, without changing it: below an entry that is not, none is."""
    heap, stack = state.timers, [0]
    while stack:
        index = stack.pop()
        if index < len(heap) and heap[index][0] <= now:
            yield heap[index]
            stack += (2 * index + 1, 2 * index + 2)


def _is_current(state: RunState, at: float, path: str) -> bool:
    """Whether a timer still means something: entries are never taken out of the heap when a task moves on."""
    task = state.tasks.get(path)
    if task is None:
        return False
    if task.status is TaskStatus.BACKOFF:
        return task.due == at
    return task.status is TaskStatus.PENDING and task.last.until == at


def _halt(state: RunState, now: float) -> list[Event]:
    """Stop everything: close what has ended, ask what is live to end, finish when nothing is."""
    why = "the run was cancelled" if state.cancelling else state.stopping
    decisions = [_after(state, task, now) for task in map(state.tasks.__getitem__, state.todo) if _is_open_end(task)]
    decisions += [event for path in state.under_way for event in _halt_attempt(state.tasks[path], why, now)]
    if decisions or state.under_way:
        return decisions
    status = RunStatus.CANCELLED if state.cancelling else RunStatus.STOPPED
    return [Event("finished", now, data={"status": status.value, "why": why})]


def _halt_attempt(task: TaskState, why: str, now: float) -> Iterator[Event]:
    if not task.last.halted:
        yield Event("halt", now, task.path, task.last.number, {"why": why})


def _is_open_end(task: TaskState) -> bool:
    """Whether the newest attempt has ended and nobody has said why yet."""
    return bool(task.attempts) and task.last.ended is not None and task.last.cause is None


def _finish(state: RunState, now: float) -> list[Event]:
    """The end of the run, once nothing is under way and nothing more can start."""
    if state.failed:
        waiting = [state.tasks[path] for path in state.under_way]
        why = "another task failed"
        halts = [e for t in waiting if t.status is TaskStatus.PENDING for e in _halt_attempt(t, why, now)]
        if halts or state.under_way:
            return halts
        first = state.tasks[state.failed[0]]
        return [Event("finished", now, data={"status": "failed", "why": f"task {first.path} failed: {first.why}"})]
    if state.unfinished == 0:
        return [Event("finished", now, data={"status": "succeeded"})]
    return []
