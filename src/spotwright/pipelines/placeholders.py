"""Placeholders in the texts of a pipeline, such as ``{{$.inputs.parameters['x']}}`` and ``{{$.pipeline_job_name}}``.

Sources, in kubeflow/pipelines: ``backend/src/v2/driver/resolve.go`` and ``backend/src/v2/component/launcher_v2.go``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from spotwright.pipelines.remote import path_of
from spotwright.pipelines.values import to_text

__all__ = ["Context", "fill"]

_PLACEHOLDER = re.compile(r"\{\{\$\.([^{}]+?)\}\}")
_PARAMETER = re.compile(r"inputs\.parameters\[(['\"])(.+)\1\]$")
_ARTIFACT = re.compile(r"inputs\.artifacts\[(['\"])(.+)\1\]\.(uri|path)$")


@dataclass(frozen=True, slots=True)
class Context:
    """What placeholders such as ``{{$.pipeline_job_name}}`` stand for.

    ``run`` is the run's id, ``task`` the task's path, ``name`` its name in its pipeline, ``created_at`` the run's start as Unix
    time, ``workspace`` the folder that all tasks of the run share.
    """

    pipeline: str
    run: str
    task: str
    created_at: float
    attempt: int = 1
    name: str = ""
    workspace: str = ""

    def value(self, placeholder: str) -> str | None:
        """The text of a placeholder's name without its braces; ``None`` when it is not one of these."""
        created = datetime.fromtimestamp(self.created_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "workspace_path": self.workspace or None,
            "pipeline_job_name": f"{self.pipeline}-{self.run}",
            "pipeline_job_resource_name": self.run,
            "pipeline_job_uuid": self.run,
            "pipeline_job_create_time_utc": created,
            "pipeline_job_schedule_time_utc": created,
            "pipeline_task_name": self.name or self.task.rpartition("/")[2],
            "pipeline_task_uuid": f"{self.run}-{self.task}-{self.attempt}",
        }.get(placeholder)


def fill(value: Any, parameters: Mapping[str, Any], artifacts: Mapping[str, Any], context: Context) -> Any:
    """Fill in the placeholders in every text of a JSON value. One that is not known stays, as the backend leaves it."""

    def replace(match: re.Match[str]) -> str:
        return _text_of(match, parameters, artifacts, context)

    return _filled(value, replace)


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
