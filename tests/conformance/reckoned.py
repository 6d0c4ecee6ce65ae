"""What a drawn pipeline must come to, by KFP's semantics: a small interpreter of the description, not of the compiled form.

A task that fails ends its pipeline, loop iteration or branch: what follows it does not begin, and what stands beside it may
have begun or not (``loose``). A value that depends on such a race is not compared (:data:`UNKNOWN`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.drawn import (
    ARTIFACTS,
    Branches,
    Call,
    Collected,
    Compared,
    Const,
    Exit,
    Field,
    Input,
    Loop,
    Name,
    Node,
    OneOf,
    Output,
    Pipeline,
    Source,
    Task,
    Text,
    names_in,
    names_made_by,
    names_read_by,
)

__all__ = ["UNKNOWN", "Fate", "Reckoned", "plain", "reckoned"]

UNKNOWN = object()
"""A value that is not compared."""

OPEN = "open"
Environment = dict[str, Any]


@dataclass
class Fate:
    """How a task may end, ``open`` where it may never begin, and its outputs where it succeeds."""

    statuses: set[str]
    outputs: Any = None


@dataclass
class Reckoned:
    """What a run must come to: the fates of all tasks by path, and the outputs of the pipeline where it succeeds."""

    fates: dict[str, Fate] = field(default_factory=dict)
    succeeds: bool = True
    outputs: dict[str, Any] = field(default_factory=dict)


def reckoned(pipeline: Pipeline) -> Reckoned:
    """Run the pipeline on paper."""
    found = Reckoned()
    env = _inputs(pipeline.inputs, {name: plain(value) for name, value in pipeline.arguments.items()})
    found.succeeds = _Scope(found.fates, "", "").run(pipeline.body, env)
    if found.succeeds:
        found.outputs = _outputs(pipeline, env)
    return found


def plain(value: Any) -> Any:
    """A value as it is after it went through JSON as Go writes it: whole numbers are ``int``, keys are sorted."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [plain(each) for each in value]
    return {key: plain(value[key]) for key in sorted(value)} if isinstance(value, dict) else value


def _inputs(inputs: Sequence[Input], given: Mapping[str, Any]) -> Environment:
    """Optional inputs take their default where they are given nothing, or ``None``."""
    env: Environment = {}
    for each in inputs:
        value = given.get(each.name)
        env[each.name] = _as(each.default, each.kind) if value is None and each.optional else _as(value, each.kind)
    return env


def _as(value: Any, kind: str) -> Any:
    """A value as a component with that annotation is given it."""
    if value is None or kind in ARTIFACTS:
        return value
    if kind == "str":
        return _text(value)
    if kind == "float":
        return float(value)
    return plain(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    text = json.dumps(plain(value), separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return text.translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"})  # as Go's json.Marshal does


def _outputs(pipeline: Pipeline, env: Environment) -> dict[str, Any]:
    return {name: _as(_value(source, env), kind) for name, kind, source in pipeline.outputs}


def _value(source: Source, env: Environment) -> Any:
    match source:
        case Const(value):
            return value
        case Name(name):
            return env[name]
        case Field(name, part):
            return env[name][part]
        case Output(task, output):
            return env[task][output]
        case Collected(Output(task, output)):
            return _flat(env[task], output)
        case OneOf(sources):
            return next(_value(each, env) for each in sources if _is_there(each, env))
        case Text(parts):
            return "".join(_text(_value(part, env)) for part in parts)
    raise TypeError(source)


def _is_there(source: Source, env: Environment) -> bool:
    if isinstance(source, OneOf):
        return any(_is_there(each, env) for each in source.sources)
    return all(name in env for name in names_in(source))


def _flat(collected: Any, output: str) -> Any:
    """What was collected over loops: artifacts as one list, parameters as lists of lists."""
    if not isinstance(collected, list):
        return collected[output]
    found: list[Any] = []
    for each in collected:
        value = _flat(each, output)
        found += value if output == "out" and isinstance(each, list) else [value]
    return found


class _Scope:
    """The tasks of one pipeline, iteration or branch."""

    def __init__(self, fates: dict[str, Fate], path: str, iteration: str) -> None:
        self._fates = fates
        self._path = path
        self._iteration = iteration

    def run(self, body: Sequence[Node], env: Environment) -> bool:
        """Run the tasks on paper, into ``env``; whether all is well."""
        made = {name: number for number, node in enumerate(body) for name in names_made_by(node)}
        before = [{made[name] for name in names_read_by(node) if name in made} - {n} for n, node in enumerate(body)]
        for number in range(len(body)):
            for each in tuple(before[number]):
                before[number] |= before[each]
        failing: set[int] = set()
        blocked: set[int] = set()
        parts: list[dict[str, Fate]] = []
        for number, node in enumerate(body):
            part: dict[str, Fate] = {}
            parts.append(part)
            ignores = isinstance(node, Task | Call) and node.ignores
            if before[number] & (failing | blocked) and not ignores:
                blocked.add(number)
                part.update(self._never(node, env))
            elif not self._node(node, env, part):
                failing.add(number)
        self._loosen(body, before, failing, blocked, parts)
        for part in parts:
            self._fates.update(part)
        return not failing

    def _loosen(
        self,
        body: Sequence[Node],
        before: Sequence[set[int]],
        failing: set[int],
        blocked: set[int],
        parts: Sequence[dict[str, Fate]],
    ) -> None:
        """Mark what a failure beside it may keep from beginning."""
        loose = {n for n in range(len(body)) if any(f != n and n not in before[f] for f in failing)}
        for number, node in enumerate(body):
            exits = {self._at(node.task)} if isinstance(node, Exit) else set()
            ignores = isinstance(node, Task | Call) and node.ignores
            if ignores and before[number] & (loose - blocked):
                for fate in parts[number].values():
                    fate.outputs = UNKNOWN
            if number not in loose or ignores or number in blocked:
                continue
            for path, fate in parts[number].items():
                if any(path == each or path.startswith(f"{each}/") for each in exits):
                    fate.outputs = UNKNOWN
                else:
                    fate.statuses.add(OPEN)

    def _never(self, node: Node, env: Environment) -> dict[str, Fate]:
        """The fates of a node that never begins; its exit task runs all the same."""
        part: dict[str, Fate] = {}
        if isinstance(node, Exit):
            self._exit(node, env, part, "CANCELED")
        return part

    def _at(self, node: Node | str) -> str:
        name = node if isinstance(node, str) else "*" if isinstance(node, Branches) else node.name
        return f"{self._path}{name}{self._iteration}"

    def _below(self, node: Node | str, part: dict[str, Fate], iteration: str = "") -> _Scope:
        return _Scope(part, f"{self._at(node)}/", iteration)

    def _node(self, node: Node, env: Environment, part: dict[str, Fate]) -> bool:
        if isinstance(node, Task):
            return self._task(node, env, part)
        if isinstance(node, Call):
            return self._call(node, env, part)
        if isinstance(node, Loop):
            return self._loop(node, env, part)
        if isinstance(node, Branches):
            return self._branches(node, env, part)
        well = self._below(node, part).run(node.body, env)
        part[self._at(node)] = Fate({"succeeded" if well else "failed"})
        self._exit(node, env, part, "COMPLETE" if well else "FAILED")
        return well

    def _exit(self, node: Exit, env: Environment, part: dict[str, Fate], state: str) -> None:
        inner = {**env, "status": [state, node.name]}
        self._node(node.task, inner, part)

    def _given(self, task: Task | Call, env: Environment) -> Environment:
        """What can be known of the inputs; an output of a task that failed is not there."""
        there = {name: source for name, source in task.given.items() if _is_there(source, env)}
        return {name: _value(source, env) for name, source in there.items()}

    def _task(self, task: Task, env: Environment, part: dict[str, Fate]) -> bool:
        component = task.component
        given = _inputs(component.inputs, self._given(task, env))
        why = component.failing
        fails = why == "always" or (why == "once" and not task.retries)
        if isinstance(why, tuple):
            fails = given[why[0]] == why[1]
        if fails:
            part[self._at(task)] = Fate({"failed"})
            return False
        shown = [given[each.name] for each in component.inputs]
        shown = [
            [] if v is None and i.kind == "List[Dataset]" else v for v, i in zip(shown, component.inputs, strict=True)
        ]
        outputs = {"seen": repr([*shown, env["status"]] if component.status else shown)}
        how, what = component.result
        if component.gives == "Dataset":
            env[task.variable] = {**outputs, "out": component.name + outputs["seen"]}
        else:
            values = {"constant": lambda: what, "input": lambda: given[what], "list": lambda: [given[n] for n in what]}
            outputs["result"] = _as(values[how](), component.gives)
            env[task.variable] = outputs
        part[self._at(task)] = Fate({"succeeded"}, env[task.variable])
        return True

    def _call(self, call: Call, env: Environment, part: dict[str, Fate]) -> bool:
        inner = _inputs(call.pipeline.inputs, self._given(call, env))
        well = self._below(call, part).run(call.pipeline.body, inner)
        part[self._at(call)] = Fate({"succeeded" if well else "failed"})
        if well:
            env[call.variable] = _outputs(call.pipeline, inner)
        return well

    def _loop(self, loop: Loop, env: Environment, part: dict[str, Fate]) -> bool:
        collected: dict[str, list[Any]] = {name: [] for name in names_made_by(loop)}
        ends: list[tuple[bool, dict[str, Fate]]] = []
        for number, item in enumerate(_value(loop.items, env)):
            inner, fates = {**env, loop.item: item}, dict[str, Fate]()
            ends.append((self._below(loop, fates, f"-{number}").run(loop.body, inner), fates))
            for name in collected.keys() & inner.keys():
                collected[name].append(inner[name])
        bad = [n for n, (well, _) in enumerate(ends) if not well]
        for number, (_, fates) in enumerate(ends):
            if loop.limit and set(bad) - {number}:
                for fate in fates.values():
                    fate.statuses.add(OPEN)
            part.update(fates)
        env.update(collected)
        part[self._at(loop)] = Fate({"failed" if bad else "succeeded"})
        return not bad

    def _branches(self, node: Branches, env: Environment, part: dict[str, Fate]) -> bool:
        alone = len(node.arms) == 1
        scope = self if alone else self._below(node, part)
        taken = False
        well = True
        for name, condition, body in node.arms:
            path = scope._at(name)
            if taken or (condition is not None and not _holds(condition, env)):
                part[path] = Fate({"skipped"})
                continue
            taken = True
            well = scope._below(name, part).run(body, env)
            part[path] = Fate({"succeeded" if well else "failed"})
        if not well and not alone:
            for fate in part.values():
                fate.statuses |= {OPEN} if fate.statuses == {"skipped"} else set()
        return well


def _holds(condition: Compared, env: Environment) -> bool:
    left, right = _value(condition.left, env), _value(condition.right, env)
    signs = {
        "==": lambda: left == right, "!=": lambda: left != right, "<": lambda: left < right,
        "<=": lambda: left <= right, ">": lambda: left > right, ">=": lambda: left >= right,
    }  # fmt: skip
    return bool(signs[condition.sign]())
