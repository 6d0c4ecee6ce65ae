"""This machine as the engine's backend: real processes on simulated nodes, in real time.

The :class:`~spotwright.supply.simulated_pools.Supply` decides which node an attempt gets and when it is reclaimed; the
:class:`~spotwright.local.attempt_processes.AttemptProcesses` run the attempts. This module joins the two: a binding
starts a process, a notice becomes a file, the end of a node becomes SIGKILL, an exit record becomes the signals of an ended
attempt. Everything waits in one selector, so an idle run uses no CPU.

A rehearsal removes further nodes at chosen moments, through the port for faults.
"""

from __future__ import annotations

import selectors
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple, Protocol

from spotwright.engine.events import (
    AttemptBound,
    AttemptDecided,
    AttemptHalted,
    CacheAsked,
    EnvironmentAsked,
    Event,
    NodeChanged,
    NoticeGiven,
    ProgressReported,
    TaskCompleted,
)
from spotwright.engine.loop import AttemptQueue
from spotwright.engine.next_rung import effective_plan
from spotwright.engine.ports import Clock, Outcome
from spotwright.engine.state import RunState, TaskState
from spotwright.errors import SpotwrightError
from spotwright.local.attempt_orders import AttemptPaths, attempt_key, start_order, write_notice
from spotwright.local.attempt_processes import AttemptProcesses
from spotwright.local.ends import ObservedEnd, ended_event, hide_secrets, keep_reason
from spotwright.local.fork_server_client import EarlyServer, ForkServer
from spotwright.local.imds_client import MetadataServers, has_metadata_server
from spotwright.local.pod_environment import deleted_pvc
from spotwright.local.progress_watch import ProgressWatch
from spotwright.local.protocol import Ended, Started, StartFailed, StartOrder
from spotwright.local.python_envs import TaskEnvironments
from spotwright.local.result_cache import ResultCache, Results
from spotwright.local.supervisor.process_identity import marks
from spotwright.model.pools import Pool, Trace
from spotwright.scheduling.budgets import FollowUp
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
from spotwright.supply.simulated_pools import Supply

__all__ = [
    "EngineSide",
    "InterruptionSource",
    "LocalBackend",
    "LocalHooks",
    "Machine",
    "MakeInterruptions",
    "NodeRemoval",
    "open_backend",
]


class NodeRemoval(NamedTuple):
    """The provider reclaims the node of this attempt after ``notice`` seconds; zero: at once.

    With ``drain`` Kubernetes moves the attempts off the node instead, as ``kubectl drain`` does. With ``of_part`` the source of
    interruptions has ended some of the attempt's processes, which represent nodes: the attempt may continue, and its end counts
    as interrupted.
    """

    key: AttemptKey
    notice: float
    why: str
    drain: bool = False
    of_part: bool = False


class InterruptionSource(Protocol):
    """Receives the attempts' events and decides whose node is removed. Moments are by the backend's clock.

    A source that is woken from outside must also wake the backend's selector.
    """

    def starting(self, key: AttemptKey, order: StartOrder) -> StartOrder:
        """An attempt is about to start with this order. Returns the order to start it with."""

    def started(self, key: AttemptKey, shim: int) -> None:
        """The attempt runs under the shim of this pid."""

    def reported(self, key: AttemptKey, progress: float) -> None:
        """The attempt reported its progress."""

    def ended(self, key: AttemptKey) -> None:
        """All processes of the attempt have ended."""

    def next_moment(self) -> float | None:
        """When :meth:`due` or :meth:`requests` has something new without another event; ``None``: never."""

    def requests(self, now: float) -> list[Event]:
        """Requests to the run, as facts: a cancel, a stop."""

    def due(self, now: float) -> list[NodeRemoval]:
        """The nodes to remove now."""

    def performed(self) -> None:
        """The due removals are done: notices are written, attempts without notice are being killed."""


PROGRESS_STEP = 0.05
"""The least change of progress that is written to the journal."""

DEADLINE_STEP = 0.005
"""The same under a deadline: decisions count work between two reports as unsaved, and keep slack for it."""

_LONGEST_WAIT = 86_400.0  # seconds of one wait: selectors accept at most 24 days, and a node may live for years

HALT_GRACE = 10.0
"""Seconds that a stopped run waits for its attempts after SIGTERM; less if their grace period is shorter."""


class Machine(NamedTuple):
    """The run's processes, the watch on their progress, and the selector of both.

    ``metadata`` are the metadata servers of nodes with a cloud provider, if the run has such pools. ``server`` returns a fork
    server that was started early, or ``None``.
    """

    selector: selectors.BaseSelector
    processes: AttemptProcesses
    watch: ProgressWatch
    metadata: MetadataServers | None = None
    server: Callable[[], ForkServer | None] = lambda: None


class LocalBackend:
    """The local backend of one run. ``outside_facts`` returns the stops and requests since its last call."""

    def __init__(
        self,
        machine: Machine,
        supply: Supply,
        paths: AttemptPaths,
        clock: Clock,
        *,
        pools: Mapping[str, Pool],
        results: Results | None = None,
        outside_facts: Callable[[], list[Event]] = list,
        interruptions: InterruptionSource | None = None,
    ) -> None:
        self._selector, self._processes, self._watch = machine.selector, machine.processes, machine.watch
        self._supply, self._paths, self._clock = supply, paths, clock
        self._pools, self._outside_facts = pools, outside_facts
        self._results = ResultCache(results, paths.run, paths.secrets)
        self._environments = TaskEnvironments(machine.processes.builds, clock)
        self._interruptions, self._metadata, self._server = interruptions, machine.metadata, machine.server
        self._recovered = False
        self._facts: list[Event] = []
        self._queue = AttemptQueue(supply, paths.run)
        self._observed: dict[AttemptKey, ObservedEnd] = {}
        self._tasks: dict[str, TaskState] = {}
        self._progress: dict[AttemptKey, float] = {}
        self._kills: dict[AttemptKey, float] = {}
        self._nodes: dict[AttemptKey, str] = {}

    def _key(self, task: str, number: int) -> AttemptKey:
        return AttemptKey(self._paths.run, task, number)

    # -- the engine's side

    def why_pending(self, task: TaskState) -> str:
        """Why the newest attempt of a task has no node yet."""
        return self._supply.why_pending(self._key(task.path, task.last.number))

    def node_on_its_way(self, task: TaskState) -> str:
        """The booting node for the task's newest attempt; empty without one."""
        return self._supply.node_on_its_way(self._key(task.path, task.last.number))

    def has_room(self, pool: str) -> bool:
        """Whether a node of the pool is available now."""
        return self._supply.has_room(pool)

    def on_decisions(self, state: RunState, decisions: Sequence[Event]) -> list[Event]:
        """Queue and withdraw attempts, look up earlier results and environments, and bind waiting attempts to free room."""
        for event in decisions:
            if isinstance(event, CacheAsked):
                self._facts.append(self._results.look_up(state, event))
            elif isinstance(event, EnvironmentAsked):
                self._facts.append(self._environments.look_up(state, event))
        self._facts += self._queue.on_decisions(state, decisions, self._clock())
        self._advance()
        facts, self._facts = self._facts, []
        return facts

    def wait(self, until: float | None) -> list[Event]:
        """Block until there are facts, or until the moment ``until``."""
        while True:
            self._collect()
            if self._facts:
                facts, self._facts = self._facts, []
                return facts
            now = self._clock()
            if until is not None and now >= until:
                return []
            removal = self._interruptions.next_moment() if self._interruptions is not None else None
            moments = [m for m in (until, removal, self._supply.next_moment(), *self._kills.values()) if m is not None]
            timeout = min(max(0.0, min(moments) - now), _LONGEST_WAIT) if moments else None
            for key, _ in self._selector.select(timeout):
                self._serve(key)

    def recover(self, state: RunState) -> list[Event]:
        """Settle the attempts of earlier engines: ends since then count, running attempts are ended, their nodes are gone."""
        self._recovered = True
        from spotwright.local.recovery import settle_run

        return settle_run(state, self._paths)

    def begin(self, state: RunState) -> None:
        """Continue the run: queue the attempts that waited for a node when the last engine ended."""
        if self._recovered:
            from spotwright.local.recovery import hide_secrets_everywhere

            hide_secrets_everywhere(state, self._paths)
        self._processes.warm(self._server())
        for path in state.under_way:
            task = state.tasks[path]
            if task.last.bound_at is None:
                self._queue.submit(state, task)

    def detach(self) -> None:
        """Let attempts continue under their shims. The next engine counts those that finish and ends the others."""
        self._processes.detach()
        self._watch.close()

    def close(self) -> list[Event]:
        """End all running attempts and give the nodes back."""
        self._processes.close()
        self._watch.close()
        self._apply(self._supply.close())
        facts, self._facts = self._facts, []
        return facts

    # -- effects

    def prepare(self, state: RunState, event: EnvironmentAsked) -> Outcome:
        """Build the Python environment of a task that waits for it."""
        return self._environments.build(state, event)

    def start(self, state: RunState, event: AttemptBound) -> Outcome:
        """Start the attempt's process, unless its node is gone already."""
        task, key = state.tasks[event.task], self._key(event.task, event.attempt)
        observed = self._observed.setdefault(key, ObservedEnd())
        self._tasks[event.task] = task
        self._nodes[key] = event.node
        pool = self._pools[event.pool]
        observed.spot = pool.is_spot
        if observed.node_gone:
            self._end(key, None)
            return None
        try:
            metadata_environment = self._metadata.environment(event.node) if self._metadata is not None else None
            order = start_order(state, task, self._paths, pool, self._supply.scale, metadata_environment)
        except SpotwrightError as error:
            self._end(key, None, start_error=str(error))
            return None
        self._watch.add(event.task, event.attempt, order.directory)
        self._processes.order(order if self._interruptions is None else self._interruptions.starting(key, order))
        return None

    def halt(self, state: RunState, event: AttemptHalted) -> Outcome:
        """SIGTERM now, SIGKILL after the grace period; no signal for an attempt that only waited for a node."""
        key = self._key(event.task, event.attempt)
        if event.moves:
            grace = effective_plan(state, state.tasks[event.task]).policy.grace_period / self._supply.scale
            self._move(key, event.why, self._clock() + grace)
            return None
        if self._queue.was_withdrawn(key):
            return None
        observed = self._observed.setdefault(key, ObservedEnd())
        observed.cancelled, observed.only_stopped = True, not state.cancelling
        grace = min(HALT_GRACE, effective_plan(state, state.tasks[event.task]).policy.grace_period)
        self._kills[key] = self._clock() + grace
        self._processes.terminate(attempt_key(key.task, key.number))
        return None

    def cleanup(self, state: RunState, event: AttemptDecided) -> Outcome:
        """Hide secrets in the attempt's outputs, and keep the result of a success."""
        if self._paths.secrets:
            hide_secrets(self._paths.attempt(event.task, event.attempt), self._paths.secrets)
        if event.then is FollowUp.SUCCEED:
            self._results.keep(state, state.tasks[event.task])
        return None

    def complete(self, state: RunState, event: TaskCompleted) -> Outcome:
        """Delete the folder of a volume claim that the pipeline deletes."""
        claim = deleted_pvc(state, state.tasks[event.task])
        if claim:
            self._paths.volumes.delete(state, claim)
        return None

    def kill(self) -> None:
        """End the grace periods of halted attempts now."""
        for key in self._kills:
            self._kills[key] = 0.0

    # -- facts

    def _serve(self, key: selectors.SelectorKey) -> None:
        """Drain a ready descriptor. :meth:`_collect` reads the resulting facts afterwards, all in one place."""
        if callable(key.data):
            key.data()

    def _collect(self) -> None:
        now = self._clock()
        self._facts += self._outside_facts()
        self._facts += self._environments.take_facts()
        for event in self._processes.pump():
            self._process(event)
        for task, number, value in self._watch.changes():
            self._report(task, number, value, now)
        if self._interruptions is not None:
            self._interrupt(self._interruptions)
        if self._metadata is not None:
            for node in self._metadata.approved():
                self._supply.approve(node)
        self._advance()
        for key, at in list(self._kills.items()):
            if at <= now:
                self._kill(key)

    def _advance(self) -> None:
        self._apply(self._supply.advance(self._clock()))
        if self._interruptions is not None:
            self._interruptions.performed()

    def _interrupt(self, interruptions: InterruptionSource) -> None:
        """Remove the nodes that the interruption source names, and pass on its requests."""
        now = self._clock()
        self._facts += interruptions.requests(now)
        for removal in interruptions.due(now):
            if removal.of_part:
                self._observed.setdefault(removal.key, ObservedEnd()).noticed = True
            elif removal.drain:
                self._supply.drain(self._nodes[removal.key], removal.why, now)
            else:
                self._supply.take(removal.key, removal.notice, removal.why, now)

    def _process(self, event: Started | Ended | StartFailed) -> None:
        path, _, number = event.key.rpartition("#")
        key = self._key(path, int(number))
        if isinstance(event, Started):
            if self._interruptions is not None:
                self._interruptions.started(key, event.pid)
            return
        if isinstance(event, Ended):
            self._end(key, event)
        elif event.ours:
            self._end(key, None)
        else:
            self._end(key, None, start_error=keep_reason(self._paths.attempt(key.task, key.number), event.reason))

    def _end(self, key: AttemptKey, ended: Ended | None, *, start_error: str = "") -> None:
        now = self._clock()
        if self._interruptions is not None:
            self._interruptions.ended(key)
        task = self._tasks.pop(key.task)
        self._watch.remove(key.task, key.number)
        self._kills.pop(key, None)
        self._nodes.pop(key, None)
        folder = self._paths.attempt(key.task, key.number)
        record = ended.record if ended is not None else None
        observed = self._observed.pop(key, ObservedEnd())
        observed.reported = self._progress.pop(key, None) is not None
        event = ended_event(
            now, (key.task, key.number), task.plan.spec, folder, record, observed, self._paths, start_error=start_error
        )
        self._facts.append(event)

    def _report(self, task: str, number: int, value: float, now: float) -> None:
        key = self._key(task, number)
        self._supply.report(key, value, now)
        if self._interruptions is not None:
            self._interruptions.reported(key, value)
        last = self._progress.get(key)
        step = PROGRESS_STEP if self._tasks[task].plan.policy.deadline is None else DEADLINE_STEP
        if last is None or abs(value - last) >= step:
            self._progress[key] = value
            self._facts.append(ProgressReported(now, task, number, value=value))

    def _apply(self, events: list[SupplyEvent]) -> None:
        for event in events:
            self._ON[type(event)](self, event)

    def _node_event(self, name: str, pool: str, state: str, why: str = "") -> None:
        self._facts.append(NodeChanged(self._clock(), node=name, pool=pool, state=state, why=why))

    def _on_booting(self, event: NodeBooting) -> None:
        if self._metadata is not None:
            self._metadata.boot(event.node, self._pools[event.pool])
        self._node_event(event.node, event.pool, "booting")

    def _on_ready(self, event: NodeReady) -> None:
        self._node_event(event.node, event.pool, "ready")

    def _on_bound(self, event: Bound) -> None:
        key = event.key
        self._facts.append(AttemptBound(self._clock(), key.task, key.number, node=event.node, pool=event.pool))

    def _on_noticed(self, event: Noticed) -> None:
        now = self._clock()
        if self._metadata is not None:
            self._metadata.notice(event.node, event.goes_at - now)
        for key in event.keys:
            self._observed.setdefault(key, ObservedEnd()).noticed = True
            if key.task in self._tasks:
                write_notice(self._paths.attempt(key.task, key.number), now, event.goes_at, event.why)
        attempts = tuple((key.task, key.number) for key in event.keys)
        self._facts.append(NoticeGiven(now, node=event.node, goes_at=event.goes_at, attempts=attempts, why=event.why))

    def _on_sigterm_due(self, event: SigtermDue) -> None:
        if event.key.task in self._tasks:
            self._processes.terminate(attempt_key(event.key.task, event.key.number))

    def _on_evicted(self, event: Evicted) -> None:
        """Kubernetes moves the attempt: SIGTERM now, SIGKILL at the end of its grace period. The node stays."""
        self._move(event.key, event.why, event.ends_by)

    def _move(self, key: AttemptKey, why: str, ends_by: float) -> None:
        self._observed.setdefault(key, ObservedEnd()).moved = why
        if key.task in self._tasks:
            self._kills[key] = ends_by
            self._processes.terminate(attempt_key(key.task, key.number))

    def _on_gone(self, event: NodeGone) -> None:
        if self._metadata is not None:
            self._metadata.gone(event.node)
        self._node_event(event.node, event.pool, "gone", event.why)
        for key in event.keys:
            observed = self._observed.setdefault(key, ObservedEnd())
            observed.node_gone = True
            if key.task in self._tasks:
                self._kill(key)

    def _kill(self, key: AttemptKey) -> None:
        self._kills.pop(key, None)
        self._nodes.pop(key, None)
        self._observed.setdefault(key, ObservedEnd()).killed = True
        self._processes.kill(attempt_key(key.task, key.number))

    _ON: Mapping[type, Callable[[LocalBackend, Any], None]] = {
        NodeBooting: _on_booting,
        NodeReady: _on_ready,
        Bound: _on_bound,
        Noticed: _on_noticed,
        SigtermDue: _on_sigterm_due,
        Evicted: _on_evicted,
        NodeGone: _on_gone,
    }


MakeInterruptions = Callable[[selectors.BaseSelector, Clock], InterruptionSource]
"""Makes the interruption source of a rehearsal from the run's selector and clock."""


class LocalHooks(NamedTuple):
    """Optional parts of a run on this machine: a fork server that was started early, and a source of interruptions."""

    server: EarlyServer | None = None
    interruptions: MakeInterruptions | None = None


class EngineSide(NamedTuple):
    """The engine's parts for its backend: the selector in which everything waits, the clock, and the facts from outside.

    ``facts`` returns the stops and requests since its last call.
    """

    selector: selectors.BaseSelector
    clock: Clock
    facts: Callable[[], list[Event]]


@contextmanager
def open_backend(
    engine: EngineSide,
    paths: AttemptPaths,
    state: RunState,
    pools: Mapping[str, Pool],
    traces: Mapping[str, Trace],
    results: Results | None,
    hooks: LocalHooks,
) -> Iterator[LocalBackend]:
    """The backend of one run on this machine."""
    meta, selector, clock = state.meta, engine.selector, engine.clock
    made = Counter(node.pool for node in state.nodes.values())
    supply = Supply(pools, seed=meta.seed, scale=meta.time_scale, now=clock(), traces=traces, made=made)
    with (
        closing(AttemptProcesses(selector, run=paths.run, folder=paths.folder)) as processes,
        _metadata(selector, paths, pools, meta.time_scale) as metadata,
    ):
        server = hooks.server.take if hooks.server is not None else _no_server
        machine = Machine(selector, processes, ProgressWatch(selector), metadata, server)
        interruptions = hooks.interruptions(selector, clock) if hooks.interruptions is not None else None
        yield LocalBackend(
            machine,
            supply,
            paths,
            clock,
            pools=pools,
            results=results,
            outside_facts=engine.facts,
            interruptions=interruptions,
        )


def _no_server() -> None:
    return None


@contextmanager
def _metadata(
    selector: selectors.BaseSelector, paths: AttemptPaths, pools: Mapping[str, Pool], scale: float
) -> Iterator[MetadataServers | None]:
    """The metadata servers for nodes with a cloud provider; ``None`` if the run has no such pool."""
    if not any(has_metadata_server(pool) for pool in pools.values()):
        yield None
        return
    with closing(MetadataServers(selector, marks(paths.run, paths.folder), scale=scale)) as metadata:
        yield metadata
