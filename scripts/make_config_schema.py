"""Write src/spotwright/config/spotwright.schema.json, the JSON schema of ``spotwright.yaml``, from the tables of its fields.

Editors check the file with it; ``spotwright config schema`` prints it. Like the loader it refuses wrong forms of values and
unknown keys. Only the loader checks relations of fields, such as the names in a ladder. A test compares the file with
:func:`schema_text`, and the schema with the loader, field by field.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from spotwright.config import FILE_NAME, document, fields
from spotwright.config.fields import (
    DURATION_PATTERN,
    JSON_SHAPES,
    LINT,
    POOL,
    REQUIRED,
    SIMULATE,
    TARGET,
    TOP,
    Field,
    Reader,
)
from spotwright.config.sections import POLICY, POLICY_MEANINGS
from spotwright.model.policy import FIELDS, Spot

__all__ = ["SCHEMA", "schema", "schema_text"]

SCHEMA = Path(__file__).resolve().parent.parent / "src" / "spotwright" / "config" / "spotwright.schema.json"

Shape = Mapping[str, Any]

_TEXT = JSON_SHAPES[fields.words]
_TEXTS = {"type": "array", "items": _TEXT, "uniqueItems": True}
_QUANTITY = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": r"^\s*\+?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,2})?\s*$"},
    ]
}
_NAME_OF_LABEL = "^([^/]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"
_VALUE_OF_LABEL = "^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$"
_TAINT = "^[^=:]+(=[^=:]*)?:(NoSchedule|PreferNoSchedule|NoExecute)$"
_FOLDER = {"type": "string", "pattern": "^@folder:"}
_REFERENCE = {"type": "string", "pattern": "^@(env|file):"}


def _mapping(values: Shape, keys: str = "") -> dict[str, Any]:
    names = {"propertyNames": {"pattern": keys}} if keys else {}
    return {"type": "object", "additionalProperties": values, **names}


def _sources(values: Shape) -> dict[str, Any]:
    objects = {"anyOf": [_FOLDER, _mapping(values, "^[-._a-zA-Z0-9]{1,253}$")]}
    return _mapping(objects, "^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")


_READERS: Mapping[Reader, Shape] = {
    **JSON_SHAPES,
    fields.truth: {"type": "boolean"},
    fields.texts: _TEXTS,
    fields.one_or_more: {"anyOf": [_TEXT, _TEXTS]},
    fields.labels: _mapping({"type": "string", "pattern": _VALUE_OF_LABEL}, _NAME_OF_LABEL),
    fields.reasons: _mapping(_TEXT),
    fields.taints: {"type": "array", "items": {"type": "string", "pattern": _TAINT}, "uniqueItems": True},
    fields.create_flags: _mapping({"not": {"type": "null"}}, "^[A-Za-z][A-Za-z0-9-]*$"),
    fields.resources: _mapping(_QUANTITY, "^(cpu|memory|ephemeral-storage|pods|hugepages-.*|.+/.+)$"),
    document.secrets: _sources(_REFERENCE),
    document.config_maps: _sources({"type": ["string", "number", "boolean"]}),
}

_COUNT = {"type": "integer", "minimum": 0}
_FACTOR = {"type": "number", "minimum": 1}
_NAMES = {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "uniqueItems": True}
_PLACE = {"type": "string", "pattern": r"^[^{}]*[^{}\s][^{}]*$"}
_MOMENT = r"\d{4}-.*"
_DEADLINE_TEXT = {"type": "string", "pattern": rf"^\s*({DURATION_PATTERN}|{_MOMENT})(\s+best-effort)?\s*$"}
_DEADLINE = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, _DEADLINE_TEXT]}
_POLICY: Mapping[str, Shape] = {
    "spot": {"enum": [each.value for each in Spot]},
    **dict.fromkeys(("ladder", "image_pull_secrets"), _NAMES),
    **dict.fromkeys(("interruptions.max", "errors.retries", "fall_back_after"), _COUNT),
    **dict.fromkeys(("interruptions.factor", "errors.factor"), _FACTOR),
    **dict.fromkeys(
        ("interruptions.backoff", "interruptions.max_backoff", "errors.backoff"), JSON_SHAPES[fields.duration]
    ),
    **dict.fromkeys(("errors.max_backoff", "grace_period"), JSON_SHAPES[fields.duration]),
    **dict.fromkeys(("pending_timeout", "expected_duration", "timeout"), JSON_SHAPES[fields.positive_duration]),
    "deadline": _DEADLINE,
    "checkpoint": _PLACE,
}


def schema() -> dict[str, Any]:
    """The schema as a document."""
    policy = _policy_schema()
    pool = _table(POOL, {"simulate": _table(SIMULATE)})
    pools = {**_mapping(pool, "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"), "minProperties": 1}
    policies = _table(
        POLICY, {"default": {"$ref": "#/definitions/policy"}, "tasks": _mapping({"$ref": "#/definitions/policy"})}
    )
    inside = {"target": _table(TARGET), "lint": _table(LINT), "pools": pools, "policy": policies}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": f"Spotwright configuration ({FILE_NAME})",
        **_table(TOP, inside),
        "definitions": {"policy": policy},
    }


def _table(table: Iterable[Field], inside: Mapping[str, Shape] | None = None) -> dict[str, Any]:
    """The schema of a mapping by its table of fields; ``inside`` has those of the mappings that other tables describe."""
    inside, table = inside or {}, tuple(table)
    properties = {}
    for field in table:
        shape = inside[field.name] if field.name in inside else _READERS[field.read]
        text = f"{field.meaning} Expected: {field.expects}. Default: {field.shown}."
        properties[field.name] = {"description": text, **({"allOf": [shape]} if "$ref" in shape else shape)}
    required = [field.name for field in table if field.default is REQUIRED]
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }


def _policy_schema() -> dict[str, Any]:
    """The schema of one policy, whose fields with a dot are mappings."""
    properties: dict[str, Any] = {}
    for name, expects in FIELDS.items():
        group, dot, field = name.rpartition(".")
        target = properties
        if dot:
            mapping = properties.setdefault(group, {"type": "object", "properties": {}, "additionalProperties": False})
            target = mapping["properties"]
        target[field] = {"description": f"{POLICY_MEANINGS[name]} Expected: {expects}.", **_POLICY[name]}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def schema_text() -> str:
    """The content of the file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(schema_text(), encoding="utf-8")
    print(f"{SCHEMA}: written")
