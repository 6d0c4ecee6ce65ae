"""A notice as an Event of the Kubernetes API about its node: what a node agent posts, and what a watcher reads.

The Event's name is made from the node and the source's id of the notice, so a second post of the same notice is refused by the
API server as a duplicate: however often an agent starts, each notice is there once. The moment at which the node goes is told as
seconds from the Event on, whose time is the API server's, because the clock of the node may be wrong by minutes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from spotwright.notices.notice import KINDS, Notice

__all__ = ["NAMESPACE", "REASON", "ToldNotice", "event_of", "notice_in"]

NAMESPACE = "default"
"""The namespace of Events about nodes, which have none themselves; the kubelet's are there too."""

REASON = "SpotInterruptionNotice"
"""The reason of these Events, also of notices that are no interruption: their kind is an annotation."""

_PREFIX = "spotwright.dev/notice-"


class ToldNotice(NamedTuple):
    """A notice that a node agent told. ``id`` is the source's; ``at`` is the API server's time of the Event."""

    id: str
    at: float
    notice: Notice


def event_of(notice: Notice, node: str, boot: str, now: float) -> dict[str, Any]:
    """The Event for a notice. ``boot`` names this start of the machine, for sources whose notices have no id of their own."""
    ident = notice.id or f"{notice.source}-{notice.kind}-{boot}"
    name = f"{node}.{hashlib.sha256(ident.encode()).hexdigest()[:16]}"
    left = notice.ends_at - now
    moment = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    when = f", in {max(0.0, left):.0f} s" if math.isfinite(left) else ""
    values = {
        "id": ident,
        "kind": notice.kind,
        "source": notice.source,
        "certain": "true" if notice.certain else "false",
        "reason": notice.reason,
        **({"seconds-left": f"{left:.1f}"} if math.isfinite(left) else {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "annotations": {f"{_PREFIX}{key}": value for key, value in values.items()},
        },
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},  # as the kubelet does
        "type": "Warning",
        "reason": REASON,
        "message": f"{notice.reason}{when}",
        "source": {"component": "spotwright-node-agent", "host": node},
        "reportingComponent": "spotwright.dev/node-agent",
        "reportingInstance": node,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }


def notice_in(event: Mapping[str, Any]) -> ToldNotice | None:
    """The notice that an Event tells; None for other Events, and for those that cannot be read."""
    metadata = event.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    values = {key.removeprefix(_PREFIX): str(value) for key, value in annotations.items() if key.startswith(_PREFIX)}
    if event.get("reason") != REASON or values.get("kind") not in KINDS or not values.get("id"):
        return None
    try:
        at = datetime.fromisoformat(str(metadata.get("creationTimestamp"))).timestamp()
        left = float(values.get("seconds-left", "inf"))
    except ValueError:
        return None
    certain = values.get("certain") == "true"
    notice = Notice(
        at + left, values["kind"], values.get("source", ""), certain, values.get("reason", ""), values["id"]
    )
    return ToldNotice(values["id"], at, notice)
