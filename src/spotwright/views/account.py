"""The account of a run: node time and money by attempt and pool, wasted work, and the savings by spot.

It is computed from the recorded attempts. The time of a node is split into boot, idle and unfilled time and the time of each
attempt. Beside each attempt on spot stands its on-demand alternative. What later attempts did not repeat of an attempt's work
is estimated from the progress that the code reported. Amounts are exact, or ranges. Every report shows these lines.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from itertools import chain, pairwise
from typing import NamedTuple

from spotwright.engine.events import RunStatus, TaskStatus
from spotwright.engine.next_rung import effective_plan
from spotwright.engine.plan import PlannedTask
from spotwright.engine.state import AttemptState, NodeState, RunState
from spotwright.errors import StateError
from spotwright.model.attempts import Cause
from spotwright.model.pools import Capacity, Pool, PriceSource, Resources
from spotwright.scheduling.ladder import Ladder, too_large

__all__ = [
    "NOTHING",
    "Account",
    "Amount",
    "AttemptCost",
    "KeptWork",
    "NodeCost",
    "NodeUse",
    "OnDemand",
    "PoolCost",
    "Range",
    "SpentOn",
    "Stay",
    "account",
    "kept_of",
    "left_node_at",
    "occupy",
    "on_demand_for",
    "paid_only",
    "pool_of",
    "share_of",
    "total",
]


_ZERO = Fraction(0)
_ONE = Fraction(1)
_LOAD_GRAINS = 10**12


class Stay(NamedTuple):
    """An attempt on a node: its key, its share of the node (above 0, at most 1), its begin and end in Unix seconds."""

    key: Hashable
    share: Fraction
    start: float
    end: float


@dataclass(slots=True)
class NodeUse:
    """The split time of a node in seconds: ``boot + idle + unfilled + sum(used.values()) == whole``."""

    whole: Fraction
    boot: Fraction = _ZERO
    idle: Fraction = _ZERO
    unfilled: Fraction = _ZERO
    used: dict[Hashable, Fraction] = field(default_factory=dict)


def share_of(requests: Resources, node: Resources | None) -> Fraction:
    """The largest share of a node among the requests of CPU, memory and GPUs; one if there are none."""
    if node is None:
        return _ONE
    shares = [Fraction(amount, node[name]) for name, amount in requests.items() if node.get(name) and _is_paid(name)]
    largest = max(shares, default=_ZERO)
    return min(largest, _ONE) or _ONE


def _is_paid(resource: str) -> bool:
    """Whether a resource is paid for. Storage and the number of pods are not."""
    return resource in ("cpu", "memory") or "/" in resource


def occupy(booted: float, ready: float | None, gone: float, stays: Sequence[Stay]) -> NodeUse:
    """Split the time of a node from the request for it until it is gone. All moments are Unix seconds."""
    gone = max(booted, gone)
    ready = gone if ready is None else min(max(booted, ready), gone)
    use = NodeUse(_between(booted, gone), boot=_between(booted, ready))
    marks = sorted(_marks(stays, ready, gone), key=lambda mark: mark[0])
    paid = _ZERO  # seconds that a share of one has paid since the node was ready
    load = _ZERO  # sum of the shares on the node
    count, last, began = 0, ready, {}
    for at, enters, stay in marks:
        length = _between(last, at)
        if length:
            if count:
                part = _ONE if load <= _ONE else Fraction(int(_LOAD_GRAINS / load), _LOAD_GRAINS)
                paid += length * part
                use.unfilled += length * (_ONE - load * part)
            else:
                use.idle += length
            last = at
        if enters:
            began[stay.key] = paid
            load, count = load + stay.share, count + 1
        else:
            use.used[stay.key] = stay.share * (paid - began[stay.key])
            load, count = load - stay.share, count - 1
    use.idle += _between(last, gone)
    return use


def paid_only(use: NodeUse) -> NodeUse:
    """The same node, as far as attempts paid for it: of its other time nobody here knows whose it was."""
    return NodeUse(sum(use.used.values(), _ZERO), used=use.used)


def _marks(stays: Sequence[Stay], ready: float, gone: float) -> list[tuple[float, bool, Stay]]:
    """When attempts come (``True``) and go, each in this order and within the life of the node."""
    marks = []
    for stay in stays:
        start = min(max(stay.start, ready), gone)
        marks += [(start, True, stay), (min(max(stay.end, start), gone), False, stay)]
    return marks


def _between(start: float, end: float) -> Fraction:
    return Fraction(end) - Fraction(start)


class OnDemand(NamedTuple):
    """The alternative: an on-demand pool, and the share of its node that the work would use."""

    pool: Pool
    share: Fraction
    price: Fraction  # of a node hour


def on_demand_for(ran_on: Pool, requests: Resources, ladder: Ladder, pools: Mapping[str, Pool]) -> OnDemand | str:
    """The alternative to an attempt on ``ran_on``, or a sentence that says why there is none."""
    if not ran_on.is_spot:
        return _on(ran_on, requests)
    candidates = _on_ladder(ladder, pools) or [
        pool for pool in pools.values() if not pool.is_spot and not too_large(requests, pool.node)
    ]
    if not candidates:
        return "no on-demand pool has room for it"
    same_machine = [pool for pool in candidates if pool.machine and pool.machine == ran_on.machine]
    return _cheapest(same_machine or candidates, requests)


def _on_ladder(ladder: Ladder, pools: Mapping[str, Pool]) -> list[Pool]:
    """The pool to which the ladder falls back; several if one rung holds pools of both kinds."""
    fallback = [name for index in ladder.on_demand[:1] for name in ladder.rungs[index].pools]
    mixed = [name for rung in ladder.rungs if rung.spot is None for name in rung.pools]
    return [pools[name] for name in fallback or mixed if name in pools and not pools[name].is_spot]


def _cheapest(pools: Iterable[Pool], requests: Resources) -> OnDemand | str:
    options = [_on(pool, requests) for pool in pools]
    priced = [option for option in options if isinstance(option, OnDemand)]
    return min(priced, key=lambda option: option.price * option.share) if priced else options[0]


def _on(pool: Pool, requests: Resources) -> OnDemand | str:
    if pool.price is None:
        return f"the on-demand pool {pool.name} has no price"
    return OnDemand(pool, share_of(requests, pool.node), pool.price)


_NONE, _ALL = Fraction(0), Fraction(1)
_PROGRESS_GRAINS = 1_000_000  # progress is an estimate: sums of parts with one denominator stay small numbers


class KeptWork(NamedTuple):
    """The least and the most that was kept of an attempt, as parts of one."""

    low: Fraction = _NONE
    high: Fraction = _NONE

    @property
    def is_exact(self) -> bool:
        """Whether both ends are equal."""
        return self.low == self.high


@dataclass(slots=True)
class _After:
    """The attempts after one: the lowest progress at which they began, and whether one succeeded."""

    lowest: float | None = None
    is_blind: bool = False  # the succeeded attempt reported no progress
    succeeded: bool = False


def kept_of(attempts: Sequence[AttemptState], *, may_succeed: bool) -> list[KeptWork]:
    """The kept part of each attempt, in their order; nothing of a live attempt yet.

    ``may_succeed``: the task has not ended, so that work of its last attempts may still be kept.
    """
    reached = _reached_before(attempts)
    after, kept = _After(), []
    for attempt, base in zip(reversed(attempts), reversed(reached), strict=True):
        if attempt.cause is Cause.SUCCEEDED:
            after = _After(attempt.first_progress, attempt.first_progress is None, succeeded=True)
            kept.append(KeptWork(_ALL, _ALL))
            continue
        if attempt.cause is None or attempt.bound_at is None or not (after.succeeded or may_succeed):
            kept.append(KeptWork())
        else:
            kept.append(_kept(attempt, base, after))
        if attempt.first_progress is not None:
            after.lowest = min(attempt.first_progress, 1.0 if after.lowest is None else after.lowest)
    return kept[::-1]


def _reached_before(attempts: Sequence[AttemptState]) -> list[float]:
    """For each attempt, the highest progress of earlier attempts since the last success."""
    reached, highest = [], 0.0
    for attempt in attempts:
        reached.append(highest)
        highest = 0.0 if attempt.cause is Cause.SUCCEEDED else max(highest, attempt.progress or 0.0)
    return reached


def _kept(attempt: AttemptState, base: float, after: _After) -> KeptWork:
    most = _most_kept(attempt, base, after.lowest)
    if after.lowest is None or most is None:
        return KeptWork(_NONE, _ALL if most is None else most)
    return KeptWork(_NONE if after.is_blind else most, most)


def _most_kept(attempt: AttemptState, base: float, lowest: float | None) -> Fraction | None:
    """The part of the attempt below the lowest begin of its successors; ``None`` if that is unknown."""
    if lowest is None:
        return None
    first, last = attempt.first_progress, attempt.progress
    if first is None or last is None:
        return _NONE if lowest <= base else None
    if lowest <= first:
        return _NONE
    if lowest >= last:
        return _ALL
    return Fraction(round((lowest - first) / (last - first) * _PROGRESS_GRAINS), _PROGRESS_GRAINS)


@dataclass(frozen=True, slots=True)
class Amount:
    """Node time in seconds and its cost. ``money`` is ``None`` if a price is missing.

    An attempt that pays half of its node for ten seconds has used five seconds of node time.
    """

    seconds: Fraction = Fraction(0)
    money: Fraction | None = Fraction(0)

    @classmethod
    def of(cls, seconds: Fraction, price: Fraction | None) -> Amount:
        """``seconds`` of a node with this price per hour."""
        return cls(seconds, None if price is None else seconds * price / 3600)

    def __add__(self, other: Amount) -> Amount:
        money = None if self.money is None or other.money is None else self.money + other.money
        return Amount(self.seconds + other.seconds, money)

    def __sub__(self, other: Amount) -> Amount:
        return self + other * Fraction(-1)

    def __mul__(self, part: Fraction) -> Amount:
        return Amount(self.seconds * part, None if self.money is None else self.money * part)

    def __bool__(self) -> bool:
        return bool(self.seconds or self.money)


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class Range:
    """An amount between two ends, both included. The ends of an exact amount are equal."""

    low: Amount = NOTHING
    high: Amount = NOTHING

    @property
    def is_exact(self) -> bool:
        """Whether both ends are the same."""
        return self.low == self.high

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def __bool__(self) -> bool:
        return bool(self.low or self.high)


def total(amounts: Iterable[Amount]) -> Amount:
    """The sum. Terms are added in pairs of equal weight, which keeps the fractions of a long sum small."""
    level = list(amounts)
    while len(level) > 1:
        level = [
            first + second
            for first, second in zip(level[::2], [*level[1::2], *[NOTHING] * (len(level) % 2)], strict=True)
        ]
    return level[0] if level else NOTHING


class SpentOn(StrEnum):
    """Where the time of an attempt went as far as its work was not kept, by the cause of its end."""

    INTERRUPTIONS = "interruptions"  # interrupted or lost
    MOVES = "moves"  # disrupted
    ERRORS = "errors"  # failed, out of memory, timed out, start-up
    STOPPED = "stopped"  # cancelled, or stopped together with the engine
    UNDER_WAY = "under way"  # it runs, or its cause is not decided yet


_SPENT: Mapping[Cause, SpentOn] = {
    Cause.INTERRUPTED: SpentOn.INTERRUPTIONS,
    Cause.LOST: SpentOn.INTERRUPTIONS,
    Cause.DISRUPTED: SpentOn.MOVES,
    Cause.FAILED: SpentOn.ERRORS,
    Cause.OUT_OF_MEMORY: SpentOn.ERRORS,
    Cause.TIMED_OUT: SpentOn.ERRORS,
    Cause.START_UP: SpentOn.ERRORS,
    Cause.CANCELLED: SpentOn.STOPPED,
}


class AttemptCost(NamedTuple):
    """One attempt. ``seconds`` is its time on the node by the clock, ``cost`` the node time that it pays.

    ``share`` is the share of its node that it requests. Where the shares on a node add up to more than one, each pays less: see
    ``cost``.
    """

    task: str
    number: int
    pool: str
    node: str
    capacity: Capacity
    cause: Cause | None
    started_at: float
    seconds: Fraction
    share: Fraction
    cost: Amount
    kept: KeptWork

    @property
    def spent(self) -> SpentOn | None:
        """The line of the part that was not kept; ``None`` for a succeeded attempt."""
        if self.cause is Cause.SUCCEEDED:
            return None
        return _SPENT.get(self.cause, SpentOn.UNDER_WAY) if self.cause is not None else SpentOn.UNDER_WAY


class PoolCost(NamedTuple):
    """One pool of the run: ``attempts + boot + idle + unfilled == whole``. ``price`` is per node hour."""

    name: str
    capacity: Capacity
    price: Fraction | None
    price_source: PriceSource
    nodes: int
    whole: Amount
    boot: Amount
    idle: Amount
    unfilled: Amount
    attempts: Amount


class NodeCost(NamedTuple):
    """One node, from the request for it until it was gone (Unix seconds): the part of its time that no attempt used.

    ``pool`` is its pool as it was configured when the node was requested.
    """

    name: str
    pool: Pool
    start: float
    end: float
    boot: Amount
    idle: Amount
    unfilled: Amount


class Account(NamedTuple):
    """The account of a run until ``until`` (Unix seconds).

    ``whole`` is all node time: the sum of ``attempts``, ``boot``, ``idle`` and ``unfilled``. ``attempts`` is the sum of
    ``useful`` and ``spent``; the low end of the one belongs to the high end of the other. ``on_demand`` is the counterfactual
    and ``saved`` the money by which it exceeds the cost of the ended attempts; both are ``None`` with a reason in
    ``why_no_comparison``. ``builds`` are the Python environments that were built: packages, and seconds by the clock;
    a build is on no node. ``unpriced`` names the pools without a price; if there are any, no amount has money. ``cached`` names
    the tasks that used an earlier result (task, run, task of that run) and cost nothing. ``prices`` says where prices come
    from: ``simulated``, ``configured``, or ``mixed``. ``has_own_nodes``: nobody else uses the nodes. In a cluster
    others do, and then ``boot``, ``idle`` and ``unfilled`` are nothing. ``moves`` counts the attempts that a deadline moved
    elsewhere, and ``relaunches`` is the boot of the nodes that were requested for their successors; ``boot`` has it too.
    """

    currency: str
    prices: str
    time_scale: float
    until: float
    under_way: bool
    pools: tuple[PoolCost, ...]
    nodes: tuple[NodeCost, ...]
    attempts_by_start: tuple[AttemptCost, ...]
    whole: Amount
    boot: Amount
    idle: Amount
    unfilled: Amount
    attempts: Amount
    useful: Range
    spent: Mapping[SpentOn, Range]
    unpriced: tuple[str, ...]
    cached: tuple[tuple[str, str, str], ...]
    builds: tuple[tuple[tuple[str, ...], float], ...] = ()
    on_demand: Range | None = None
    on_demand_pools: tuple[tuple[str, Fraction], ...] = ()
    saved: tuple[Fraction, Fraction] | None = None
    why_no_comparison: str = ""
    has_own_nodes: bool = True
    moves: int = 0
    relaunches: Amount = NOTHING

    def attempt(self, task: str, number: int) -> AttemptCost | None:
        """The cost of one attempt; ``None`` if it never had a node."""
        return next((cost for cost in self.attempts_by_start if (cost.task, cost.number) == (task, number)), None)


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
    until = state.known_until(now)
    attempts = sorted(_attempts(state, until), key=lambda attempt: attempt.stay.start)
    uses = _uses(state, attempts, until)
    used = _used_pools(state)
    unpriced = tuple(dict.fromkeys(name for name, price in used if price is None))
    costs = [_attempt_cost(attempt, uses, priced=not unpriced) for attempt in attempts]
    pools = [_pool_cost(state, name, price, uses, priced=not unpriced) for name, price in used]
    nothing = Amount.of(Fraction(0), None if unpriced else Fraction(0))
    compared = _compare(state, attempts, costs, unpriced)
    nodes = tuple(_node_cost(state, node, uses, until, priced=not unpriced) for node in state.all_nodes)
    moves = list(_moves(state))
    return Account(
        currency=state.plan.config.currency,
        prices=_prices(state),
        time_scale=state.time_scale,
        until=until,
        under_way=any(cost.spent is SpentOn.UNDER_WAY for cost in costs),
        pools=tuple(pools),
        nodes=nodes,
        moves=len(moves),
        relaunches=total([nothing, *_relaunches(moves, nodes)]),
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


def _moves(state: RunState) -> Iterator[tuple[float, AttemptState | None]]:
    """When each attempt that a deadline moved has ended, and the attempt that followed it."""
    for task in chain(state.tasks.values(), state.retired.values()):
        for before, after in pairwise([*task.attempts, None]):
            if before is not None and before.moving and before.cause is Cause.DISRUPTED:
                yield before.ended_at or 0.0, after


def _relaunches(moves: Sequence[tuple[float, AttemptState | None]], nodes: Sequence[NodeCost]) -> Iterator[Amount]:
    """The boot of each node that was requested after a move and that the next attempt ran on."""
    booted = {(node.name, node.start): node for node in nodes}
    for ended_at, after in moves:
        found = [node for (name, start), node in booted.items() if after and name == after.node and start >= ended_at]
        for node in found[:1]:
            yield booted.pop((node.name, node.start)).boot


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


def left_node_at(state: RunState, attempt: AttemptState) -> float | None:
    """When an attempt that has ended left its node (Unix seconds); ``None`` before its end, and for one that never had a node.

    Where nobody tells its pool, that is when its end was seen; where its pool is told and its node is not, it is not known.
    """
    if attempt.bound_at is None or attempt.ended_at is None:
        return None
    if not attempt.node or not attempt.pool:
        return None if attempt.pool else attempt.ended_at
    return _end_of(attempt, _node_of(state, attempt.node, attempt.bound_at), attempt.ended_at)


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
