"""The text that the Cluster Autoscaler writes into ConfigMap ``cluster-autoscaler-status``, since 1.30.

The form is that of its ``clusterstate/api/types.go``, the states those of ``clusterstate/clusterstate.go``: YAML with the
fields in the order of the alphabet. A group without any machine has no times, as there: they are those of its machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import yaml

__all__ = ["GroupState", "StatusText"]


@dataclass(frozen=True)
class GroupState:
    """The autoscaler's knowledge of a group."""

    name: str
    target: int
    ready: int
    unregistered: int  # machines that have been ordered, and have no Node yet
    min: int
    max: int
    in_progress: bool
    backoff: tuple[str, str] | None = None  # code and message of the error
    candidates: int = 0  # nodes that it may remove


class StatusText:
    """Writes the text again and again; since when a state lasts is carried over from the last time."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], tuple[str, str | None]] = {}  # group and condition -> state and time

    def write(self, states: Sequence[GroupState], now: float) -> str:
        """The text for these groups."""
        ready, candidates = sum(state.ready for state in states), sum(state.candidates for state in states)
        waiting = sum(state.unregistered for state in states)
        progress = "InProgress" if any(state.in_progress for state in states) else "NoActivity"
        whole = {
            "health": {**self._state("", "health", "Healthy", now), "nodeCounts": _counts(ready, waiting)},
            "scaleUp": self._state("", "scaleUp", progress, now),
            "scaleDown": self._scale_down("", candidates, now),
        }
        data = {
            "autoscalerStatus": "Running",
            "clusterWide": whole,
            "nodeGroups": [self._group(state, now) for state in states],
            "time": datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M:%S.%f +0000 UTC"),
        }
        if not states:
            del data["nodeGroups"]
        return yaml.safe_dump(data, sort_keys=True, default_flow_style=False)

    def _group(self, state: GroupState, now: float) -> Mapping[str, Any]:
        seen = now if state.ready or state.unregistered else None
        up = "InProgress" if state.in_progress else "Backoff" if state.backoff else "NoActivity"
        info = {}
        if up == "Backoff" and state.backoff:
            info = {"errorCode": state.backoff[0], "errorMessage": state.backoff[1]}
        health = {
            **self._state(state.name, "health", "Healthy", seen),
            "cloudProviderTarget": state.target,
            "maxSize": state.max,
            "minSize": state.min,
            "nodeCounts": _counts(state.ready, state.unregistered),
        }
        return {
            "name": state.name,
            "health": health,
            "scaleUp": {**self._state(state.name, "scaleUp", up, seen), "backoffInfo": info},
            "scaleDown": self._scale_down(state.name, state.candidates, now),
        }

    def _scale_down(self, group: str, candidates: int, now: float) -> Mapping[str, Any]:
        state = "CandidatesPresent" if candidates else "NoCandidates"
        return {**self._state(group, "scaleDown", state, now), **({"candidates": candidates} if candidates else {})}

    def _state(self, group: str, condition: str, state: str, now: float | None) -> Mapping[str, Any]:
        text = None if now is None else datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        known, since = self._since.get((group, condition), ("", text))
        if known != state:
            since = text
        self._since[group, condition] = (state, since)
        return {"lastProbeTime": text, "lastTransitionTime": since, "status": state}


def _counts(ready: int, unregistered: int) -> Mapping[str, Any]:
    unready = {"resourceUnready": 0, "total": 0}
    registered = {"notStarted": 0, "ready": ready, "total": ready, "unready": unready}
    return {"longUnregistered": 0, "registered": registered, "unregistered": unregistered}
