"""What a run cost, what of it was wasted, and what spot saved: one account, computed from recorded attempts.

Every second of every node is on exactly one line: used by an attempt, boot, idle or unfilled (:mod:`spotwright.views.occupancy`).
What attempts used is split again: useful work (succeeded attempts, and what later attempts did not have to do again, see
:mod:`spotwright.views.waste`), and the rest by the cause that ended them. Money is node time at the price of the pool, and
is only said where every pool that was used has a price; node time always is.

The counterfactual is the useful work at the on-demand price (:mod:`spotwright.views.counterfactual`). Saved is that minus what
the ended attempts cost; errors and waste count against spot, and so the figure can be negative. Boot, idle and unfilled time
stand beside it: on-demand nodes have them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain

from spotwright.engine.choosing import effective
from spotwright.engine.plan import Planned
from spotwright.engine.state import AttemptState, NodeState, RunState, RunStatus, TaskStatus
from spotwright.errors import StateError
from spotwright.model.pools import Pool
from spotwright.views.amounts import Amount, Range, total
from spotwright.views.counterfactual import OnDemand, on_demand_for
from spotwright.views.lines import Account, AttemptCost, PoolCost, Spent
from spotwright.views.occupancy import NodeUse, Stay, occupy, share_of
from spotwright.views.waste import Kept, kept_of

__all__ = ["account", "pool_of"]


@dataclass(frozen=True, slots=True)
class _Attempt:
    """An attempt that had a node, with what its cost is computed from."""

    task: str
    planned: Planned
    state: AttemptState
    pool: Pool
    kept: Kept
    stay: Stay
    node: str


def account(state: RunState, now: float | None = None) -> Account:
    """The account of a run. ``now`` (Unix seconds) is until when nodes and attempts of a run that is driven are counted.

    Without ``now``, and for a run that has ended, the last recorded event is the end: give ``now`` only while an engine
    drives the run. Raises :class:`StateError` for a journal that names a pool which no version of the plan has.
    """
    until = state.last_at
    if now is not None and state.status is RunStatus.RUNNING:
        until = max(now, until)
    attempts = sorted(_attempts(state, until), key=lambda attempt: attempt.stay.start)
    uses = _uses(state, attempts, until)
    used = _used_pools(state)
    unpriced = tuple(dict.fromkeys(name for name, price in used if price is None))
    costs = [_attempt_cost(attempt, uses, priced=not unpriced) for attempt in attempts]
    pools = [_pool_cost(state, name, price, uses, priced=not unpriced) for name, price in used]
    nothing = Amount.of(Fraction(0), None if unpriced else Fraction(0))
    compared = _compare(state, attempts, costs, unpriced)
    return Account(
        currency=state.plan.config.currency,
        prices="simulated",
        time_scale=state.time_scale,
        until=until,
        under_way=any(cost.spent is Spent.UNDER_WAY for cost in costs),
        pools=tuple(pools),
        attempts_by_start=tuple(costs),
        whole=total([nothing, *(pool.whole for pool in pools)]),
        boot=total([nothing, *(pool.boot for pool in pools)]),
        idle=total([nothing, *(pool.idle for pool in pools)]),
        unfilled=total([nothing, *(pool.unfilled for pool in pools)]),
        attempts=total([nothing, *(pool.attempts for pool in pools)]),
        useful=_parts(costs, nothing, useful=True),
        spent={
            spent: _parts([cost for cost in costs if cost.spent is spent], nothing, useful=False)
            for spent in Spent
            if any(cost.spent is spent for cost in costs)
        },
        unpriced=unpriced,
        cached=tuple((task.path, *task.cached_from) for task in state.tasks.values() if task.cached_from is not None),
        on_demand=compared.on_demand,
        on_demand_pools=compared.pools,
        saved=compared.saved,
        why_no_comparison=compared.why,
    )


def _attempts(state: RunState, until: float) -> Iterator[_Attempt]:
    """Every attempt that had a node, also those of tasks that an earlier version of the run left behind."""
    for task in chain(state.tasks.values(), state.retired.values()):
        if not any(attempt.bound_at is not None for attempt in task.attempts):
            continue
        is_here = state.tasks.get(task.path) is task
        may_succeed = is_here and not task.status.is_final and state.status in (RunStatus.RUNNING, RunStatus.STOPPED)
        planned = effective(state, task) if is_here and task.status is not TaskStatus.WAITING else task.plan
        for attempt, kept in zip(task.attempts, kept_of(task.attempts, may_succeed=may_succeed), strict=True):
            if attempt.bound_at is None or attempt.node is None or attempt.pool is None:
                continue
            pool = _pool_of_node(state, state.nodes[attempt.node])
            share = share_of(planned.work.requests, pool.node)
            stay = Stay((task.path, attempt.number), share, attempt.bound_at, _end_of(attempt, until))
            yield _Attempt(task.path, planned, attempt, pool, kept, stay, attempt.node)


def _end_of(attempt: AttemptState, until: float) -> float:
    """When the attempt left its node: by its exit record where there is one, else when its end was noticed."""
    if attempt.ended_at is None:
        return until
    recorded = float((attempt.ended or {}).get("ended_at", attempt.ended_at))
    return min(max(recorded, attempt.bound_at or recorded), attempt.ended_at)


def _uses(state: RunState, attempts: Iterable[_Attempt], until: float) -> dict[str, NodeUse]:
    stays: dict[str, list[Stay]] = {name: [] for name in state.nodes}
    for attempt in attempts:
        stays[attempt.node].append(attempt.stay)
    return {
        name: occupy(node.booted_at, node.ready_at, until if node.gone_at is None else node.gone_at, stays[name])
        for name, node in state.nodes.items()
    }


def _used_pools(state: RunState) -> list[tuple[str, Fraction | None]]:
    """Every pool that had a node, once for each price it had: a resume may have changed it."""
    return list(dict.fromkeys((node.pool, _pool_of_node(state, node).price) for node in state.nodes.values()))


def _pool_of_node(state: RunState, node: NodeState) -> Pool:
    """The pool of a node as it was when the node was asked for: money is counted at the price of its time."""
    return state.plans[node.version - 1].config.pools.get(node.pool) or pool_of(state, node.pool)


def pool_of(state: RunState, name: str) -> Pool:
    """A pool by name, from the newest version of the plan that has it."""
    for plan in reversed(state.plans):
        if name in plan.config.pools:
            return plan.config.pools[name]
    raise StateError(f"the journal names the pool {name!r}, which is in no version of the run's configuration")


def _attempt_cost(attempt: _Attempt, uses: dict[str, NodeUse], *, priced: bool) -> AttemptCost:
    used = uses[attempt.node].used[attempt.stay.key]
    return AttemptCost(
        task=attempt.task,
        number=attempt.state.number,
        pool=attempt.pool.name,
        node=attempt.node,
        capacity=attempt.pool.capacity,
        cause=attempt.state.cause,
        started_at=attempt.stay.start,
        seconds=Fraction(attempt.stay.end) - Fraction(attempt.stay.start),
        share=attempt.stay.share,
        cost=Amount.of(used, attempt.pool.price if priced else None),
        kept=attempt.kept,
    )


def _pool_cost(
    state: RunState, name: str, price: Fraction | None, uses: dict[str, NodeUse], *, priced: bool
) -> PoolCost:
    of_this = [n for n in state.nodes.values() if n.pool == name and _pool_of_node(state, n).price == price]
    own = [uses[node.name] for node in of_this]

    def line(seconds: Iterable[Fraction]) -> Amount:
        return total(Amount.of(each, price if priced else None) for each in seconds)

    return PoolCost(
        name=name,
        capacity=_pool_of_node(state, of_this[0]).capacity,
        price=price,
        nodes=len(own),
        whole=line(use.whole for use in own),
        boot=line(use.boot for use in own),
        idle=line(use.idle for use in own),
        unfilled=line(use.unfilled for use in own),
        attempts=line(used for use in own for used in use.used.values()),
    )


def _parts(costs: Sequence[AttemptCost], nothing: Amount, *, useful: bool) -> Range:
    """What was kept of these attempts, or else what was not, at the least and at the most."""
    least = [cost.cost * (cost.kept.low if useful else 1 - cost.kept.high) for cost in costs]
    most = [cost.cost * (cost.kept.high if useful else 1 - cost.kept.low) for cost in costs]
    return Range(total([nothing, *least]), total([nothing, *most]))


@dataclass(frozen=True, slots=True)
class _Compared:
    """The counterfactual and what was saved, or why there is none."""

    on_demand: Range | None = None
    pools: tuple[tuple[str, Fraction], ...] = ()
    saved: tuple[Fraction, Fraction] | None = None
    why: str = ""


def _compare(
    state: RunState, attempts: Sequence[_Attempt], costs: Sequence[AttemptCost], unpriced: Sequence[str]
) -> _Compared:
    why = _why_not(attempts, costs, unpriced)
    if why:
        return _Compared(why=why)
    pools: dict[str, Fraction] = {}
    low, high = [], []
    for attempt, cost in zip(attempts, costs, strict=True):
        if not cost.kept.high:
            continue
        found = on_demand_for(
            attempt.pool, attempt.planned.work.requests, attempt.planned.ladder, state.plan.config.pools
        )
        if not isinstance(found, OnDemand):
            return _Compared(why=f"{found} (task {attempt.task})")
        pools[found.pool.name] = found.price
        there = Amount.of(cost.cost.seconds * found.share / cost.share, found.price)
        low.append(there * cost.kept.low)
        high.append(there * cost.kept.high)
    on_demand = Range(total(low), total(high))
    paid = total(cost.cost for cost in costs if cost.spent is not Spent.UNDER_WAY).money or Fraction(0)
    saved = ((on_demand.low.money or Fraction(0)) - paid, (on_demand.high.money or Fraction(0)) - paid)
    return _Compared(on_demand, tuple(pools.items()), saved)


def _why_not(attempts: Sequence[_Attempt], costs: Sequence[AttemptCost], unpriced: Sequence[str]) -> str:
    if not any(attempt.pool.is_spot for attempt in attempts):
        return "nothing ran on spot"
    if unpriced:
        return f"{', '.join(unpriced)} {'has' if len(unpriced) == 1 else 'have'} no price"
    if not any(cost.kept.high for cost in costs):
        return "no work was finished yet"
    return ""
