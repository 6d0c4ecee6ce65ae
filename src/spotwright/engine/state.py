"""The state of a run: its folded events, computed by :mod:`spotwright.engine.fold`.

Every view and every decision reads it. Four indexes keep decisions from scanning all tasks: ``todo`` (tasks that need a
decision), ``timers`` (a heap of the times at which a task will need one), ``under_way`` with ``holding`` (attempts that wait
for a node or have one), and each task's ``missing`` (the number of its upstream tasks that have not succeeded). A
:class:`ScopeState` counts the tasks that a pipeline, an iteration or the whole run still waits for.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from spotwright.engine.events import AttemptEnded, AttemptRecalled, PodStuckTerminating, RunMeta, RunStatus, TaskStatus
from spotwright.engine.plan import Plan, PlannedTask, Scope
from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import BudgetUse
from spotwright.scheduling.estimates import Launches, Mark, Pace, newest_boots

if TYPE_CHECKING:
    from spotwright.deadlines.hazards import Sightings

__all__ = [
    "AttemptState",
    "EnvironmentState",
    "LoopState",
    "NodeState",
    "RunState",
    "ScopeState",
    "TaskState",
]


_NOTHING_SPENT = BudgetUse()
_UNKNOWN = Pace()


@dataclass(slots=True, eq=False, repr=False)
class _State:
    """Equality and text by fields, written once: seven generated ones add 3 ms to every start of the command."""

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, each.name) == getattr(other, each.name) for each in fields(self) if each.compare)

    def __repr__(self) -> str:
        values = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
        return f"{type(self).__name__}({values})"


@dataclass(slots=True, eq=False, repr=False)
class AttemptState(_State):
    """One attempt of a task. Times are Unix seconds, ``None`` before they happen."""

    number: int
    first: int  # its first rung
    rung: int
    pools: tuple[str, ...]
    placed_at: float
    rung_at: float  # when it began to wait on this rung
    until: float | None = None  # when it leaves the rung without a node; if it runs, the next look at its deadline
    why: str = ""
    looked_at: float | None = None  # when a deadline last decided to keep it
    kept: str = ""  # why it stays where it runs or waits under a deadline
    moving: str = ""  # why it is stopped to continue elsewhere
    moved_at: float | None = None  # when that was decided
    target: int | None = None  # the rung where it continues; None: on-demand
    tried: list[str] = field(default_factory=list)  # why it left the rungs above
    moves: tuple[float, ...] = ()  # when it moved to another rung
    node: str | None = None
    pool: str | None = None
    bound_at: float | None = None
    boot: str = ""  # the first characters of its node's boot ID at that time
    noticed_at: float | None = None
    goes_at: float | None = None
    progress: float | None = None
    first_progress: float | None = None
    went_on: bool = False  # its first report includes work saved by earlier attempts
    reported_at: float | None = None  # its last progress report
    between_reports: float = 0.0  # the time from its start or previous report to the last one
    measured: Mark | None = None  # its reports already in its task's pace, under a deadline
    started_in: tuple[float, float] | None = (
        None  # seconds on its node until it passed earlier attempts, and by which share
    )
    halted: bool = False
    ended_at: float | None = None
    ended: AttemptEnded | None = None
    cause: Cause | None = None
    cause_why: str = ""
    following: str = ""  # the decision after its end, in words
    then: tuple[str, ...] = ()  # the pools of the next attempt's rung by that decision, if an orchestrator makes it
    due: float | None = None  # the end of the backoff after it
    key: str = ""  # of an orchestrator's attempt
    pod: str = ""  # the name of its pod
    gang: str = ""  # its restart of a set of tasks, as SET/RESTART
    waits: str = ""  # the orchestrator's reason why it has no node or does not start
    waits_since: float | None = None  # when that reason began
    waited: float = 0.0  # earlier seconds of waiting without a node on its way
    ordered: float = 0.0  # earlier seconds with a node on its way
    is_open: bool = False  # admitted for all rungs: the pool that takes it decides its rung
    taken_back: AttemptRecalled | None = None  # the decision to recall it, because it waits in vain
    held: PodStuckTerminating | None = None  # its pod is stuck on an unresponsive node
    released: str = ""  # why its pod was deleted without its node's status
    started_at: float | None = None  # when it started on its node, if delayed there
    requests: Mapping[str, int] = field(default_factory=dict)  # of its pod, if they differ from its task's

    @property
    def is_live(self) -> bool:
        """Whether it waits for a node or runs."""
        return self.ended_at is None

    @property
    def is_held_up(self) -> bool:
        """Whether the orchestrator reports that it does not start on its node, or it has ended without a start."""
        return self.bound_at is not None and bool(self.waits) and (self.waits_since or 0.0) >= self.bound_at

    @property
    def runs_since(self) -> float | None:
        """When it began to use its node; ``None`` if it has no node or does not start there."""
        return None if self.is_held_up else self.bound_at if self.started_at is None else self.started_at

    @property
    def taken_by(self) -> str | None:
        """The pool that reclaimed its node. None if its engine ended: no pool did, so no pool's backoff follows."""
        lost_engine = self.ended is not None and self.ended.settled and self.noticed_at is None
        return None if lost_engine else self.pool


@dataclass(slots=True, eq=False, repr=False)
class ScopeState(_State):
    """An unfolded DAG: the root, the DAG of a task, or one iteration of a loop. ``owner`` is the task, None for the root."""

    place: Scope
    owner: TaskState | None = field(default=None, compare=False, repr=False)
    unfinished: int = 0  # its tasks that have neither succeeded nor been skipped
    active: int = 0  # its tasks that have started and not ended, DAGs included
    failed: str = ""  # the first of its tasks that failed: only exit handlers start after that
    ended: bool = False


@dataclass(slots=True, eq=False, repr=False)
class LoopState(_State):
    """An unfolded loop. Its iterations open in order, as many at a time as its limit allows."""

    items: Sequence[Any]
    scopes: list[ScopeState] = field(default_factory=list)  # the opened iterations, by index
    open: int = 0  # the number that have not ended
    failed: str = ""  # the first failed task of an iteration: no more iterations open
    earlier: Mapping[str, TaskState] = field(default_factory=dict, compare=False, repr=False)


@dataclass(slots=True, eq=False, repr=False)
class EnvironmentState(_State):
    """The Python environment of a task. Times are Unix seconds; without ``began_at`` it needed no build."""

    began_at: float | None = None
    ended_at: float | None = None
    packages: tuple[str, ...] = ()
    log: str = ""  # the name of the build's log in the run's folder
    why: str = ""  # why it cannot be built
    last_lines: tuple[str, ...] = ()  # of a failed build's log


@dataclass(slots=True, eq=False, repr=False)
class TaskState(_State):
    """One task of the run with its history."""

    path: str
    scope: ScopeState
    plan: PlannedTask
    missing: int
    status: TaskStatus = TaskStatus.WAITING
    attempts: list[AttemptState] = field(default_factory=list)
    resets: tuple[int, ...] = ()  # the number of attempts at each reset: earlier ones spend no budget
    spent: BudgetUse = field(default_factory=BudgetUse)
    next_rung: int | None = None
    due: float | None = None  # end of the backoff
    why: str = ""  # why it failed, was skipped or was cancelled
    parameters: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Mapping[str, Any] = field(default_factory=dict)
    cached_from: tuple[str, str] | None = None  # the run and task of the used result
    cache_asked: bool = False  # the world was asked for an earlier result
    environment: EnvironmentState | None = None  # once the world was asked to prepare it
    consumers: list[TaskState] = field(default_factory=list)
    active: bool = False  # counted in its scope: started, and neither ended nor withdrawn
    skipped: str = ""  # a skipped upstream task: this task is skipped too
    inside: ScopeState | None = None  # of an open or ended DAG
    loop: LoopState | None = None  # of an open or ended loop
    pace: Pace = _UNKNOWN  # of its work, from the reports of all its attempts, under a deadline

    @property
    def last(self) -> AttemptState:
        """The newest attempt."""
        return self.attempts[-1]

    @property
    def goes_on(self) -> bool:
        """Whether an attempt continued the work of an earlier one."""
        return any(attempt.went_on for attempt in self.attempts)

    @property
    def may_start(self) -> bool:
        """Whether it may start or continue: after a failure in its DAG only exit handlers may start."""
        return not self.scope.failed or self.active or self.plan.spec.after_all

    @property
    def is_of_exit(self) -> bool:
        """Whether it is an exit-handler task, or inside one."""
        owner = self.scope.owner
        return self.plan.spec.after_all or (owner is not None and owner.is_of_exit)

    @property
    def has_begun(self) -> bool:
        """Whether one of its attempts has had a node since the last reset of the run."""
        return self.status is TaskStatus.RUNNING or self.spent != _NOTHING_SPENT

    @property
    def is_unjudged(self) -> bool:
        """Whether the newest attempt has ended without a decided cause."""
        return bool(self.attempts) and self.last.ended is not None and self.last.cause is None


@dataclass(slots=True, eq=False, repr=False)
class NodeState(_State):
    """One node of the run's pools."""

    name: str
    pool: str
    state: str  # booting | ready | gone
    booted_at: float
    version: int = 1  # of the plan at its request, which sets its price
    ready_at: float | None = None
    gone_at: float | None = None
    noticed_at: float | None = None
    notices: tuple[str, ...] = ()  # the sources' ids of its notices
    offers: Mapping[str, int] = field(default_factory=dict)  # its resources for pods, if its pool does not give them
    why: str = ""


@dataclass(slots=True, eq=False, repr=False)
class RunState(_State):
    """A whole run, folded. Only :func:`~spotwright.engine.fold.fold` changes it."""

    plans: Sequence[Plan]
    version: int = 1  # of the plan, from one
    grown: Plan | None = field(default=None, compare=False)  # that version with later knowledge
    meta: RunMeta = field(default_factory=RunMeta)
    status: RunStatus = RunStatus.RUNNING
    why: str = ""
    started_at: float = 0.0
    begun_at: float = 0.0  # the start or the last reset, plus all time without an engine
    undriven: list[tuple[float, float]] = field(default_factory=list)  # the times between the engines
    finished_at: float | None = None
    last_at: float = 0.0
    epoch: int = 0
    caching: bool = False  # the current engine may look up earlier results
    prepares: bool = False  # the body of the current engine prepares Python environments
    environments: set[Hashable] = field(default_factory=set)  # ready under the current engine, by key
    detached: bool = False  # the last engine left the attempts running for the next one
    tasks: dict[str, TaskState] = field(default_factory=dict)
    nodes: dict[str, NodeState] = field(default_factory=dict)
    former_nodes: list[NodeState] = field(default_factory=list)  # gone nodes whose names were reused
    gangs: dict[str, dict[str, Cause]] = field(default_factory=dict)  # by set: its restarts with their charged causes
    todo: dict[str, None] = field(default_factory=dict)
    timers: list[tuple[float, str]] = field(default_factory=list)
    preparing: dict[str, None] = field(default_factory=dict)  # tasks whose environment is being built
    under_way: dict[str, None] = field(default_factory=dict)  # tasks whose attempt waits for a node or runs
    holding: dict[str, int] = field(default_factory=dict)  # the number of attempts with a node, by pool
    freed: dict[str, float] = field(default_factory=dict)  # when an attempt last freed room, by pool
    boots: dict[str, tuple[float, ...]] = field(
        default_factory=dict
    )  # simulated seconds from request to ready, by pool: this run's newest ones
    earlier_boots: dict[str, tuple[float, ...]] = field(default_factory=dict)  # and of earlier runs
    failed: list[str] = field(default_factory=list)  # tasks in the order in which they failed
    root: ScopeState | None = None  # None until the pipeline is unfolded
    cancelling: bool = False
    stopping: str = ""
    expired: str = ""  # why its time is over, in words; empty if it is not
    notes: list[str] = field(default_factory=list)
    events: int = 0
    retired: dict[str, TaskState] = field(default_factory=dict)  # tasks from before the last reset
    sightings: dict[str, Sightings] = field(default_factory=dict)  # observations of spot pools, in runs with a deadline

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self.plans[self.version - 1] if self.grown is None else self.grown

    @property
    def all_nodes(self) -> Iterator[NodeState]:
        """Every node of the run, including nodes whose names were reused."""
        yield from self.former_nodes
        yield from self.nodes.values()

    @property
    def unfolded(self) -> bool:
        """Whether the tasks of the pipeline are known."""
        return self.root is not None

    @property
    def time_scale(self) -> float:
        """The speed-up of simulated pools' waits."""
        return self.meta.time_scale

    def known_until(self, now: float | None) -> float:
        """The time up to which the run is known: the last event, or ``now`` (Unix seconds) while an engine drives the run."""
        if now is None or self.status is not RunStatus.RUNNING:
            return self.last_at
        return max(now, self.last_at)

    @property
    def ends_by(self) -> float | None:
        """The end of the run's time (Unix seconds); ``None`` if the pipeline sets no limit.

        The time scale does not shorten it, because work takes real time; the same holds for a task's timeout.
        """
        seconds = self.plan.graph.active_deadline
        return None if seconds is None or self.expired else self.begun_at + seconds

    def launches(self, pool: str) -> Launches:
        """The pool's boot times as configured and as seen by this run and earlier ones, in real seconds."""
        seen = newest_boots(self.earlier_boots.get(pool, ()), self.boots.get(pool, ()))
        stated = self.plan.config.pools[pool].boot / self.time_scale
        return Launches(stated, tuple(boot / self.time_scale for boot in seen))

    def is_over(self, task: TaskState) -> bool:
        """Whether the run's time is over for a task. Exit tasks and tasks inside them continue, as under Argo."""
        return bool(self.expired) and not task.is_of_exit

    @property
    def halting(self) -> bool:
        """Whether all attempts must stop."""
        return self.cancelling or bool(self.stopping)
