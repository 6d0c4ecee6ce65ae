"""Compute the expected result of a random pipeline by KFP's semantics: an interpreter of its description, not of compiled IR.

A task that fails ends its pipeline, loop iteration or branch: tasks that follow it do not begin, and parallel ones may have
begun or not (``racing``). A value that depends on such a race is not compared (:data:`UNKNOWN`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.pipeline_model import (
    ARTIFACTS,
    Branches,
    Call,
    Collected,
    Comparison,
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

__all__ = ["UNKNOWN", "ExpectedRun", "TaskOutcome", "interpret", "json_value"]

UNKNOWN = object()
"""A value that is not compared."""

OPEN = "open"
Environment = dict[str, Any]


@dataclass
class TaskOutcome:
    """The statuses in which a task may end (``open``: it may never begin), and its outputs where it succeeds."""

    statuses: set[str]
    outputs: Any = None


@dataclass
class ExpectedRun:
    """The expected result of a run: the outcomes of all tasks by path, and the outputs of the pipeline where it succeeds."""

    outcomes: dict[str, TaskOutcome] = field(default_factory=dict)
    succeeds: bool = True
    outputs: dict[str, Any] = field(default_factory=dict)


def interpret(pipeline: Pipeline) -> ExpectedRun:
    """The expected result of a pipeline."""
    found = ExpectedRun()
    env = _inputs(pipeline.inputs, {name: json_value(value) for name, value in pipeline.arguments.items()})
    found.succeeds = _TaskScope(found.outcomes, "", "").run(pipeline.body, env)
    if found.succeeds:
        found.outputs = _outputs(pipeline, env)
    return found


def json_value(value: Any) -> Any:
    """A value after its way through JSON as Go writes it: whole numbers are ``int``, keys are sorted."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [json_value(each) for each in value]
    return {key: json_value(value[key]) for key in sorted(value)} if isinstance(value, dict) else value


def _inputs(inputs: Sequence[Input], given: Mapping[str, Any]) -> Environment:
    """The values of inputs: optional ones have their default where the argument is missing or ``None``."""
    env: Environment = {}
    for each in inputs:
        value = given.get(each.name)
        env[each.name] = _as(each.default, each.kind) if value is None and each.optional else _as(value, each.kind)
    return env


def _as(value: Any, kind: str) -> Any:
    """A value as a component with that annotation receives it."""
    if value is None or kind in ARTIFACTS:
        return value
    if kind == "str":
        return _text(value)
    if kind == "float":
        return float(value)
    return json_value(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    text = json.dumps(json_value(value), separators=(",", ":"), sort_keys=True, ensure_ascii=False)
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
    """The value of ``dsl.Collected`` over loops: artifacts as one list, parameters as lists of lists."""
    if not isinstance(collected, list):
        return collected[output]
    found: list[Any] = []
    for each in collected:
        value = _flat(each, output)
        found += value if output == "out" and isinstance(each, list) else [value]
    return found


class _TaskScope:
    """The tasks of one pipeline, iteration or branch."""

    def __init__(self, outcomes: dict[str, TaskOutcome], path: str, iteration: str) -> None:
        self._fates = outcomes
        self._path = path
        self._iteration = iteration

    def run(self, body: Sequence[Node], env: Environment) -> bool:
        """Interpret the tasks and add their outputs to ``env``; whether all succeed."""
        made = {name: number for number, node in enumerate(body) for name in names_made_by(node)}
        before = [{made[name] for name in names_read_by(node) if name in made} - {n} for n, node in enumerate(body)]
        for number in range(len(body)):
            for each in tuple(before[number]):
                before[number] |= before[each]
        failing: set[int] = set()
        blocked: set[int] = set()
        parts: list[dict[str, TaskOutcome]] = []
        for number, node in enumerate(body):
            part: dict[str, TaskOutcome] = {}
            parts.append(part)
            ignores_failure = isinstance(node, Task | Call) and node.ignores_failure
            if before[number] & (failing | blocked) and not ignores_failure:
                blocked.add(number)
                part.update(self._outcomes_without_start(node, env))
            elif not self._node(node, env, part):
                failing.add(number)
        self._mark_races(body, before, failing, blocked, parts)
        for part in parts:
            self._fates.update(part)
        return not failing

    def _mark_races(
        self,
        body: Sequence[Node],
        before: Sequence[set[int]],
        failing: set[int],
        blocked: set[int],
        parts: Sequence[dict[str, TaskOutcome]],
    ) -> None:
        """Mark the tasks that a parallel failure may keep from beginning."""
        racing = {n for n in range(len(body)) if any(f != n and n not in before[f] for f in failing)}
        for number, node in enumerate(body):
            exits = {self._path_of(node.task)} if isinstance(node, Exit) else set()
            ignores_failure = isinstance(node, Task | Call) and node.ignores_failure
            if ignores_failure and before[number] & (racing - blocked):
                for outcome in parts[number].values():
                    outcome.outputs = UNKNOWN
            if number not in racing or ignores_failure or number in blocked:
                continue
            for path, outcome in parts[number].items():
                if any(path == each or path.startswith(f"{each}/") for each in exits):
                    outcome.outputs = UNKNOWN
                else:
                    outcome.statuses.add(OPEN)

    def _outcomes_without_start(self, node: Node, env: Environment) -> dict[str, TaskOutcome]:
        """The outcomes of a node that never begins; its exit task still runs."""
        part: dict[str, TaskOutcome] = {}
        if isinstance(node, Exit):
            self._exit(node, env, part, "CANCELED")
        return part

    def _path_of(self, node: Node | str) -> str:
        name = node if isinstance(node, str) else "*" if isinstance(node, Branches) else node.name
        return f"{self._path}{name}{self._iteration}"

    def _scope_below(self, node: Node | str, part: dict[str, TaskOutcome], iteration: str = "") -> _TaskScope:
        return _TaskScope(part, f"{self._path_of(node)}/", iteration)

    def _node(self, node: Node, env: Environment, part: dict[str, TaskOutcome]) -> bool:
        if isinstance(node, Task):
            return self._task(node, env, part)
        if isinstance(node, Call):
            return self._call(node, env, part)
        if isinstance(node, Loop):
            return self._loop(node, env, part)
        if isinstance(node, Branches):
            return self._branches(node, env, part)
        succeeds = self._scope_below(node, part).run(node.body, env)
        part[self._path_of(node)] = TaskOutcome({"succeeded" if succeeds else "failed"})
        self._exit(node, env, part, "COMPLETE" if succeeds else "FAILED")
        return succeeds

    def _exit(self, node: Exit, env: Environment, part: dict[str, TaskOutcome], state: str) -> None:
        inner = {**env, "status": [state, node.name]}
        self._node(node.task, inner, part)

    def _given(self, task: Task | Call, env: Environment) -> Environment:
        """The values of the inputs; an output of a failed task is missing."""
        there = {name: source for name, source in task.given.items() if _is_there(source, env)}
        return {name: _value(source, env) for name, source in there.items()}

    def _task(self, task: Task, env: Environment, part: dict[str, TaskOutcome]) -> bool:
        component = task.component
        given = _inputs(component.inputs, self._given(task, env))
        why = component.failing
        fails = why == "always" or (why == "once" and not task.retries)
        if isinstance(why, tuple):
            fails = given[why[0]] == why[1]
        if fails:
            part[self._path_of(task)] = TaskOutcome({"failed"})
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
        part[self._path_of(task)] = TaskOutcome({"succeeded"}, env[task.variable])
        return True

    def _call(self, call: Call, env: Environment, part: dict[str, TaskOutcome]) -> bool:
        inner = _inputs(call.pipeline.inputs, self._given(call, env))
        succeeds = self._scope_below(call, part).run(call.pipeline.body, inner)
        part[self._path_of(call)] = TaskOutcome({"succeeded" if succeeds else "failed"})
        if succeeds:
            env[call.variable] = _outputs(call.pipeline, inner)
        return succeeds

    def _loop(self, loop: Loop, env: Environment, part: dict[str, TaskOutcome]) -> bool:
        collected: dict[str, list[Any]] = {name: [] for name in names_made_by(loop)}
        ends: list[tuple[bool, dict[str, TaskOutcome]]] = []
        for number, item in enumerate(_value(loop.items, env)):
            inner, outcomes = {**env, loop.item: item}, dict[str, TaskOutcome]()
            ends.append((self._scope_below(loop, outcomes, f"-{number}").run(loop.body, inner), outcomes))
            for name in collected.keys() & inner.keys():
                collected[name].append(inner[name])
        bad = [n for n, (succeeds, _) in enumerate(ends) if not succeeds]
        for number, (_, outcomes) in enumerate(ends):
            if loop.limit and set(bad) - {number}:
                for outcome in outcomes.values():
                    outcome.statuses.add(OPEN)
            part.update(outcomes)
        env.update(collected)
        part[self._path_of(loop)] = TaskOutcome({"failed" if bad else "succeeded"})
        return not bad

    def _branches(self, node: Branches, env: Environment, part: dict[str, TaskOutcome]) -> bool:
        alone = len(node.arms) == 1
        scope = self if alone else self._scope_below(node, part)
        taken = False
        succeeds = True
        for name, condition, body in node.arms:
            path = scope._path_of(name)
            if taken or (condition is not None and not _holds(condition, env)):
                part[path] = TaskOutcome({"skipped"})
                continue
            taken = True
            succeeds = scope._scope_below(name, part).run(body, env)
            part[path] = TaskOutcome({"succeeded" if succeeds else "failed"})
        if not succeeds and not alone:
            for outcome in part.values():
                outcome.statuses |= {OPEN} if outcome.statuses == {"skipped"} else set()
        return succeeds


def _holds(condition: Comparison, env: Environment) -> bool:
    left, right = _value(condition.left, env), _value(condition.right, env)
    signs = {
        "==": lambda: left == right, "!=": lambda: left != right, "<": lambda: left < right,
        "<=": lambda: left <= right, ">": lambda: left > right, ">=": lambda: left >= right,
    }  # fmt: skip
    return bool(signs[condition.sign]())
