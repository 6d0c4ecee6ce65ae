"""Narrate the events of a run in sentences, as they happen.

A run without a terminal prints these sentences; the live display shows the last ones about trouble. Events without news have no
sentence: an attempt that is placed and bound at once, a node that ends with its attempt. The decisions of a cluster's
descheduler have sentences too: recalled attempts, nodes that hold pods, deleted pods.

In a full history each event has a line, by :func:`event_text`, in the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spotwright.clouds.providers import commands_to_free
from spotwright.engine import events as ev
from spotwright.engine.events import (
    WORKLOAD_EVENTS,
    AttemptRecalled,
    AttemptReleased,
    EnvironmentChanged,
    Event,
    NoticeWithdrawn,
    PodStuckTerminating,
    RunStatus,
)
from spotwright.engine.state import AttemptState, RunState, TaskState
from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import FollowUp
from spotwright.views.text import after_cause, ended, last_words, plural, span
from spotwright.visible_text import visible

__all__ = ["Narrator", "Sentence", "event_text", "workload_sentence"]


_LARGE = 50  # in a loop with more iterations only troubles and every tenth iteration have sentences
_NAMED = 6  # tasks that are named at most; others are counted
_SHORTEST_WAIT = 0.05  # seconds; a shorter one is shown as none
_PROGRESS_EVERY = 0.25  # progress has a sentence at each quarter of the work ...
_PROGRESS_PAUSE = 10.0  # ... but at most once in this many seconds


class Sentence(NamedTuple):
    """One sentence about an event. ``offset``: seconds from the narrator's first event to this one."""

    offset: float
    text: str
    is_trouble: bool = False


class Narrator:
    """Narrates a run. It keeps track of the nodes, so give it every batch of events, in order.

    To join a running run, call :meth:`join` first. ``tells_all``: events without news have sentences too.
    """

    def __init__(self, *, tells_all: bool = False) -> None:
        self._tells_all = tells_all
        self._start: float | None = None
        self._ready: dict[str, str] = {}  # nodes that take work, with their pools
        self._on: dict[str, set[tuple[str, int]]] = {}  # the attempts on each node
        self._reported: dict[tuple[str, int], tuple[float, float]] = {}  # the last progress in a sentence, and its time
        self._noticed: set[str] = set()  # nodes under notice
        self._large: dict[str, set[int]] = {}  # large loops, with the iterations that have ended
        self._builds: dict[str, str] = {}  # by log: the first task that waits for the build; empty once it has ended

    def join(self, state: RunState) -> None:
        """Join a running run, without sentences about the past. Offsets count from the run's start."""
        self._start = state.started_at
        for node in state.nodes.values():
            if node.state == "ready":
                self._ready[node.name] = node.pool
            if node.noticed_at is not None:
                self._noticed.add(node.name)
        for path in state.under_way:
            attempt = state.tasks[path].last
            if attempt.node is not None:
                self._on.setdefault(attempt.node, set()).add((path, attempt.number))
        for path in state.preparing:
            environment = state.tasks[path].environment
            if environment is not None:
                self._builds.setdefault(environment.log, path)
        for path, task in state.tasks.items():
            if task.loop is not None and len(task.loop.items) > _LARGE:
                scopes = task.loop.scopes
                self._large[path] = {number for number, scope in enumerate(scopes) if scope.ended}

    def narrate(self, state: RunState, events: Sequence[Event]) -> Iterator[Sentence]:
        """The sentences of one batch of events, in order. ``state`` is that after the batch."""
        if self._start is None and events:
            self._start = events[0].at
            if not isinstance(events[0], ev.RunCreated):
                yield Sentence(0.0, visible(_resumed(state)))
        for event in events:
            texts = self.sentences(state, event)
            for text in self._shortened(state, event, texts) if self._large else texts:
                yield Sentence(event.at - (self._start or event.at), visible(text), _is_trouble(event))

    def sentences(self, state: RunState, event: Event) -> list[str]:
        """The sentences of one event, even inside large loops. ``state`` is that after it, or a later one."""
        narrate = self._BY_TYPE.get(type(event))
        told = narrate(self, state, event) if narrate is not None else _of_workload(event)
        return [text for text in told if text]

    def _shortened(self, state: RunState, event: Event, texts: list[str]) -> Iterator[str]:
        """The texts outside large loops; inside them only troubles, and a line for each tenth of the iterations."""
        task = state.tasks.get(event.task)
        scope = task.scope if task is not None else None
        while scope is not None and scope.owner is not None and scope.owner.path not in self._large:
            scope = scope.owner.scope
        if scope is None or scope.owner is None or scope.owner.loop is None or scope.place.iteration is None:
            yield from texts
            return
        if _is_trouble(event):
            yield from texts
        ended, count = self._large[scope.owner.path], len(scope.owner.loop.items)
        if scope.ended and scope.place.iteration not in ended:
            ended.add(scope.place.iteration)
            if len(ended) * 10 // count > (len(ended) - 1) * 10 // count:
                yield f"{scope.owner.path}: {len(ended):,} of {plural(count, 'iteration')} done"

    def _created(self, state: RunState, event: ev.RunCreated) -> Iterator[str]:
        scale = state.time_scale
        faster = f", waits pass {scale:g} times faster" if scale != 1 else ""
        seed = "" if event.meta.orchestrator else f", seed {event.meta.seed}"
        yield f"run {event.meta.run}: pipeline {event.meta.pipeline}{seed}{faster}"

    def _unfolded(self, state: RunState, event: ev.TasksUnfolded) -> Iterator[str]:
        if event.items is not None:
            if len(event.items) > _LARGE:
                self._large[event.task] = set()
            yield f"{event.task}: {plural(len(event.items), 'iteration')}"
            return
        task = state.tasks.get(event.task)
        scope = state.root if task is None else task.inside
        names = list(scope.place.dag.tasks) if scope is not None else []
        named = f": {', '.join(names)}" if len(names) <= _NAMED else ""
        held = "its condition holds, " if task is not None and task.plan.spec.condition is not None else ""
        yield f"{event.task + ': ' if event.task else ''}{held}{plural(len(names), 'task')}{named}"

    def _skipped(self, _state: RunState, event: ev.TaskSkipped) -> Iterator[str]:
        yield f"{event.task} is skipped: {event.why}"

    def _cached(self, _state: RunState, event: ev.TaskCached) -> Iterator[str]:
        origin = "" if event.of_task == event.task else f" of {event.of_task}"
        yield f"{event.task}: does not run, the result{origin} from run {event.run} is used"

    def _environment(self, state: RunState, event: EnvironmentChanged) -> Iterator[str]:
        """Narrate the build for only the first of several tasks with equal packages."""
        environment = (state.tasks.get(event.task) or state.retired[event.task]).environment
        if environment is None or environment.began_at is None:
            return
        if event.state == "building" and not self._builds.get(environment.log):
            self._builds[environment.log] = event.task
        if self._builds.get(environment.log) != event.task and not self._tells_all:
            return
        took = span(event.at - environment.began_at)
        if event.state == "building":
            yield f"{event.task}: its Python environment is being built, on no node: {', '.join(event.packages)}"
        elif event.state == "ready":
            yield f"{event.task}: its Python environment is ready after {took}"
        elif event.last_lines:
            yield f"{event.task}: the log of its environment ends after {took} with: {event.last_lines[-1].strip()}"
        if event.state != "building":
            self._builds[environment.log] = ""

    def _placed(self, _state: RunState, event: ev.AttemptPlaced) -> Iterator[str]:
        why = f" ({event.why})" if event.why else ""
        if why or self._tells_all or not any(pool in event.pools for pool in self._ready.values()):
            yield f"{event.task}: attempt {event.attempt} waits for a node of {' or '.join(event.pools)}{why}"

    def _moved(self, _state: RunState, event: ev.AttemptMoved) -> Iterator[str]:
        yield f"{event.task}: attempt {event.attempt} waits for {' or '.join(event.pools)} now: {event.why}"

    def _bound(self, state: RunState, event: ev.AttemptBound) -> Iterator[str]:
        node, pool = event.node, state.plan.config.pools.get(event.pool)
        self._on.setdefault(node, set()).add((event.task, event.attempt))
        kind = f" ({pool.capacity.value})" if pool is not None else ""
        yield f"{event.task}: attempt {event.attempt} runs{f' on {node}{kind}' if node else ''}"

    def _progress(self, state: RunState, event: ev.ProgressReported) -> Iterator[str]:
        key, value = (event.task, event.attempt), event.value
        last, at = self._reported.get(key, (0.0, _attempt(state, event).bound_at or event.at))
        quarter = value // _PROGRESS_EVERY * _PROGRESS_EVERY
        if self._tells_all or (quarter > last and event.at - at >= _PROGRESS_PAUSE):
            self._reported[key] = (quarter, event.at)
            yield f"{event.task}: attempt {event.attempt} has done {value:.0%}"

    def _notice(self, _state: RunState, event: ev.NoticeGiven) -> Iterator[str]:
        node = event.node
        self._noticed.add(node)
        attempts = ", ".join(f"{path} attempt {number}" for path, number in event.attempts)
        seconds = span(max(0.0, event.goes_at - event.at))
        yield f"{node} will be reclaimed in {seconds}, {event.why}{f'; notified {attempts}' if attempts else ''}"

    def _node(self, state: RunState, event: ev.NodeChanged) -> Iterator[str]:
        node, why = event.node, event.why
        if event.state == "ready":
            self._ready[node] = event.pool
            if self._tells_all:
                yield f"{node} is ready"
            return
        self._ready.pop(node, None)
        if event.state == "booting":
            yield f"{node} boots"
        elif self._tells_all or (
            not self._on.pop(node, None) and node not in self._noticed and state.status is RunStatus.RUNNING
        ):
            yield f"{node} is gone{f': {why}' if why else ''}"

    def _ended(self, state: RunState, event: ev.AttemptEnded) -> Iterator[str]:
        node = _attempt(state, event).node
        self._reported.pop((event.task, event.attempt), None)
        if node in self._on:
            self._on[node].discard((event.task, event.attempt))
        return iter(())

    def _decided(self, state: RunState, event: ev.AttemptDecided) -> Iterator[str]:
        attempt, cause = _attempt(state, event), event.cause
        if cause is not Cause.UNSCHEDULABLE:  # the decision below names every reason
            where = f" on {attempt.node}" if attempt.node else ""
            took = ""
            if cause is Cause.SUCCEEDED and attempt.runs_since is not None:
                took = f" after {span((attempt.ended_at or event.at) - attempt.runs_since)}"
            yield f"{event.task}: attempt {event.attempt}{where} {ended(cause, event.why, attempt.progress)}{took}"
        last_line = attempt.ended.last_line if attempt.ended is not None else ""
        if cause.is_error and last_line:
            yield f"{event.task}: its log ends with: {last_words(last_line)}"
        if event.then is FollowUp.RETRY:
            due = event.due if event.due is not None else event.at
            wait = f" after {span(due - event.at)}" if due - event.at >= _SHORTEST_WAIT else ""
            yield f"{event.task}: {event.following}{wait}"
        elif event.then is FollowUp.FAIL:
            yield f"{event.task} fails: {after_cause(cause, event.following)}"

    def _failed(self, _state: RunState, event: ev.TaskFailed) -> Iterator[str]:
        yield f"{event.task} fails: {event.why}"

    def _halt(self, _state: RunState, event: ev.AttemptHalted) -> Iterator[str]:
        what = "is moved" if event.moves else "is asked to stop:"
        yield f"{event.task}: attempt {event.attempt} {what} {event.why}"

    def _completed(self, _state: RunState, event: ev.TaskCompleted) -> Iterator[str]:
        yield f"{event.task}: done"

    def _cancel(self, _state: RunState, _event: ev.CancelRequested) -> Iterator[str]:
        yield "the run is being cancelled"

    def _stop(self, _state: RunState, event: ev.StopRequested) -> Iterator[str]:
        yield f"the engine stops: {event.why}"

    def _detached(self, _state: RunState, event: ev.EngineDetached) -> Iterator[str]:
        yield f"the engine leaves the run, and its attempts go on: {event.why}"

    def _expired(self, _state: RunState, event: ev.RunExpired) -> Iterator[str]:
        yield event.why

    def _finished(self, _state: RunState, event: ev.RunFinished) -> Iterator[str]:
        status, why = event.status.value, event.why
        yield (
            f"the run has {'been ' if status in ('cancelled', 'stopped') else ''}{status}" + (f": {why}" if why else "")
        )

    def _note(self, _state: RunState, event: ev.NoteAdded) -> Iterator[str]:
        yield f"note: {event.text}"

    _BY_TYPE: Mapping[type[Event], Callable[[Narrator, RunState, Any], Iterator[str]]] = {
        ev.RunCreated: _created,
        ev.CancelRequested: _cancel,
        ev.StopRequested: _stop,
        ev.RunExpired: _expired,
        ev.EngineDetached: _detached,
        ev.RunFinished: _finished,
        ev.NoteAdded: _note,
        ev.TasksUnfolded: _unfolded,
        ev.TaskSkipped: _skipped,
        ev.TaskCached: _cached,
        EnvironmentChanged: _environment,
        ev.TaskCompleted: _completed,
        ev.TaskFailed: _failed,
        ev.AttemptPlaced: _placed,
        ev.AttemptMoved: _moved,
        ev.AttemptBound: _bound,
        ev.ProgressReported: _progress,
        ev.NoticeGiven: _notice,
        ev.NodeChanged: _node,
        ev.AttemptEnded: _ended,
        ev.AttemptDecided: _decided,
        ev.AttemptHalted: _halt,
    }


_TROUBLE = (
    AttemptRecalled,
    PodStuckTerminating,
    AttemptReleased,
    ev.AttemptMoved,
    ev.NoticeGiven,
    ev.AttemptDecided,
    ev.TaskFailed,
    ev.AttemptHalted,
    ev.CancelRequested,
    ev.StopRequested,
    ev.RunExpired,
    ev.EngineDetached,
)


def _is_trouble(event: Event) -> bool:
    is_success = isinstance(event, ev.AttemptDecided) and event.cause is Cause.SUCCEEDED
    failed_build = isinstance(event, EnvironmentChanged) and event.state == "failed"
    return failed_build or (isinstance(event, _TROUBLE) and not is_success)


def _of_workload(event: Event) -> list[str]:
    """The sentence of an event that occurs only in a cluster; empty for other events without a sentence."""
    if not isinstance(event, WORKLOAD_EVENTS):
        return []

    return [workload_sentence(event)]


def event_text(state: RunState, event: Event) -> str:
    """One line about any event, for a full history: its sentences, else what happened.

    ``state`` is that of the run after the event, or any later one.
    """
    told = Narrator(tells_all=True).sentences(state, event)
    if told:
        return "; ".join(told)
    text = _WITHOUT_SENTENCE.get(type(event))
    if text is None:
        return ""
    return f"{event.task}: {text(event)}" if event.task else text(event)


def _room(event: ev.SnapshotTaken) -> str:
    """The backend's answer before a decision."""
    answers = [f"{pool} has {'room' if room else 'no room'}" for pool, room in event.room.items()]
    answers += [f"{task} waits: {why}" for task, why in event.waiting.items()]
    answers += [f"{node} is on its way for {task}" for task, node in event.coming.items()]
    return f"asked before a decision: {', '.join(answers)}"


_WITHOUT_SENTENCE: Mapping[type[Event], Callable[[Any], str]] = {
    ev.EngineStarted: lambda event: f"engine {event.epoch} takes the run",
    ev.RunReset: lambda _: "what has not succeeded runs again, with new budgets",
    ev.CacheAsked: lambda _: "an earlier result is looked up",
    ev.CacheMissed: lambda _: "no earlier result",
    ev.EnvironmentAsked: lambda _: "its Python environment is asked for",
    EnvironmentChanged: lambda event: f"its Python environment is {event.state}",
    ev.AttemptEnded: lambda event: f"attempt {event.attempt} has ended",
    ev.AttemptKept: lambda event: f"attempt {event.attempt} {event.why or 'stays'}",
    ev.AttemptAdopted: lambda event: f"attempt {event.attempt} is made{f': {event.why}' if event.why else ''}",
    ev.AttemptWaits: lambda event: (
        f"attempt {event.attempt} {f'waits: {event.why}' if event.why else 'is held up no more'}"
    ),
    PodStuckTerminating: lambda event: f"no node holds the pod of attempt {event.attempt} any more",
    ev.SnapshotTaken: _room,
    ev.MarketKnown: lambda event: (
        "what this run has seen of spot is kept for later runs"
        if event.own
        else f"what {plural(event.runs, 'earlier run')} saw of spot is known"
    ),
    ev.PlanExtended: lambda event: (
        f"version {event.version} of the plan is in force" if event.version else _more_known(event)
    ),
    ev.OutputsRead: lambda _: "more of its outputs are known",
}
"""What happened, for kinds of event that may lack a sentence."""


def _more_known(event: ev.PlanExtended) -> str:
    if event.pool:
        return f"pool {event.pool} was found: {'spot' if event.is_spot else 'on-demand'}"
    return f"more is known of template {event.template['name']}"


def _resumed(state: RunState) -> str:
    done = sum(task.status.is_good for task in state.tasks.values())
    return f"run {state.meta.run} goes on: {done:,} of {plural(len(state.tasks), 'task')} done"


def _attempt(state: RunState, event: Event) -> AttemptState:
    """The attempt of an event. A reset in the same batch may have retired its task."""
    task: TaskState = state.tasks.get(event.task) or state.retired[event.task]
    return task.attempts[event.attempt - 1]


def workload_sentence(event: Event) -> str:
    """The sentence of an orchestrator's event; empty for events without one."""
    if isinstance(event, AttemptRecalled):
        pools = ", ".join(event.left_out)
        left_out = f"; {pools} {'is' if len(event.left_out) == 1 else 'are'} left out for a while" if pools else ""
        return f"{event.task}: attempt {event.attempt} is recalled: {event.why}{left_out}"
    if isinstance(event, PodStuckTerminating) and event.node:
        taint, delete = commands_to_free(event.node)
        held = f"{event.task}: node {event.node} does not report and holds the pod of attempt {event.attempt}"
        return f"{held}; if its machine is gone: {taint}, or {delete}"
    if isinstance(event, AttemptReleased):
        return f"{event.task}: the pod of attempt {event.attempt} is deleted: {event.why}"
    if isinstance(event, NoticeWithdrawn):
        return f"{event.node} stays: the provider has withdrawn its notice"
    return ""
