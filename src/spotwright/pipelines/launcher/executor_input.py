"""Build the executor input of one attempt: the values, artifacts and output paths that a component receives.

``python -m kfp.dsl.executor_main`` reads this one JSON value, and the placeholders of container components refer to parts of
it. It is built as in the KFP backend; :mod:`spotwright.pipelines.launcher.outputs` reads the outputs of the attempt. Sources,
in kubeflow/pipelines: ``backend/src/v2/driver/resolve.go`` and ``driver.go``, ``sdk/python/kfp/dsl/executor.py``.

The address of an artifact is an absolute path on this machine, which the SDK uses as its path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotwright.errors import PipelineError
from spotwright.graph import ArtifactSpec, Constant, TaskContext, TaskSpec
from spotwright.pipelines.graph.task_config import TaskConfig, task_config, task_config_of, with_workspace
from spotwright.pipelines.graph.task_settings import PLACEMENT
from spotwright.pipelines.launcher.outputs import ARTIFACTS, EXECUTOR_OUTPUT, PARAMETERS
from spotwright.pipelines.values.parameter_values import coerce
from spotwright.pipelines.values.placeholders import fill

__all__ = ["executor_input"]


_WORKSPACE = "{{$.workspace_path}}"


def executor_input(
    task: TaskSpec,
    parameters: Mapping[str, Any],
    artifacts: Mapping[str, Any],
    out_dir: str,
    context: TaskContext,
) -> dict[str, Any]:
    """Build the executor input of one attempt.

    ``parameters`` and ``artifacts`` are the resolved values of the task's sources: constants as compiled (their placeholders
    are filled in here, also inside longer texts), ``None`` for an input that was left out. An artifact is a plain dict
    or a list of them. ``out_dir`` is the absolute path below which the component writes all outputs.

    Raises :class:`PipelineError` for a value of another type than declared, and for a missing one.
    """
    values = _values(task, parameters, artifacts, context)
    return {
        "inputs": {"parameterValues": values, "artifacts": _input_artifacts(task, artifacts)},
        "outputs": {
            "parameters": {name: {"outputFile": f"{out_dir}/{PARAMETERS}/{name}"} for name in task.outputs.parameters},
            "artifacts": {
                name: {"artifacts": [_provision(name, spec, out_dir)]} for name, spec in task.outputs.artifacts.items()
            },
            "outputFile": f"{out_dir}/{EXECUTOR_OUTPUT}",
        },
    }


def _provision(name: str, spec: ArtifactSpec, out_dir: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": {"schemaTitle": spec.schema, "schemaVersion": spec.version},
        "uri": f"{out_dir}/{ARTIFACTS}/{name}",
        "metadata": dict(spec.metadata),
    }


def _values(
    task: TaskSpec, parameters: Mapping[str, Any], artifacts: Mapping[str, Any], context: TaskContext
) -> dict[str, Any]:
    """The values of parameters: constants come last, because their placeholders may refer to the others."""
    visible = {name: value for name, value in parameters.items() if not name.startswith(PLACEMENT)}
    constants = [name for name in visible if isinstance(task.parameters.get(name), Constant)]
    values = {name: _coerced(task, name, value) for name, value in visible.items() if name not in constants}
    values = {name: value for name, value in values.items() if value is not None}

    others = dict(values)
    for name in constants:
        values[name] = _coerced(task, name, fill(visible[name], others, artifacts, context))
    values = {name: _with_workspace(value, context.workspace) for name, value in values.items()}
    config = task_config_of(task)
    if config.inputs:
        values |= dict.fromkeys(config.inputs, _config(config, values, context))
    for name, spec in task.parameter_specs.items():
        if name not in values and not spec.optional and not spec.has_default:
            raise PipelineError(f"task {context.task}: its input {name} got no value, and it has no default")
    return values


def _config(config: TaskConfig, values: Mapping[str, Any], context: TaskContext) -> dict[str, Any]:
    """The value of a ``dsl.TaskConfig`` input; it replaces any other value of that input."""
    if any(context.workspace and isinstance(value, str) and context.workspace in value for value in values.values()):
        return with_workspace(config.values, config.passed, context.run)
    return dict(config.values) or task_config(config.passed, {}, {}, {})


def _with_workspace(value: Any, workspace: str) -> Any:
    """The value with the workspace's placeholder filled in: a text from a nested pipeline may still hold it."""
    return value.replace(_WORKSPACE, workspace) if workspace and isinstance(value, str) else value


def _coerced(task: TaskSpec, name: str, value: Any) -> Any:
    """The value of an input as its declared type. Raises :class:`PipelineError`."""
    spec = task.parameter_specs.get(name)
    if spec is None or value is None:
        return value
    try:
        coerced = coerce(value, spec.type)
        spec.check(coerced)
    except ValueError as error:
        raise PipelineError(f"task {task.name}: its input {name}: {error}") from error
    return coerced


def _input_artifacts(task: TaskSpec, artifacts: Mapping[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, value in artifacts.items():
        if value is not None:
            given[name] = {"artifacts": [dict(item) for item in (value if isinstance(value, list) else [value])]}
    for name, spec in task.artifact_specs.items():
        if name not in given and not spec.optional:
            raise PipelineError(f"task {task.name}: its input artifact {name} got no value")
    return given
