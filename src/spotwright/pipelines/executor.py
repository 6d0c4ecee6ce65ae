"""The contract of the SDK's executor: what a Python component is given, and what it leaves behind.

``python -m kfp.dsl.executor_main`` reads one JSON value, the executor input, and writes ``executor_output.json`` when the
function has returned. Both are given and read here as the KFP backend does. Sources, in kubeflow/pipelines:
``backend/src/v2/driver/resolve.go`` and ``driver.go`` (inputs), ``backend/src/v2/component/launcher_v2.go`` (outputs),
``sdk/python/kfp/dsl/executor.py``.

An artifact's address is an absolute path on this machine, which the SDK takes for its path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from spotwright.errors import PipelineError
from spotwright.pipelines.identity import code_fingerprint, fingerprint
from spotwright.pipelines.outputs import ARTIFACTS, EXECUTOR_OUTPUT, PARAMETERS, Outputs, read_outputs
from spotwright.pipelines.settings import PLACEMENT
from spotwright.pipelines.spec import ArtifactSpec, Constant, Executor, TaskSpec
from spotwright.pipelines.values import fit, to_text

__all__ = [
    "Context",
    "Executor",
    "Outputs",
    "code_fingerprint",
    "executor_input",
    "fingerprint",
    "read_outputs",
]

_PLACEHOLDER = re.compile(r"\{\{\$\.([^{}]+?)\}\}")
_PARAMETER = re.compile(r"inputs\.parameters\[(['\"])(.+)\1\]$")
_ARTIFACT = re.compile(r"inputs\.artifacts\[(['\"])(.+)\1\]\.(uri|path)$")


@dataclass(frozen=True, slots=True)
class Context:
    """What placeholders such as ``{{$.pipeline_job_name}}`` stand for.

    ``run`` is the run's id, ``task`` the task's path, ``created_at`` the run's start as Unix time.
    """

    pipeline: str
    run: str
    task: str
    created_at: float
    attempt: int = 1

    def value(self, placeholder: str) -> str | None:
        """The text of a placeholder's name without its braces; ``None`` when it is not one of these."""
        created = datetime.fromtimestamp(self.created_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "pipeline_job_name": f"{self.pipeline}-{self.run}",
            "pipeline_job_resource_name": self.run,
            "pipeline_job_uuid": self.run,
            "pipeline_job_create_time_utc": created,
            "pipeline_job_schedule_time_utc": created,
            "pipeline_task_name": self.task.rpartition("/")[2],
            "pipeline_task_uuid": f"{self.run}-{self.task}-{self.attempt}",
        }.get(placeholder)


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

    def replace(match: re.Match[str]) -> str:
        return _text_of(match, values, artifacts, context)

    for name in written:
        values[name] = _fitting(task, name, _filled(visible[name], replace))
    for name, spec in task.parameter_specs.items():
        if name not in values and not spec.optional and not spec.has_default:
            raise PipelineError(f"task {context.task}: its input {name} got no value, and it has no default")
    return values


def _fitting(task: TaskSpec, name: str, value: Any) -> Any:
    spec = task.parameter_specs.get(name)
    if spec is None or value is None:
        return value
    try:
        return fit(value, spec.type)
    except ValueError as error:
        raise PipelineError(f"task {task.name}: its input {name}: {error}") from error


def _filled(value: Any, replace: Any) -> Any:
    if isinstance(value, str):
        return _PLACEHOLDER.sub(replace, value)
    if isinstance(value, list):
        return [_filled(item, replace) for item in value]
    if isinstance(value, Mapping):
        return {_filled(key, replace): _filled(item, replace) for key, item in value.items()}
    return value


def _text_of(match: re.Match[str], values: Mapping[str, Any], artifacts: Mapping[str, Any], context: Context) -> str:
    """The text that stands for one placeholder; itself when it is not known, as the backend leaves it."""
    parameter, artifact = _PARAMETER.match(match.group(1)), _ARTIFACT.match(match.group(1))
    if parameter is not None:
        return to_text(values.get(parameter.group(2)))
    if artifact is not None:
        found = artifacts.get(artifact.group(2))
        first = found[0] if isinstance(found, list) and found else found
        return str(first["uri"]) if isinstance(first, Mapping) else ""
    known = context.value(match.group(1))
    return match.group(0) if known is None else known


def _input_artifacts(task: TaskSpec, artifacts: Mapping[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, value in artifacts.items():
        if value is not None:
            given[name] = {"artifacts": [dict(item) for item in (value if isinstance(value, list) else [value])]}
    for name, spec in task.artifact_specs.items():
        if name not in given and not spec.optional:
            raise PipelineError(f"task {task.name}: its input artifact {name} got no value")
    return given
