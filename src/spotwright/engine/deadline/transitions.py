"""The steps of the fold for deadlines: running attempts that are watched, kept and moved, and what the run sees of spot pools.

Pools are watched in runs with a deadline only: there decisions ask whether a pool has room, and the answers are in the journal.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from spotwright.engine.deadline.events import AttemptKept, MarketKnown
from spotwright.engine.events import AttemptBound, AttemptDecided, AttemptHalted, SnapshotTaken
from spotwright.engine.state import AttemptState, RunState, TaskState
from spotwright.engine.status import TaskStatus
from spotwright.model.attempts import Cause

__all__ = [
    "attempt_kept",
    "halted_to_move",
    "market_known",
    "pools_asked",
    "pools_changed",
    "pools_left",
    "room_seen",
    "run_taken_up",
    "spot_bound",
]


def attempt_kept(state: RunState, event: AttemptKept) -> None:
    """Note why a running attempt stays, and set the timer of the next look."""
    task = state.tasks[event.task]
    attempt = task.attempts[event.attempt - 1]
    if task.status is not TaskStatus.RUNNING or attempt is not task.last:
        raise ValueError(f"attempt {event.attempt} of {event.task} does not run")
    attempt.kept, attempt.until = event.why, event.until
    state.todo.pop(task.path, None)
    if event.until is not None:
        heapq.heappush(state.timers, (event.until, task.path))


def halted_to_move(attempt: AttemptState, event: AttemptHalted) -> None:
    """Note that an attempt is stopped to go on elsewhere, which its end will say too."""
    if event.moves:
        attempt.moving = event.why


def spot_bound(state: RunState, task: TaskState, event: AttemptBound) -> None:
    """An attempt has a node: if that is spot under a deadline, a decision says how long it may stay."""
    task.last.until = None
    sightings = state.sightings.get(event.pool)
    if sightings is not None:
        node = state.nodes.get(event.node)
        granted = event.at if node is None else min(event.at, max(node.booted_at, task.last.rung_at))
        sightings.see(max(granted * state.time_scale, sightings.counted), up=True)
        sightings.watch(event.at * state.time_scale)
    if _is_watched(state, task):
        state.todo[task.path] = None


def run_taken_up(state: RunState) -> None:
    """An engine takes the run: nobody saw the pools meanwhile, and running attempts are looked at again."""
    for sightings in state.sightings.values():
        sightings.leave(state.last_at * state.time_scale)
    for path in state.under_way:
        if _is_watched(state, state.tasks[path]):
            state.todo[path] = None


def market_known(state: RunState, event: MarketKnown) -> None:
    """Take over what earlier runs have counted."""
    if event.own:
        return
    from spotwright.deadlines.hazards import Sightings, unlisted  # other runs never need it, and each start would pay

    for pool, counts in event.pools.items():
        state.sightings[pool] = Sightings(unlisted(counts))


def room_seen(state: RunState, event: SnapshotTaken) -> None:
    """The world said which pools have room. A pool that is full of the run's own nodes tells nothing."""
    if not event.room:
        return
    from spotwright.deadlines.hazards import Sightings

    for name, room in event.room.items():
        pool = state.plan.config.pools.get(name)
        if pool is None or not pool.is_spot:
            continue
        sightings = state.sightings.setdefault(name, Sightings())
        if room or not any(node.pool == name and node.gone_at is None for node in state.nodes.values()):
            sightings.see(event.at * state.time_scale, up=room)


def pools_asked(state: RunState, pools: Iterable[str], at: float) -> None:
    """An attempt waits for a node of these pools from now on."""
    for pool in pools:
        if pool in state.sightings:
            state.sightings[pool].watch(at * state.time_scale)


def pools_left(state: RunState, pools: Iterable[str], at: float) -> None:
    """An attempt waits for these pools no longer."""
    for pool in pools:
        if pool in state.sightings and not state.holding.get(pool):
            state.sightings[pool].leave(at * state.time_scale)


def pools_changed(state: RunState, attempt: AttemptState, event: AttemptDecided) -> None:
    """The cause of an attempt's end is known: the pool has lost a node, or the run has given one back."""
    sightings = state.sightings.get(attempt.pool or "")
    if sightings is None:
        if attempt.pool is None:
            pools_left(state, attempt.pools, event.at)
        return
    at = attempt.ended_at if attempt.noticed_at is None else attempt.noticed_at
    if event.cause is Cause.INTERRUPTED and at is not None:
        sightings.lose(at * state.time_scale)
    if not state.holding.get(attempt.pool or ""):
        sightings.leave(event.at * state.time_scale)


def _is_watched(state: RunState, task: TaskState) -> bool:
    """Whether a deadline may move the running attempt of a task from spot to on-demand."""
    policy, attempt = task.plan.policy, task.last
    if policy.deadline is None or not policy.work or attempt.bound_at is None or attempt.key:
        return False
    pool = state.plan.config.pools.get(attempt.pool or "")
    return pool is not None and pool.is_spot and bool(task.plan.ladder.on_demand)
