"""Says whether the machine of a node is certainly gone, or only does not report.

A pod on a node that does not report stays in the API, and most controllers make no successor while it is there. Its code may
still run behind a cut network, so nobody but the provider or a person can say that it does not. Who says so is data:

- a taint of the cloud's node controller (``node.cloudprovider.kubernetes.io/shutdown``) or of a person or tool
  (``node.kubernetes.io/out-of-service``) on a node that is not Ready;
- the event ``DeletingNode`` of the cloud's node controller: the provider has no such machine;
- the Node object is deleted, and the node did not report before. The machine of one that was Ready may run on: a kubelet ends
  nothing for a deleted Node object. Kubernetes' own garbage collector deletes its pods after 40 to 60 seconds;
- the provider's notice, where its end has passed and the node does not report since.

Source of taints and events: :mod:`spotwright.clouds.node_signs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from spotwright.clouds import node_signs
from spotwright.cluster.evidence.fields import mapping, mappings, seconds, text
from spotwright.cluster.workloads.owners import metadata
from spotwright.notices.node_event import ToldNotice

__all__ = ["NodeSeen", "not_ready_since", "why_gone"]

_AFTER_NOTICE = 30.0  # seconds after the end that was announced, in which a machine is really taken
_BEFORE_END = 180.0  # seconds before that end: a node that was silent long before has another trouble


class NodeSeen(NamedTuple):
    """What is known of a node. ``state`` is its object, or its last one; ``is_deleted``: the API has it no more."""

    name: str
    state: Mapping[str, Any] | None
    events: Sequence[Mapping[str, Any]] = ()
    told: ToldNotice | None = None
    is_deleted: bool = False


def why_gone(node: NodeSeen, now: float) -> str:
    """Why the machine of a node is certainly gone; empty if that is not certain. ``now`` is the API server's clock."""
    if node.state is None or _ready(node.state).get("status") == "True":
        return ""
    if node.is_deleted:
        return f"the Node object {node.name} was deleted"
    for taint in mappings(mapping(node.state.get("spec")).get("taints")):
        if taint.get("key") in node_signs.GONE_TAINTS:
            return f"node {node.name} does not report and has the taint {taint['key']}"
    made_at = seconds(metadata(node.state).get("creationTimestamp")) or 0.0
    for event in node.events:
        if event.get("reason") in node_signs.GONE_EVENTS and _time_of(event) >= made_at:
            return f"the provider has no machine for node {node.name} any more (event {event['reason']})"
    return _taken_after_notice(node, now)


def not_ready_since(node: Mapping[str, Any] | None) -> float | None:
    """Since when a node is not Ready, in Unix seconds; None if it is, or if that is not known."""
    ready = _ready(node)
    return None if ready.get("status") in (None, "True") else seconds(ready.get("lastTransitionTime"))


def _taken_after_notice(node: NodeSeen, now: float) -> str:
    told, silent_since = node.told, not_ready_since(node.state)
    if told is None or told.notice.kind != "interruption" or not told.notice.certain or silent_since is None:
        return ""
    ends_at = told.notice.ends_at
    if now < ends_at + _AFTER_NOTICE or silent_since < ends_at - _BEFORE_END:
        return ""
    return f"the provider has announced the end of node {node.name}, which does not report since"


def _ready(node: Mapping[str, Any] | None) -> Mapping[str, Any]:
    conditions = mappings(mapping((node or {}).get("status")).get("conditions"))
    return next((each for each in conditions if each.get("type") == "Ready"), {})


def _time_of(event: Mapping[str, Any]) -> float:
    times = (event.get(name) for name in ("lastTimestamp", "eventTime", "firstTimestamp"))
    return next((at for time in times if (at := seconds(text(time))) is not None), 0.0)
