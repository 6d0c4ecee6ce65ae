"""The events of a run, which are facts and decisions: one frozen class for each kind.

State, views and accounts are computed from these events alone, so a run looks the same while it goes on, after a resume and a
year later. A *fact* is something that the world or the user did. A *decision* is an answer of
:mod:`spotwright.engine.decisions`.

Every event begins with the same three values: ``at`` (Unix time in seconds), ``task`` (the path of its task, empty for the run)
and ``attempt`` (counted from one, zero for no attempt). The other fields of a kind are keywords.
:mod:`spotwright.engine.event_codec` writes events as rows of a journal and reads them back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from spotwright.engine.run_meta import RunMeta
from spotwright.engine.status import RunStatus
from spotwright.frozen import Frozen
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

    ``offers``: the resources that it offers to pods, as far as the configuration of its pool does not tell them.
    """

    kind = "node"

    node: str
    pool: str
    state: str  # booting | ready | gone
    why: str = ""
    offers: Mapping[str, int] = {}


class NoticeGiven(Event, kw_only=True):
    """Fact: the provider announces that it takes a node at ``goes_at``. ``attempts`` are (task, number) pairs on that node.

    ``id`` is the source's own name for the notice, empty where it has none: a node is told of each notice once.
    """

    kind = "notice"

    node: str
    goes_at: float
    attempts: Sequence[tuple[str, int]] = ()
    why: str = ""
    id: str = ""


class AttemptBound(Event, kw_only=True):
    """Fact: an attempt has a node. The engine starts the attempt once this event is durable.

    Of an attempt that an orchestrator made, ``node`` and ``pool`` are empty where nobody tells them.
    """

    kind = "bound"

    node: str
    pool: str


class ProgressReported(Event, kw_only=True):
    """Fact: the code reported that this share of the task's work (0 to 1) is done."""

    kind = "progress"

    value: float


class AttemptEnded(Event, kw_only=True):
    """Fact: an attempt has ended, with every observed signal of its end.

    ``started_at``, ``ended_at``, ``seconds``, ``cpu_seconds`` and ``max_rss`` (bytes) are measures of its process, if there are
    any. ``settled``: the engine of the attempt had ended, and a later engine settled it.
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


class TaskCached(Event, kw_only=True):
    """Fact: the task does not run, because an earlier result of the same work is used."""

    kind = "cached"

    run: str  # the run that computed the result
    of_task: str  # the task of that run
    parameters: Mapping[str, Any] = {}
    artifacts: Mapping[str, Any] = {}


class CacheMissed(Event, kw_only=True):
    """Fact: there is no earlier result of this task's work."""

    kind = "uncached"


class SnapshotTaken(Event, kw_only=True):
    """Fact: the answers of the world that the following decisions used.

    ``room`` tells for pools whether they had room; ``waiting`` tells for task paths why their attempt had no node.
    """

    kind = "snapshot"

    room: Mapping[str, bool] = {}
    waiting: Mapping[str, str] = {}


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
    """Decision: an attempt is to be stopped; with ``moves`` only here, and its task goes on elsewhere."""

    kind = "halt"

    why: str
    moves: bool = False


class AttemptDecided(Event, kw_only=True):
    """Decision: the one cause of an attempt's end, and what follows it.

    ``wait`` is the backoff in seconds before time scaling, ``due`` the moment at which it is over.
    """

    kind = "decided"

    cause: Cause
    why: str
    then: FollowUp
    following: str  # what follows, in words
    rung: int | None = None
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
