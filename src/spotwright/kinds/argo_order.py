"""The order of a workflow's steps, and the most pods of each template at one time.

Templates may call each other in more ways than can be counted, so the work is bounded: beyond the bounds the order is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spotwright.kinds.argo_steps import has_pods, hooked
from spotwright.kinds.kind import Call, Order, Run, calls_after, matching, product
from spotwright.kube.object_fields import mapping, mappings
from spotwright.placing.documents import Path
from spotwright.placing.patch import value_at
from spotwright.placing.retries import whole_number

__all__ = ["order_of_steps"]


_MOST_VISITS = 1024  # of a workflow's templates and their callees; beyond, unknown
_DEEPEST = 100  # templates that call each other
_DIGITS = 9  # of a number of steps


class _Calls:
    """The runs of each template of a workflow, found from its entrypoint and its exit handler.

    A task begins when all tasks that it names have ended, whatever its condition. Source: argo-workflows,
    ``workflow/controller/dag.go``, ``evaluateDependsLogic``; ``steps.go``, ``executeSteps``.
    """

    def __init__(self, data: Mapping[str, Any], spec: Path) -> None:
        self._data, self._spec = data, spec
        self._named = {
            str(value_at(data, (*at, "name"))): at for at in matching(value_at(data, spec), ("templates", "*"), spec)
        }
        self.runs: dict[Path, list[Run]] = {}
        self.is_known = True
        self._visits = 0
        self._called: dict[Path, list[tuple[Call, Path]]] = {}
        first = calls_after(spec, {"entrypoint": (), "onExit": ("entrypoint",)})
        for field, call in first.items():
            self._visit(self._named.get(str(value_at(data, (*spec, field)))), (call,), 1)
        for name in hooked(value_at(data, (*spec, "hooks"))):
            self._visit(self._named.get(name), (Call((*spec, "hooks"), name),), None)

    def _visit(self, at: Path | None, calls: tuple[Call, ...], times: int | None, above: tuple[Path, ...] = ()) -> None:
        if at is None or not self.is_known:
            return
        self._visits += 1
        self.is_known = at not in above and len(above) < _DEEPEST and self._visits < _MOST_VISITS
        template = value_at(self._data, at)
        if has_pods(template):
            self.runs.setdefault(at, []).append(Run(calls, times))
            return
        parallel = value_at(template, ("parallelism",))
        if at not in self._called:
            self._called[at] = self._calls(at, is_serial=parallel == 1)
        for call, path in self._called[at]:
            step = value_at(self._data, path)
            count = None if times != 1 and _OF_ITERATION.search(str(step.get("when"))) else _times(step)
            if count is not None and parallel is not None:
                limit = whole_number(parallel)
                count = None if limit is None else min(count, limit)
            inner = (*path, "inline") if step.get("inline") is not None else self._named.get(str(step.get("template")))
            self._visit(inner, (*calls, call._replace(times=count)), product(times, count), (*above, at))
            for name in {str(step.get("onExit")), *hooked(step.get("hooks"))}:
                hook = Call((*path, "hooks"), name)
                self._visit(self._named.get(name), (*calls, hook), None, (*above, at))

    def _calls(self, at: Path, *, is_serial: bool) -> list[tuple[Call, Path]]:
        """The steps or tasks of a template, each with its path."""
        paths: dict[str, Path] = {}
        after: dict[str, list[str]] = {}
        ended: list[str] = []
        for group in matching(value_at(self._data, at), ("steps", "*"), at):
            every = matching(value_at(self._data, group), ("*",), group)
            now = {str(value_at(self._data, (*path, "name"), path)): path for path in every}
            paths |= now
            after |= dict.fromkeys(now, ended)
            ended = [*now] or ended
        for path in matching(value_at(self._data, at), ("dag", "tasks", "*"), at):
            task = value_at(self._data, path)
            if isinstance(task, dict):
                paths[str(task.get("name"))] = path
                after[str(task.get("name"))] = _needed(task)
        target = str(value_at(self._data, (*at, "dag", "target")) or "")
        is_open = "{{" in target  # the run decides which tasks it needs
        if target and not is_open:
            paths = {name: paths[name] for name in _needed_for(target.split(), after)}
        paths = {name: path for name, path in paths.items() if isinstance(value_at(self._data, path), dict)}
        if is_serial:
            after = {name: [*paths] for name in paths}
        steps = {name: value_at(self._data, path) for name, path in paths.items()}
        daemons = [name for name, step in steps.items() if self._stays(step)]
        conditional = [name for name, step in steps.items() if is_open or step.get("when") is not None]
        calls = calls_after(at, {name: after[name] for name in paths}, daemons, conditional)
        return [(calls[name], path) for name, path in paths.items()]

    def _stays(self, step: Mapping[str, Any]) -> bool:
        """Whether a step continues as a daemon while later ones run."""
        called = self._named.get(str(step.get("template")))
        template = step.get("inline") if called is None else value_at(self._data, called)
        return value_at(template, ("daemon",)) is True


_OPERAND = re.compile(r"[\w-]+(?:\.\w+)?")


def _needed(task: Mapping[str, Any]) -> list[str]:
    """The tasks that have ended before a task begins."""
    given = task.get("dependencies")
    names = [str(name) for name in given] if isinstance(given, list) else []
    return [*names, *(one.partition(".")[0] for one in _OPERAND.findall(str(task.get("depends") or "")))]


def _needed_for(targets: Iterable[str], after: Mapping[str, Sequence[str]]) -> list[str]:
    """The tasks that the targets of a DAG need, in the order of the DAG; the others never run."""
    needed, waiting = set[str](), [*targets]
    while waiting:
        name = waiting.pop()
        if name in after and name not in needed:
            needed.add(name)
            waiting += after[name]
    return [name for name in after if name in needed]


_OF_ITERATION = re.compile(r"\{\{[^{}]*(?<![\w.-])(?:inputs|steps|tasks)\.")
_OF_ITEM = re.compile(r"\{\{[^{}]*(?<![\w.-])item(?![\w-])")


def _times(step: Any) -> int | None:
    """The parallel runs of a step; ``None`` if only the run decides its items or their conditions."""
    items, sequence = value_at(step, ("withItems",)), value_at(step, ("withSequence",))
    if value_at(step, ("withParam",)) is not None or _OF_ITEM.search(str(value_at(step, ("when",)))):
        return None
    if items is not None:
        return len(items) if isinstance(items, list) else None
    if sequence is None:
        return 1
    if (count := value_at(sequence, ("count",))) is not None:
        return _whole(count)
    start, end = (_whole(value_at(sequence, (name,), 0)) for name in ("start", "end"))
    return None if start is None or end is None else abs(end - start) + 1


def _whole(value: Any) -> int | None:
    """A number of a sequence, perhaps a string; ``None`` for a placeholder and for too large numbers."""
    if isinstance(value, str):
        return int(value) if value.isdecimal() and len(value) < _DIGITS else None
    number = whole_number(value)
    return number if number is not None and 0 <= number < 10**_DIGITS else None


def _with_locks(data: Mapping[str, Any], spec: Path, at: Path, run: Run) -> Run:
    """A run of the template at a path, with the locks of the template and its callers.

    A template with a mutex runs once at a time. A semaphore's limit is in another object. Source: argo-workflows,
    ``docs/synchronization.md``, "Template-level".
    """
    defaults = value_at(data, (*spec, "templateDefaults", "synchronization"))
    locks, times = dict[str, int](), run.times
    for depth, where in enumerate((*(call.where for call in run.calls[1:]), at), 1):
        template = where[:-_HOOK_OF] if where[-1] == "hooks" else where
        names = _locks(mapping(value_at(data, (*template, "synchronization"), defaults)))
        locks |= dict.fromkeys(names, depth)
        if names:
            inside = [None if call.where[-1] == "hooks" else call.times for call in run.calls[depth:]]
            times = product(*inside) if any(names) else None
    return run._replace(times=times, locks=tuple(locks.items()))


_HOOK_OF = 4  # steps from the hooks of a step to its template


def _locks(synchronization: Mapping[str, Any]) -> set[str]:
    """The mutexes of a template; an empty name means semaphores, and mutexes that the run names."""
    mutexes = mappings([synchronization.get("mutex")]) + mappings(synchronization.get("mutexes"))
    names = {f"{one.get('namespace') or ''}/{one.get('name')}" for one in mutexes}
    known = {name for name in names if "{{" not in name}
    is_open = known != names or any(synchronization.get(name) for name in ("semaphore", "semaphores"))
    return known | {""} if is_open else known


def order_of_steps(data: Mapping[str, Any], *, spec: tuple[str, ...]) -> Order:
    """The runs of a workflow's templates; unknown if it calls itself or the run sets the limit."""
    given = value_at(data, (*spec, "parallelism"))
    limit, calls = whole_number(given), _Calls(data, spec)
    if not calls.is_known or (given is not None and limit is None):
        return Order({}, limit)
    return Order({at: [_with_locks(data, spec, at, run) for run in runs] for at, runs in calls.runs.items()}, limit)
