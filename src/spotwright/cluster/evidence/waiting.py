"""Says why a pod waits: for a node, or on its node for an image or its configuration.

The scheduler and the kubelet write the reason into the pod's status and change its words often (``0/3 nodes are available``), so
the kind of reason is apart from the words: who records it writes only when the kind changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from spotwright.checkpoint_file import config_map
from spotwright.cluster.evidence.fields import mapping, mappings, seconds, text

__all__ = ["PodWaits", "bound_at", "events_of_pod", "has_not_started", "is_held_up", "waits_for", "why_not_started"]

_SAME = {"ErrImagePull": "ImagePullBackOff"}  # the kubelet writes both in turn for one reason
_VOLUMES = "persistentvolumeclaim"  # in the scheduler's words where no node would help: a claim is unbound, deleted or not there
_USUAL = ("", "ContainerCreating", "PodInitializing")  # reasons of a container that waits for its turn


class PodWaits(NamedTuple):
    """Why a pod waits. ``kind`` is Kubernetes' reason (``Unschedulable``, ``ImagePullBackOff``), empty if nothing holds it up.

    A pod that is unschedulable because of its volume claims has the kind ``VolumeNotReady``: no other node would help. ``since``
    is the moment (Unix seconds) from which on the scheduler has found no node; None where that is not what it waits for.
    """

    kind: str = ""
    words: str = ""
    since: float | None = None

    def __str__(self) -> str:
        return f"{self.kind}: {self.words}" if self.words else self.kind


def waits_for(pod: Mapping[str, Any]) -> PodWaits:
    """Why a pod has no node yet, or does not start on it; empty if nothing holds it up."""
    status = mapping(pod.get("status"))
    if not mapping(pod.get("spec")).get("nodeName"):
        for condition in mappings(status.get("conditions")):
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return _unscheduled(text(condition.get("reason")), text(condition.get("message")), condition)
        return PodWaits()
    return next(_containers(status), PodWaits())


def _unscheduled(reason: str, message: str, condition: Mapping[str, Any]) -> PodWaits:
    if reason == "Unschedulable" and _VOLUMES in message.lower():
        return PodWaits("VolumeNotReady", message)
    return PodWaits(reason, message, seconds(condition.get("lastTransitionTime")))


def is_held_up(pod: Mapping[str, Any]) -> bool:
    """Whether a container of the pod waits for its image or configuration, and something is wrong with that."""
    return next(_containers(mapping(pod.get("status"))), None) is not None


def _containers(status: Mapping[str, Any]) -> Iterator[PodWaits]:
    for each in (*mappings(status.get("initContainerStatuses")), *mappings(status.get("containerStatuses"))):
        waiting = mapping(mapping(each.get("state")).get("waiting"))
        if text(waiting.get("reason")) not in _USUAL:
            reason = text(waiting.get("reason"))
            yield PodWaits(_SAME.get(reason, reason), text(waiting.get("message")))


def has_not_started(pod: Mapping[str, Any]) -> bool:
    """Whether a pod has its node, and no container of it has begun there."""
    has_node = bool(mapping(pod.get("spec")).get("nodeName"))
    return has_node and mapping(pod.get("status")).get("phase") == "Pending"


def bound_at(pod: Mapping[str, Any]) -> float | None:
    """The moment (Unix seconds) at which a pod got its node; None for one without."""
    for condition in mappings(mapping(pod.get("status")).get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "True":
            return seconds(condition.get("lastTransitionTime"))
    return None


def events_of_pod(pod: Mapping[str, Any]) -> tuple[str, Mapping[str, str]]:
    """The path and the query at which the API server has the events about a pod."""
    meta = mapping(pod.get("metadata"))
    query = {"fieldSelector": f"involvedObject.kind=Pod,involvedObject.uid={text(meta.get('uid'))}"}
    return f"/api/v1/namespaces/{text(meta.get('namespace'))}/events", query


def why_not_started(pod: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> str:
    """What holds up a pod on its node, in a sentence; empty if nothing does.

    A volume that cannot be mounted stands in no status: the kubelet says so in events alone, and tries again. What it said before
    newer events is over.
    """
    if not has_not_started(pod):
        return ""
    held = waits_for(pod)
    if held.kind:
        return str(held)
    newest = max(events, key=_said_at, default=None)
    if newest is None or newest.get("type") != "Warning":
        return ""
    says = f"{text(newest.get('reason'))}: {text(newest.get('message'))}"
    name = text(mapping(config_map()["metadata"]).get("name"))
    if f'configmap "{name}" not found' not in says:
        return says
    namespace = text(mapping(pod.get("metadata")).get("namespace"))
    return f"{says}; make it: spotwright checkpoint-file --config-map | kubectl -n {namespace} apply -f -"


def _said_at(event: Mapping[str, Any]) -> float:
    """When an event was told last. One that its writer counts in a series has no ``lastTimestamp``."""
    series = mapping(event.get("series"))
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((at for each in times if (at := seconds(each)) is not None), 0.0)
