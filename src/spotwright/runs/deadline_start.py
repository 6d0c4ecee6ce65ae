"""What a run with a deadline begins with: whether its deadline can be met at all, and what earlier runs have seen of its pools.

A deadline that on-demand cannot meet is said before anything is paid for, with by how much and the nearest that can be met. The
run goes on all the same, on on-demand from the start: a result that is late is worth more than none, and a stated duration may be
wrong.

What a run has counted of its pools is the last row of its journal. A later run adds up the newest of those rows and writes the
sum into its own journal, so its decisions still follow from that alone. Counts of a pool that was another one then (another
machine, zone or simulation under the same name) are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from spotwright.engine.events import MarketKnown
from spotwright.engine.fold import fold
from spotwright.engine.plan import Plan, PlannedTask
from spotwright.engine.state import RunState
from spotwright.errors import StateError
from spotwright.model.policy import Deadline
from spotwright.model.pools import Pool
from spotwright.model.quantities import format_duration
from spotwright.records.journal import Journal
from spotwright.records.state_folder import StateFolder

__all__ = ["deadline_notes", "keep_sightings", "known_market"]

_RUNS = 50  # the newest runs whose counts are looked for
_LARGEST = 20_000_000  # bytes of a journal that is searched for them


def deadline_notes(plan: Plan, now: float, time_scale: float = 1.0) -> Iterator[str]:
    """What to say before a run with a deadline begins: that it cannot be met, and which tasks state no ``work``."""
    worst: tuple[float, str, float] | None = None
    silent: list[str] = []
    starts: dict[str, float] = {}
    for planned in plan.unfold(""):
        work = plan.stated_work(planned)
        start = max((starts[name] for name in planned.spec.after), default=0.0)
        starts[planned.spec.name] = start + work
        deadline = planned.policy.deadline
        if deadline is None:
            continue
        if planned.ladder.rungs and not planned.policy.work:
            silent.append(planned.path)
        need = start + work + planned.downstream + _launch(plan, planned, time_scale)
        excess = need - _after(deadline, now)
        if excess > (0.0 if worst is None else worst[0]):
            worst = excess, planned.path, need
    if worst is not None:
        excess, path, need = worst
        yield (
            f"the deadline cannot be met: on on-demand alone the stated work on the longest path through {path} takes "
            f"{format_duration(need)} with a launch, {format_duration(excess)} too long; the nearest deadline that can be met is "
            f"{format_duration(need)} after the start. The run goes on, on on-demand at once"
        )
    if silent:
        named = ", ".join(silent[:3]) + (f" and {len(silent) - 3} more" if len(silent) > 3 else "")
        yield f"without a stated 'work' a deadline can only be kept on on-demand, from the start: {named}"


def known_market(folder: StateFolder, plan: Plan, own: str, at: float) -> MarketKnown | None:
    """What the newest runs of a state folder, without the run ``own``, have counted of the spot pools of a plan."""
    if not _has_deadline(plan):
        return None
    kinds = {name: _kind(pool) for name, pool in plan.config.pools.items() if pool.is_spot}
    sums: dict[str, list[float]] = {}
    runs = 0
    for run in list(reversed(folder.runs()))[:_RUNS]:
        counted = None if run.name == own else _counted(run.journal)
        if counted is None:
            continue
        runs += 1
        for pool, counts in counted.pools.items():
            if kinds.get(pool) == counted.kinds.get(pool):
                before = sums.get(pool, [0.0] * len(counts))
                sums[pool] = [one + other for one, other in zip(before, counts, strict=True)]
    pools = {pool: tuple(counts) for pool, counts in sums.items()}
    return MarketKnown(at, pools=pools, runs=runs) if pools else None


def keep_sightings(journal: Journal, state: RunState, at: float) -> None:
    """Write what a run has counted of its pools to the end of its journal, for later runs."""
    if not state.sightings:
        return
    from spotwright.deadlines.hazards import listed

    pools = state.plan.config.pools
    counts = {name: listed(seen.counts()) for name, seen in state.sightings.items() if name in pools}
    event = MarketKnown(at, pools=counts, own=True, kinds={name: _kind(pools[name]) for name in counts})
    fold(state, event)
    journal.append([event])


def _counted(file: Path) -> MarketKnown | None:
    """The last row of counts in a journal, if its run wrote one at its end; ``None`` for a journal that cannot be read."""
    try:
        if file.stat().st_size > _LARGEST:
            return None
        with closing(Journal.read(file)) as journal:
            event = journal.last(MarketKnown.kind)
    except (OSError, StateError):  # a run that is being deleted, or of another version: its counts are not needed
        return None
    return event if isinstance(event, MarketKnown) and event.own else None


def _has_deadline(plan: Plan) -> bool:
    return any(planned.policy.deadline is not None for planned in plan.every_task())


def _launch(plan: Plan, planned: PlannedTask, time_scale: float) -> float:
    """The shortest time until an on-demand node of a task is ready, in real seconds."""
    pools = [
        plan.config.pools[name] for index in planned.ladder.on_demand for name in planned.ladder.rungs[index].pools
    ]
    return min((pool.boot for pool in pools), default=0.0) / time_scale


def _after(deadline: Deadline, now: float) -> float:
    return deadline.moment(now) - now


def _kind(pool: Pool) -> str:
    """What makes a pool the same pool for its supply."""
    return repr((pool.provider.value, pool.machine, pool.zones, pool.region, pool.lifetime, tuple(pool.simulate)))
