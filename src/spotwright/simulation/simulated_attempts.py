"""The attempts of one run in the simulated cluster: entries of an agenda instead of processes.

They follow the local world step by step, so the engine gets the same facts in the same order: SIGTERM after a notice, the end
of all attempts on a node that goes, evictions by a drain, and with each end the signals that a body would observe.
:mod:`spotwright.simulation.attempt_model` decides what attempts do on nodes that stay.

Attempts outlive the engine that started them, as pods and shims do: without a listener they go on and leave exit records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spotwright.engine.events import AttemptBound, AttemptEnded, Event, NodeChanged, NoticeGiven, ProgressReported
from spotwright.engine.io_resolution import Inputs
from spotwright.engine.state import TaskState
from spotwright.errors import SpotwrightError
from spotwright.model.attempts import Signals
from spotwright.simulation.attempt_model import AttemptModel, AttemptStart, Behavior
from spotwright.simulation.outputs import MakeOutputs, Outputs, declared_outputs
from spotwright.simulation.simulated_cluster import SimulatedCluster
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
)

__all__ = ["SimulatedAttempts", "Storage"]

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
    """What happened to an attempt before its end, perhaps before its start."""

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
    def now(self) -> float:
        """The present moment, Unix seconds."""
        return self.cluster.clock.now

    def key(self, task: str, number: int) -> AttemptKey:
        """The key of an attempt of this run in the supply."""
        return AttemptKey(self.run, task, number)

    def join(self) -> None:
        """Join the cluster; nothing if the run has joined already."""
        self.cluster.join(self.run, self._seed, self)

    def leave(self) -> None:
        """Leave the cluster. Attempts that still run are gone without a record."""
        self._live.clear()
        self.cluster.leave(self.run)
        for node, pool in list(self._nodes.items()):
            self._node_changed(node, pool, "gone", "the run is over, and the node stays")

    # -- deeds of the engine

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
        """Send SIGTERM because the attempt goes on elsewhere, and SIGKILL at ``ends_by``."""
        self._observations(key).moved = why
        self._terminate(key, ends_by)

    def kill_halted(self) -> None:
        """Send SIGKILL to every halted attempt that is live."""
        for key in self.live:
            if self._observations(key).halted:
                self._end(key, Signals(signal=_SIGKILL, cancelled=True))

    def end_unheard(self, key: AttemptKey) -> AttemptEnded:
        """End an attempt as lost, because no engine can watch it any more. Returns its record.

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
