"""Computes the account of a run from its recorded attempts: its cost, the waste, and the savings by spot.

Every second of every node is on exactly one line: used by an attempt, boot, idle or unfilled
(:mod:`spotwright.views.account.occupancy`). The time of attempts is split again: useful work (succeeded attempts, and work that
later attempts did not repeat, see :mod:`spotwright.views.account.waste`), and the rest by the cause of the attempt's end. Money
is node time at the price of the pool. It is given only if every used pool has a price; node time always is.

Nodes of a local run are its own. In a cluster other workloads use them too, before, after and beside the pods of a run, and
autoscalers make and keep them for all. So a run there pays for the shares of its pods while they are on a node, and has no boot,
idle and unfilled time: counted from its first pod to its end, it would be time of others, and two runs would count it twice.

The counterfactual is the useful work at the on-demand price (:mod:`spotwright.views.account.counterfactual`). Savings are the
counterfactual minus the cost of the ended attempts; errors and waste count against spot, so savings can be negative. Boot, idle
and unfilled time are left out of the comparison: on-demand nodes have them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from typing import NamedTuple

from spotwright.engine.events import RunStatus, TaskStatus
from spotwright.engine.next_rung import effective_plan
from spotwright.engine.plan import PlannedTask
from spotwright.engine.state import AttemptState, NodeState, RunState
from spotwright.errors import StateError
from spotwright.model.pools import Pool
from spotwright.views.account.account_model import Account, AttemptCost, NodeCost, PoolCost, SpentOn
from spotwright.views.account.amounts import Amount, Range, total
from spotwright.views.account.counterfactual import OnDemand, on_demand_for
from spotwright.views.account.occupancy import NodeUse, Stay, occupy, paid_only, share_of
from spotwright.views.account.waste import KeptWork, kept_of

__all__ = ["account", "pool_of"]


class _Attempt(NamedTuple):
    """An attempt that had a node, with everything from which its cost is computed."""

    task: str
    planned: PlannedTask
    state: AttemptState
    pool: Pool
    kept: KeptWork
    stay: Stay
    node: NodeState


def account(state: RunState, now: float | None = None) -> Account:
    """The account of a run. Give ``now`` (Unix seconds) while an engine drives the run: live nodes and attempts count until then.

    Without ``now``, and for a run that has ended, they count until the last recorded event. Raises :class:`StateError` for a
    journal that names a pool which no version of the plan has.
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
        prices=_prices(state),
        time_scale=state.time_scale,
        until=until,
        under_way=any(cost.spent is SpentOn.UNDER_WAY for cost in costs),
        pools=tuple(pools),
        nodes=tuple(_node_cost(state, node, uses, until, priced=not unpriced) for node in state.all_nodes),
        attempts_by_start=tuple(costs),
        has_own_nodes=not state.meta.orchestrator,
        whole=total([nothing, *(pool.whole for pool in pools)]),
        boot=total([nothing, *(pool.boot for pool in pools)]),
        idle=total([nothing, *(pool.idle for pool in pools)]),
        unfilled=total([nothing, *(pool.unfilled for pool in pools)]),
        attempts=total([nothing, *(pool.attempts for pool in pools)]),
        useful=_parts(costs, nothing, useful=True),
        spent={
            spent: _parts([cost for cost in costs if cost.spent is spent], nothing, useful=False)
            for spent in SpentOn
            if any(cost.spent is spent for cost in costs)
        },
        unpriced=unpriced,
        cached=tuple((task.path, *task.cached_from) for task in state.tasks.values() if task.cached_from is not None),
        builds=tuple(_builds(state, until)),
        on_demand=compared.on_demand,
        on_demand_pools=compared.pools,
        saved=compared.saved,
        why_no_comparison=compared.why,
    )


def _builds(state: RunState, until: float) -> Iterator[tuple[tuple[str, ...], float]]:
    """Each Python environment that was built, once, with the seconds for which a task waited for it at most."""
    seconds: dict[tuple[str, ...], float] = {}
    for task in chain(state.tasks.values(), state.retired.values()):
        built = task.environment
        if built is not None and built.began_at is not None:
            took = (until if built.ended_at is None else built.ended_at) - built.began_at
            seconds[built.packages] = max(took, seconds.get(built.packages, 0.0))
    yield from seconds.items()


def _attempts(state: RunState, until: float) -> Iterator[_Attempt]:
    """Every attempt that had a node, also of tasks that only an earlier version of the run has."""
    for task in chain(state.tasks.values(), state.retired.values()):
        if not any(attempt.bound_at is not None for attempt in task.attempts):
            continue
        is_here = state.tasks.get(task.path) is task
        may_succeed = is_here and not task.status.is_final and state.status in (RunStatus.RUNNING, RunStatus.STOPPED)
        planned = effective_plan(state, task) if is_here and task.status is not TaskStatus.WAITING else task.plan
        for attempt, kept in zip(task.attempts, kept_of(task.attempts, may_succeed=may_succeed), strict=True):
            if attempt.bound_at is None or not attempt.node or not attempt.pool:  # unknown nodes cost nobody knows what
                continue
            node = _node_of(state, attempt.node, attempt.bound_at)
            pool = _pool_of_node(state, node)
            size = {**node.offers, **(pool.node or {})} or None
            share = share_of(planned.work.requests, size)
            stay = Stay((task.path, attempt.number), share, attempt.bound_at, _end_of(attempt, node, until))
            yield _Attempt(task.path, planned, attempt, pool, kept, stay, node)


def _end_of(attempt: AttemptState, node: NodeState, until: float) -> float:
    """When the attempt left its node: by its exit record if there is one, else by its ``ended`` event.

    Without a record not after its node was gone: of a machine that is gone the pod may stay for minutes, and nothing runs
    in it. With one, the attempt's own clock is believed.
    """
    bound = attempt.bound_at or 0.0
    measured = attempt.ended.ended_at if attempt.ended is not None else None
    if attempt.ended_at is not None and measured is not None:
        return min(max(measured, bound), attempt.ended_at)
    end = until if attempt.ended_at is None else max(attempt.ended_at, bound)
    return end if node.gone_at is None else min(end, max(node.gone_at, bound))


def _node_of(state: RunState, name: str, bound_at: float) -> NodeState:
    """The node of this name on which an attempt was bound: a machine that comes back is another one."""
    former = (node for node in state.former_nodes if node.name == name)
    return next((node for node in former if bound_at <= (node.gone_at or 0.0)), state.nodes[name])


_Uses = Mapping[tuple[str, float], NodeUse]
"""How the time of each node was used, by its name and the moment when it began."""


def _uses(state: RunState, attempts: Iterable[_Attempt], until: float) -> _Uses:
    stays: dict[tuple[str, float], list[Stay]] = {_key(node): [] for node in state.all_nodes}
    for attempt in attempts:
        stays[_key(attempt.node)].append(attempt.stay)
    uses = {
        _key(node): occupy(
            node.booted_at, node.ready_at, until if node.gone_at is None else node.gone_at, stays[_key(node)]
        )
        for node in state.all_nodes
    }
    return {key: paid_only(use) for key, use in uses.items()} if state.meta.orchestrator else uses


def _key(node: NodeState) -> tuple[str, float]:
    return node.name, node.booted_at


def _used_pools(state: RunState) -> list[tuple[str, Fraction | None]]:
    """Every pool that had a node, once per price: a resume may have changed the price."""
    return list(dict.fromkeys((node.pool, _pool_of_node(state, node).price) for node in state.all_nodes))


def _prices(state: RunState) -> str:
    """Where the prices of the pools that were used come from; before the first node, those of all pools."""
    pools = [_pool_of_node(state, node) for node in state.all_nodes] or state.plan.config.pools.values()
    sources = {pool.price_source for pool in pools}
    return sources.pop().value if len(sources) == 1 else "mixed"


def _pool_of_node(state: RunState, node: NodeState) -> Pool:
    """The pool of a node as configured when the node was requested: money counts at the price of its time."""
    return state.plans[node.version - 1].config.pools.get(node.pool) or pool_of(state, node.pool)


def pool_of(state: RunState, name: str) -> Pool:
    """A pool by name, from the newest version of the plan that has it."""
    for plan in reversed(state.plans):
        if name in plan.config.pools:
            return plan.config.pools[name]
    raise StateError(f"the journal names the pool {name!r}, which is in no version of the run's configuration")


def _attempt_cost(attempt: _Attempt, uses: _Uses, *, priced: bool) -> AttemptCost:
    used = uses[_key(attempt.node)].used[attempt.stay.key]
    return AttemptCost(
        task=attempt.task,
        number=attempt.state.number,
        pool=attempt.pool.name,
        node=attempt.node.name,
        capacity=attempt.pool.capacity,
        cause=attempt.state.cause,
        started_at=attempt.stay.start,
        seconds=Fraction(attempt.stay.end) - Fraction(attempt.stay.start),
        share=attempt.stay.share,
        cost=Amount.of(used, attempt.pool.price if priced else None),
        kept=attempt.kept,
    )


def _node_cost(state: RunState, node: NodeState, uses: _Uses, until: float, *, priced: bool) -> NodeCost:
    pool, use = _pool_of_node(state, node), uses[_key(node)]
    price = pool.price if priced else None
    end = max(node.booted_at, until if node.gone_at is None else node.gone_at)
    lines = (Amount.of(seconds, price) for seconds in (use.boot, use.idle, use.unfilled))
    return NodeCost(node.name, pool, node.booted_at, end, *lines)


def _pool_cost(state: RunState, name: str, price: Fraction | None, uses: _Uses, *, priced: bool) -> PoolCost:
    of_this = [n for n in state.all_nodes if n.pool == name and _pool_of_node(state, n).price == price]
    own = [uses[_key(node)] for node in of_this]

    def line(seconds: Iterable[Fraction]) -> Amount:
        return total(Amount.of(each, price if priced else None) for each in seconds)

    return PoolCost(
        name=name,
        capacity=_pool_of_node(state, of_this[0]).capacity,
        price=price,
        price_source=_pool_of_node(state, of_this[0]).price_source,
        nodes=len(own),
        whole=line(use.whole for use in own),
        boot=line(use.boot for use in own),
        idle=line(use.idle for use in own),
        unfilled=line(use.unfilled for use in own),
        attempts=line(used for use in own for used in use.used.values()),
    )


def _parts(costs: Sequence[AttemptCost], nothing: Amount, *, useful: bool) -> Range:
    """The kept part of these attempts, or the rest, at the least and at the most."""
    least = [cost.cost * (cost.kept.low if useful else 1 - cost.kept.high) for cost in costs]
    most = [cost.cost * (cost.kept.high if useful else 1 - cost.kept.low) for cost in costs]
    return Range(total([nothing, *least]), total([nothing, *most]))


class _Compared(NamedTuple):
    """The counterfactual and the savings, or the reason why there are none."""

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
        alternative = on_demand_for(
            attempt.pool, attempt.planned.work.requests, attempt.planned.ladder, state.plan.config.pools
        )
        if not isinstance(alternative, OnDemand):
            return _Compared(why=f"{alternative} (task {attempt.task})")
        pools[alternative.pool.name] = alternative.price
        there = Amount.of(cost.cost.seconds * alternative.share / cost.share, alternative.price)
        low.append(there * cost.kept.low)
        high.append(there * cost.kept.high)
    on_demand = Range(total(low), total(high))
    paid = total(cost.cost for cost in costs if cost.spent is not SpentOn.UNDER_WAY).money or Fraction(0)
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
