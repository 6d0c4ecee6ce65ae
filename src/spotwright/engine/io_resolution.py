"""Resolves the values that flow through a run: inputs of tasks, items of loops, outputs of DAGs and of the run.

Sources are resolved in the scope of the task's DAG, and from there up to the run's arguments. Values come from the journal: an
argument that refers to a secret is the reference, never the secret.

A value keeps its type through DAGs, loops and conditions, and is converted to a declared type only when a component or a
condition reads it. KFP's backend converts at every step; because the compiler declares most loop items as strings, a number in
a list can never reach a component with a number parameter there. The graph's dialect (:mod:`spotwright.graph`) defines the
meaning of strings.

A plan before the run resolves known values with the same functions. Values that only the run will have are :func:`unknown`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from spotwright.graph import (
    Constant,
    DagInput,
    Dialect,
    FinalStatus,
    Loop,
    OneOf,
    OutputSource,
    RunsNowhere,
    Source,
    TaskContext,
    TaskEnd,
    TaskOutput,
)

if TYPE_CHECKING:
    from spotwright.engine.state import RunState, ScopeState, TaskState

__all__ = [
    "Inputs",
    "check_inputs",
    "computed_outputs",
    "condition_inputs",
    "context_of",
    "dag_outputs",
    "filled_inputs",
    "inputs_of",
    "is_unknown",
    "items_of",
    "loop_items",
    "run_outputs",
    "scope_inputs",
    "unknown",
]


_UNKNOWN = "\ufdd0"  # a Unicode noncharacter: texts of pipelines and arguments have none


def unknown(name: str) -> str:
    """A placeholder for a value that only the run will have; equal names are one value. A text that contains it is unknown."""
    return f"{_UNKNOWN}{name}"


def is_unknown(value: Any) -> bool:
    """Whether only the run will have this value or a part of it."""
    return isinstance(value, str) and _UNKNOWN in value


class Inputs(NamedTuple):
    """The inputs of a task by name. An artifact is a plain dict, or a list of them, in the shape of KFP's executor input."""

    parameters: dict[str, Any]
    artifacts: dict[str, Any]


def inputs_of(state: RunState, task: TaskState, outer: Inputs | None = None) -> Inputs:
    """Resolve the inputs of a task whose upstream tasks have ended. Inputs without a source or value take their default.

    Constants of a task with an executor keep their placeholders; a DAG's are filled in. ``outer`` are the inputs of its scope,
    if the caller has them.
    """
    spec = task.plan.spec
    outer = scope_inputs(state, task.scope) if outer is None else outer
    parameters = {name: declared.default for name, declared in spec.parameter_specs.items() if declared.has_default}
    for name, source in spec.parameters.items():
        exists, value = _parameter(state, task.scope, outer, source)
        if exists and (value is not None or name not in parameters):
            parameters[name] = value
    artifacts = {}
    for name, source in spec.artifacts.items():
        value = _artifact(state, task.scope, outer, source)
        if value is not None:
            artifacts[name] = value
    if spec.dag is not None:
        parameters = _filled(state, task, parameters, artifacts)
    return Inputs(parameters, artifacts)


def check_inputs(state: RunState, task: TaskState) -> None:
    """Raise ``ValueError`` if a task reads a field that a loop item does not have."""
    spec, owner = task.plan.spec, task.scope.owner
    loop = owner.plan.spec.loop if owner is not None else None
    reads_part = any(isinstance(source, DagInput) and source.item for source in spec.parameters.values())
    if reads_part or spec.dag is not None or (loop is not None and loop.fields):
        inputs_of(state, task)


def context_of(state: RunState, task: TaskState, workspace: str = "") -> TaskContext:
    """The run, the task and the run's workspace folder, for placeholders."""
    return TaskContext(
        run=state.meta.run,
        task=task.path,
        created_at=state.started_at,
        name=task.plan.spec.name,
        workspace=workspace,
    )


def _filled(
    state: RunState, task: TaskState, parameters: dict[str, Any], artifacts: Mapping[str, Any]
) -> dict[str, Any]:
    """Fill the placeholders in the constant inputs of a DAG: its tasks do not know the names of its inputs."""
    constants = [name for name, source in task.plan.spec.parameters.items() if isinstance(source, Constant)]
    if not constants:
        return parameters
    context, fill = context_of(state, task), state.plan.graph.dialect.fill
    others = {name: value for name, value in parameters.items() if name not in constants}
    return {
        name: fill(value, others, artifacts, context) if name in constants else value
        for name, value in parameters.items()
    }


def filled_inputs(state: RunState, task: TaskState) -> Inputs:
    """The inputs of a task, with its parameters' placeholders filled in from its other inputs."""
    inputs, fill = inputs_of(state, task), state.plan.graph.dialect.fill
    parameters = fill(inputs.parameters, inputs.parameters, inputs.artifacts, context_of(state, task))
    return Inputs(parameters, inputs.artifacts)


def computed_outputs(state: RunState, task: TaskState, step: RunsNowhere) -> dict[str, Any]:
    """The outputs of a task that runs nowhere. Raises ``ValueError`` for inputs without a result."""
    inputs = filled_inputs(state, task)
    return step.outputs(inputs.parameters, inputs.artifacts, context_of(state, task))


def condition_inputs(state: RunState, task: TaskState) -> Mapping[str, Any]:
    """The inputs of a task in the form for its condition."""
    values = inputs_of(state, task).parameters
    return state.plan.graph.dialect.condition_inputs(task.plan.spec.parameter_specs, values)


def loop_items(state: RunState, task: TaskState) -> list[Any] | None:
    """The items of a loop; ``None`` for a task that is not a loop. The graph's dialect parses a string.

    Raises ``ValueError`` for a value that is not a list.
    """
    loop = task.plan.spec.loop
    if loop is None:
        return None
    return items_of(loop, inputs_of(state, task), state.plan.graph.dialect)


def items_of(loop: Loop, inputs: Inputs, dialect: Dialect) -> list[Any]:
    """The items of a loop whose task has these inputs. Raises ``ValueError`` for a value that is not a list."""
    if not loop.items:
        return list(loop.raw)
    value = (inputs.artifacts if loop.of_artifacts else inputs.parameters).get(loop.items)
    name = dialect.shown(loop.items)
    if value is None:
        raise ValueError(f"it loops over {name}, which has no value")
    items = _parsed(dialect, value, name) if isinstance(value, str) else value
    if isinstance(items, Mapping) and loop.of_artifacts:
        return [items]
    if not isinstance(items, Sequence) or isinstance(items, str):
        raise ValueError(f"it loops over {name}, which is not a list: {str(value)[:60]}")
    return list(items)


def dag_outputs(state: RunState, task: TaskState) -> dict[str, Any]:
    """The outputs of a DAG task, once all of its tasks have ended; outputs of skipped tasks are absent.

    A loop collects the outputs of its iterations in order: parameters as a list (of lists for a loop in a loop), artifacts as
    one flat list.
    """
    dag = state.plan.graph.dags[str(task.plan.spec.dag)]
    if task.loop is None:
        return {
            "parameters": dict(_outputs(state, task.inside, dag.parameter_outputs, "parameters")),
            "artifacts": dict(_outputs(state, task.inside, dag.artifact_outputs, "artifacts")),
        }
    parameters: dict[str, list[Any]] = {name: [] for name in dag.parameter_outputs}
    artifacts: dict[str, list[Any]] = {name: [] for name in dag.artifact_outputs}
    for scope in task.loop.scopes:
        for name, value in _outputs(state, scope, dag.parameter_outputs, "parameters"):
            parameters[name].append(value)
        for name, value in _outputs(state, scope, dag.artifact_outputs, "artifacts"):
            artifacts[name] += value if isinstance(value, list) else [value]
    return {"parameters": parameters, "artifacts": artifacts}


def _outputs(
    state: RunState, scope: ScopeState | None, sources: Mapping[str, OutputSource], kind: str
) -> Iterator[tuple[str, Any]]:
    if scope is None:
        return
    for name, source in sources.items():
        for output in source.outputs if isinstance(source, OneOf) else (source,):
            outputs = getattr(_task(state, scope, output.task), kind)
            if output.output in outputs:
                yield name, outputs[output.output]
                break


def run_outputs(state: RunState) -> dict[str, Any]:
    """The existing outputs of the whole graph; if it declares none, the outputs of the tasks without consumers.

    Keys are output names, or ``task.output`` if the graph declares none.
    """
    dag = state.plan.graph.root
    if dag.parameter_outputs or dag.artifact_outputs:
        return {
            **dict(_outputs(state, state.root, dag.parameter_outputs, "parameters")),
            **dict(_outputs(state, state.root, dag.artifact_outputs, "artifacts")),
        }
    return {
        f"{task.path}.{name}": task.parameters[name] if name in task.parameters else task.artifacts[name]
        for task in state.tasks.values()
        if task.scope.owner is None and not task.consumers
        for name in (*task.parameters, *task.artifacts)
    }


def _task(state: RunState, scope: ScopeState, name: str) -> TaskState:
    return state.tasks[scope.place.child(name)]


def scope_inputs(state: RunState, scope: ScopeState, of_owner: Inputs | None = None) -> Inputs:
    """The inputs of a scope: the arguments of the run, or the inputs of its task with the item of its iteration.

    ``of_owner`` are the inputs of that task, if the caller has them.
    """
    if scope.owner is None:
        arguments, artifacts = dict(state.meta.arguments), scope.place.dag.artifacts
        return Inputs(arguments, {name: arguments.pop(name) for name in artifacts if name in arguments})
    inputs = inputs_of(state, scope.owner) if of_owner is None else Inputs(*map(dict, of_owner))
    for name, declared in scope.place.dag.parameters.items():
        if declared.has_default:
            inputs.parameters.setdefault(name, declared.default)
    loop, opened, dialect = scope.owner.plan.spec.loop, scope.owner.loop, state.plan.graph.dialect
    if loop is not None and opened is not None and scope.place.iteration is not None:
        item = opened.items[scope.place.iteration]
        if loop.of_artifacts:
            inputs.artifacts[loop.item] = item
        else:
            inputs.parameters[loop.item] = item
            parts = {name: _part(dialect, item, field, loop.item) for name, field in loop.fields.items()}
            inputs.parameters.update(parts)
    return inputs


def _parameter(state: RunState, scope: ScopeState, outer: Inputs, source: Source) -> tuple[bool, Any]:
    if isinstance(source, Constant):
        return True, source.value
    if isinstance(source, DagInput):
        value = outer.parameters.get(source.name)
        for step in source.item if value is not None else ():
            value = _part(state.plan.graph.dialect, value, step, source.name)
        return source.name in outer.parameters, value
    upstream = _task(state, scope, source.task)
    if isinstance(source, FinalStatus):
        return True, _final_status(state, upstream)
    return source.output in upstream.parameters, upstream.parameters.get(source.output)


def _part(dialect: Dialect, value: Any, step: str | int, name: str) -> Any:
    if is_unknown(value):
        return f"{value}.{step}"
    shown = dialect.shown(name)
    if isinstance(value, str):
        value = _parsed(dialect, value, shown)
    try:
        return value[step]
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"{shown} has no field {step!r}: {str(value)[:60]}") from error


def _parsed(dialect: Dialect, text: str, name: str) -> Any:
    try:
        return dialect.parse(text)
    except ValueError as error:
        raise ValueError(f"{name} is neither a list nor a mapping, but the string {text[:60]!r}") from error


def _final_status(state: RunState, upstream: TaskState) -> Any:
    """A task's final status, in the form of the graph's dialect."""
    status = upstream.status.value
    end = TaskEnd(
        run=state.meta.run,
        name=upstream.plan.spec.name,
        status=status,
        cached=upstream.cached_from is not None,
        error=_message(state, upstream) if status == "failed" else "",
    )
    return state.plan.graph.dialect.final_status(end)


def _message(state: RunState, failed: TaskState) -> str:
    """The error message of a failed task: the last log line of its first failed task inside, else why it failed."""
    task = failed
    while opened := task.loop or task.inside:
        task = state.tasks[opened.failed]
    last_line = task.last.ended.last_line if task.attempts and task.last.ended is not None else ""
    return f"{task.path} failed: {last_line or task.why}"


def _artifact(state: RunState, scope: ScopeState, outer: Inputs, source: Source) -> Any:
    if isinstance(source, Constant):
        return source.value
    if isinstance(source, DagInput):
        return outer.artifacts.get(source.name)
    if isinstance(source, TaskOutput):
        return _task(state, scope, source.task).artifacts.get(source.output)
    return None
