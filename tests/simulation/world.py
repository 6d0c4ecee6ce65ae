"""The simulated cluster as the engine's world: one engine's view of the attempts of its run.

Effects start and stop attempts (:mod:`tests.simulation.simulated_attempts`), waiting moves the virtual clock. When an engine
crashes or detaches, the attempts go on; the world of the next engine recovers them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.simulation.simulated_attempts import SimulatedAttempts

from spotwright.engine.events import (
    AttemptBound,
    AttemptDecided,
    AttemptHalted,
    CacheAsked,
    CacheMissed,
    EnvironmentAsked,
    EnvironmentChanged,
    Event,
    NodeChanged,
    NoticeGiven,
    ProgressReported,
    TaskCached,
    TaskCompleted,
)
from spotwright.engine.io_resolution import inputs_of
from spotwright.engine.loop import AttemptQueue
from spotwright.engine.next_rung import effective_plan
from spotwright.engine.ports import Outcome
from spotwright.engine.state import RunState, TaskState
from spotwright.errors import SpotwrightError

__all__ = ["SimulatedWorld"]


class SimulatedWorld:
    """The world of one engine. The previous world of the same attempts must not be used any more.

    ``results`` are earlier results by task path, for runs with caching. With ``adopts`` the attempts of an earlier engine go on
    under this one, as in a cluster; without it they are ended and count as lost, as on one machine. ``on_facts`` is called at
    every new fact, for a caller that waits on behalf of several runs.
    """

    def __init__(
        self,
        attempts: SimulatedAttempts,
        *,
        results: Mapping[str, TaskCached] | None = None,
        adopts: bool = True,
        on_facts: Callable[[], None] = lambda: None,
    ) -> None:
        self.attempts, self.cluster, self.results = attempts, attempts.cluster, dict(results or {})
        self._adopts, self._on_facts = adopts, on_facts
        self._queue = AttemptQueue(self.cluster.supply, attempts.run)
        self._facts: list[Event] = []
        attempts.listener = self._hear
        attempts.join()

    # -- questions

    def has_room(self, pool: str) -> bool:
        """Whether the pool has a node with room, or could add one now."""
        return self.cluster.supply.has_room(pool)

    def why_pending(self, task: TaskState) -> str:
        """Why the task's newest attempt has no node yet."""
        return self.cluster.supply.why_pending(self.attempts.key(task.path, task.last.number))

    def node_on_its_way(self, task: TaskState) -> str:
        """The booting node that the task's newest attempt is to get; empty without one."""
        return self.cluster.supply.node_on_its_way(self.attempts.key(task.path, task.last.number))

    # -- an engine takes the run up

    def recover(self, state: RunState) -> list[Event]:
        """Settle the attempts of earlier engines: adopt live ones, report ended and lost ones, and what became of nodes."""
        supply, live = self.cluster.supply, self.attempts.live
        placements = supply.placements(self.attempts.run)
        facts: list[Event] = []
        for task in [state.tasks[path] for path in state.under_way]:
            key = self.attempts.key(task.path, task.last.number)
            if task.last.bound_at is None:
                continue
            if self._adopts and key in live:
                facts += self._adopted(task)
            else:
                facts.append(self.attempts.end_unheard(key).replaced(at=self._now, settled=True))
        for key in placements:
            if key not in self.attempts.live:
                supply.release(key, self._now)
        facts += self._changed_nodes(state)
        return facts

    def _changed_nodes(self, state: RunState) -> Iterator[Event]:
        """The facts about nodes from the time without an engine: those that came, are ready or are gone."""
        existing = self.cluster.supply.nodes()
        for known in state.nodes.values():
            if known.gone_at is None and known.name not in existing:
                yield NodeChanged(self._now, node=known.name, pool=known.pool, state="gone")
        for node in (existing[name] for name in self.attempts.nodes if name in existing):
            now = "ready" if node.ready else "booting"
            if node.name not in state.nodes or state.nodes[node.name].state != now:
                yield NodeChanged(self._now, node=node.name, pool=node.pool.name, state=now)

    def _adopted(self, task: TaskState) -> Iterator[Event]:
        """The facts about an adopted attempt from the time without an engine: its progress, a notice for its node."""
        key, attempt = self.attempts.key(task.path, task.last.number), task.last
        progress = self.attempts.progress_of(key)
        if progress is not None and progress != attempt.progress:
            yield ProgressReported(self._now, key.task, key.number, value=progress)
        node = self.cluster.supply.placements(key.run)[key]
        if node.goes_at is not None and attempt.noticed_at is None:
            yield NoticeGiven(self._now, node=node.name, goes_at=node.goes_at, attempts=((key.task, key.number),))

    def begin(self, state: RunState) -> None:
        """Queue the attempts that have no node."""
        self.cluster.supply.withdraw_run(self.attempts.run)
        for path in state.under_way:
            task = state.tasks[path]
            if task.last.bound_at is None:
                self._queue.submit(state, task)

    # -- turns

    def on_decisions(self, state: RunState, decisions: Sequence[Event]) -> list[Event]:
        """Apply decisions to the queue, look up earlier results, and bind attempts that fit now."""
        self._facts += [answer for event in decisions for answer in self._answers(event)]
        self._facts += self._queue.on_decisions(state, decisions, self._now)
        self.cluster.advance()
        return self.take_facts()

    def _answers(self, event: Event) -> Iterator[Event]:
        """The answer to a question: an earlier result or none; a Python environment, which is always ready in a simulation."""
        if isinstance(event, CacheAsked):
            result = self.results.get(event.task)
            missed = CacheMissed(event.at, event.task)
            yield missed if result is None else result.replaced(at=event.at, task=event.task)
        elif isinstance(event, EnvironmentAsked):
            yield EnvironmentChanged(event.at, event.task, state="ready")

    def prepare(self, _state: RunState, _event: EnvironmentAsked) -> Outcome:
        """Do nothing: a simulation builds no environments."""
        return None

    def start(self, state: RunState, event: AttemptBound) -> Outcome:
        """Start an attempt on its node."""
        task = state.tasks[event.task]
        self.attempts.start(task, inputs_of(state, task), event)
        return None

    def halt(self, state: RunState, event: AttemptHalted) -> Outcome:
        """Ask an attempt to end."""
        key = self.attempts.key(event.task, event.attempt)
        if event.moves:
            grace = effective_plan(state, state.tasks[event.task]).policy.grace_period / self.cluster.supply.scale
            self.attempts.move(key, event.why, self._now + grace)
        elif not self._queue.was_withdrawn(key):
            self.attempts.halt(key)
        return None

    def cleanup(self, _state: RunState, _event: AttemptDecided) -> Outcome:
        """Do nothing: a simulated attempt leaves nothing behind."""
        return None

    def complete(self, _state: RunState, _event: TaskCompleted) -> Outcome:
        """Do nothing: a simulation has no tasks without attempts."""
        return None

    def kill(self) -> None:
        """End halted attempts now."""
        self.attempts.kill_halted()

    def wait(self, until: float | None) -> list[Event]:
        """Let time pass until there are facts, or until the moment ``until``.

        Raises :class:`SpotwrightError` if neither can come: the run would wait for ever.
        """
        while True:
            self.cluster.advance()
            if self._facts or (until is not None and self._now >= until):
                return self.take_facts()
            moments = [m for m in (until, self.cluster.next_moment()) if m is not None]
            if not moments:
                raise SpotwrightError(
                    f"the simulated run {self.attempts.run} waits for ever: no further event can happen"
                )
            self.cluster.clock.move_to(min(moments))

    def take_facts(self) -> list[Event]:
        """The facts since the last call."""
        facts, self._facts = self._facts, []
        return facts

    def schedule(self, moment: float, make_fact: Callable[[float], Event]) -> None:
        """Schedule a fact for a moment (Unix seconds): a cancel, a stop, a note."""
        self.cluster.agenda.at(moment, lambda at: self._hear(make_fact(at)))

    # -- an engine lets the run go

    def detach(self) -> None:
        """Leave the attempts running; those without a node leave the queue until a later engine begins."""
        self.attempts.listener = None
        self.cluster.supply.withdraw_run(self.attempts.run)

    def close(self) -> list[Event]:
        """Leave the cluster, and end everything that the run has there."""
        self.attempts.leave()
        return self.take_facts()

    def _hear(self, fact: Event) -> None:
        self._facts.append(fact)
        self._on_facts()

    @property
    def _now(self) -> float:
        return self.cluster.clock.now
