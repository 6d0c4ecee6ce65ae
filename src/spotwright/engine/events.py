"""The events of a run, which are facts and decisions: one frozen dataclass for each kind.

State, views and accounts are computed from these events alone, so a run looks the same while it goes on, after a resume and a
year later. A *fact* is something that the world or the user did. A *decision* is an answer of
:mod:`spotwright.engine.decisions`.

Every event begins with the same three values: ``at`` (Unix time in seconds), ``task`` (the path of its task, empty for the run)
and ``attempt`` (counted from one, zero for no attempt). The other fields of a kind are keywords.
:mod:`spotwright.engine.event_codec` writes events as rows of a journal and reads them back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from spotwright.engine.run_meta import RunMeta
from spotwright.engine.status import RunStatus
from spotwright.model.attempts import Cause, Signals
from spotwright.scheduling.budgets import FollowUp

__all__ = [
    "AttemptBound",
    "AttemptDecided",
    "AttemptEnded",
    "AttemptHalted",
    "AttemptMoved",
    "AttemptPlaced",
    "CacheAsked",
    "CacheMissed",
    "CancelRequested",
    "EngineDetached",
    "EngineStarted",
    "Event",
    "NodeChanged",
    "NoteAdded",
    "NoticeGiven",
    "ProgressReported",
    "RunCreated",
    "RunExpired",
    "RunFinished",
    "RunReset",
    "SnapshotTaken",
    "StopRequested",
    "TaskCached",
    "TaskCompleted",
    "TaskFailed",
    "TaskSkipped",
    "TasksUnfolded",
]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Event:
    """The base of all events: a moment, a task and an attempt.

    Comparison and text are defined once here: a dataclass that makes its own costs 0.6 ms of every start of the command.
    """

    kind: ClassVar[str] = ""  # its name in the journal

    at: float
    task: str = ""
    attempt: int = 0

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in fields(self))

    __hash__ = None  # type: ignore[assignment]  # events hold mappings

    def __repr__(self) -> str:
        values = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self))
        return f"{type(self).__name__}({values})"


# -- facts about the run and its engines


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class RunCreated(Event):
    """Fact: the run was created. The first event of every journal."""

    kind: ClassVar[str] = "created"

    meta: RunMeta = field(default_factory=RunMeta)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class EngineStarted(Event):
    """Fact: an engine drives the run from now on.

    ``version`` is that of Spotwright, ``decisions`` that of the decision functions (``DECISIONS_VERSION``);
    journals of format 1 have neither. ``caching``: this engine may look up earlier results. ``environments``: its body prepares
    the Python environments of tasks before their attempts are placed.
    """

    kind: ClassVar[str] = "engine"

    epoch: int = 0
    pid: int = 0
    version: str = ""
    decisions: int = 0
    caching: bool = False
    environments: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class EngineDetached(Event):
    """Fact: the engine ends and leaves the attempts running for the next engine."""

    kind: ClassVar[str] = "detached"

    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class CancelRequested(Event):
    """Fact: the user cancelled the run."""

    kind: ClassVar[str] = "cancel"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class StopRequested(Event):
    """Fact: the user or the system stops the engine. The run can be resumed."""

    kind: ClassVar[str] = "stop"

    why: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class RunReset(Event):
    """Fact: tasks that did not succeed run again with new budgets, because the run was resumed after its end or has a new plan.

    ``version`` is the version of the plan from now on; ``again`` names tasks that succeeded and run again nevertheless.
    """

    kind: ClassVar[str] = "reset"

    version: int | None = None
    again: Sequence[str] = ()
    arguments: Mapping[str, Any] | None = None
    time_scale: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class NoteAdded(Event):
    """Fact: a note for the user."""

    kind: ClassVar[str] = "note"

    text: str


# -- facts about nodes and attempts


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class NodeChanged(Event):
    """Fact: a node boots, is ready or is gone.

    ``offers``: the resources that it offers to pods, as far as the configuration of its pool does not tell them.
    """

    kind: ClassVar[str] = "node"

    node: str
    pool: str
    state: str  # booting | ready | gone
    why: str = ""
    offers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class NoticeGiven(Event):
    """Fact: the provider announces that it takes a node at ``goes_at``. ``attempts`` are (task, number) pairs on that node.

    ``id`` is the source's own name for the notice, empty where it has none: a node is told of each notice once.
    """

    kind: ClassVar[str] = "notice"

    node: str
    goes_at: float
    attempts: Sequence[tuple[str, int]] = ()
    why: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class AttemptBound(Event):
    """Fact: an attempt has a node. The engine starts the attempt once this event is durable.

    Of an attempt that an orchestrator made, ``node`` and ``pool`` are empty where nobody tells them.
    """

    kind: ClassVar[str] = "bound"

    node: str
    pool: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class ProgressReported(Event):
    """Fact: the code reported that this share of the task's work (0 to 1) is done."""

    kind: ClassVar[str] = "progress"

    value: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class AttemptEnded(Event):
    """Fact: an attempt has ended, with every observed signal of its end.

    ``started_at``, ``ended_at``, ``seconds``, ``cpu_seconds`` and ``max_rss`` (bytes) are measures of its process, if there are
    any. ``settled``: the engine of the attempt had ended, and a later engine settled it.
    """

    kind: ClassVar[str] = "ended"

    signals: Signals = field(default_factory=Signals)
    started_at: float | None = None
    ended_at: float | None = None
    seconds: float | None = None
    cpu_seconds: float | None = None
    max_rss: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Mapping[str, Any] = field(default_factory=dict)
    first_progress: float | None = None  # its first report, where no ProgressReported came before
    progress: float | None = None  # its last report
    last_line: str = ""  # of its log
    settled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class TaskCached(Event):
    """Fact: the task does not run, because an earlier result of the same work is used."""

    kind: ClassVar[str] = "cached"

    run: str  # the run that computed the result
    of_task: str  # the task of that run
    parameters: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class CacheMissed(Event):
    """Fact: there is no earlier result of this task's work."""

    kind: ClassVar[str] = "uncached"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class SnapshotTaken(Event):
    """Fact: the answers of the world that the following decisions used.

    ``room`` tells for pools whether they had room; ``waiting`` tells for task paths why their attempt had no node.
    """

    kind: ClassVar[str] = "snapshot"

    room: Mapping[str, bool] = field(default_factory=dict)
    waiting: Mapping[str, str] = field(default_factory=dict)


# -- decisions


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class TasksUnfolded(Event):
    """Decision: the tasks of a DAG are added to the run. ``task`` is empty for the root DAG; a loop has ``items``."""

    kind: ClassVar[str] = "unfolded"

    items: Sequence[Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class TaskSkipped(Event):
    """Decision: the task does not run, because its condition does not hold or an upstream task was skipped."""

    kind: ClassVar[str] = "skipped"

    why: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class CacheAsked(Event):
    """Decision: look up an earlier result. The world answers with TaskCached or CacheMissed."""

    kind: ClassVar[str] = "lookup"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class AttemptPlaced(Event):
    """Decision: a new attempt waits for a node on a rung of its ladder, at most ``until``."""

    kind: ClassVar[str] = "placed"

    rung: int
    pools: Sequence[str]
    until: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class AttemptMoved(Event):
    """Decision: an attempt without a node waits on another rung."""

    kind: ClassVar[str] = "moved"

    rung: int
    pools: Sequence[str]
    until: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class AttemptHalted(Event):
    """Decision: an attempt is to be stopped; with ``moves`` only here, and its task goes on elsewhere."""

    kind: ClassVar[str] = "halt"

    why: str
    moves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class AttemptDecided(Event):
    """Decision: the one cause of an attempt's end, and what follows it.

    ``wait`` is the backoff in seconds before time scaling, ``due`` the moment at which it is over.
    """

    kind: ClassVar[str] = "decided"

    cause: Cause
    why: str
    then: FollowUp
    following: str  # what follows, in words
    rung: int | None = None
    due: float | None = None
    wait: float = 0.0
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class TaskCompleted(Event):
    """Decision: a task without attempts (a DAG, an importer, a volume claim step) has succeeded with these outputs."""

    kind: ClassVar[str] = "completed"

    parameters: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class TaskFailed(Event):
    """Decision: a task fails without an attempt."""

    kind: ClassVar[str] = "failed"

    why: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class RunExpired(Event):
    """Decision: the time of the whole run is over. All tasks except exit tasks are stopped and fail."""

    kind: ClassVar[str] = "expired"

    why: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class RunFinished(Event):
    """Decision: the run has ended, or is stopped until a resume."""

    kind: ClassVar[str] = "finished"

    status: RunStatus
    why: str = ""
