"""The events of a run, which are facts and decisions: one frozen class for each kind.

State, views and accounts are computed only from these events, so a run looks the same while it runs, after a resume and a year
later. A *fact* is an act of the world or the user. A *decision* is a result of :mod:`spotwright.engine.decide`.

Every event begins with the same three values: ``at`` (Unix time in seconds), ``task`` (the path of its task, empty for the run)
and ``attempt`` (counted from one, zero for no attempt). The other fields of a kind are keywords.
:mod:`spotwright.engine.event_codec` writes events as rows of a journal and reads them back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from spotwright.frozen import Frozen
from spotwright.model.attempts import Cause, Signals
from spotwright.scheduling.budgets import FollowUp

__all__ = [
    "ON_KFP",
    "WORKLOAD_EVENTS",
    "AttemptAdopted",
    "AttemptBound",
    "AttemptDecided",
    "AttemptEnded",
    "AttemptHalted",
    "AttemptKept",
    "AttemptMoved",
    "AttemptPlaced",
    "AttemptRecalled",
    "AttemptReleased",
    "AttemptWaits",
    "CacheAsked",
    "CacheMissed",
    "CancelRequested",
    "EngineDetached",
    "EngineStarted",
    "EnvironmentAsked",
    "EnvironmentChanged",
    "Event",
    "MarketKnown",
    "NodeChanged",
    "NoteAdded",
    "NoticeGiven",
    "NoticeWithdrawn",
    "OutputsRead",
    "PlanExtended",
    "PodStuckTerminating",
    "ProgressReported",
    "RunCreated",
    "RunExpired",
    "RunFinished",
    "RunMeta",
    "RunReset",
    "RunStatus",
    "SnapshotTaken",
    "StopRequested",
    "TaskCached",
    "TaskCompleted",
    "TaskFailed",
    "TaskSkipped",
    "TaskStatus",
    "TasksUnfolded",
]


ON_KFP = "KFP run"
"""The orchestrator of a run that Spotwright started on Kubeflow Pipelines."""


@dataclass(frozen=True, slots=True)
class RunMeta:
    """The start parameters of a run. Arguments hold references to secrets, never the secrets."""

    run: str = ""
    pipeline: str = ""
    source: str | None = None  # the user's file, if any
    config: str = ""  # the configuration: its path, or a name for the built-in one
    arguments: Mapping[str, Any] = field(default_factory=dict)  # every parameter with its value
    given: Mapping[str, Any] = field(default_factory=dict)  # the arguments as the user gave them
    textual: bool = False  # arguments came as texts, from a command line
    seed: int = 0
    time_scale: float = 1.0  # the speed-up of simulated pools' waits
    cache: str = "auto"  # auto | on | off
    orchestrator: str = ""  # the kind of object whose controller makes the attempts, such as Job; empty: an engine does
    containers: str = "auto"  # the runtime of container components


class TaskStatus(Enum):
    """The status of a task."""

    WAITING = "waiting"  # upstream tasks have not succeeded yet
    READY = "ready"  # may start; a decision is due
    PREPARING = "preparing"  # its Python environment is being built
    PENDING = "pending"  # its attempt waits for a node
    RUNNING = "running"  # its attempt has a node
    BACKOFF = "backoff"  # waits before its next attempt
    OPEN = "open"  # a DAG whose tasks are under way
    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"  # its condition did not hold, or it follows a skipped task
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether the task has ended; only a resume can run it again."""
        return self.is_good or self in (TaskStatus.FAILED, TaskStatus.CANCELLED)

    @property
    def is_good(self) -> bool:
        """Whether the task has ended so that its DAG can succeed."""
        return self in (TaskStatus.SUCCEEDED, TaskStatus.SKIPPED)


class RunStatus(Enum):
    """The status of a run. A ``STOPPED`` run is unfinished: ``resume`` continues it."""

    RUNNING = "running"
    STOPPED = "stopped"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Event(Frozen):
    """The base of all events: a time, a task and an attempt."""

    kind: ClassVar[str] = ""  # its name in the journal

    at: float
    task: str = ""
    attempt: int = 0

    __hash__ = None  # type: ignore[assignment]  # events hold mappings


# -- facts about the run and its engines


class RunCreated(Event, kw_only=True):
    """Fact: the run was created. The first event of every journal."""

    kind = "created"

    meta: RunMeta = RunMeta()


class EngineStarted(Event, kw_only=True):
    """Fact: an engine drives the run from now on.

    ``version`` is Spotwright's, ``decisions`` the decision functions' (``DECISIONS_VERSION``); journals of format 1 have
    neither. ``caching``: this engine may look up earlier results. ``environments``: its body prepares the Python environments
    of tasks before their attempts are placed.
    """

    kind = "engine"

    epoch: int = 0
    pid: int = 0
    version: str = ""
    decisions: int = 0
    caching: bool = False
    environments: bool = False


class EngineDetached(Event, kw_only=True):
    """Fact: the engine ends and leaves the attempts running for the next engine."""

    kind = "detached"

    why: str = ""


class CancelRequested(Event, kw_only=True):
    """Fact: the user cancelled the run."""

    kind = "cancel"


class StopRequested(Event, kw_only=True):
    """Fact: the user or the system stops the engine. The run can be resumed."""

    kind = "stop"

    why: str


class RunReset(Event, kw_only=True):
    """Fact: unsuccessful tasks run again with new budgets, because the run was resumed after its end or has a new plan.

    ``version`` is the version of the plan from now on; ``again`` names succeeded tasks that run again.
    """

    kind = "reset"

    version: int | None = None
    again: Sequence[str] = ()
    arguments: Mapping[str, Any] | None = None
    time_scale: float | None = None


class NoteAdded(Event, kw_only=True):
    """Fact: a note for the user."""

    kind = "note"

    text: str


# -- facts about nodes and attempts


class NodeChanged(Event, kw_only=True):
    """Fact: a node boots, is ready or is gone.

    ``offers``: its resources for pods, unless the pool's configuration gives them.
    """

    kind = "node"

    node: str
    pool: str
    state: str  # booting | ready | gone
    why: str = ""
    offers: Mapping[str, int] = {}


class NoticeGiven(Event, kw_only=True):
    """Fact: the provider will reclaim a node at ``goes_at``. ``attempts`` are (task, number) pairs on that node.

    ``id`` is the source's name for the notice, empty without one: a node gets each notice once.
    """

    kind = "notice"

    node: str
    goes_at: float
    attempts: Sequence[tuple[str, int]] = ()
    why: str = ""
    id: str = ""


class AttemptBound(Event, kw_only=True):
    """Fact: an attempt has a node. The engine starts the attempt once this event is durable.

    For an orchestrator's attempt, ``node`` and ``pool`` are empty if unknown. ``requests`` are the requests of its pod, if they
    differ from its task's: its account is computed from them. ``boot`` has the first characters of the node's boot ID, if seen:
    a restarted node has a new one.
    """

    kind = "bound"

    node: str
    pool: str
    requests: Mapping[str, int] = {}
    boot: str = ""


class ProgressReported(Event, kw_only=True):
    """Fact: the code reported this share of the task's work (0 to 1) as done."""

    kind = "progress"

    value: float


class AttemptEnded(Event, kw_only=True):
    """Fact: an attempt has ended, with every observed signal of its end.

    ``started_at``, ``ended_at``, ``seconds``, ``cpu_seconds`` and ``max_rss`` (bytes) are measured on its process, if
    available. ``settled``: the engine of the attempt had ended, and a later engine settled it. ``ended_by``: if the time of its
    end was not reported, ``at`` is the last proof that it lived, ``proof`` names the proof, and its absence was first known at
    ``ended_by``; None: it ended ``at`` that time.
    """

    kind = "ended"

    signals: Signals = Signals()
    started_at: float | None = None
    ended_at: float | None = None
    seconds: float | None = None
    cpu_seconds: float | None = None
    max_rss: int | None = None
    parameters: Mapping[str, Any] = {}
    artifacts: Mapping[str, Any] = {}
    first_progress: float | None = None  # its first report, if no ProgressReported came before
    progress: float | None = None  # its last report
    last_line: str = ""  # of its log
    settled: bool = False
    ended_by: float | None = None
    proof: str = ""  # a noun: "the last line of its log"


class TaskCached(Event, kw_only=True):
    """Fact: an earlier result of the same work is used instead of running the task."""

    kind = "cached"

    run: str  # the run that computed the result
    of_task: str  # the task of that run
    parameters: Mapping[str, Any] = {}
    artifacts: Mapping[str, Any] = {}


class CacheMissed(Event, kw_only=True):
    """Fact: no earlier result of this task's work exists."""

    kind = "uncached"


class SnapshotTaken(Event, kw_only=True):
    """Fact: the world's answers that the following decisions used.

    ``room``: by pool, whether it had room; ``waiting``: by task path, why its attempt had no node; ``coming``: the node on its
    way for it, if any.
    """

    kind = "snapshot"

    room: Mapping[str, bool] = {}
    waiting: Mapping[str, str] = {}
    coming: Mapping[str, str] = {}


# -- decisions


class TasksUnfolded(Event, kw_only=True):
    """Decision: the tasks of a DAG are added to the run. ``task`` is empty for the root DAG; a loop has ``items``."""

    kind = "unfolded"

    items: Sequence[Any] | None = None


class TaskSkipped(Event, kw_only=True):
    """Decision: skip the task, because its condition does not hold or an upstream task was skipped."""

    kind = "skipped"

    why: str


class CacheAsked(Event, kw_only=True):
    """Decision: look up an earlier result. The world answers with TaskCached or CacheMissed."""

    kind = "lookup"


class AttemptPlaced(Event, kw_only=True):
    """Decision: a new attempt waits for a node on a rung of its ladder, at most ``until``."""

    kind = "placed"

    rung: int
    pools: Sequence[str]
    until: float | None = None
    why: str = ""


class AttemptMoved(Event, kw_only=True):
    """Decision: an attempt without a node waits on another rung."""

    kind = "moved"

    rung: int
    pools: Sequence[str]
    until: float | None = None
    why: str = ""


class AttemptHalted(Event, kw_only=True):
    """Decision: stop an attempt; with ``moves``, its task continues elsewhere.

    ``rung`` is where it continues; by default on-demand.
    """

    kind = "halt"

    why: str
    moves: bool = False
    rung: int | None = None


class AttemptDecided(Event, kw_only=True):
    """Decision: the single cause of an attempt's end, and the next step.

    ``wait`` is the backoff in seconds before time scaling, ``due`` its end. ``pools``, if an orchestrator makes the attempts,
    are the rung's: the webhook gives them to the next pod.
    """

    kind = "decided"

    cause: Cause
    why: str
    then: FollowUp
    following: str  # the next step, in words
    rung: int | None = None
    pools: tuple[str, ...] = ()
    due: float | None = None
    wait: float = 0.0
    evidence: Mapping[str, Any] = {}


class TaskCompleted(Event, kw_only=True):
    """Decision: a task without attempts (a DAG, an importer, a volume claim step) succeeded with these outputs."""

    kind = "completed"

    parameters: Mapping[str, Any] = {}
    artifacts: Mapping[str, Any] = {}


class TaskFailed(Event, kw_only=True):
    """Decision: a task fails without an attempt."""

    kind = "failed"

    why: str


class RunExpired(Event, kw_only=True):
    """Decision: the run's time is over. All tasks except exit tasks are stopped and fail."""

    kind = "expired"

    why: str


class RunFinished(Event, kw_only=True):
    """Decision: the run has ended, or is stopped until a resume."""

    kind = "finished"

    status: RunStatus
    why: str = ""


class AttemptAdopted(Event, kw_only=True):
    """Fact: the orchestrator made an attempt, which waits for a node. The task is new if it is its first attempt.

    ``key`` is unique among all attempts, so that a watcher never records an event twice after a crash. ``template`` is the task
    of the plan from which this one was made. ``pod`` is the pod's name; ``pools`` admit it. ``gang``: the restart of a set of
    tasks that end together, as ``SET/RESTART``. The tasks of a set share their budgets, and a restart is charged once, for its
    worst end. ``is_open``: it was admitted for all rungs of its ladder; the pool that takes it decides its rung. ``why`` is the
    sentence with which it was admitted.
    """

    kind = "adopted"

    key: str
    template: str
    pod: str = ""
    rung: int = 0
    pools: Sequence[str] = ()
    gang: str = ""
    is_open: bool = False
    why: str = ""


class AttemptWaits(Event, kw_only=True):
    """Fact: why an attempt has no node yet, or does not start on its node; an empty ``why``: it no longer waits.

    ``why`` begins with the reason's word: Kubernetes', an autoscaler's, or one of :mod:`spotwright.engine.waits`.
    """

    kind = "waits"

    why: str


class AttemptRecalled(Event, kw_only=True):
    """Decision: recall an attempt that waits in vain for a node, so that the next one waits on another rung.

    It spends no budget. ``rung`` and ``pools`` are the next attempt's. ``left_out`` are the unavailable pools, each with the
    end of its backoff (Unix seconds) and its number of consecutive backoffs. ``is_said``: the cluster's autoscaler itself
    reports that these pools have no nodes.
    """

    kind = "taken-back"

    rung: int
    pools: Sequence[str]
    why: str
    left_out: Mapping[str, tuple[float, int]] = {}
    is_said: bool = False


class PodStuckTerminating(Event, kw_only=True):
    """Fact: an attempt's pod stays, because its node has not reported since ``since``, so no successor starts.

    An empty ``node``: it is no longer stuck.
    """

    kind = "held"

    node: str = ""
    since: float | None = None


class AttemptReleased(Event, kw_only=True):
    """Decision: force-delete an attempt's pod without its node's status, so that its successor can start.

    Its machine is certainly gone, or silent while a Job waits for the pod, or has restarted and never starts it.
    """

    kind = "released"

    why: str


class NoticeWithdrawn(Event, kw_only=True):
    """Fact: the provider withdrew the notice ``id`` of a node: the node stays, and its attempts have no notice."""

    kind = "withdrawn"

    node: str
    id: str = ""


class PlanExtended(Event, kw_only=True):
    """Fact: the plan in force grows by newly known pools of the cluster or tasks of the workload.

    ``template`` is the new knowledge about one template, in the form of the plan's source; earlier knowledge stays. ``pool`` is
    the name of a pool read from a node, ``is_spot`` its capacity. ``version``: journals of earlier releases have a new version
    of the whole plan beside them instead.

    Unlike a reset it resets no budgets. A task's newly known number of retries applies from then on.
    """

    kind = "extended"

    version: int = 0
    template: Mapping[str, Any] = {}
    pool: str = ""
    is_spot: bool = False


class OutputsRead(Event, kw_only=True):
    """Fact: output parameters of a succeeded task, found after its end."""

    kind = "outputs"

    parameters: Mapping[str, Any] = {}


WORKLOAD_EVENTS = (
    AttemptAdopted,
    AttemptWaits,
    AttemptRecalled,
    PodStuckTerminating,
    AttemptReleased,
    NoticeWithdrawn,
    OutputsRead,
    PlanExtended,
)
"""The fact kinds of this module."""


class AttemptKept(Event, kw_only=True):
    """Decision: an attempt under a deadline stays where it runs or waits, at least ``until`` the next look at it.

    Without ``until`` it stays to its end. A waiting attempt stays on its rung because a node is on its way.
    """

    kind = "kept"

    until: float | None = None
    why: str = ""


class MarketKnown(Event, kw_only=True):
    """Fact: runs' counts of spells with and without spot, by pool.

    Each pool has four numbers per age bucket of :mod:`spotwright.deadlines.hazards`, kind by kind: looks at spells with spot,
    their ends, looks at spells without, their ends. ``boots`` are the newest times in seconds from the request of a node until
    it was ready, by pool, oldest first. ``runs`` is the number of counted runs. ``own``: counted by this run, for later ones;
    ``kinds`` then describes each pool.
    """

    kind = "market"

    pools: Mapping[str, Sequence[float]] = {}
    runs: int = 0
    own: bool = False
    kinds: Mapping[str, str] = {}
    boots: Mapping[str, Sequence[float]] = {}


class EnvironmentAsked(Event, kw_only=True):
    """Decision: prepare the Python environment of a task. The world answers with EnvironmentChanged."""

    kind = "prepare"


class EnvironmentChanged(Event, kw_only=True):
    """Fact: the Python environment of a task is being built, is ready, or cannot be built.

    ``log`` is the name of the build's log in the run's folder. An environment without a build existed before.
    """

    kind = "environment"

    state: str  # building | ready | failed
    packages: Sequence[str] = ()  # without credentials
    log: str = ""
    why: str = ""
    last_lines: Sequence[str] = ()  # of the log
