"""The priority of pods, by their PriorityClass among the given objects, and the cut-off of the cluster autoscaler.

Pods below the cut-off are expendable for it: it makes no node for them, and removes nodes on which only they run, whatever their
annotations say. Source: kubernetes/autoscaler, "Cluster Autoscaler FAQ" (``--expendable-pods-priority-cutoff``, by default -10).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotwright.kube.admission import Others
from spotwright.kube.object_fields import metadata, text

__all__ = ["CUT_OFF", "below_cut_off", "priority_of", "words_below_cut_off"]

CUT_OFF = -10
"""The lowest priority of pods for which the cluster autoscaler makes a node, as it is installed."""


def priority_of(spec: Mapping[str, Any], others: Others) -> tuple[int, str] | None:
    """The priority of a pod and where it is from, in words; ``None`` if the given objects do not say it."""
    own, named = spec.get("priority"), text(spec.get("priorityClassName"))
    if isinstance(own, int) and not isinstance(own, bool):
        return own, "its priority"
    for one in others("PriorityClass"):
        value = one.get("value")
        is_meant = metadata(one).get("name") == named if named else one.get("globalDefault") is True
        if is_meant and isinstance(value, int) and not isinstance(value, bool):
            return value, f"PriorityClass {metadata(one).get('name')}"
    return None


def below_cut_off(spec: Mapping[str, Any], others: Others) -> str:
    """The sentence on a pod below the cut-off, behind its name; empty if it is not, or that is not known."""
    found = priority_of(spec, others)
    return "" if found is None else words_below_cut_off(*found)


def words_below_cut_off(value: int, source: str) -> str:
    """The same for a priority that is known, with where it is from."""
    if value >= CUT_OFF:
        return ""
    return (
        f"has the priority {value} ({source}), below the cut-off of the cluster autoscaler ({CUT_OFF}): it makes no node for "
        "such pods and removes nodes under them, safe-to-evict or not"
    )
