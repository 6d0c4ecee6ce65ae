"""Fields that every Kubernetes object may have: its metadata, its controller, its times.

Objects come from users, controllers and other servers, so missing and malformed values read as empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

__all__ = [
    "ARGO_NODE",
    "ARGO_NODE_ID",
    "Owner",
    "controller_of",
    "mapping",
    "mappings",
    "metadata",
    "seconds",
    "text",
    "uid_of",
]


ARGO_NODE = "workflows.argoproj.io/node-name"
"""The annotation of a pod with the name of its node in its Workflow. KFP's pods have it too."""

ARGO_NODE_ID = "workflows.argoproj.io/node-id"
"""The annotation with the key of the same node in the status of the Workflow."""


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, (dict, Mapping)) else {}  # the check for dict is faster


def mappings(value: Any) -> tuple[Mapping[str, Any], ...]:
    """The mappings among the items of a list; empty if the value is not a list."""
    return (
        tuple([item for item in value if isinstance(item, (dict, Mapping))]) if isinstance(value, (list, tuple)) else ()
    )


def text(value: Any) -> str:
    """The value if it is a string, else the empty string."""
    return value if isinstance(value, str) else ""


def metadata(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The metadata of an object."""
    return mapping(data.get("metadata"))


def uid_of(data: Mapping[str, Any]) -> str:
    """The UID of an object."""
    return str(metadata(data).get("uid", ""))


class Owner(NamedTuple):
    """The controller that an object names as its owner; a field that it does not name is empty."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""

    @property
    def group_kind(self) -> tuple[str, str]:
        """Its API group, empty for the core API, and its kind."""
        return self.api_version.rpartition("/")[0], self.kind


def controller_of(data: Mapping[str, Any]) -> Owner | None:
    """The controller that owns an object; ``None`` if a user made it."""
    for each in mappings(metadata(data).get("ownerReferences")):
        if each.get("controller"):
            return Owner(*[str(each.get(field, "")) for field in ("apiVersion", "kind", "name", "uid")])
    return None


def seconds(value: Any) -> float | None:
    """A time of an object in Unix seconds; ``None`` for a missing, malformed or zero time.

    The API server writes RFC 3339 in UTC, which a YAML parser may have converted. Controllers write Go's zero time, 1 January
    of the year 1, for an unknown time; KFP's backend writes 1970.
    """
    try:
        at = value if isinstance(value, datetime) else datetime.fromisoformat(text(value))
        moment = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return moment if moment > 0 else None
