"""The schemas of the chart's kinds, and the fields that an API server would refuse or drop because of them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import yaml
from tests.cluster.chart.rendered import CHART

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


@functools.cache
def schema_of(kind: str) -> Mapping[str, Any]:
    """The schema of a kind."""
    found = yaml.safe_load((CHART / "crds" / f"{kind.lower()}.yaml").read_text(encoding="utf-8"))
    (version,) = found["spec"]["versions"]
    schema: Mapping[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def misfits(found: Mapping[str, Any]) -> list[str]:
    """The mismatches of an object of ours, each with its path."""
    own = {key: value for key, value in found.items() if key not in ("apiVersion", "kind", "metadata")}
    return list(_misfits(own, schema_of(found["kind"]), ""))


def _misfits(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    kind = schema["type"]
    if type(value) not in _TYPES[kind]:
        yield f"{path} is {value!r:.60}"
    elif kind == "object":
        yield from _of_object(value, schema, path)
    elif kind == "array":
        if _has_twins(value, schema):
            yield f"{path} has a key twice"
        for number, each in enumerate(value):
            yield from _misfits(each, schema["items"], f"{path}[{number}]")
    elif kind == "string" and not _fits(value, schema):
        yield f"{path} is {value!r:.60}"


def _fits(value: str, schema: Mapping[str, Any]) -> bool:
    if schema.get("format") == "date-time":
        datetime.fromisoformat(value)
    is_long = not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
    return not is_long and bool(re.search(schema.get("pattern", ""), value)) and value in schema.get("enum", [value])


def _has_twins(values: list[Any], schema: Mapping[str, Any]) -> bool:
    if schema.get("x-kubernetes-list-type") != "map":
        return False
    keys = [tuple(each[key] for key in schema["x-kubernetes-list-map-keys"]) for each in values]
    return len(keys) != len(set(keys))


def _of_object(value: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> Iterator[str]:
    known = schema.get("properties", {})
    for name in set(schema.get("required", ())) - set(value):
        yield f"{path}.{name} is missing"
    for name, each in value.items():
        inner = known.get(name) or schema.get("additionalProperties")
        if inner is None:
            yield f"{path}.{name} is dropped"
        else:
            yield from _misfits(each, inner, f"{path}.{name}")
