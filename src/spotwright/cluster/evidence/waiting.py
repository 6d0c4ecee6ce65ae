"""Says why a pod waits: for a node, or on its node for an image or its configuration.

The scheduler and the kubelet write the reason into the pod's status and change its words often (``0/3 nodes are available``), so
the kind of reason is apart from the words: who records it writes only when the kind changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from spotwright.cluster.evidence.fields import mapping, mappings, seconds, text

__all__ = ["PodWaits", "is_held_up", "waits_for"]

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
