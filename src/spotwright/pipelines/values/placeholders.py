"""Fill in placeholders in the texts of a pipeline, such as ``{{$.inputs.parameters['x']}}`` and ``{{$.pipeline_job_name}}``.

Sources, in kubeflow/pipelines: ``backend/src/v2/driver/resolve.go`` and ``backend/src/v2/component/launcher_v2.go``. The backend
fills in those of the run and the task only where they are the whole text of an input; here they are filled in everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from spotwright.graph import TaskContext
from spotwright.pipelines.values.artifact_paths import path_of
from spotwright.pipelines.values.parameter_values import to_text

__all__ = ["context_text", "fill", "parameter_placeholders", "run_id"]

_PLACEHOLDER = re.compile(r"\{\{\$\.([^{}]+?)\}\}")
_PARAMETER = re.compile(r"inputs\.parameters\[(['\"])(.+)\1\]$")
_ARTIFACT = re.compile(r"inputs\.artifacts\[(['\"])(.+)\1\]\.(uri|path)$")


def run_id(context: TaskContext) -> str:
    """The id of a run, a UUID as on a cluster: the same at every call."""
    return _uuid(f"{context.run}@{context.created_at!r}")


def context_text(context: TaskContext, placeholder: str) -> str | None:
    """The text of a placeholder of the run or the task, by its name without braces; ``None`` for another name.

    A run has one name here; on a cluster the first of these is its display name and the second that of its workflow. Another
    attempt of a task has the same id, because the driver makes it before the first.
    """
    match placeholder:
        case "pipeline_job_name" | "pipeline_job_resource_name":
            return context.run
        case "pipeline_job_uuid":
            return run_id(context)
        case "pipeline_task_name":
            return context.name or context.task.rpartition("/")[2]
        case "pipeline_task_uuid":
            return _uuid(f"{run_id(context)}/{context.task}")
        case "pipeline_job_create_time_utc" | "pipeline_job_schedule_time_utc":
            return datetime.fromtimestamp(context.created_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        case "workspace_path":
            return context.workspace or None
    return None


def _uuid(name: str) -> str:
    from uuid import NAMESPACE_URL, uuid5

    return str(uuid5(NAMESPACE_URL, f"spotwright:{name}"))


def fill(value: Any, parameters: Mapping[str, Any], artifacts: Mapping[str, Any], context: TaskContext) -> Any:
    """Fill in the placeholders in every text of a JSON value. An unknown one stays, as in the backend."""

    def replace(match: re.Match[str]) -> str:
        return _text_of(match, parameters, artifacts, context)

    return _filled(value, replace)


def parameter_placeholders(value: Any) -> set[str]:
    """The names of the parameters whose placeholders stand in the texts of a JSON value."""
    names: set[str] = set()

    def collect(match: re.Match[str]) -> str:
        parameter = _PARAMETER.match(match.group(1))
        if parameter is not None:
            names.add(parameter.group(2))
        return ""

    _filled(value, collect)
    return names


def _filled(value: Any, replace: Callable[[re.Match[str]], str]) -> Any:
    if isinstance(value, str):
        return _PLACEHOLDER.sub(replace, value) if "{{$." in value else value
    if isinstance(value, list):
        return [_filled(item, replace) for item in value]
    if isinstance(value, Mapping):
        return {_filled(key, replace): _filled(item, replace) for key, item in value.items()}
    return value


def _text_of(
    match: re.Match[str], parameters: Mapping[str, Any], artifacts: Mapping[str, Any], context: TaskContext
) -> str:
    parameter, artifact = _PARAMETER.match(match.group(1)), _ARTIFACT.match(match.group(1))
    if parameter is not None:
        return to_text(parameters.get(parameter.group(2)))
    if artifact is not None:
        value = artifacts.get(artifact.group(2))
        first = value[0] if isinstance(value, list) and value else value
        uri = str(first["uri"]) if isinstance(first, Mapping) else ""
        return path_of(uri) if artifact.group(3) == "path" else uri
    text = context_text(context, match.group(1))
    return match.group(0) if text is None else text
