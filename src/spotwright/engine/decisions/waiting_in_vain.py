"""Decide whether an attempt that an orchestrator made waits in vain for a node, and what follows then: row 7 of the table.

The decision is journalled before the pod is taken back. Its end is charged to no budget, whatever ended the pod in the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from spotwright.engine.events import Event
from spotwright.engine.state import AttemptState, RunState, TaskState
from spotwright.engine.workload.events import AttemptTakenBack
from spotwright.model.attempts import Cause, Ending
from spotwright.model.quantities import format_duration
from spotwright.scheduling.budgets import (
    Decision,
    FollowUp,
    Pause,
    left_out,
    pause_after,
    pauses_of,
    rung_after_waiting,
)

__all__ = ["NO_NODE", "after_waiting", "in_vain_at", "next_pools", "take_back", "why_it_stays"]

NO_NODE = "Unschedulable"
"""The reason, as ``AttemptWaits`` begins with it, of an attempt that waits for a node and for nothing else."""


def in_vain_at(task: TaskState, attempt: AttemptState) -> float | None:
    """The moment at which an attempt has waited for ``pending_timeout``; ``None`` if it does not wait for a node."""
    waits = attempt.is_live and attempt.bound_at is None and attempt.waits.partition(":")[0] == NO_NODE
    if not waits or attempt.waits_since is None:
        return None
    return max(attempt.waits_since, attempt.rung_at) + task.plan.policy.pending_timeout


def why_it_stays(
    state: RunState, task: TaskState, attempt: AttemptState, pauses: Mapping[str, Pause], now: float
) -> str:
    """Why an attempt that waits is not sent to another rung now; empty if it is, once it has waited for long enough."""
    policy, ladder = task.plan.policy, task.plan.ladder
    if policy.deadline is not None:
        return "a deadline decides about its rung"
    if len(ladder.rungs) < 2:
        return "its ladder has no other rung"
    if _next_rung(state, task, attempt, pauses, now) is None:
        return "the pools of every other rung that it may use are left out, because they had no node"
    return ""


def next_pools(
    state: RunState, task: TaskState, attempt: AttemptState, pauses: Mapping[str, Pause], now: float
) -> Sequence[str]:
    """The pools for which the next attempt would wait; none if there is no other rung to try now."""
    rung = _next_rung(state, task, attempt, pauses, now)
    return () if rung is None else task.plan.ladder.rungs[rung].pools


def take_back(
    state: RunState,
    task: TaskState,
    attempt: AttemptState,
    pauses: Mapping[str, Pause],
    taken: Mapping[str, float],
    now: float,
) -> list[Event]:
    """The decision to take an attempt back, if it waits in vain and there is a rung to try; of a set one is enough.

    ``pauses`` are the last pauses of pools, ``taken`` the moments at which an attempt last got a node of a pool: one that gave
    a node to another attempt meanwhile is not without capacity. Nor is one that holds other members of the set: its nodes are
    too few for the whole set, and free for others once the set has left.
    """
    due = in_vain_at(task, attempt)
    if due is None or now < due or attempt.taken_back is not None:
        return []
    peers = [other.last for other in _begun(state) if attempt.gang and other.last.gang == attempt.gang]
    if any(peer.taken_back for peer in peers) or why_it_stays(state, task, attempt, pauses, now):
        return []
    rung = _next_rung(state, task, attempt, pauses, now)
    if rung is None:
        return []
    since = max(attempt.waits_since or 0.0, attempt.rung_at)
    too_small = {peer.pool for peer in peers if peer.is_live and peer.bound_at is not None}
    empty = [pool for pool in attempt.pools if taken.get(pool, 0.0) < since and pool not in too_small]
    paused = {pool: pause_after(pauses.get(pool), now) for pool in empty}
    words = attempt.waits.partition(": ")[2]
    why = f"no node on {', '.join(attempt.pools)} for {format_duration(round(now - since))}"
    return [
        AttemptTakenBack(
            now,
            task.path,
            attempt.number,
            rung=rung,
            pools=task.plan.ladder.rungs[rung].pools,
            why=f"{why}: {words}" if words else why,
            left_out={pool: (pause.until, pause.times) for pool, pause in paused.items()},
        )
    ]


def after_waiting(attempt: AttemptState) -> tuple[Ending, Decision] | None:
    """The cause of the end of an attempt that was taken back, and what follows; ``None`` for any other attempt."""
    decided = attempt.taken_back
    if decided is None or attempt.bound_at is not None:
        return None
    if attempt.ended is not None and attempt.ended.signals.cancelled:
        return None
    following = Decision(FollowUp.RETRY, f"the next attempt waits on {', '.join(decided.pools)}", decided.rung)
    return Ending(Cause.UNSCHEDULABLE, decided.why), following


def _next_rung(
    state: RunState, task: TaskState, attempt: AttemptState, pauses: Mapping[str, Pause], now: float
) -> int | None:
    """The rung to try next.

    A pool for which this task, or another one of its set, has waited in vain is left out for it, whoever got a node there since.
    """
    without = left_out(pauses, now) | left_out(pauses_of(sorted(_waited_in_vain(state, task, attempt))), now)
    return rung_after_waiting(attempt.rung, task.spent, task.plan.policy, task.plan.ladder, without)


def _waited_in_vain(state: RunState, task: TaskState, attempt: AttemptState) -> Iterator[tuple[float, tuple[str, ...]]]:
    """When an attempt of this task, or of a set that it belongs to, was taken back, and the pools for which it had waited."""
    gang_set = attempt.gang.partition("/")[0]
    for one in state.tasks.values() if gang_set else (task,):
        for each in one.attempts:
            if each.taken_back is not None and each.gang.partition("/")[0] == gang_set:
                yield each.taken_back.at, tuple(each.pools)


def _begun(state: RunState) -> list[TaskState]:
    return [task for task in state.tasks.values() if task.attempts]
