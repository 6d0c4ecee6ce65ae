"""Records a run's observations of its pools and its work: deadlines decide by the supply of spot nodes and the pace."""

from __future__ import annotations

from collections.abc import Iterable

from spotwright.engine.events import AttemptBound, AttemptDecided, MarketKnown, ProgressReported, SnapshotTaken
from spotwright.engine.state import AttemptState, RunState, TaskState
from spotwright.model.attempts import Cause
from spotwright.scheduling.estimates import next_mark

__all__ = [
    "has_gone_on",
    "market_known",
    "pools_asked",
    "pools_changed",
    "pools_left",
    "reached_before",
    "room_seen",
    "run_taken_up",
    "spot_bound",
    "work_measured",
]


_LOOKS = 200  # at a running attempt because of its reports, during its stated work, at most
_SOMETHING = 1e-9
_RESTORED = 2.0  # times the known pace: a first report beyond it includes an earlier attempt's saved work


def spot_bound(state: RunState, task: TaskState, event: AttemptBound) -> None:
    """Note that an attempt has a node: under a deadline, a decision sets how long it stays."""
    task.last.until, task.last.kept = None, ""
    sightings = state.sightings.get(event.pool)
    if sightings is not None:
        node = state.nodes.get(event.node)
        granted = event.at if node is None else min(event.at, max(node.booted_at, task.last.rung_at))
        sightings.see(max(granted * state.time_scale, sightings.counted), up=True)
        sightings.watch(event.at * state.time_scale)
    if _is_watched(state, task):
        state.todo[task.path] = None


def run_taken_up(state: RunState) -> None:
    """Note that an engine takes the run: the pools were unobserved meanwhile, and running attempts need a look."""
    for sightings in state.sightings.values():
        sightings.leave(state.last_at * state.time_scale)
    for path in state.under_way:
        if _is_watched(state, state.tasks[path]):
            state.todo[path] = None


def market_known(state: RunState, event: MarketKnown) -> None:
    """Add the counts of earlier runs."""
    if event.own:
        return
    from spotwright.deadlines.hazards import Sightings, unlisted  # other runs never need it, and it slows each start

    for pool, counts in event.pools.items():
        state.sightings[pool] = Sightings(unlisted(counts))
    state.earlier_boots = {pool: tuple(seen) for pool, seen in event.boots.items()}


def room_seen(state: RunState, event: SnapshotTaken) -> None:
    """Note which pools have room. A pool full of the run's own nodes shows nothing."""
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
    """Note that an attempt now waits for a node of these pools."""
    for pool in pools:
        if pool in state.sightings:
            state.sightings[pool].watch(at * state.time_scale)


def pools_left(state: RunState, pools: Iterable[str], at: float) -> None:
    """Note that an attempt no longer waits for these pools."""
    for pool in pools:
        if pool in state.sightings and not state.holding.get(pool):
            state.sightings[pool].leave(at * state.time_scale)


def pools_changed(state: RunState, attempt: AttemptState, event: AttemptDecided) -> None:
    """Note the cause of an attempt's end: the pool lost a node, or the run returned one."""
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


def work_measured(state: RunState, task: TaskState, attempt: AttemptState, event: ProgressReported) -> None:
    """Note a report under a deadline: it measures the pace of the work, and a running attempt on spot needs a look."""
    stated, reached = task.plan.policy.expected_duration or 0.0, reached_before(task, attempt)
    task.pace, attempt.measured = next_mark(task.pace, attempt.measured, event.at, event.value, reached, stated)
    kept = reached if task.plan.policy.checkpoint is not None else 0.0
    if attempt.started_in is None and attempt.bound_at is not None and kept <= event.value < 1.0:
        attempt.started_in = max(0.0, event.at - attempt.bound_at), event.value - kept
    due = attempt.looked_at is None or event.at - attempt.looked_at >= stated / _LOOKS
    if due and attempt is task.last and attempt.is_live and not attempt.halted and _is_watched(state, task):
        state.todo[task.path] = None


def reached_before(task: TaskState, attempt: AttemptState) -> float:
    """The share of the work that earlier attempts reported; just above zero after an attempt without a report."""
    earlier = task.attempts[: attempt.number - 1]
    return max((each.progress or _SOMETHING for each in earlier), default=0.0)


def has_gone_on(task: TaskState, attempt: AttemptState, at: float) -> bool:
    """Whether an attempt's first report includes earlier work: alone, it would have been twice as fast as known.

    Not used without an ``expected_duration``.
    """
    stated = task.plan.policy.expected_duration or 0.0
    if attempt.number == 1 or attempt.bound_at is None or at < attempt.bound_at:
        return False
    whole = task.pace.whole if task.pace.is_seen(stated) else stated
    return (attempt.first_progress or 0.0) * whole > _RESTORED * (at - attempt.bound_at)


def _is_watched(state: RunState, task: TaskState) -> bool:
    """Whether a deadline may move a task's running attempt: from spot, or to spot if its work is saved."""
    policy, attempt, ladder = task.plan.policy, task.last, task.plan.ladder
    if (
        policy.deadline is None
        or not policy.expected_duration
        or attempt.bound_at is None
        or attempt.key
        or not ladder.on_demand
    ):
        return False
    pool = state.plan.config.pools.get(attempt.pool or "")
    if pool is None or pool.is_spot:
        return pool is not None
    has_spot = any(rung.spot is not False for rung in ladder.rungs)
    return has_spot and (policy.checkpoint is not None or task.goes_on)
