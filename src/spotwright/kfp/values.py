"""Values and texts of a pipeline as KFP's backend and Kubernetes make them, when an attempt starts.

Parameters are converted to their types: a protobuf ``Value`` has one kind of number, a double. The backend prints it as JSON
from Go, where a whole double has no decimal point, so that a list ``[1, 2]`` comes back as ``[1, 2]``; a parameter that the
component annotates as ``int`` must come back as an ``int`` too. Sources: ``backend/src/v2/metadata/converter.go`` and
``backend/src/v2/driver/resolve.go`` of kubeflow/pipelines.

Placeholders such as ``{{$.inputs.parameters['x']}}`` and ``{{$.pipeline_job_name}}`` are filled in, ``$(NAME)`` is expanded as
before a container starts, and an artifact of a cloud has its path in a pod: ``gs://bucket/data`` is at ``/gcs/bucket/data``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from spotwright.graph import TaskContext

__all__ = [
    "CLUSTER_ONLY",
    "KINDS",
    "RELATIVE",
    "coerce",
    "context_text",
    "expand",
    "expand_environment",
    "fill",
    "is_relative",
    "parameter_placeholders",
    "parse_json",
    "parse_text",
    "path_of",
    "run_id",
    "to_text",
    "whole_numbers",
]


KINDS: Mapping[str, str] = {
    "STRING": "a text",
    "NUMBER_INTEGER": "a whole number",
    "NUMBER_DOUBLE": "a number",
    "BOOLEAN": "true or false",
    "LIST": "a list",
    "STRUCT": "a mapping",
}
"""Every supported parameter type, with its name in messages."""

_WHOLE_LIMIT = 10**21  # from here Go's JSON writes an exponent, which reads back as a float
_HTML_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}  # Go's json.Marshal escapes them


def whole_numbers(value: Any) -> Any:
    """Convert whole floats inside lists and mappings to ints, as after a trip through the backend.

    The keys of mappings are sorted, as in Go's JSON of a protobuf ``Struct`` (``protojson``).
    """
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _WHOLE_LIMIT else value
    if isinstance(value, list | tuple):
        return [whole_numbers(item) for item in value]
    if isinstance(value, Mapping):
        return {key: whole_numbers(value[key]) for key in sorted(value)}
    return value


def to_text(value: Any) -> str:
    """Convert a value to text as the backend does: plain numbers, ``true``, compact JSON; ``None`` is empty."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        whole = whole_numbers(value)
        return str(whole) if isinstance(whole, int) else format(Decimal(repr(value)), "f")
    text = json.dumps(whole_numbers(value), ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.translate(_HTML_ESCAPES)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON as the backend does: ``NaN`` and ``Infinity`` are errors. Raises ``ValueError``."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")


def parse_text(text: str, kind: str) -> Any:
    """Parse the text of a value of a parameter type, from a command line or an ``OutputPath`` file.

    Raises ``ValueError`` for a text that is not of that type.
    """
    if kind == "STRING":
        return text
    return coerce(_PARSERS[kind](text.strip()), kind)


def _boolean(text: str) -> bool:
    """Parse a boolean. Source of the accepted words: Go's ``strconv.ParseBool``, which the backend uses."""
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _whole(text: str) -> int:
    if not text.removeprefix("-").removeprefix("+").isdecimal():
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "NUMBER_INTEGER": _whole,
    "NUMBER_DOUBLE": float,
    "BOOLEAN": _boolean,
    "LIST": parse_json,
    "STRUCT": parse_json,
}


def coerce(value: Any, kind: str) -> Any:
    """Convert a value to a parameter type, as the backend does when it passes the value to a component.

    For ``STRING`` every value becomes text; whole floats become ints for ``NUMBER_INTEGER`` and inside lists and mappings, ints
    become floats for ``NUMBER_DOUBLE``. Raises ``ValueError`` for a value of another type.
    """
    if kind == "STRING":
        return to_text(value)
    if kind in ("NUMBER_INTEGER", "NUMBER_DOUBLE"):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{value!r} is not {KINDS[kind]}")
        return whole_numbers(value) if kind == "NUMBER_INTEGER" else float(value)
    wanted = {"BOOLEAN": bool, "LIST": list | tuple, "STRUCT": Mapping}.get(kind)
    if wanted is None or not isinstance(value, wanted):
        raise ValueError(f"{value!r} is not {KINDS.get(kind, kind)}")
    return whole_numbers(value)


_REFERENCE = re.compile(r"\$(?:(\$)|\(([^)]*)\))")


def expand(text: str, env: Mapping[str, str]) -> str:
    """The text with the values of declared variables; an undeclared name stays as it is."""

    def value(match: re.Match[str]) -> str:
        if match.group(1):
            return "$"
        return env.get(match.group(2), match.group(0))

    return _REFERENCE.sub(value, text) if "$" in text else text


def expand_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The variables expanded in the order of their declaration: each may use those before it."""
    expanded: dict[str, str] = {}
    for name, text in env.items():
        expanded[name] = expand(text, expanded)
    return expanded


_FOLDERS = {"gs://": "/gcs", "s3://": "/s3", "minio://": "/minio"}
"""The folder of each kind of address."""

CLUSTER_ONLY = ("oci://", "huggingface://")
"""Addresses that only a pod can reach, by a sidecar (models in images) or its launcher."""


RELATIVE = (
    "is a relative path, which names no file in a pod: write an absolute path or an address such as gs://BUCKET/FILE"
)
"""Why a relative path cannot be imported, with remedies."""


def is_relative(uri: str) -> bool:
    """Whether an artifact's address is a path whose meaning depends on the current folder."""
    return "://" not in uri and not uri.startswith("/")


def path_of(uri: str) -> str:
    """The path of an artifact; an unknown kind of address is its own path, as in the SDK."""
    for scheme, folder in _FOLDERS.items():
        if uri.startswith(scheme):
            return f"{folder}/{uri.removeprefix(scheme)}"
    return uri


_PLACEHOLDER = re.compile(r"\{\{\$\.([^{}]+?)\}\}")
_PARAMETER = re.compile(r"inputs\.parameters\[(['\"])(.+)\1\]$")
_ARTIFACT = re.compile(r"inputs\.artifacts\[(['\"])(.+)\1\]\.(uri|path)$")


def run_id(context: TaskContext) -> str:
    """The id of a run, a UUID as on a cluster: the same at every call."""
    return _uuid(f"{context.run}@{context.created_at!r}")


def context_text(context: TaskContext, placeholder: str) -> str | None:
    """The text of a placeholder of the run or the task, by its name without braces; ``None`` for another name.

    A run has one name here; on a cluster the first of these is its display name and the second its workflow's. All attempts of
    a task share an id, because the driver makes it before the first.
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
    """The names of the parameters with placeholders in the strings of a JSON value."""
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
