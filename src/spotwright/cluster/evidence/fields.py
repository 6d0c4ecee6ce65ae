"""Reads fields of API objects of any shape: a missing or wrong value reads as empty, so that no object stops the watcher."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from spotwright.model.attempts import StatusCondition

__all__ = ["conditions", "mapping", "mappings", "seconds", "text", "transition"]


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: Any) -> tuple[Mapping[str, Any], ...]:
    """The mappings among the items of a list; none if the value is no list."""
    return tuple(item for item in value if isinstance(item, Mapping)) if isinstance(value, (list, tuple)) else ()


def text(value: Any) -> str:
    """The value if it is a string, else the empty string."""
    return value if isinstance(value, str) else ""


def seconds(value: Any) -> float | None:
    """A time of the API (RFC 3339, whole seconds or microseconds, UTC) in Unix seconds; None if it is missing or malformed."""
    try:
        return datetime.fromisoformat(text(value)).timestamp()
    except ValueError:
        return None


def conditions(of_object: Mapping[str, Any]) -> tuple[StatusCondition, ...]:
    """The conditions in the status of an object."""
    return tuple(
        StatusCondition(
            text(each.get("type")), text(each.get("status")), text(each.get("reason")), text(each.get("message"))
        )
        for each in mappings(mapping(of_object.get("status")).get("conditions"))
    )


def transition(of_object: Mapping[str, Any], kind: str, reason: str = "") -> float | None:
    """The time at which a condition became true, in Unix seconds; None if it is not true, or not for this reason."""
    for each in mappings(mapping(of_object.get("status")).get("conditions")):
        if each.get("type") == kind and each.get("status") == "True" and reason in ("", each.get("reason")):
            return seconds(each.get("lastTransitionTime"))
    return None
