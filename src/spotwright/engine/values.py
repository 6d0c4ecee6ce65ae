"""The values that flow through a run: what a task is given, and what a pipeline inside a pipeline gives back.

Sources are resolved in the scope of the pipeline that a task stands in, all the way up to the run's arguments. Values here
are those of the journal: where an argument is a reference to a secret they hold the reference, never the secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from spotwright.pipelines.graph import Constant, DagInput, Source

if TYPE_CHECKING:
    from spotwright.engine.state import RunState, TaskState

__all__ = ["Inputs", "dag_outputs", "inputs_of", "run_outputs"]


class Inputs(NamedTuple):
    """What a task is given: parameters by name, artifacts by name (lists of plain dicts, as KFP's executor has them)."""

    parameters: dict[str, Any]
    artifacts: dict[str, Any]


def inputs_of(state: RunState, task: TaskState) -> Inputs:
    """Resolve the inputs of a task whose upstream tasks have succeeded. Inputs without a source take their default."""
    spec = task.plan.spec
    outer = _scope_inputs(state, task.scope)
    parameters = {name: declared.default for name, declared in spec.parameter_specs.items() if declared.has_default}
    for name, source in spec.parameters.items():
        found, value = _parameter(state, task.scope, outer, source)
        if found:
            parameters[name] = value
    artifacts = {}
    for name, source in spec.artifacts.items():
        value = _artifact(state, task.scope, outer, source)
        if value is not None:
            artifacts[name] = value
    return Inputs(parameters, artifacts)


def dag_outputs(state: RunState, task: TaskState) -> dict[str, Any]:
    """The outputs of a task that is a pipeline, once all of its tasks have succeeded."""
    dag = state.plan.dag(task.path)
    return {
        "parameters": {
            name: state.tasks[f"{task.path}/{source.task}"].parameters.get(source.output)
            for name, source in dag.parameter_outputs.items()
        },
        "artifacts": {
            name: state.tasks[f"{task.path}/{source.task}"].artifacts.get(source.output)
            for name, source in dag.artifact_outputs.items()
        },
    }


def run_outputs(state: RunState) -> dict[str, Any]:
    """The outputs of the whole pipeline that are there; where it declares none, those of the tasks that nothing follows.

    Keys are output names, or ``task.output`` where the pipeline declares none.
    """
    dag = state.plan.pipeline.root
    declared = {**dag.parameter_outputs, **dag.artifact_outputs}
    if declared:
        return {
            name: _output(state.tasks[source.task], source.output)
            for name, source in declared.items()
            if source.task in state.tasks
        }
    return {
        f"{task.path}.{name}": _output(task, name)
        for task in state.tasks.values()
        if not task.scope and not task.consumers
        for name in (*task.parameters, *task.artifacts)
    }


def _output(task: TaskState, name: str) -> Any:
    return task.parameters[name] if name in task.parameters else task.artifacts.get(name)


def _scope_inputs(state: RunState, scope: str) -> Inputs:
    if not scope:
        return Inputs(dict(state.meta.get("arguments", {})), {})
    given = inputs_of(state, state.tasks[scope])
    for name, declared in state.plan.dag(scope).parameters.items():
        if declared.has_default:
            given.parameters.setdefault(name, declared.default)
    return given


def _parameter(state: RunState, scope: str, outer: Inputs, source: Source) -> tuple[bool, Any]:
    if isinstance(source, Constant):
        return True, source.value
    if isinstance(source, DagInput):
        return source.name in outer.parameters, outer.parameters.get(source.name)
    upstream = state.tasks[f"{scope}/{source.task}" if scope else source.task]
    return source.output in upstream.parameters, upstream.parameters.get(source.output)


def _artifact(state: RunState, scope: str, outer: Inputs, source: Source) -> Any:
    if isinstance(source, Constant):
        return source.value
    if isinstance(source, DagInput):
        return outer.artifacts.get(source.name)
    upstream = state.tasks[f"{scope}/{source.task}" if scope else source.task]
    return upstream.artifacts.get(source.output)
