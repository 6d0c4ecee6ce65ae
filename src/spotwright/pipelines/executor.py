"""What a component is given: the executor input of one attempt.

``python -m kfp.dsl.executor_main`` reads this one JSON value, and the placeholders of container components mean parts of it. It
is made as the KFP backend makes it; what an attempt leaves behind is read in :mod:`spotwright.pipelines.outputs`. Sources, in
kubeflow/pipelines: ``backend/src/v2/driver/resolve.go`` and ``driver.go``, ``sdk/python/kfp/dsl/executor.py``.

An artifact's address is an absolute path on this machine, which the SDK takes for its path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotwright.errors import PipelineError
from spotwright.pipelines.outputs import ARTIFACTS, EXECUTOR_OUTPUT, PARAMETERS
from spotwright.pipelines.placeholders import Context, fill
from spotwright.pipelines.settings import PLACEMENT
from spotwright.pipelines.spec import ArtifactSpec, Constant, TaskSpec
from spotwright.pipelines.task_config import task_config, with_workspace
from spotwright.pipelines.values import fit

__all__ = ["executor_input"]


_WORKSPACE = "{{$.workspace_path}}"


def executor_input(
    task: TaskSpec, parameters: Mapping[str, Any], artifacts: Mapping[str, Any], out_dir: str, context: Context
) -> dict[str, Any]:
    """Build the executor input of one attempt.

    ``parameters`` and ``artifacts`` are the resolved values of the task's sources: constants as they are written (their
    placeholders are filled in here, also inside longer texts), ``None`` for what was left out. An artifact is a plain dict
    or a list of them. ``out_dir`` is the absolute path below which everything is written.

    Raises :class:`PipelineError` for a value that does not fit the declared type, and for a missing one.
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
    task: TaskSpec, parameters: Mapping[str, Any], artifacts: Mapping[str, Any], context: Context
) -> dict[str, Any]:
    """Values of parameters: those from elsewhere first, because constants may speak of them."""
    visible = {name: value for name, value in parameters.items() if not name.startswith(PLACEMENT)}
    written = [name for name in visible if isinstance(task.parameters.get(name), Constant)]
    values = {name: _fitting(task, name, value) for name, value in visible.items() if name not in written}
    values = {name: value for name, value in values.items() if value is not None}

    given = dict(values)
    for name in written:
        values[name] = _fitting(task, name, fill(visible[name], given, artifacts, context))
    values = {name: _with_workspace(value, context.workspace) for name, value in values.items()}
    if task.config_inputs:
        config = _config(task, values, context)
        values |= dict.fromkeys(task.config_inputs, config)
    for name, spec in task.parameter_specs.items():
        if name not in values and not spec.optional and not spec.has_default:
            raise PipelineError(f"task {context.task}: its input {name} got no value, and it has no default")
    return values


def _config(task: TaskSpec, values: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """What the task's code is told of its own settings (``dsl.TaskConfig``), whatever it was given under that name."""
    if any(context.workspace and isinstance(value, str) and context.workspace in value for value in values.values()):
        return with_workspace(task.config, task.passed, context.run)
    return dict(task.config) or task_config(task.passed, {}, {}, {})


def _with_workspace(value: Any, workspace: str) -> Any:
    """A text that came through a pipeline inside may still speak of the workspace."""
    return value.replace(_WORKSPACE, workspace) if workspace and isinstance(value, str) else value


def _fitting(task: TaskSpec, name: str, value: Any) -> Any:
    spec = task.parameter_specs.get(name)
    if spec is None or value is None:
        return value
    try:
        fitting = fit(value, spec.type)
        spec.check(fitting)
    except ValueError as error:
        raise PipelineError(f"task {task.name}: its input {name}: {error}") from error
    return fitting


def _input_artifacts(task: TaskSpec, artifacts: Mapping[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, value in artifacts.items():
        if value is not None:
            given[name] = {"artifacts": [dict(item) for item in (value if isinstance(value, list) else [value])]}
    for name, spec in task.artifact_specs.items():
        if name not in given and not spec.optional:
            raise PipelineError(f"task {task.name}: its input artifact {name} got no value")
    return given
