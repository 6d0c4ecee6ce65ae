"""The events of a run, which are facts and decisions: one frozen class for each kind.

State, views and accounts are computed from these events alone, so a run looks the same while it goes on, after a resume and a
year later. A *fact* is something that the world or the user did. A *decision* is an answer of
:mod:`spotwright.engine.decide`.

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
"""The orchestrator of a run that was started on Kubeflow Pipelines from here."""


@dataclass(frozen=True, slots=True)
class RunMeta:
    """How a run was started. Arguments hold references to secrets, never the secrets."""

    run: str = ""
    pipeline: str = ""
    source: str | None = None  # the user's file, where there is one
    config: str = ""  # the configuration that was used: its path, or a name for the built-in one
    arguments: Mapping[str, Any] = field(default_factory=dict)  # every parameter with its value
    given: Mapping[str, Any] = field(default_factory=dict)  # the arguments as the user gave them
    textual: bool = False  # arguments came as texts, from a command line
    seed: int = 0
    time_scale: float = 1.0  # how many times faster the waits of simulated pools pass
    cache: str = "auto"  # auto | on | off
    orchestrator: str = (
        ""  # the kind of object whose controller makes the attempts, such as Job; empty: an engine makes them
    )
    containers: str = "auto"  # which runtime executes container components


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
    SKIPPED = "skipped"  # its condition did not hold, or it follows a task that was skipped
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether the task has ended; only a resume can run it again."""
        return self.is_good or self in (TaskStatus.FAILED, TaskStatus.CANCELLED)

    @property
    def is_good(self) -> bool:
        """Whether the task has ended in a way that lets its DAG succeed."""
        return self in (TaskStatus.SUCCEEDED, TaskStatus.SKIPPED)


class RunStatus(Enum):
    """The status of a run. A ``STOPPED`` run is unfinished: ``resume`` continues it."""

    RUNNING = "running"
    STOPPED = "stopped"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Event(Frozen):
    """The base of all events: a moment, a task and an attempt."""

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

    ``version`` is that of Spotwright, ``decisions`` that of the decision functions (``DECISIONS_VERSION``);
    journals of format 1 have neither. ``caching``: this engine may look up earlier results. ``environments``: its body prepares
    the Python environments of tasks before their attempts are placed.
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
    """Fact: tasks that did not succeed run again with new budgets, because the run was resumed after its end or has a new plan.

    ``version`` is the version of the plan from now on; ``again`` names tasks that succeeded and run again nevertheless.
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

    ``offers``: the resources that it offers to pods, unless the configuration of its pool gives them.
    """

    kind = "node"

    node: str
    pool: str
    state: str  # booting | ready | gone
    why: str = ""
    offers: Mapping[str, int] = {}


class NoticeGiven(Event, kw_only=True):
    """Fact: the provider announces that it takes a node at ``goes_at``. ``attempts`` are (task, number) pairs on that node.

    ``id`` is the source's own name for the notice, empty where it has none: a node gets each notice once.
    """

    kind = "notice"

    node: str
    goes_at: float
    attempts: Sequence[tuple[str, int]] = ()
    why: str = ""
    id: str = ""


class AttemptBound(Event, kw_only=True):
    """Fact: an attempt has a node. The engine starts the attempt once this event is durable.

    Of an attempt that an orchestrator made, ``node`` and ``pool`` are empty if unknown. ``requests`` are the requests of
    its pod, if they differ from its task's: its account is computed from them. ``boot`` has the first characters
    of the node's boot ID, where it was seen: a node that restarts has another one.
    """

    kind = "bound"

    node: str
    pool: str
    requests: Mapping[str, int] = {}
    boot: str = ""


class ProgressReported(Event, kw_only=True):
    """Fact: the code reported that this share of the task's work (0 to 1) is done."""

    kind = "progress"

    value: float


class AttemptEnded(Event, kw_only=True):
    """Fact: an attempt has ended, with every observed signal of its end.

    ``started_at``, ``ended_at``, ``seconds``, ``cpu_seconds`` and ``max_rss`` (bytes) are measures of its process, if there are
    any. ``settled``: the engine of the attempt had ended, and a later engine settled it. ``ended_by``: if no report gave the
    moment of its end, ``at`` is the last proof that it lived, ``proof`` names that, and at ``ended_by`` its absence was first
    known; None: it ended ``at`` that moment.
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
    first_progress: float | None = None  # its first report, where no ProgressReported came before
    progress: float | None = None  # its last report
    last_line: str = ""  # of its log
    settled: bool = False
    ended_by: float | None = None
    proof: str = ""  # a noun: "the last line of its log"


class TaskCached(Event, kw_only=True):
    """Fact: the task does not run, because an earlier result of the same work is used."""

    kind = "cached"

    run: str  # the run that computed the result
    of_task: str  # the task of that run
    parameters: Mapping[str, Any] = {}
    artifacts: Mapping[str, Any] = {}


class CacheMissed(Event, kw_only=True):
    """Fact: no earlier result of this task's work exists."""

    kind = "uncached"


class SnapshotTaken(Event, kw_only=True):
    """Fact: the answers of the world that the following decisions used.

    ``room`` says for pools whether they had room, ``waiting`` for task paths why their attempt had no node, and ``coming``
    which node was on its way for it, where one was.
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
    """Decision: the task does not run, because its condition does not hold or an upstream task was skipped."""

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
    """Decision: an attempt is to be stopped; with ``moves`` only here, and its task goes on elsewhere.

    ``rung`` is where it is to go on; without one that is on-demand.
    """

    kind = "halt"

    why: str
    moves: bool = False
    rung: int | None = None


class AttemptDecided(Event, kw_only=True):
    """Decision: the one cause of an attempt's end, and what follows it.

    ``wait`` is the backoff in seconds before time scaling, ``due`` the moment at which it is over. ``pools`` are those of
    the rung where an orchestrator makes the attempts: the webhook gives the next pod the same.
    """

    kind = "decided"

    cause: Cause
    why: str
    then: FollowUp
    following: str  # what follows, in words
    rung: int | None = None
    pools: tuple[str, ...] = ()
    due: float | None = None
    wait: float = 0.0
    evidence: Mapping[str, Any] = {}


class TaskCompleted(Event, kw_only=True):
    """Decision: a task without attempts (a DAG, an importer, a volume claim step) has succeeded with these outputs."""

    kind = "completed"

    parameters: Mapping[str, Any] = {}
    artifacts: Mapping[str, Any] = {}


class TaskFailed(Event, kw_only=True):
    """Decision: a task fails without an attempt."""

    kind = "failed"

    why: str


class RunExpired(Event, kw_only=True):
    """Decision: the time of the whole run is over. All tasks except exit tasks are stopped and fail."""

    kind = "expired"

    why: str


class RunFinished(Event, kw_only=True):
    """Decision: the run has ended, or is stopped until a resume."""

    kind = "finished"

    status: RunStatus
    why: str = ""


class AttemptAdopted(Event, kw_only=True):
    """Fact: the orchestrator has made an attempt, which waits for a node. The task is new if no attempt of it came before.

    ``key`` is unique among all attempts, so that a watcher that looks again after a crash records no event twice.
    ``template`` is the task of the plan from which this one was made. ``pod`` is the pod's name; ``pools`` admit it.
    ``gang``: the restart of a set of tasks that end together, as ``SET/RESTART``. The tasks of a set share their budgets, and a
    restart is charged once, for the worst of its ends. ``is_open``: it was admitted for all rungs of its ladder, and the pool
    that takes it decides which one is its own. ``why`` is the sentence with which it was admitted.
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
    """Fact: why an attempt has no node yet, or does not start on its node; an empty ``why``: it is no longer held up.

    ``why`` begins with a word for the kind of the reason: that of Kubernetes or of an autoscaler, or one of ours (see
    :mod:`spotwright.engine.waits`).
    """

    kind = "waits"

    why: str


class AttemptRecalled(Event, kw_only=True):
    """Decision: an attempt that waits in vain for a node is recalled, so that the next one waits on another rung.

    It spends no budget. ``rung`` and ``pools`` belong to the next attempt. ``left_out`` are the pools that no attempt is
    sent to for a while, each with the moment at which that ends (Unix seconds) and how often in a row it was left out.
    ``is_said``: what makes the cluster's nodes says itself that these pools have none.
    """

    kind = "taken-back"

    rung: int
    pools: Sequence[str]
    why: str
    left_out: Mapping[str, tuple[float, int]] = {}
    is_said: bool = False


class PodStuckTerminating(Event, kw_only=True):
    """Fact: the pod of an attempt stays, because its node does not report since ``since``, so no successor starts.

    An empty ``node``: it is held no more.
    """

    kind = "held"

    node: str = ""
    since: float | None = None


class AttemptReleased(Event, kw_only=True):
    """Decision: the pod of an attempt is deleted without a status of its node, so that its successor can start.

    Its machine is certainly gone, or is silent while a Job waits for the pod, or has restarted and never starts it.
    """

    kind = "released"

    why: str


class NoticeWithdrawn(Event, kw_only=True):
    """Fact: the provider has withdrawn the notice ``id`` of a node: the node stays, and its attempts are under no notice."""

    kind = "withdrawn"

    node: str
    id: str = ""


class PlanExtended(Event, kw_only=True):
    """Fact: more is known of the cluster's pools, or of the workload's tasks: the plan in force grows.

    ``template`` is what became known of one template, in the form of the plan's source; what was known before stays. ``pool`` is
    the name of a pool that was read off a node, ``is_spot`` its capacity. ``version``: journals of earlier releases have a new
    version of the whole plan beside them instead.

    Unlike a reset it begins no budget anew. A task whose own number of retries has become known has it from then on.
    """

    kind = "extended"

    version: int = 0
    template: Mapping[str, Any] = {}
    pool: str = ""
    is_spot: bool = False


class OutputsRead(Event, kw_only=True):
    """Fact: output parameters of a task that has succeeded, which were found only after its end."""

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
"""The kinds of event of this module, all of them facts."""


class AttemptKept(Event, kw_only=True):
    """Decision: an attempt under a deadline stays where it runs or waits, at least ``until`` the next look at it.

    Without ``until`` it stays to its end. An attempt that waits goes on waiting on its rung, because a node is on its way.
    """

    kind = "kept"

    until: float | None = None
    why: str = ""


class MarketKnown(Event, kw_only=True):
    """Fact: what runs have counted of spells with and without spot, by pool.

    Of each pool four numbers for each age bucket of :mod:`spotwright.deadlines.hazards`, kind by kind: looks at spells with spot,
    their ends, looks at spells without, their ends. ``boots`` are the newest seconds from the request of a node until it was
    ready, by pool, oldest first. ``runs`` is how many runs that were. ``own``: counted by this run, for later ones; ``kinds``
    then says what each pool was.
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

    ``log`` is the name of the build's log in the run's folder. An environment without a build was there before.
    """

    kind = "environment"

    state: str  # building | ready | failed
    packages: Sequence[str] = ()  # without credentials
    log: str = ""
    why: str = ""
    last_lines: Sequence[str] = ()  # of the log
