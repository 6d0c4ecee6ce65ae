"""What happens in a run, one sentence per event that means something to people, as it happens.

The lines of a run without a terminal are these sentences; the live display shows the last of them. An event that only leads to
another one (an attempt that is placed and bound at once, a node that goes with the attempt on it) says nothing of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from spotwright.engine.events import Event
from spotwright.engine.state import AttemptState, RunState, RunStatus, TaskState
from spotwright.model.attempts import Cause
from spotwright.views.words import ended, plural, span

__all__ = ["Narrator", "Said"]

_LARGE = 50  # a loop of more iterations is told by tenths, with what goes wrong in it
_NAMED = 6  # how many tasks are named before they are only counted
_PROGRESS_EVERY = 0.25  # progress is said at each quarter of the work ...
_PROGRESS_PAUSE = 10.0  # ... but not more often than this, seconds


class Said(NamedTuple):
    """One sentence, when it was true (seconds since the engine began), and whether it is about something that went wrong."""

    offset: float
    text: str
    is_trouble: bool = False


class Narrator:
    """Tells a run. It remembers who is on which node, so feed it every batch of events, in order."""

    def __init__(self) -> None:
        self._start: float | None = None
        self._ready: dict[str, str] = {}  # nodes that take work, with their pools
        self._on: dict[str, set[tuple[str, int]]] = {}  # the attempts on each node
        self._told: dict[tuple[str, int], tuple[float, float]] = {}  # progress that was said, and when
        self._noticed: set[str] = set()  # nodes that are known to go
        self._large: dict[str, set[int]] = {}  # large loops, with the iterations that have ended

    def tell(self, state: RunState, events: Sequence[Event]) -> Iterator[Said]:
        """The sentences of one batch of events, in order. ``state`` is that after the batch."""
        if self._start is None and events:
            self._start = events[0].at
            if events[0].kind != "created":
                yield Said(0.0, _goes_on(state))
        for event in events:
            teller = _TELLERS.get(event.kind)
            texts = list(teller(self, state, event)) if teller is not None else []
            for text in self._of_large_loop(state, event, texts) if self._large else texts:
                yield Said(event.at - (self._start or event.at), text, event.kind in _TROUBLE and not _went_well(event))

    def _of_large_loop(self, state: RunState, event: Event, texts: list[str]) -> Iterator[str]:
        """In a large loop only what goes wrong is told, and each tenth of its iterations that has ended."""
        task = state.tasks.get(event.task)
        scope = task.scope if task is not None else None
        while scope is not None and scope.owner is not None and scope.owner.path not in self._large:
            scope = scope.owner.scope
        if scope is None or scope.owner is None or scope.owner.loop is None or scope.place.iteration is None:
            yield from texts
            return
        if event.kind in _TROUBLE and not _went_well(event):
            yield from texts
        ended, all_of_them = self._large[scope.owner.path], len(scope.owner.loop.items)
        if scope.ended and scope.place.iteration not in ended:
            ended.add(scope.place.iteration)
            if len(ended) * 10 // all_of_them > (len(ended) - 1) * 10 // all_of_them:
                yield f"{scope.owner.path}: {len(ended):,} of {plural(all_of_them, 'iteration')} done"

    def _created(self, state: RunState, event: Event) -> Iterator[str]:
        scale = state.time_scale
        faster = f", waits pass {scale:g} times faster" if scale != 1 else ""
        yield f"run {event.data.get('run', '')}: pipeline {event.data.get('pipeline', '')}, seed {event.data.get('seed')}{faster}"

    def _unfolded(self, state: RunState, event: Event) -> Iterator[str]:
        if "items" in event.data:
            if len(event.data["items"]) > _LARGE:
                self._large[event.task] = set()
            yield f"{event.task}: {plural(len(event.data['items']), 'iteration')}"
            return
        task = state.tasks.get(event.task)
        scope = state.root if task is None else task.inside
        names = list(scope.place.dag.tasks) if scope is not None else []
        named = f": {', '.join(names)}" if len(names) <= _NAMED else ""
        held = "its condition holds, " if task is not None and task.plan.spec.condition is not None else ""
        yield f"{event.task + ': ' if event.task else ''}{held}{plural(len(names), 'task')}{named}"

    def _skipped(self, _state: RunState, event: Event) -> Iterator[str]:
        yield f"{event.task} is skipped: {event.data['why']}"

    def _cached(self, _state: RunState, event: Event) -> Iterator[str]:
        origin = "" if event.data["task"] == event.task else f" of {event.data['task']}"
        yield f"{event.task}: does not run, the result{origin} from run {event.data['run']} is used"

    def _placed(self, _state: RunState, event: Event) -> Iterator[str]:
        why = f" ({event.data['why']})" if event.data.get("why") else ""
        if why or not any(pool in event.data["pools"] for pool in self._ready.values()):
            yield f"{event.task}: attempt {event.attempt} waits for a node of {' or '.join(event.data['pools'])}{why}"

    def _moved(self, _state: RunState, event: Event) -> Iterator[str]:
        yield f"{event.task}: attempt {event.attempt} waits for {' or '.join(event.data['pools'])} now: {event.data['why']}"

    def _bound(self, state: RunState, event: Event) -> Iterator[str]:
        node, pool = event.data["node"], state.plan.config.pools.get(event.data["pool"])
        self._on.setdefault(node, set()).add((event.task, event.attempt))
        kind = f" ({pool.capacity.value})" if pool is not None else ""
        yield f"{event.task}: attempt {event.attempt} runs on {node}{kind}"

    def _progress(self, state: RunState, event: Event) -> Iterator[str]:
        key, value = (event.task, event.attempt), event.data["value"]
        told, at = self._told.get(key, (0.0, _attempt(state, event).bound_at or event.at))
        quarter = value // _PROGRESS_EVERY * _PROGRESS_EVERY
        if quarter > told and event.at - at >= _PROGRESS_PAUSE:
            self._told[key] = (quarter, event.at)
            yield f"{event.task}: attempt {event.attempt} has done {value:.0%}"

    def _notice(self, _state: RunState, event: Event) -> Iterator[str]:
        node = event.data["node"]
        self._noticed.add(node)
        told = ", ".join(f"{path} attempt {number}" for path, number in event.data["attempts"])
        seconds = span(max(0.0, event.data["goes_at"] - event.at))
        yield f"{node} will be taken in {seconds}, {event.data['why']}{f': {told} is told' if told else ''}"

    def _node(self, state: RunState, event: Event) -> Iterator[str]:
        node, why = event.data["node"], event.data.get("why", "")
        if event.data["state"] == "ready":
            self._ready[node] = event.data["pool"]
            return
        self._ready.pop(node, None)
        if event.data["state"] == "booting":
            yield f"{node} boots"
        elif not self._on.pop(node, None) and node not in self._noticed and state.status is RunStatus.RUNNING:
            yield f"{node} is gone{f': {why}' if why else ''}"

    def _ended(self, state: RunState, event: Event) -> Iterator[str]:
        node = _attempt(state, event).node
        self._told.pop((event.task, event.attempt), None)
        if node in self._on:
            self._on[node].discard((event.task, event.attempt))
        return iter(())

    def _decided(self, state: RunState, event: Event) -> Iterator[str]:
        attempt, cause = _attempt(state, event), Cause(event.data["cause"])
        if cause is not Cause.UNSCHEDULABLE:  # what follows says all of it
            where = f" on {attempt.node}" if attempt.node else ""
            took = ""
            if cause is Cause.SUCCEEDED and attempt.bound_at is not None:
                took = f" after {span(event.at - attempt.bound_at)}"
            yield f"{event.task}: attempt {event.attempt}{where} {ended(cause, event.data['why'], attempt.progress)}{took}"
        last_line = (attempt.ended or {}).get("last_line", "")
        if cause.is_error and last_line:
            yield f"{event.task}: its log ends with: {last_line}"
        if event.data["then"] == "retry":
            due = event.data.get("due")
            wait = f" after {span(due - event.at)}" if due is not None else ""
            yield f"{event.task}: {event.data['next']}{wait}"
        elif event.data["then"] == "fail":
            yield f"{event.task} fails: {event.data['next']}"

    def _failed(self, _state: RunState, event: Event) -> Iterator[str]:
        yield f"{event.task} fails: {event.data['why']}"

    def _halt(self, _state: RunState, event: Event) -> Iterator[str]:
        yield f"{event.task}: attempt {event.attempt} is told to stop: {event.data['why']}"

    def _completed(self, _state: RunState, event: Event) -> Iterator[str]:
        yield f"{event.task}: done"

    def _cancel(self, _state: RunState, _event: Event) -> Iterator[str]:
        yield "the run is being cancelled"

    def _stop(self, _state: RunState, event: Event) -> Iterator[str]:
        yield f"the engine stops: {event.data['why']}"

    def _expired(self, _state: RunState, event: Event) -> Iterator[str]:
        yield event.data["why"]

    def _finished(self, _state: RunState, event: Event) -> Iterator[str]:
        why = event.data.get("why", "")
        yield (
            f"the run has {'been ' if event.data['status'] in ('cancelled', 'stopped') else ''}{event.data['status']}"
            + (f": {why}" if why else "")
        )

    def _note(self, _state: RunState, event: Event) -> Iterator[str]:
        yield f"note: {event.data['text']}"


_TROUBLE = frozenset({"moved", "notice", "decided", "failed", "halt", "cancel", "stop", "expired"})
_TELLERS: Mapping[str, Callable[[Narrator, RunState, Event], Iterator[str]]] = {
    kind: getattr(Narrator, f"_{kind}")
    for kind in (
        "created", "unfolded", "skipped", "cached", "placed", "moved", "bound", "progress", "notice", "node", "ended", "decided",
        "failed", "halt", "completed", "cancel", "stop", "expired",
        "finished", "note",
    )
}  # fmt: skip


def _went_well(event: Event) -> bool:
    return event.data.get("cause") == Cause.SUCCEEDED


def _goes_on(state: RunState) -> str:
    done = sum(task.status.is_good for task in state.tasks.values())
    return f"run {state.meta.get('run', '')} goes on: {done:,} of {plural(len(state.tasks), 'task')} done"


def _attempt(state: RunState, event: Event) -> AttemptState:
    """The attempt of an event; after a reset in the same batch its task may have been left behind."""
    task: TaskState = state.tasks.get(event.task) or state.retired[event.task]
    return task.attempts[event.attempt - 1]
