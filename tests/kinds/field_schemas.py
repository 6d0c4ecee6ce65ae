"""The fields that kinds have, by the schemas of their API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests import plain_yaml

HERE = Path(__file__).parent


FIELDS: dict[str, Any] = plain_yaml.load((HERE / "written_fields.yaml").read_text())["kinds"]


def schema(fields: Any) -> dict[str, Any]:
    """Fields in the form of a schema."""
    if isinstance(fields, dict):
        any_key = schema(fields["*"]) if "*" in fields else None
        known = {name: schema(field) for name, field in fields.items() if name != "*"}
        return {"type": "object", "properties": known, "additionalProperties": any_key or False}
    if isinstance(fields, list):
        return {"type": "array", "items": schema(fields[0])}
    if fields == "number-or-text":
        return {"x-kubernetes-int-or-string": True}
    if fields in ("string", "integer"):
        return {"type": fields}
    return {"type": "string", "enum": fields.split(" | ")}
