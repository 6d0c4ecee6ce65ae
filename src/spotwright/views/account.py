"""The account of a run: node time and money by attempt and pool, wasted work, and the savings of spot.

It is computed from the recorded attempts. A node's time is split into boot, idle and unfilled time and the time of each
attempt. Each attempt on spot is compared with its on-demand alternative. The kept part of an attempt's work, which later
attempts did not repeat, is estimated from the reported progress. Amounts are exact, or ranges. Every report shows these lines.

Time is counted in whole parts of a second (:mod:`spotwright.views.node_time`) and multiplied by its price once summed, because
fractions are slow and would be needed tens of times for every attempt. Only results are fractions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from itertools import accumulate, chain, count, pairwise
from typing import NamedTuple

from spotwright.engine.events import RunStatus, TaskStatus
from spotwright.engine.next_rung import effective_plan
from spotwright.engine.plan import PlannedTask
from spotwright.engine.state import AttemptState, NodeState, RunState
from spotwright.errors import StateError
from spotwright.model.attempts import Cause
from spotwright.model.pools import Capacity, Pool, PriceSource, Resources
from spotwright.scheduling.ladder import Ladder, too_large
from spotwright.views.node_time import SECOND, NodeUse, Stay, occupy, paid_only, parts_of, share_of
from spotwright.views.run_deadline import RunDeadline, run_deadline

__all__ = [
    "NOTHING",
    "Account",
    "Amount",
    "AttemptCost",
    "KeptWork",
    "NodeCost",
    "OnDemand",
    "PoolCost",
    "Range",
    "SpentOn",
    "account",
    "kept_of",
    "left_node_at",
    "on_demand_for",
    "pool_of",
    "total",
]


_ZERO = Fraction(0)
_ONE = Fraction(1)


class OnDemand(NamedTuple):
    """The alternative: an on-demand pool, and the share of its node that the work would use."""

    pool: Pool
    share: Fraction
    price: Fraction  # of a node hour


def on_demand_for(ran_on: Pool, requests: Resources, ladder: Ladder, pools: Mapping[str, Pool]) -> OnDemand | str:
    """The alternative to an attempt on ``ran_on``, or a sentence on why there is none."""
    if not ran_on.is_spot:
        return _on(ran_on, requests)
    candidates = _on_ladder(ladder, pools) or [
        pool for pool in pools.values() if not pool.is_spot and not too_large(requests, pool)
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


_PROGRESS_GRAINS = 1_000_000  # progress is an estimate: sums of parts with one denominator stay small numbers


class KeptWork(NamedTuple):
    """The least and the most kept part of an attempt, from 0 to 1."""

    low: Fraction = _ZERO
    high: Fraction = _ZERO

    @property
    def is_exact(self) -> bool:
        """Whether both ends are equal."""
        return self.low == self.high

    @property
    def millionths(self) -> tuple[int, int]:
        """Both ends in whole millionths."""
        low, high = self
        return (
            low.numerator * _PROGRESS_GRAINS // low.denominator,
            high.numerator * _PROGRESS_GRAINS // high.denominator,
        )


_NOTHING_KEPT, _ALL_KEPT = KeptWork(), KeptWork(_ONE, _ONE)


@dataclass(slots=True)
class _After:
    """The attempts after one: the lowest progress at which they began, and whether one succeeded."""

    lowest: float | None = None
    is_blind: bool = False  # the succeeded attempt reported no progress
    succeeded: bool = False


def kept_of(attempts: Sequence[AttemptState], *, may_succeed: bool) -> list[KeptWork]:
    """The kept part of each attempt, in their order; empty for a live attempt.

    ``may_succeed``: the task has not ended, so that work of its last attempts may still be kept.
    """
    reached = _reached_before(attempts)
    after, kept = _After(), []
    for attempt, base in zip(reversed(attempts), reversed(reached), strict=True):
        if attempt.cause is Cause.SUCCEEDED:
            after = _After(attempt.first_progress, attempt.first_progress is None, succeeded=True)
            kept.append(_ALL_KEPT)
            continue
        if attempt.cause is None or attempt.bound_at is None or not (after.succeeded or may_succeed):
            kept.append(_NOTHING_KEPT)
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
        return KeptWork(_ZERO, _ONE if most is None else most)
    return KeptWork(_ZERO if after.is_blind else most, most)


def _most_kept(attempt: AttemptState, base: float, lowest: float | None) -> Fraction | None:
    """The part of the attempt below the lowest begin of its successors; ``None`` if that is unknown."""
    if lowest is None:
        return None
    first, last = attempt.first_progress, attempt.progress
    if first is None or last is None:
        return _ZERO if lowest <= base else None
    if lowest <= first:
        return _ZERO
    if lowest >= last:
        return _ONE
    return Fraction(round((lowest - first) / (last - first) * _PROGRESS_GRAINS), _PROGRESS_GRAINS)


@dataclass(frozen=True, slots=True)
class Amount:
    """Node time in seconds and its cost. ``money`` is ``None`` if a price is missing.

    An attempt that pays half of its node for ten seconds has used five seconds of node time.
    """

    seconds: Fraction = Fraction(0)
    money: Fraction | None = Fraction(0)

    @classmethod
    def of(cls, time: int, price: Fraction | None, *, per: int = SECOND) -> Amount:
        """An amount of node time at this price per hour; ``per`` units of ``time`` are a second."""
        if not time:
            return NOTHING if price is not None else _NOTHING_UNPRICED
        if price is None:
            return cls(Fraction(time, per), None)
        dividend, divisor = price.as_integer_ratio()
        return cls(Fraction(time, per), Fraction(time * dividend, per * divisor * 3600))

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
_NOTHING_UNPRICED = Amount(money=None)


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
    """The account line for an attempt's unkept time, by the cause of its end."""

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
    """One attempt. ``clock`` is its wall-clock time on the node, ``used`` the node time that it pays, in parts of a second.

    ``share`` is the share of its node that it requests. If the shares on a node exceed one in total, each pays less: see
    ``cost``. ``price`` is per node hour, ``None`` if a pool of the run has none.
    """

    task: str
    number: int
    pool: str
    node: str
    capacity: Capacity
    cause: Cause | None
    started_at: float
    clock: int
    share: Fraction
    used: int
    price: Fraction | None
    kept: KeptWork
    ended_by: float | None = None  # it counts up to its last sign of life, and may have run until then

    @property
    def uncounted(self) -> Amount:
        """Its extra cost if it had run until its absence was known; zero if its end was reported."""
        more = parts_of(self.ended_by or 0.0) - parts_of(self.started_at) - self.clock
        return Amount.of(max(0, int(self.share * more)), self.price)

    @property
    def seconds(self) -> Fraction:
        """Its wall-clock time on the node, in seconds."""
        return Fraction(self.clock, SECOND)

    @property
    def cost(self) -> Amount:
        """The node time that it pays."""
        return Amount.of(self.used, self.price)

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
    """One node, from its request until it was gone (Unix seconds): its time that attempts did not use.

    ``pool`` is its pool as configured at the request. ``price`` is per node hour, ``None`` if a pool of the run has none.
    """

    name: str
    pool: Pool
    start: float
    end: float
    price: Fraction | None
    use: NodeUse

    @property
    def boot(self) -> Amount:
        """From its request until it was ready."""
        return Amount.of(self.use.boot, self.price)

    @property
    def idle(self) -> Amount:
        """Ready, without attempts."""
        return Amount.of(self.use.idle, self.price)

    @property
    def unfilled(self) -> Amount:
        """The unrequested part while another part was in use."""
        return Amount.of(self.use.unfilled, self.price)


class Account(NamedTuple):
    """The account of a run until ``until`` (Unix seconds).

    ``whole`` is all node time: the sum of ``attempts``, ``boot``, ``idle`` and ``unfilled``. ``attempts`` is the sum of
    ``useful`` and ``spent``; the low end of one belongs to the high end of the other. ``on_demand`` is the counterfactual and
    ``saved`` its excess over the cost of the ended attempts; both are ``None`` with a reason in ``why_no_comparison``.
    ``builds`` are the Python environments that were built: packages, and seconds by the clock; a build uses no node.
    ``unpriced`` names the pools without a price; if there are any, no amount has money. ``cached`` names the tasks that used an
    earlier result (task, run, task of that run) and cost nothing. ``prices`` says where prices come from: ``simulated``,
    ``configured``, or ``mixed``. ``has_own_nodes``: only the run uses its nodes; else, in a cluster, ``boot``, ``idle`` and
    ``unfilled`` are zero. ``moves`` counts the attempts that a deadline moved elsewhere, and ``relaunches`` is the boot of the
    nodes that were requested for their successors; ``boot`` has it too.
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
    deadline: RunDeadline | None = None

    def attempt(self, task: str, number: int) -> AttemptCost | None:
        """The cost of one attempt, by a linear search; ``None`` if it never had a node."""
        return next((cost for cost in self.attempts_by_start if (cost.task, cost.number) == (task, number)), None)


@dataclass(slots=True)
class _Sum:
    """Time of attempts in parts of a second, and its least and most kept amount, in millionths of these parts."""

    time: int = 0
    low: int = 0
    high: int = 0

    def add(self, attempt: _Attempt, time: int) -> None:
        self.time += time
        self.low += time * attempt.least
        self.high += time * attempt.most

    def kept(self, price: Fraction | None) -> Range:
        """The kept time, with its cost at this price of a node hour."""
        return Range(*(Amount.of(end, price, per=SECOND * _PROGRESS_GRAINS) for end in (self.low, self.high)))

    def rest(self, price: Fraction | None) -> Range:
        """The unkept time."""
        whole = self.time * _PROGRESS_GRAINS
        return _Sum(high=whole - self.low, low=whole - self.high).kept(price)


@dataclass(slots=True)
class _Line:
    """The nodes of a pool at one price, with their time in parts of a second. ``pool`` is the first node's.

    ``price`` of a node hour in this account: ``None`` for every pool if one has none.
    """

    name: str
    pool: Pool
    price: Fraction | None
    nodes: int = 0
    whole: int = 0
    boot: int = 0
    idle: int = 0
    unfilled: int = 0
    attempts: dict[SpentOn | None, _Sum] = field(default_factory=lambda: defaultdict(_Sum))

    def add(self, use: NodeUse) -> None:
        self.nodes += 1
        self.whole += use.whole
        self.boot += use.boot
        self.idle += use.idle
        self.unfilled += use.unfilled


@dataclass(slots=True)
class _Node:
    """A node until ``end`` (Unix seconds): its pool as configured at its request, and its capacity for attempts."""

    state: NodeState
    pool: Pool
    line: _Line
    size: Resources | None
    end: float
    use: NodeUse = field(default_factory=lambda: NodeUse(0))
    attempts: list[_Attempt] = field(default_factory=list)


class _Attempt(NamedTuple):
    """An attempt that had a node, with all inputs of its cost.

    ``planned``: its task, or an earlier one with the same requests and ladder. ``least`` and ``most``: ``kept`` in millionths.
    """

    task: str
    planned: PlannedTask
    state: AttemptState
    kept: KeptWork
    least: int
    most: int
    key: int  # its number among all attempts of the run
    share: Fraction
    start: float
    end: float
    node: _Node


def account(state: RunState, now: float | None = None) -> Account:
    """The account of a run. Give ``now`` (Unix seconds) while an engine drives the run: live nodes and attempts count until then.

    Without ``now``, and for a run that has ended, they count until the last recorded event. Raises :class:`StateError` if the
    journal names a pool that is in no version of the plan.
    """
    until = state.known_until(now)
    nodes, lines = _nodes(state, until)
    attempts = sorted(_attempts(state, nodes, until), key=lambda attempt: attempt.start)
    _split(nodes, attempts, is_shared=bool(state.meta.orchestrator))
    unpriced = tuple(dict.fromkeys(line.name for line in lines if line.pool.price is None))
    if unpriced:
        for line in lines:
            line.price = None
    costs = tuple(map(_attempt_cost, attempts))
    for attempt, cost in zip(attempts, costs, strict=True):
        attempt.node.line.attempts[cost.spent].add(attempt, cost.used)
    pools = tuple(_pool_cost(line) for line in lines)
    nothing = _NOTHING_UNPRICED if unpriced else NOTHING
    compared = _compare(state, attempts, costs, lines, unpriced)
    moves = list(_moves(state))
    node_costs = tuple(
        NodeCost(node.state.name, node.pool, node.state.booted_at, node.end, node.line.price, node.use)
        for node in nodes
    )
    return Account(
        currency=state.plan.config.currency,
        prices=_prices(state, nodes),
        time_scale=state.time_scale,
        until=until,
        under_way=any(SpentOn.UNDER_WAY in line.attempts for line in lines),
        pools=pools,
        nodes=node_costs,
        moves=len(moves),
        relaunches=total([nothing, *_relaunches(moves, node_costs)]),
        attempts_by_start=costs,
        has_own_nodes=not state.meta.orchestrator,
        whole=total([nothing, *(pool.whole for pool in pools)]),
        boot=total([nothing, *(pool.boot for pool in pools)]),
        idle=total([nothing, *(pool.idle for pool in pools)]),
        unfilled=total([nothing, *(pool.unfilled for pool in pools)]),
        attempts=total([nothing, *(pool.attempts for pool in pools)]),
        useful=sum(
            (part.kept(line.price) for line in lines for part in line.attempts.values()), Range(nothing, nothing)
        ),
        spent={
            spent: sum(
                (line.attempts[spent].rest(line.price) for line in lines if spent in line.attempts),
                Range(nothing, nothing),
            )
            for spent in SpentOn
            if any(spent in line.attempts for line in lines)
        },
        unpriced=unpriced,
        cached=tuple((task.path, *task.cached_from) for task in state.tasks.values() if task.cached_from is not None),
        builds=tuple(_builds(state, until)),
        on_demand=compared.on_demand,
        on_demand_pools=compared.pools,
        saved=compared.saved,
        why_no_comparison=compared.why,
        deadline=run_deadline(state, now),
    )


def _moves(state: RunState) -> Iterator[tuple[float, AttemptState | None]]:
    """The end of each attempt that a deadline moved, and the attempt after it."""
    for task in chain(state.tasks.values(), state.retired.values()):
        for before, after in pairwise([*task.attempts, None]):
            if before is not None and before.moving and before.cause is Cause.DISRUPTED:
                yield before.ended_at or 0.0, after


def _relaunches(moves: Sequence[tuple[float, AttemptState | None]], nodes: Sequence[NodeCost]) -> Iterator[Amount]:
    """The boot of each node that was requested after a move and ran the next attempt."""
    booted: dict[str, list[NodeCost]] = defaultdict(list)
    for node in sorted(nodes, key=lambda node: node.start):
        booted[node.name].append(node)
    for ended_at, after in moves:
        found = booted.get(after.node or "", []) if after is not None else []
        index = bisect_left(found, ended_at, key=lambda node: node.start)
        if index < len(found):
            yield found.pop(index).boot


def _builds(state: RunState, until: float) -> Iterator[tuple[tuple[str, ...], float]]:
    """Each built Python environment once, with the longest wait of a task for it, in seconds."""
    seconds: dict[tuple[str, ...], float] = {}
    for task in chain(state.tasks.values(), state.retired.values()):
        built = task.environment
        if built is not None and built.began_at is not None:
            took = (until if built.ended_at is None else built.ended_at) - built.began_at
            seconds[built.packages] = max(took, seconds.get(built.packages, 0.0))
    yield from seconds.items()


def _nodes(state: RunState, until: float) -> tuple[list[_Node], list[_Line]]:
    """Every node of the run, and the pools that had one, once per price: a resume may have changed the price."""
    nodes: list[_Node] = []
    lines: dict[tuple[str, Fraction | None], _Line] = {}
    known: dict[tuple[int, str], tuple[Pool, _Line]] = {}
    for node in state.all_nodes:
        as_configured = known.get((node.version, node.pool))
        if as_configured is None:
            pool = _pool_of_node(state, node)
            as_configured = pool, lines.setdefault((node.pool, pool.price), _Line(node.pool, pool, pool.price))
            known[node.version, node.pool] = as_configured
        pool, line = as_configured
        size = {**node.offers, **(pool.node or {})} if node.offers else pool.node
        end = max(node.booted_at, until if node.gone_at is None else node.gone_at)
        nodes.append(_Node(node, pool, line, size or None, end))
    return nodes, list(lines.values())


def _attempts(state: RunState, nodes: Sequence[_Node], until: float) -> Iterator[_Attempt]:
    """Every attempt that had a node, also of tasks of earlier versions of the run."""
    named = _Named(nodes)
    numbers = count()
    alike: dict[Hashable, PlannedTask] = {}
    shares: dict[tuple[int, int], Fraction] = {}  # by the objects that hold the task and the size of the node
    for task in chain(state.tasks.values(), state.retired.values()):
        if not any(attempt.bound_at is not None for attempt in task.attempts):
            continue
        is_here = state.tasks.get(task.path) is task
        may_succeed = is_here and not task.status.is_final and state.status in (RunStatus.RUNNING, RunStatus.STOPPED)
        planned = effective_plan(state, task) if is_here and task.status is not TaskStatus.WAITING else task.plan
        planned = alike.setdefault((tuple(planned.work.requests.items()), planned.ladder.rungs), planned)
        for attempt, kept in zip(task.attempts, kept_of(task.attempts, may_succeed=may_succeed), strict=True):
            if attempt.bound_at is None or not attempt.node or not attempt.pool:  # unknown nodes have no known cost
                continue
            node = named.find(attempt.node, attempt.bound_at)
            as_made = planned
            if attempt.requests:
                as_made = planned._replace(work=replace(planned.work, requests=attempt.requests))
                as_made = alike.setdefault((tuple(attempt.requests.items()), planned.ladder.rungs), as_made)
            share = shares.get((id(as_made), id(node.size)))
            if share is None:
                share = shares[id(as_made), id(node.size)] = share_of(as_made.work.requests, node.size)
            end = _end_of(attempt, node.state, until)
            start = min(end, attempt.runs_since or end)  # an attempt that does not start uses none of its node
            yield _Attempt(task.path, as_made, attempt, kept, *kept.millionths, next(numbers), share, start, end, node)


def _end_of(attempt: AttemptState, node: NodeState, until: float) -> float:
    """When the attempt left its node: by its exit record if there is one, else by its ``ended`` event.

    Without a record it is not after its node's end: the pod of a lost machine may stay for minutes without running code. With
    one, the attempt's own clock counts.
    """
    bound = attempt.bound_at or 0.0
    measured = attempt.ended.ended_at if attempt.ended is not None else None
    if attempt.ended_at is not None and measured is not None:
        return min(max(measured, bound), attempt.ended_at)
    end = until if attempt.ended_at is None else max(attempt.ended_at, bound)
    return end if node.gone_at is None else min(end, max(node.gone_at, bound))


def left_node_at(state: RunState, attempt: AttemptState) -> float | None:
    """When an attempt that has ended left its node (Unix seconds); ``None`` before its end and if never bound.

    With an unknown pool it is the time its end was seen; with only the node unknown it is ``None``.
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


class _Named:
    """Finds the node on which an attempt was bound: a machine that comes back under its name is another one."""

    def __init__(self, nodes: Iterable[_Node]) -> None:
        self._nodes: dict[str, list[_Node]] = defaultdict(list)
        for node in nodes:
            self._nodes[node.state.name].append(node)
        self._gone = {
            name: list(accumulate((node.state.gone_at or 0.0 for node in of_name[:-1]), max))
            for name, of_name in self._nodes.items()
        }

    def find(self, name: str, bound_at: float) -> _Node:
        """The first of this name that was not gone before this moment, else the last one."""
        return self._nodes[name][bisect_left(self._gone[name], bound_at)]


def _split(nodes: Iterable[_Node], attempts: Iterable[_Attempt], *, is_shared: bool) -> None:
    """Split the time of every node. ``is_shared``: others use the nodes too, so that only the attempts' time counts."""
    for attempt in attempts:
        attempt.node.attempts.append(attempt)
    for node in nodes:
        stays = [Stay(each.key, each.share, each.start, each.end) for each in node.attempts]
        use = occupy(node.state.booted_at, node.state.ready_at, node.end, stays)
        node.use = paid_only(use) if is_shared else use
        node.line.add(node.use)


def _prices(state: RunState, nodes: Sequence[_Node]) -> str:
    """The source of the used pools' prices; before the first node, of all pools'."""
    sources = {pool.price_source for pool in [node.pool for node in nodes] or state.plan.config.pools.values()}
    return sources.pop().value if len(sources) == 1 else "mixed"


def _pool_of_node(state: RunState, node: NodeState) -> Pool:
    """The pool of a node as configured at the node's request, whose price applies."""
    return state.plans[node.version - 1].config.pools.get(node.pool) or pool_of(state, node.pool)


def pool_of(state: RunState, name: str) -> Pool:
    """A pool by name, from the newest version of the plan that has it."""
    for plan in (state.plan, *reversed(state.plans)):
        if name in plan.config.pools:
            return plan.config.pools[name]
    raise StateError(f"the journal names the pool {name!r}, which is in no version of the run's configuration")


def _attempt_cost(attempt: _Attempt) -> AttemptCost:
    node = attempt.node
    return AttemptCost(
        task=attempt.task,
        number=attempt.state.number,
        pool=node.pool.name,
        node=node.state.name,
        capacity=node.pool.capacity,
        cause=attempt.state.cause,
        started_at=attempt.start,
        clock=parts_of(attempt.end) - parts_of(attempt.start),
        share=attempt.share,
        used=node.use.used[attempt.key],
        price=node.line.price,
        kept=attempt.kept,
        ended_by=None if attempt.state.ended is None else attempt.state.ended.ended_by,
    )


def _pool_cost(line: _Line) -> PoolCost:
    price = line.price
    return PoolCost(
        name=line.name,
        capacity=line.pool.capacity,
        price=line.pool.price,
        price_source=line.pool.price_source,
        nodes=line.nodes,
        whole=Amount.of(line.whole, price),
        boot=Amount.of(line.boot, price),
        idle=Amount.of(line.idle, price),
        unfilled=Amount.of(line.unfilled, price),
        attempts=Amount.of(sum(part.time for part in line.attempts.values()), price),
    )


class _Compared(NamedTuple):
    """The counterfactual and the savings, or the reason without them."""

    on_demand: Range | None = None
    pools: tuple[tuple[str, Fraction], ...] = ()
    saved: tuple[Fraction, Fraction] | None = None
    why: str = ""


def _compare(
    state: RunState,
    attempts: Sequence[_Attempt],
    costs: Sequence[AttemptCost],
    lines: Sequence[_Line],
    unpriced: Sequence[str],
) -> _Compared:
    why = _why_not(attempts, unpriced)
    if why:
        return _Compared(why=why)
    found: dict[tuple[int, int], OnDemand | str] = {}  # by the objects that hold the task and the pool
    times: dict[tuple[int, int], _Sum] = defaultdict(_Sum)
    for attempt, cost in zip(attempts, costs, strict=True):
        if not attempt.most:
            continue
        planned, pool, share = attempt.planned, attempt.node.pool, attempt.share
        key = id(planned), id(pool)
        if key not in found:
            found[key] = on_demand_for(pool, planned.work.requests, planned.ladder, state.plan.config.pools)
        there = found[key]
        if not isinstance(there, OnDemand):
            return _Compared(why=f"{there} (task {attempt.task})")
        part = there.share.numerator * share.denominator, there.share.denominator * share.numerator
        times[key].add(attempt, cost.used * part[0] // part[1])
    options = {key: there for key, there in found.items() if isinstance(there, OnDemand)}
    on_demand = sum((times[key].kept(there.price) for key, there in options.items()), Range())
    paid = total(
        Amount.of(part.time, line.price)
        for line in lines
        for spent, part in line.attempts.items()
        if spent is not SpentOn.UNDER_WAY
    )
    low, high = (end.money or _ZERO for end in (on_demand.low, on_demand.high))
    bill = paid.money or _ZERO
    pools = tuple({there.pool.name: there.price for there in options.values()}.items())
    return _Compared(on_demand, pools, (low - bill, high - bill))


def _why_not(attempts: Sequence[_Attempt], unpriced: Sequence[str]) -> str:
    if not any(attempt.node.pool.is_spot for attempt in attempts):
        return "no attempt ran on spot"
    if unpriced:
        return f"{', '.join(unpriced)} {'has' if len(unpriced) == 1 else 'have'} no price"
    if not any(attempt.most for attempt in attempts):
        return "no work was finished yet"
    return ""
