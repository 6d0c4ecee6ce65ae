"""A notice, or its withdrawal, as a Kubernetes Event about its node, posted by a node agent and read by a watcher.

The Event's name is made from the node and the source's id of the notice, so the API server refuses a second post as a
duplicate: however often an agent starts, each notice exists once. The node's end is given in seconds from the Event, whose time
is the API server's, because the node's clock may be wrong by minutes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from spotwright.kube.object_fields import mapping, metadata, seconds
from spotwright.notices.notice import KINDS, Notice

__all__ = ["NAMESPACE", "REASON", "NodeNotice", "event_of", "notice_in", "withdrawal_in", "withdrawal_of"]

NAMESPACE = "default"
"""The namespace of Events about nodes, which have no namespace; the kubelet writes there too."""

REASON = "SpotInterruptionNotice"
"""The reason of these Events for all notices: their kind is an annotation."""

_WITHDRAWN = "withdrawn"  # replaces the kind: readers that do not know it ignore the Event
_PREFIX = "spotwright.dev/notice-"


class NodeNotice(NamedTuple):
    """A notice that a node agent posted. ``id`` is the source's; ``at`` is the API server's time of the Event."""

    id: str
    at: float
    notice: Notice


def event_of(notice: Notice, node: str, boot: str, now: float) -> dict[str, Any]:
    """The Event for a notice. ``boot`` names this start of the machine, for sources whose notices have no id."""
    ident = _ident(notice, boot)
    left = notice.ends_at - now
    when = f", in {max(0.0, left):.0f} s" if math.isfinite(left) else ""
    values = {
        "id": ident,
        "kind": notice.kind,
        "source": notice.source,
        "certain": "true" if notice.certain else "false",
        "reason": notice.reason,
        **({"seconds-left": f"{left:.1f}"} if math.isfinite(left) else {}),
    }
    return _event(node, ident, values, f"{notice.reason}{when}", now)


def withdrawal_of(notice: Notice, node: str, boot: str, now: float) -> dict[str, Any]:
    """The Event for the withdrawal of a notice. Arguments as of :func:`event_of`."""
    ident = _ident(notice, boot)
    values = {"id": ident, "kind": _WITHDRAWN, "source": notice.source}
    return _event(node, f"{_WITHDRAWN}-{ident}", values, f"withdrawn: {notice.reason}", now)


def _ident(notice: Notice, boot: str) -> str:
    return notice.id or f"{notice.source}-{notice.kind}-{boot}"


def _event(node: str, unique: str, values: Mapping[str, str], message: str, now: float) -> dict[str, Any]:
    moment = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{node}.{hashlib.sha256(unique.encode()).hexdigest()[:16]}",
            "namespace": NAMESPACE,
            "annotations": {f"{_PREFIX}{key}": value for key, value in values.items()},
        },
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},  # as the kubelet does
        "type": "Warning",
        "reason": REASON,
        "message": message,
        "source": {"component": "spotwright-node-agent", "host": node},
        "reportingComponent": "spotwright.dev/node-agent",
        "reportingInstance": node,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }


def notice_in(event: Mapping[str, Any]) -> NodeNotice | None:
    """The notice in an Event; None for other or unreadable Events."""
    values = _values(event)
    if event.get("reason") != REASON or values.get("kind") not in KINDS or not values.get("id"):
        return None
    at = seconds(metadata(event).get("creationTimestamp"))
    try:
        left = float(values.get("seconds-left", "inf"))
    except ValueError:
        return None
    if at is None or math.isnan(left):
        return None
    certain = values.get("certain") == "true"
    notice = Notice(
        at + left, values["kind"], values.get("source", ""), certain, values.get("reason", ""), values["id"]
    )
    return NodeNotice(values["id"], at, notice)


def withdrawal_in(event: Mapping[str, Any]) -> tuple[str, float] | None:
    """The id of the notice that an Event withdraws, and the API server's time of it; None for other Events."""
    values = _values(event)
    if event.get("reason") != REASON or values.get("kind") != _WITHDRAWN or not values.get("id"):
        return None
    at = seconds(metadata(event).get("creationTimestamp"))
    return None if at is None else (values["id"], at)


def _values(event: Mapping[str, Any]) -> dict[str, str]:
    annotations = mapping(metadata(event).get("annotations"))
    return {key.removeprefix(_PREFIX): str(value) for key, value in annotations.items() if key.startswith(_PREFIX)}
