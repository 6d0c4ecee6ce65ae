"""The state of a run: what its events add up to (:mod:`spotwright.engine.fold` does the adding).

Every view and every decision reads it. Four indexes make decisions cheap, so that none ever scans all tasks: ``todo`` (tasks
that need a decision), ``timers`` (a heap of moments at which one will), ``under_way`` with ``holding`` (who waits for a node
or has one), and ``missing`` on every task (how many of its upstream tasks have not succeeded). What a pipeline, an iteration
or the whole run still waits for is counted in its :class:`ScopeState`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from spotwright.engine.plan import Plan, Planned, Scope
from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import Place, Spent

__all__ = [
    "AttemptState",
    "LoopState",
    "NodeState",
    "RunState",
    "RunStatus",
    "ScopeState",
    "TaskState",
    "TaskStatus",
]


_NOTHING_SPENT = Spent()


class TaskStatus(Enum):
    """Where a task stands."""

    WAITING = "waiting"  # upstream tasks have not succeeded yet
    READY = "ready"  # may start; a decision is due
    PENDING = "pending"  # its attempt waits for a node
    RUNNING = "running"  # its attempt has a node
    BACKOFF = "backoff"  # waits before its next attempt
    OPEN = "open"  # a pipeline whose tasks are under way
    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"  # its condition did not hold, or it follows a task that was skipped
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing more happens to it in this run, short of a resume."""
        return self.is_good or self in (TaskStatus.FAILED, TaskStatus.CANCELLED)

    @property
    def is_good(self) -> bool:
        """Whether it has come to an end that lets its pipeline succeed."""
        return self in (TaskStatus.SUCCEEDED, TaskStatus.SKIPPED)


class RunStatus(Enum):
    """Where a run stands. ``STOPPED`` is unfinished: ``resume`` goes on."""

    RUNNING = "running"
    STOPPED = "stopped"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(slots=True)
class AttemptState:
    """One try of a task. Moments are Unix seconds; ``None`` until they happen."""

    number: int
    first: int  # the rung it was first placed on
    rung: int
    pools: tuple[str, ...]
    placed_at: float
    rung_at: float  # since when it waits on this rung
    until: float | None = None  # until when it may wait there
    why: str = ""
    tried: list[str] = field(default_factory=list)  # why it left the rungs above
    node: str | None = None
    pool: str | None = None
    bound_at: float | None = None
    noticed_at: float | None = None
    goes_at: float | None = None
    progress: float | None = None
    first_progress: float | None = None
    halted: bool = False
    ended_at: float | None = None
    ended: Mapping[str, Any] | None = None  # the data of its ``ended`` event
    cause: Cause | None = None
    cause_why: str = ""
    then: str = ""  # what the decision after it was: "retry", ...
    next_why: str = ""

    @property
    def is_live(self) -> bool:
        """Whether it waits for a node or runs."""
        return self.ended_at is None

    @property
    def place(self) -> Place:
        """Where it ran, as the budgets see it. Where the engine went, no pool has taken it: there is nothing to wait for."""
        went = self.ended is not None and self.ended.get("settled", False) and self.noticed_at is None
        return Place(self.first, self.rung, None if went else self.pool)


@dataclass(slots=True)
class ScopeState:
    """An unfolded pipeline: the root, what a task is, or one iteration of a loop. ``owner`` is that task."""

    place: Scope
    owner: TaskState | None = field(default=None, compare=False, repr=False)
    unfinished: int = 0  # its tasks that have neither succeeded nor been skipped
    active: int = 0  # its tasks that have begun and not ended, pipelines among them
    failed: str = ""  # the first of its tasks that has failed: nothing new starts in it, but exit handlers
    ended: bool = False


@dataclass(slots=True)
class LoopState:
    """A task that is a loop, unfolded. Its iterations open in order, as many at a time as its limit allows."""

    items: Sequence[Any]
    scopes: list[ScopeState] = field(default_factory=list)  # those that have been opened, by index
    open: int = 0  # how many of them have not ended
    failed: str = ""  # the first task of an iteration that failed: no further one opens
    counting: Mapping[str, TaskState] = field(default_factory=dict, compare=False, repr=False)


@dataclass(slots=True)
class TaskState:
    """One task of the run with everything that happened to it."""

    path: str
    scope: ScopeState
    plan: Planned
    missing: int
    status: TaskStatus = TaskStatus.WAITING
    attempts: list[AttemptState] = field(default_factory=list)
    spent: Spent = field(default_factory=Spent)
    next_rung: int | None = None
    due: float | None = None  # end of the backoff
    why: str = ""  # why it failed or was cancelled, or what it waits for
    parameters: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Mapping[str, Any] = field(default_factory=dict)
    cached_from: tuple[str, str] | None = None  # run and task whose result was used
    consumers: list[TaskState] = field(default_factory=list)
    active: bool = False  # counted in its scope: begun, and neither ended nor withdrawn
    skipped: str = ""  # an upstream task that was skipped: so will this one be
    inside: ScopeState | None = None  # of a pipeline that is open or has ended
    loop: LoopState | None = None  # of a loop that is open or has ended

    @property
    def last(self) -> AttemptState:
        """The newest attempt."""
        return self.attempts[-1]

    @property
    def may_start(self) -> bool:
        """Whether it may begin or go on: where another task of its pipeline has failed only an exit handler may begin."""
        return not self.scope.failed or self.active or self.plan.spec.after_all

    @property
    def is_of_exit(self) -> bool:
        """Whether it, or a pipeline around it, runs whatever becomes of what it comes after."""
        owner = self.scope.owner
        return self.plan.spec.after_all or (owner is not None and owner.is_of_exit)

    @property
    def has_begun(self) -> bool:
        """Whether an attempt of this try of the run has had a node."""
        return self.status is TaskStatus.RUNNING or self.spent != _NOTHING_SPENT

    @property
    def is_unjudged(self) -> bool:
        """Whether the newest attempt has ended and no decision has said why yet."""
        return bool(self.attempts) and self.last.ended is not None and self.last.cause is None


@dataclass(slots=True)
class NodeState:
    """One node of the run's pools."""

    name: str
    pool: str
    state: str  # booting | ready | gone
    booted_at: float
    version: int = 1  # of the plan when it was asked for: its pool's price is the one of then
    ready_at: float | None = None
    gone_at: float | None = None
    noticed_at: float | None = None
    why: str = ""


@dataclass(slots=True)
class RunState:
    """A whole run, folded. Read it freely; only :func:`~spotwright.engine.fold.fold` changes it."""

    plans: Sequence[Plan]
    version: int = 1  # of the plan, from one
    meta: Mapping[str, Any] = field(default_factory=dict)
    status: RunStatus = RunStatus.RUNNING
    why: str = ""
    started_at: float = 0.0
    begun_at: float = 0.0  # the start, or when it last began afresh; later by the time in which no engine was there
    finished_at: float | None = None
    last_at: float = 0.0
    epoch: int = 0
    tasks: dict[str, TaskState] = field(default_factory=dict)
    nodes: dict[str, NodeState] = field(default_factory=dict)
    todo: dict[str, None] = field(default_factory=dict)
    timers: list[tuple[float, str]] = field(default_factory=list)
    under_way: dict[str, None] = field(default_factory=dict)  # tasks whose attempt waits for a node or runs
    holding: dict[str, int] = field(default_factory=dict)  # attempts that have a node now, by pool
    freed: dict[str, float] = field(default_factory=dict)  # when an attempt last gave room back, by pool
    failed: list[str] = field(default_factory=list)  # tasks in the order in which they failed
    root: ScopeState | None = None  # None until the pipeline is unfolded
    cancelling: bool = False
    stopping: str = ""
    expired: str = ""  # that its time is over, in words
    notes: list[str] = field(default_factory=list)
    events: int = 0
    retired: dict[str, TaskState] = field(default_factory=dict)  # what an earlier version or try of the run left behind

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self.plans[self.version - 1]

    @property
    def unfolded(self) -> bool:
        """Whether the tasks of the pipeline are known."""
        return self.root is not None

    @property
    def time_scale(self) -> float:
        """How many times faster the waits of the simulated world pass."""
        return float(self.meta.get("time_scale", 1.0))

    @property
    def ends_by(self) -> float | None:
        """When the time of the whole run is over (Unix seconds); ``None`` where the pipeline sets no limit.

        It is not scaled: how long work takes is not, as with the timeout of a task.
        """
        seconds = self.plan.pipeline.active_deadline
        return None if seconds is None or self.expired else self.begun_at + seconds

    def is_over(self, task: TaskState) -> bool:
        """Whether the time of the run is over for a task: for all but exit tasks and what is inside them, as under Argo."""
        return bool(self.expired) and not task.is_of_exit

    @property
    def halting(self) -> bool:
        """Whether everything that runs is to be stopped."""
        return self.cancelling or bool(self.stopping)
