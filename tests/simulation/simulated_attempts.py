"""The attempts of one run in the simulated cluster: entries of an agenda instead of processes.

They follow the local world step by step, so the engine gets the same facts in the same order: SIGTERM after a notice, the end
of all attempts on a node that goes, evictions by a drain, and with each end the signals that a body would observe. A model
says how long an attempt works, what it reports and saves, and how it ends; every declared output gets a value, because
downstream tasks read it.

Attempts outlive the engine that started them, as pods and shims do: without a listener they go on and leave exit records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.simulation.simulated_cluster import SimulatedCluster

from spotwright.engine.events import AttemptBound, AttemptEnded, Event, NodeChanged, NoticeGiven, ProgressReported
from spotwright.engine.io_resolution import Inputs
from spotwright.engine.state import TaskState
from spotwright.errors import SpotwrightError
from spotwright.graph import ParameterSpec
from spotwright.model.attempts import Signals
from spotwright.supply.node_fit import (
    AttemptKey,
    Bound,
    Evicted,
    NodeBooting,
    NodeGone,
    NodeReady,
    Noticed,
    SigtermDue,
    SupplyEvent,
    uniform,
)

__all__ = [
    "FAILED",
    "SUCCEEDED",
    "AttemptModel",
    "AttemptStart",
    "Behavior",
    "MakeOutputs",
    "Outputs",
    "SimulatedAttempts",
    "Storage",
    "TaskWork",
    "WorkModel",
    "declared_outputs",
]


_EMPTY: Mapping[str, Any] = {
    "STRING": "",
    "NUMBER_INTEGER": 0,
    "NUMBER_DOUBLE": 0.0,
    "BOOLEAN": False,
    "LIST": (),
    "STRUCT": {},
}


class Outputs(NamedTuple):
    """The parameters and artifacts of an ended attempt, by name."""

    parameters: Mapping[str, Any]
    artifacts: Mapping[str, Any]


MakeOutputs = Callable[[TaskState, Inputs], Outputs]
"""Makes the outputs of a task that succeeded. Callers whose conditions and loops depend on values pass their own."""


def declared_outputs(task: TaskState, _inputs: Inputs) -> Outputs:
    """The empty value of each declared parameter's type, and an artifact at an address that does not exist."""
    declared = task.plan.spec.outputs
    artifacts = {
        name: {
            "name": name,
            "type": {"schemaTitle": spec.schema, "schemaVersion": spec.version},
            "uri": f"simulated://{task.path}/{name}",
            "metadata": dict(spec.metadata),
        }
        for name, spec in declared.artifacts.items()
    }
    return Outputs({name: _empty(spec) for name, spec in declared.parameters.items()}, artifacts)


def _empty(spec: ParameterSpec) -> Any:
    value = spec.literals[0] if spec.literals else _EMPTY.get(spec.type, "")
    return list(value) if isinstance(value, tuple) else value


SUCCEEDED = Signals(exit_code=0, outputs_complete=True)
FAILED = Signals(exit_code=1)


@dataclass(frozen=True, slots=True)
class Behavior:
    """The behavior of one attempt on a node that stays. Durations are seconds of virtual time, shares parts of the task's work.

    After ``start_up`` seconds it works evenly from the share ``done_before`` to ``done_after``, reaches that when ``seconds``
    have passed since its start, and ends with ``signals``. On the way it reports its progress ``reports`` times at even
    distances, the last time at its end.
    """

    seconds: float = 1.0
    signals: Signals = SUCCEEDED
    reports: int = 0
    start_up: float = 0.0
    done_before: float = 0.0
    done_after: float = 1.0
    checkpoint_every: float | None = None  # seconds of work between two checkpoints; None: it saves none
    stops_in: float | None = None  # seconds from SIGTERM to its end; None: it ignores SIGTERM
    saves_on_sigterm: bool = False  # it saves its work between SIGTERM and its end

    def progress(self) -> list[tuple[float, float]]:
        """Its reports: seconds after its start, and the share that it reports."""
        work, share = self.seconds - self.start_up, self.done_after - self.done_before
        steps = [step / self.reports for step in range(1, self.reports + 1)]
        return [(self.start_up + work * step, self.done_before + share * step) for step in steps]

    def done(self, elapsed: float) -> float:
        """The share that is done ``elapsed`` seconds after its start."""
        work = self.seconds - self.start_up
        part = min(1.0, max(0.0, elapsed - self.start_up) / work) if work > 0 else 1.0
        return self.done_before + (self.done_after - self.done_before) * part

    def saved(self, elapsed: float, *, by_sigterm: bool) -> float:
        """The share that is in its last checkpoint when it ends ``elapsed`` seconds after its start."""
        if by_sigterm and self.saves_on_sigterm:
            return self.done(elapsed)
        if not self.checkpoint_every:
            return self.done_before
        worked = max(0.0, min(elapsed, self.seconds) - self.start_up)
        return self.done(self.start_up + worked // self.checkpoint_every * self.checkpoint_every)


@dataclass(frozen=True, slots=True)
class AttemptStart:
    """An attempt that starts. ``saved`` is the share of the task's work in the checkpoint that it finds."""

    task: str
    number: int
    pool: str
    saved: float = 0.0


AttemptModel = Callable[[AttemptStart], Behavior]
"""The behavior of each attempt of a run. A pure function: the same start gives the same behavior."""


@dataclass(frozen=True, slots=True)
class TaskWork:
    """The work of a task. ``seconds`` is all of it, without start-up, on a node that stays.

    ``spread`` draws the work of each task between ``seconds * (1 - spread)`` and ``seconds * (1 + spread)``. ``failure_rate``
    is the chance that an attempt fails by its own fault, at a drawn share of its work. The other fields are those of
    :class:`Behavior`.
    """

    seconds: float
    spread: float = 0.0
    start_up: float = 0.0
    reports: int = 0
    checkpoint_every: float | None = None
    stops_in: float | None = None
    saves_on_sigterm: bool = False
    failure_rate: float = 0.0


class WorkModel:
    """Attempts that behave as the description of their task says, with seeded draws.

    ``work`` gives the description of a task by its path: a mapping with every task, or a function. A draw depends on the seed,
    the task's path and the attempt's number alone, like the draws of interruptions.
    """

    def __init__(self, work: Mapping[str, TaskWork] | Callable[[str], TaskWork], seed: int) -> None:
        self._work = work if callable(work) else work.__getitem__
        self._seed = seed

    def __call__(self, start: AttemptStart) -> Behavior:
        """Draw the behavior of an attempt: from its checkpoint it does the rest of the work, or fails on the way."""
        work = self._work(start.task)
        whole = work.seconds * (1.0 + work.spread * (2.0 * uniform(self._seed, "work", start.task) - 1.0))
        fails = uniform(self._seed, "fails", start.task, start.number) < work.failure_rate
        part = uniform(self._seed, "fails at", start.task, start.number) if fails else 1.0
        left = (1.0 - start.saved) * part
        return Behavior(
            seconds=work.start_up + whole * left,
            signals=FAILED if fails else SUCCEEDED,
            reports=work.reports,
            start_up=work.start_up,
            done_before=start.saved,
            done_after=start.saved + left,
            checkpoint_every=work.checkpoint_every,
            stops_in=work.stops_in,
            saves_on_sigterm=work.saves_on_sigterm,
        )


_HALT_SECONDS = 1.0
"""How long an attempt that ignores SIGTERM lives after its run was stopped."""

_SIGTERM, _SIGKILL = 15, 9


@dataclass(slots=True)
class Storage:
    """The contents of the disk: exit records by attempt, and the share of each task's work in its checkpoint."""

    records: dict[AttemptKey, AttemptEnded] = field(default_factory=dict)
    saved: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Observed:
    """An attempt's state before its end, perhaps before its start."""

    noticed: bool = False
    node_gone: bool = False
    moved: str = ""
    halted: bool = False
    progress: float | None = None


@dataclass(slots=True)
class _Live:
    """An attempt that has started and not ended."""

    number: int
    behavior: Behavior
    started_at: float
    spot: bool
    outputs: Outputs


class SimulatedAttempts:
    """The attempts of a run. ``listener`` is called with every fact; ``None`` while no engine drives the run.

    A new cluster may get the ``storage`` of an earlier one, as a machine keeps its disk over a restart.
    """

    def __init__(
        self,
        run: str,
        cluster: SimulatedCluster,
        model: AttemptModel,
        *,
        seed: int,
        make_outputs: MakeOutputs = declared_outputs,
        storage: Storage | None = None,
    ) -> None:
        self.run, self.cluster, self.model = run, cluster, model
        self.storage = storage if storage is not None else Storage()
        self.listener: Callable[[Event], None] | None = None
        self._seed, self._make_outputs = seed, make_outputs
        self._observed: dict[AttemptKey, _Observed] = {}
        self._live: dict[str, _Live] = {}  # by task: it has one live attempt at most
        self._nodes: dict[str, str] = {}  # pools by node, of the nodes that the run knows and that are not gone

    @property
    def live(self) -> Mapping[AttemptKey, Behavior]:
        """The attempts that have started and not ended."""
        return {self.key(task, attempt.number): attempt.behavior for task, attempt in self._live.items()}

    @property
    def nodes(self) -> Iterable[str]:
        """The nodes that the run knows and that are not gone."""
        return self._nodes

    @property
    def now(self) -> float:
        """The present moment, Unix seconds."""
        return self.cluster.clock.now

    def key(self, task: str, number: int) -> AttemptKey:
        """The key of an attempt of this run in the supply."""
        return AttemptKey(self.run, task, number)

    def join(self) -> None:
        """Join the cluster; no effect if the run has joined already."""
        self.cluster.join(self.run, self._seed, self)

    def leave(self) -> None:
        """Leave the cluster. Attempts that still run are gone without a record."""
        self._live.clear()
        self.cluster.leave(self.run)
        for node, pool in list(self._nodes.items()):
            self._node_changed(node, pool, "gone", "the run is over, and the node stays")

    # -- effects of the engine

    def start(self, task: TaskState, inputs: Inputs, event: AttemptBound) -> None:
        """Start an attempt on the node to which it is bound."""
        key = self.key(event.task, event.attempt)
        if key in self.storage.records or key.task in self._live:
            raise SpotwrightError(f"{key.task} is started a second time: this is a defect of the engine")
        behavior = self.model(AttemptStart(key.task, key.number, event.pool, self.storage.saved.get(key.task, 0.0)))
        spot, outputs = self.cluster.pools[event.pool].is_spot, self._make_outputs(task, inputs)
        self._live[key.task] = _Live(key.number, behavior, self.now, spot, outputs)
        observed = self._observations(key)
        if observed.halted:
            self._end(key, Signals(signal=_SIGTERM, cancelled=True))
        elif observed.node_gone or observed.moved:
            self._end(key, Signals(signal=_SIGKILL))
        if key.task not in self._live:
            return
        for seconds, share in behavior.progress():
            self._after(seconds, lambda share=share: self._report(key, share))  # type: ignore[misc]
        self._after(behavior.seconds, lambda: self._end(key, behavior.signals))

    def halt(self, key: AttemptKey) -> None:
        """Send SIGTERM because the run is stopped; an attempt that has not started yet ends at its start."""
        if key in self.storage.records:
            return
        self._observations(key).halted = True
        live = self._live_attempt(key)
        if live is None:
            return
        stops_in = live.behavior.stops_in
        signals = Signals(signal=_SIGTERM, cancelled=True)
        self._after(_HALT_SECONDS if stops_in is None else stops_in, lambda: self._end(key, signals))

    def move(self, key: AttemptKey, why: str, ends_by: float) -> None:
        """Send SIGTERM because the attempt moves elsewhere, and SIGKILL at ``ends_by``."""
        self._observations(key).moved = why
        self._terminate(key, ends_by)

    def kill_halted(self) -> None:
        """Send SIGKILL to every halted attempt that is live."""
        for key in self.live:
            if self._observations(key).halted:
                self._end(key, Signals(signal=_SIGKILL, cancelled=True))

    def end_unheard(self, key: AttemptKey) -> AttemptEnded:
        """End an attempt as lost, because engines can no longer watch it. Returns its record.

        An attempt that has ended already keeps its record.
        """
        live = self._live_attempt(key)
        if live is not None:
            del self._live[key.task]
            self.storage.saved[key.task] = live.behavior.saved(self.now - live.started_at, by_sigterm=False)
        lost = AttemptEnded(self.now, key.task, key.number, signals=Signals(heard=False))
        return self.storage.records.setdefault(key, lost)

    def progress_of(self, key: AttemptKey) -> float | None:
        """The last report of a live attempt."""
        return self._observed[key].progress if key in self._observed else None

    # -- events of nodes

    def receive(self, event: SupplyEvent) -> None:
        """Turn an event of the supply into facts and into ends of attempts."""
        match event:
            case NodeBooting(node, pool):
                self._node_changed(node, pool, "booting")
            case NodeReady(node, pool):
                self._node_changed(node, pool, "ready")
            case Bound(key, node, pool):
                self._report_fact(AttemptBound(self.now, key.task, key.number, node=node, pool=pool))
            case Noticed(node, _, keys, goes_at, why):
                self._notice(node, keys, goes_at, why)
            case SigtermDue(key):
                self._terminate(key, None)
            case Evicted(key, _, ends_by, why):
                self.move(key, why, ends_by)
            case NodeGone(node, pool, keys, why):
                self._node_changed(node, pool, "gone", why)
                for key in keys:
                    self._observations(key).node_gone = True
                    self._end(key, Signals(signal=_SIGKILL))

    def _notice(self, node: str, keys: Sequence[AttemptKey], goes_at: float, why: str) -> None:
        for key in keys:
            self._observations(key).noticed = True
        attempts = tuple((key.task, key.number) for key in keys)
        self._report_fact(NoticeGiven(self.now, node=node, goes_at=goes_at, attempts=attempts, why=why))

    def _node_changed(self, node: str, pool: str, state: str, why: str = "") -> None:
        if state == "gone":
            self._nodes.pop(node, None)
        else:
            self._nodes[node] = pool
        self._report_fact(NodeChanged(self.now, node=node, pool=pool, state=state, why=why))

    # -- attempts

    def _terminate(self, key: AttemptKey, killed_at: float | None) -> None:
        """Send SIGTERM now and SIGKILL at ``killed_at``; ``None``: the end of its node kills it instead."""
        live = self._live_attempt(key)
        if live is None:
            return
        if live.behavior.stops_in is not None:
            self._after(live.behavior.stops_in, lambda: self._end(key, Signals(signal=_SIGTERM)))
        if killed_at is not None:
            self.cluster.agenda.at(killed_at, lambda _: self._end(key, Signals(signal=_SIGKILL)))

    def _report(self, key: AttemptKey, share: float) -> None:
        if self._live_attempt(key) is None:
            return
        self._observations(key).progress = share
        self.cluster.supply.report(key, share, self.now)
        self._report_fact(ProgressReported(self.now, key.task, key.number, value=share))

    def _end(self, key: AttemptKey, signals: Signals) -> None:
        """End an attempt with these signals, unless it has ended already."""
        live = self._live_attempt(key)
        if live is None:
            return
        del self._live[key.task]
        observed, elapsed = self._observed.pop(key, _Observed()), self.now - live.started_at
        by_sigterm = signals.signal == _SIGTERM
        self.storage.saved[key.task] = live.behavior.saved(elapsed, by_sigterm=by_sigterm)
        signals = signals._replace(
            noticed=signals.noticed or observed.noticed,
            node_gone=signals.node_gone or observed.node_gone,
            moved=signals.moved or observed.moved,
            spot=live.spot if signals.spot is None else signals.spot,
        )
        succeeded = signals.exit_code == 0 and signals.outputs_complete
        outputs: Mapping[str, Any] = live.outputs._asdict() if succeeded else {}
        end = AttemptEnded(
            self.now, key.task, key.number, signals=signals, seconds=elapsed, progress=observed.progress, **outputs
        )
        self.storage.records[key] = end
        self._report_fact(end)

    def _live_attempt(self, key: AttemptKey) -> _Live | None:
        """The attempt if it has started and not ended, else None."""
        live = self._live.get(key.task)
        return live if live is not None and live.number == key.number else None

    def _observations(self, key: AttemptKey) -> _Observed:
        return self._observed.setdefault(key, _Observed())

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        self.cluster.agenda.at(self.now + seconds, lambda _: action())

    def _report_fact(self, fact: Event) -> None:
        if self.listener is not None:
            self.listener(fact)
