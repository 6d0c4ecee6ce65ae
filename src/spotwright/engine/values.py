"""The values that flow through a run: what a task is given, and what a pipeline inside a pipeline gives back.

Sources are resolved in the scope of the pipeline that a task stands in, all the way up to the run's arguments. Values here
are those of the journal: where an argument is a reference to a secret they hold the reference, never the secret.

A value keeps its type on its way through pipelines, loops and conditions, and takes the declared one where a component or a
condition reads it. The backend does so at every step, and as the compiler declares most items of loops to be texts, a number
in a list could never reach a component that wants a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from spotwright.pipelines.placeholders import Context, fill
from spotwright.pipelines.spec import Constant, DagInput, FinalStatus, Importer, OneOf, OutputSource, Source, TaskOutput
from spotwright.pipelines.values import fit, read_json

if TYPE_CHECKING:
    from spotwright.engine.state import RunState, ScopeState, TaskState

__all__ = [
    "Inputs",
    "check_inputs",
    "condition_inputs",
    "context_of",
    "dag_outputs",
    "imported",
    "inputs_of",
    "loop_items",
    "run_outputs",
]

_STATES = {"succeeded": "COMPLETE", "failed": "FAILED", "skipped": "SKIPPED"}
_UNKNOWN_ERROR = 2  # google.rpc.Code.UNKNOWN: the code of an error of the user's own


class Inputs(NamedTuple):
    """What a task is given: parameters by name, artifacts by name (lists of plain dicts, as KFP's executor has them)."""

    parameters: dict[str, Any]
    artifacts: dict[str, Any]


def inputs_of(state: RunState, task: TaskState) -> Inputs:
    """Resolve the inputs of a task whose upstream tasks have ended. Inputs without a source or value take their default.

    Constants of a component are as they are written, with their placeholders; those of a pipeline have them filled in.
    """
    spec = task.plan.spec
    outer = _scope_inputs(state, task.scope)
    parameters = {name: declared.default for name, declared in spec.parameter_specs.items() if declared.has_default}
    for name, source in spec.parameters.items():
        found, value = _parameter(state, task.scope, outer, source)
        if found and (value is not None or name not in parameters):
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
    """Raise ``ValueError`` where a task takes a part of an item that the item does not have."""
    spec, owner = task.plan.spec, task.scope.owner
    loop = owner.plan.spec.loop if owner is not None else None
    picks = any(isinstance(source, DagInput) and source.item for source in spec.parameters.values())
    if picks or spec.dag is not None or (loop is not None and loop.fields):
        inputs_of(state, task)


def context_of(state: RunState, task: TaskState) -> Context:
    """What the placeholders of a task stand for, but for its inputs."""
    return Context(
        run=str(state.meta.get("run", "")),
        task=task.path,
        created_at=state.started_at,
        name=task.plan.spec.name,
    )


def _filled(
    state: RunState, task: TaskState, parameters: dict[str, Any], artifacts: Mapping[str, Any]
) -> dict[str, Any]:
    """Fill the placeholders in the constants that a pipeline is given: inside it their names would mean nothing."""
    written = [name for name, source in task.plan.spec.parameters.items() if isinstance(source, Constant)]
    if not written:
        return parameters
    context = context_of(state, task)
    others = {name: value for name, value in parameters.items() if name not in written}
    return {
        name: fill(value, others, artifacts, context) if name in written else value
        for name, value in parameters.items()
    }


def imported(state: RunState, task: TaskState, importer: Importer) -> dict[str, Any]:
    """The outputs of an importer: the artifact at its address. A ``file://`` address is that file.

    Raises ``ValueError`` for an address that is empty, or that climbs out of where it begins: it becomes a path in pods.
    """
    given, context = inputs_of(state, task), context_of(state, task)
    inputs = fill(given.parameters, given.parameters, given.artifacts, context)
    uri = fill(importer.uri, inputs, given.artifacts, context)
    if not uri:
        raise ValueError("the address that it imports is empty")
    if "://" in uri and ".." in uri.split("/"):
        raise ValueError(f"the address that it imports, {uri}, climbs with '..'; write it without")
    artifact = {
        "name": importer.output,
        "type": {"schemaTitle": importer.schema, "schemaVersion": importer.version},
        "uri": uri.removeprefix("file://"),
        "metadata": fill(importer.metadata, inputs, given.artifacts, context),
    }
    return {"parameters": {}, "artifacts": {importer.output: artifact}}


def condition_inputs(state: RunState, task: TaskState) -> dict[str, Any]:
    """The inputs of a task as its condition reads them: each of the declared type, where it can be."""
    values = inputs_of(state, task).parameters
    for name, declared in task.plan.spec.parameter_specs.items():
        if declared.type == "STRING" and values.get(name) is not None:
            values[name] = fit(values[name], "STRING")
    return values


def loop_items(state: RunState, task: TaskState) -> list[Any] | None:
    """What a task iterates over; ``None`` for a task that is no loop. A text is read as JSON, as the driver does.

    Raises ``ValueError`` for what is no list.
    """
    loop = task.plan.spec.loop
    if loop is None:
        return None
    if not loop.items:
        return list(loop.raw)
    inputs = inputs_of(state, task)
    value = (inputs.artifacts if loop.of_artifacts else inputs.parameters).get(loop.items)
    name = loop.items.removeprefix("pipelinechannel--")
    if value is None:
        raise ValueError(f"the list that it iterates over, {name}, has no value")
    items = _parsed(value, name) if isinstance(value, str) else value
    if isinstance(items, Mapping) and loop.of_artifacts:
        return [items]
    if not isinstance(items, Sequence) or isinstance(items, str):
        raise ValueError(f"it iterates over {name}, which is no list: {str(value)[:60]}")
    return list(items)


def dag_outputs(state: RunState, task: TaskState) -> dict[str, Any]:
    """The outputs of a task that is a pipeline, once all of its tasks have ended; those of skipped tasks are not there.

    A loop gives the outputs of its iterations in order: parameters as a list, which is a list of lists for a loop in a loop,
    artifacts as one list.
    """
    dag = state.plan.pipeline.dags[str(task.plan.spec.dag)]
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
            found = getattr(_task(state, scope, output.task), kind)
            if output.output in found:
                yield name, found[output.output]
                break


def run_outputs(state: RunState) -> dict[str, Any]:
    """The outputs of the whole pipeline that are there; where it declares none, those of the tasks that nothing follows.

    Keys are output names, or ``task.output`` where the pipeline declares none.
    """
    dag = state.plan.pipeline.root
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


def _scope_inputs(state: RunState, scope: ScopeState) -> Inputs:
    if scope.owner is None:
        arguments, artifacts = dict(state.meta.get("arguments", {})), scope.place.dag.artifacts
        return Inputs(arguments, {name: arguments.pop(name) for name in artifacts if name in arguments})
    given = inputs_of(state, scope.owner)
    for name, declared in scope.place.dag.parameters.items():
        if declared.has_default:
            given.parameters.setdefault(name, declared.default)
    loop, opened = scope.owner.plan.spec.loop, scope.owner.loop
    if loop is not None and opened is not None and scope.place.iteration is not None:
        item = opened.items[scope.place.iteration]
        if loop.of_artifacts:
            given.artifacts[loop.item] = item
        else:
            given.parameters[loop.item] = item
            given.parameters.update({name: _part(item, field, loop.item) for name, field in loop.fields.items()})
    return given


def _parameter(state: RunState, scope: ScopeState, outer: Inputs, source: Source) -> tuple[bool, Any]:
    if isinstance(source, Constant):
        return True, source.value
    if isinstance(source, DagInput):
        value = outer.parameters.get(source.name)
        for step in source.item if value is not None else ():
            value = _part(value, step, source.name)
        return source.name in outer.parameters, value
    upstream = _task(state, scope, source.task)
    if isinstance(source, FinalStatus):
        return True, _final_status(state, upstream)
    return source.output in upstream.parameters, upstream.parameters.get(source.output)


def _part(value: Any, step: str | int, name: str) -> Any:
    shown = name.removeprefix("pipelinechannel--")
    if isinstance(value, str):
        value = _parsed(value, shown)
    try:
        return value[step]
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"{shown} has no {step!r}: {str(value)[:60]}") from error


def _parsed(text: str, name: str) -> Any:
    try:
        return read_json(text)
    except ValueError as error:
        raise ValueError(f"{name} is no list or mapping, but the text {text[:60]!r}") from error


def _final_status(state: RunState, upstream: TaskState) -> dict[str, Any]:
    """How a task ended, as the driver writes it (``resolve.go``): the states are those of its metadata store."""
    word = upstream.status.value
    error = {"code": _UNKNOWN_ERROR, "message": _message(state, upstream)} if word == "failed" else {}
    return {
        "state": "CACHED" if upstream.cached_from is not None else _STATES.get(word, "CANCELED"),
        "pipelineJobResourceName": str(state.meta.get("run", "")),
        "pipelineTaskName": upstream.plan.spec.name,
        "error": error,
    }


def _message(state: RunState, failed: TaskState) -> str:
    """What the task that failed first in it wrote last; of a task without a log why it failed."""
    task = failed
    while opened := task.loop or task.inside:
        task = state.tasks[opened.failed]
    said = (task.last.ended or {}).get("last_line", "") if task.attempts else ""
    return f"{task.path} failed: {said or task.why}"


def _artifact(state: RunState, scope: ScopeState, outer: Inputs, source: Source) -> Any:
    if isinstance(source, Constant):
        return source.value
    if isinstance(source, DagInput):
        return outer.artifacts.get(source.name)
    if isinstance(source, TaskOutput):
        return _task(state, scope, source.task).artifacts.get(source.output)
    return None
