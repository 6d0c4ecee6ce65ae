"""Compare a value with a schema: fields that a CustomResourceDefinition would drop, and values of another type."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["job_schema", "load", "strange"]

_TYPES: dict[str, type | tuple[type, ...]] = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "object": dict,
    "string": str,
}


def load(path: Path, version: str) -> dict[str, Any]:
    """The schema of one version of a kind, from a gzipped CustomResourceDefinition."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        definition = json.load(file)
    [found] = [one for one in definition["spec"]["versions"] if one["name"] == version]
    schema: dict[str, Any] = found["schema"]["openAPIV3Schema"]
    return schema


def job_schema(jobset: Path) -> dict[str, Any]:
    """The schema of a Kubernetes Job, a part of that of a JobSet."""
    spec = load(jobset, "v1alpha2")["properties"]["spec"]
    template = spec["properties"]["replicatedJobs"]["items"]["properties"]["template"]
    return {"type": "object", "properties": {"spec": template["properties"]["spec"]}}


def strange(schema: dict[str, Any], value: Any, path: str = "") -> Iterator[str]:
    """Paths of a value that the schema does not have, or has with another type; a placeholder fits every type."""
    if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string") or value is None:
        return
    kind = schema.get("type")
    if isinstance(value, str) and "${" in value:
        return
    if kind in _TYPES and not isinstance(value, _TYPES[kind]):
        yield f"{path} is no {kind}"
    elif isinstance(value, dict):
        yield from _fields(schema, value, path)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from strange(schema.get("items") or {}, item, f"{path}[{index}]")
    elif value not in schema.get("enum", [value]):
        yield f"{path} cannot be {value}"


def _fields(schema: dict[str, Any], value: dict[str, Any], path: str) -> Iterator[str]:
    known, others = schema.get("properties") or {}, schema.get("additionalProperties")
    for name, item in value.items():
        below = f"{path}.{name}"
        if not path and name in ("apiVersion", "kind", "metadata"):
            continue
        if name in known:
            yield from strange(known[name], item, below)
        elif isinstance(others, dict):
            yield from strange(others, item, below)
        elif not others and (known or others is not None):
            yield below
    for name in schema.get("required") or ():
        if name not in value:
            yield f"{path}.{name} is missing"
