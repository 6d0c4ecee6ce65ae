"""The graph of one scope of a run: the pipeline, a pipeline in it, or one iteration of a loop; for a loop, its iterations.

A scope is named by the path of its task, the pipeline itself by an empty name, an iteration by ``PATH#NUMBER``. One pass over the
tasks counts what is inside each of them, whatever the depth: a task is always recorded after the one that it is in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from spotwright.engine.events import TaskStatus
from spotwright.engine.plan import Scope
from spotwright.engine.state import LoopState, RunState, ScopeState, TaskState
from spotwright.errors import UnknownRun
from spotwright.graph import TaskSpec
from spotwright.records.reader import RunReader
from spotwright.views.account import Account
from spotwright.views.text import plural, readable, shorten, value_text
from spotwright.views.waiting import status_word, waiting_for

__all__ = ["MOST_DRAWN", "graph"]


MOST_DRAWN = 600
"""The most nodes of a drawn scope; a larger one is a table."""

_MOST_EDGES = 5_000  # of one scope that is drawn
_PAGE = 1_000  # nodes in one answer
_LONGEST = 80  # characters of the item of an iteration
_DIGITS = 10  # of the number of an iteration, at most


@dataclass(slots=True)
class _Inside:
    """The totals of a scope's tasks. Pipelines count by their tasks."""

    counts: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    interruptions: int = 0
    errors: int = 0
    cost: float = 0.0

    def add(self, other: _Inside) -> None:
        """Add the totals of another scope."""
        for status, count in other.counts.items():
            self.counts[status] += count
        self.attempts += other.attempts
        self.interruptions += other.interruptions
        self.errors += other.errors
        self.cost += other.cost


def graph(
    reader: RunReader, scope: str = "", costs: Account | None = None, first: int = 0, count: int = _PAGE
) -> dict[str, Any]:
    """One scope of the pipeline. Raises :class:`UnknownRun` for a scope that the run does not have.

    - ``scope``; ``path``: the scopes from the pipeline to this one, each with ``id`` and ``name``;
    - ``as``: ``graph``, ``list`` (of the iterations of a loop) or ``table`` (more than 600 nodes, or 5,000 edges);
    - ``nodes``, in topological order: ``id``, ``path`` (of the task), ``kind`` (``task``, ``loop``, ``pipeline``, ``iteration``,
      ``exit``: it runs whatever the others come to), ``name``, ``status``, ``why`` it failed or was skipped, ``counts`` (by
      status, of all tasks in it), ``attempts``, ``interruptions``, ``errors``, ``cost`` (null without ``costs``; node-hours where
      a pool has no price), ``condition`` (in words, or empty), ``iterations`` (of a loop, else null), ``opens`` (the scope
      inside, or null), ``cached``; of a scope that is not open yet the tasks that it will have, as ``waiting``;
    - ``edges``: pairs of ids, none unless it is drawn;
    - ``of``: how many nodes there are; ``first``: the number of the first one in ``nodes``, of which one answer has 1,000.
    """
    state = reader.state
    found = _scope(state, reader.folder.name, scope)
    place, opened = found.place, found.opened
    count, first = max(1, min(count, _PAGE)), max(0, first)
    if found.loop is not None:
        iterations = _iterations(state, found.loop, costs, first, count)
        return {"scope": scope, "path": _path(state, found.loop, None), "as": "list", "edges": [], **iterations}
    inside, _ = _tally(state, costs)
    tasks = [] if opened is None else [task for task in state.tasks.values() if task.scope is opened]
    waiting = [] if opened is not None and tasks else list(place.dag.tasks.values())
    of = len(tasks) or len(waiting)
    edges = _edges(place, tasks, waiting) if of <= MOST_DRAWN else None
    shown = [_node(state, task, inside, costs) for task in tasks[first : first + count]]
    shown += [_planned(place, spec) for spec in waiting[first : first + count]]
    return {
        "scope": scope,
        "path": _path(state, found.owner, place.iteration),
        "as": "graph" if edges is not None else "table",
        "nodes": shown,
        "edges": edges or [],
        "of": of,
        "first": first,
    }


class _Found(NamedTuple):
    """A scope: its place in the plan, its state if it is open, and its task. ``loop``: all iterations of this one are meant."""

    place: Scope
    opened: ScopeState | None = None
    owner: TaskState | None = None
    loop: TaskState | None = None


def _scope(state: RunState, run: str, name: str) -> _Found:
    if not name:
        return _Found(state.plan.root) if state.root is None else _Found(state.root.place, state.root)
    path, sharp, number = (name, "", "") if name in state.tasks else name.rpartition("#")
    task = state.tasks.get(path)
    if task is None or task.plan.spec.dag is None or (sharp and task.plan.spec.loop is None):
        raise UnknownRun(f"run {run} has no pipeline or loop {name!r}")
    if task.plan.spec.loop is None:
        opened = task.inside
        return _Found(state.plan.inside(task.plan) if opened is None else opened.place, opened, task)
    if not sharp:
        return _Found(state.plan.inside(task.plan, 0), None, task, task)
    items, scopes = (0, []) if task.loop is None else (len(task.loop.items), task.loop.scopes)
    index = int(number) if number.isascii() and number.isdigit() and len(number) < _DIGITS else items
    if index >= items:
        raise UnknownRun(
            f"loop {path} of run {run} has {plural(items, 'iteration')}, counted from 0: {number!r} does not exist"
        )
    if index < len(scopes):
        return _Found(scopes[index].place, scopes[index], task)
    return _Found(state.plan.inside(task.plan, index, items), None, task)


def _tally(
    state: RunState, costs: Account | None, loop: TaskState | None = None
) -> tuple[Mapping[str, _Inside], Mapping[int, _Inside]]:
    """The totals inside each task by its path, and inside each iteration of one loop.

    One pass, from the last task to the first.
    """
    money = _money(costs)
    inside: dict[str, _Inside] = {}
    iterations: dict[int, _Inside] = {}
    for task in reversed(state.tasks.values()):
        own = inside.get(task.path)
        if own is None:
            own = inside[task.path] = _Inside()
        if task.plan.spec.dag is None:
            own.counts[_status(state, task)] += 1
        own.attempts += len(task.attempts)
        for attempt in task.attempts:
            if attempt.cause is not None:
                own.interruptions += attempt.cause.is_interruption
                own.errors += attempt.cause.is_error
        own.cost += money.get(task.path, 0.0)
        owner, iteration = task.scope.owner, task.scope.place.iteration
        if owner is None:
            continue
        inside.setdefault(owner.path, _Inside()).add(own)
        if owner is loop and iteration is not None:
            iterations.setdefault(iteration, _Inside()).add(own)
    return inside, iterations


def _money(costs: Account | None) -> Mapping[str, float]:
    """The cost of all attempts of each task: money, or node-hours without prices."""
    money: dict[str, float] = {}
    for each in costs.attempts_by_start if costs is not None else ():
        cost = each.cost
        amount = float(cost.seconds) / 3600 if cost.money is None else float(cost.money)
        money[each.task] = money.get(each.task, 0.0) + amount
    return money


def _status(state: RunState, task: TaskState) -> str:
    waiting = waiting_for(state, task, {})
    return status_word(task.status.value, None if waiting is None else waiting.kind, len(task.attempts))


def _node(state: RunState, task: TaskState, inside: Mapping[str, _Inside], costs: Account | None) -> dict[str, Any]:
    spec, own = task.plan.spec, inside[task.path]
    return {
        "id": task.path,
        "path": task.path,
        "kind": _kind(spec),
        "name": spec.display_name or spec.name,
        "status": _status(state, task),
        "why": task.why,
        **_figures(own, costs),
        "condition": "" if spec.condition is None else str(spec.condition),
        "iterations": len(task.loop.items) if task.loop is not None else None,
        "opens": task.path if spec.dag is not None else None,
        "cached": task.cached_from is not None,
    }


def _planned(place: Scope, spec: TaskSpec) -> dict[str, Any]:
    """A task of a scope that has not been opened."""
    path = place.child(spec.name)
    return {
        "id": path,
        "path": path,
        "kind": _kind(spec),
        "name": spec.display_name or spec.name,
        "status": TaskStatus.WAITING.value,
        "why": "",
        **_figures(_Inside(), None),
        "condition": "" if spec.condition is None else str(spec.condition),
        "iterations": None,
        "opens": None,
        "cached": False,
    }


def _figures(own: _Inside, costs: Account | None) -> dict[str, Any]:
    return {
        "counts": dict(own.counts),
        "attempts": own.attempts,
        "interruptions": own.interruptions,
        "errors": own.errors,
        "cost": None if costs is None else own.cost,
    }


def _kind(spec: TaskSpec) -> str:
    if spec.after_all:
        return "exit"
    return "task" if spec.dag is None else "pipeline" if spec.loop is None else "loop"


def _edges(place: Scope, tasks: Iterable[TaskState], waiting: Iterable[TaskSpec]) -> list[list[str]] | None:
    """Pairs of tasks whose second waits for the first; ``None`` if there are too many to draw."""
    named: dict[str, list[str]] = {}
    after: list[tuple[str, tuple[str, ...]]] = []
    for task in tasks:  # an orchestrator's may share a template, and so a name
        named.setdefault(task.plan.spec.name, []).append(task.path)
        after.append((task.path, task.plan.spec.after))
    for spec in waiting:
        named.setdefault(spec.name, []).append(place.child(spec.name))
        after.append((place.child(spec.name), spec.after))
    edges: list[list[str]] = []
    for path, names in after:
        for name in names:
            edges += [[earlier, path] for earlier in named.get(name, ())]
        if len(edges) > _MOST_EDGES:
            return None
    return edges


def _iterations(state: RunState, task: TaskState, costs: Account | None, first: int, count: int) -> dict[str, Any]:
    """The iterations of a loop, as nodes without edges."""
    loop = task.loop
    of = 0 if loop is None else len(loop.items)
    _, inside = _tally(state, costs, task)
    nodes = [
        _iteration(task, loop, index, inside.get(index, _Inside()), costs)
        for index in range(first, min(of, first + count))
        if loop is not None
    ]
    return {"nodes": nodes, "of": of, "first": first}


def _iteration(task: TaskState, loop: LoopState, index: int, own: _Inside, costs: Account | None) -> dict[str, Any]:
    scope = loop.scopes[index] if index < len(loop.scopes) else None
    item = shorten(value_text(readable(loop.items[index])), _LONGEST)
    status = TaskStatus.WAITING
    if scope is not None:
        status = TaskStatus.OPEN if not scope.ended else TaskStatus.FAILED if scope.failed else TaskStatus.SUCCEEDED
    name = f"{task.path}#{index}"
    return {
        "id": name,
        "path": task.path,
        "kind": "iteration",
        "name": f"{index}: {item}",
        "status": status.value,
        "why": f"{scope.failed} failed" if scope is not None and scope.failed else "",
        **_figures(own, costs),
        "condition": "",
        "iterations": None,
        "opens": name,
        "cached": False,
    }


def _path(state: RunState, owner: TaskState | None, iteration: int | None) -> list[dict[str, str]]:
    """The scopes from the pipeline to one: ``iteration`` of its task ``owner``, or all of it."""
    return [{"id": "", "name": state.meta.pipeline or state.plan.graph.name}, *reversed(list(_above(owner, iteration)))]


def _above(owner: TaskState | None, iteration: int | None) -> Iterator[dict[str, str]]:
    task = owner
    while task is not None:
        if iteration is not None:
            yield {"id": f"{task.path}#{iteration}", "name": str(iteration)}
        yield {"id": task.path, "name": task.plan.spec.display_name or task.plan.spec.name}
        scope = task.scope
        task, iteration = scope.owner, scope.place.iteration
