"""Which pods fit on which nodes, as the scheduler's filters say it: taints, node affinity, and what is left of the node.

Not modelled: ports, topology, pod affinity, volumes. The texts are those that the Cluster Autoscaler shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tests.cluster.live.kube import Object

from spotwright.model.quantities import parse_quantity

__all__ = ["Room", "asks_for_gpu", "pack", "requests_of", "room_of"]

_SCHEDULING = ("NoSchedule", "NoExecute")


@dataclass
class Room:
    """A node, or one on its way, with its free capacity."""

    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, Any]]
    free: dict[str, Fraction]
    is_awaited: bool = False  # a pod that waits would fit there

    def reasons_against(self, pod: Object) -> list[str]:
        """Why the pod does not fit; empty if it does."""
        spec = pod["spec"]
        if not all(_is_tolerated(taint, spec.get("tolerations") or ()) for taint in self.taints):
            return ["node(s) had untolerated taint(s)"]
        if not self._is_selected(spec):
            return ["node(s) didn't match Pod's node affinity/selector"]
        wanted = requests_of(pod)
        return [f"Insufficient {name}" for name, amount in wanted.items() if amount > self.free.get(name, Fraction(0))]

    def take(self, pod: Object) -> None:
        """Put the pod there."""
        for name, amount in requests_of(pod).items():
            self.free[name] -= amount

    def _is_selected(self, spec: Mapping[str, Any]) -> bool:
        if any(self.labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
            return False
        affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        if not required:
            return True
        terms = [term.get("matchExpressions") or [] for term in required["nodeSelectorTerms"]]
        return any(term and all(self._has(expression) for expression in term) for term in terms)

    def _has(self, expression: Mapping[str, Any]) -> bool:
        value, values = self.labels.get(expression["key"]), expression.get("values") or []
        known = {"In": value in values, "NotIn": value not in values}
        known |= {"Exists": value is not None, "DoesNotExist": value is None}
        return known[expression["operator"]]


def room_of(node: Object, pods: Sequence[Object] = ()) -> Room:
    """A node with these pods on it."""
    taints = [taint for taint in node["spec"].get("taints") or () if taint["effect"] in _SCHEDULING]
    free = {name: parse_quantity(amount) for name, amount in node["status"]["allocatable"].items()}
    room = Room(node["metadata"].get("labels") or {}, taints, free)
    for pod in pods:
        if pod["status"].get("phase") not in ("Succeeded", "Failed"):
            room.take(pod)
    return room


def requests_of(pod: Object) -> dict[str, Fraction]:
    """The requests of a pod's containers together, and the one slot that every pod takes."""
    total = {"pods": Fraction(1)}
    for container in pod["spec"]["containers"]:
        for name, amount in ((container.get("resources") or {}).get("requests") or {}).items():
            total[name] = total.get(name, Fraction(0)) + parse_quantity(amount)
    return total


def asks_for_gpu(pod: Object) -> bool:
    """Whether a pod asks for a GPU."""
    return any(name.endswith("/gpu") for name in requests_of(pod))


def pack(pods: Sequence[Object], rooms: Sequence[Room]) -> list[Object]:
    """Put each pod where it fits first, and return those that fit nowhere."""
    left = []
    for pod in pods:
        room = next((room for room in rooms if not room.reasons_against(pod)), None)
        if room is None:
            left.append(pod)
        else:
            room.take(pod)
            room.is_awaited = True
    return left


def _is_tolerated(taint: Mapping[str, Any], tolerations: Sequence[Mapping[str, Any]]) -> bool:
    return any(_tolerates(each, taint) for each in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", "")
