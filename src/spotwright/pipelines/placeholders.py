"""Placeholders in the texts of a pipeline, such as ``{{$.inputs.parameters['x']}}`` and ``{{$.pipeline_job_name}}``.

Sources, in kubeflow/pipelines: ``backend/src/v2/driver/resolve.go`` and ``backend/src/v2/component/launcher_v2.go``. The backend
knows those of the run and the task only where they are the whole text of an input; here they are filled in wherever they stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from spotwright.pipelines.remote import path_of
from spotwright.pipelines.values import to_text

__all__ = ["Context", "fill", "inputs_read"]

_PLACEHOLDER = re.compile(r"\{\{\$\.([^{}]+?)\}\}")
_PARAMETER = re.compile(r"inputs\.parameters\[(['\"])(.+)\1\]$")
_ARTIFACT = re.compile(r"inputs\.artifacts\[(['\"])(.+)\1\]\.(uri|path)$")


@dataclass(frozen=True, slots=True)
class Context:
    """What placeholders such as ``{{$.pipeline_job_name}}`` stand for.

    ``run`` is the run's name, ``task`` the task's path, ``name`` its name in its pipeline, ``created_at`` the run's start as Unix
    time, ``workspace`` the folder that all tasks of the run share.
    """

    run: str
    task: str
    created_at: float
    name: str = ""
    workspace: str = ""

    @property
    def run_id(self) -> str:
        """The run's id, a UUID as on a cluster: the same for a run whenever it is asked for."""
        return _uuid(f"{self.run}@{self.created_at!r}")

    def value(self, placeholder: str) -> str | None:
        """The text of a placeholder's name without its braces; ``None`` when it is not one of these.

        A run has one name here; on a cluster the first of these is its display name and the second that of its workflow. Another
        attempt of a task has the same id, because the driver makes it before the first.
        """
        match placeholder:
            case "pipeline_job_name" | "pipeline_job_resource_name":
                return self.run
            case "pipeline_job_uuid":
                return self.run_id
            case "pipeline_task_name":
                return self.name or self.task.rpartition("/")[2]
            case "pipeline_task_uuid":
                return _uuid(f"{self.run_id}/{self.task}")
            case "pipeline_job_create_time_utc" | "pipeline_job_schedule_time_utc":
                return datetime.fromtimestamp(self.created_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            case "workspace_path":
                return self.workspace or None
        return None


def _uuid(name: str) -> str:
    from uuid import NAMESPACE_URL, uuid5

    return str(uuid5(NAMESPACE_URL, f"spotwright:{name}"))


def fill(value: Any, parameters: Mapping[str, Any], artifacts: Mapping[str, Any], context: Context) -> Any:
    """Fill in the placeholders in every text of a JSON value. One that is not known stays, as the backend leaves it."""

    def replace(match: re.Match[str]) -> str:
        return _text_of(match, parameters, artifacts, context)

    return _filled(value, replace)


def inputs_read(value: Any) -> set[str]:
    """The names of the parameters that placeholders in the texts of a JSON value stand for."""
    found: set[str] = set()

    def note(match: re.Match[str]) -> str:
        parameter = _PARAMETER.match(match.group(1))
        if parameter is not None:
            found.add(parameter.group(2))
        return ""

    _filled(value, note)
    return found


def _filled(value: Any, replace: Callable[[re.Match[str]], str]) -> Any:
    if isinstance(value, str):
        return _PLACEHOLDER.sub(replace, value) if "{{$." in value else value
    if isinstance(value, list):
        return [_filled(item, replace) for item in value]
    if isinstance(value, Mapping):
        return {_filled(key, replace): _filled(item, replace) for key, item in value.items()}
    return value


def _text_of(
    match: re.Match[str], parameters: Mapping[str, Any], artifacts: Mapping[str, Any], context: Context
) -> str:
    parameter, artifact = _PARAMETER.match(match.group(1)), _ARTIFACT.match(match.group(1))
    if parameter is not None:
        return to_text(parameters.get(parameter.group(2)))
    if artifact is not None:
        found = artifacts.get(artifact.group(2))
        first = found[0] if isinstance(found, list) and found else found
        uri = str(first["uri"]) if isinstance(first, Mapping) else ""
        return path_of(uri) if artifact.group(3) == "path" else uri
    known = context.value(match.group(1))
    return match.group(0) if known is None else known
