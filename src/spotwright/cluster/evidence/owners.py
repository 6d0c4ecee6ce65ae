"""Reads what the owners of a pod say about its end: a controller that stops a pod on purpose marks itself, not the pod.

A Job deletes its pods at its deadline, when it fails and when it is suspended; a JobSet deletes its Jobs to start them again; a
user deletes the owner to cancel the work. Argo leaves the pods where they are and records in the Workflow why a step ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spotwright.cluster.evidence.fields import mapping, mappings, seconds, text

__all__ = ["OwnersWord", "read_owners"]

_FAILING = ("FailureTarget", "Failed")
_DONE = ("SuccessCriteriaMet", "Complete", "Completed", "Succeeded")
_NODE_ID = "workflows.argoproj.io/node-id"
_DEADLINE = "exceeded its deadline"  # Argo's message where the Workflow's own time limit passed


@dataclass(frozen=True, slots=True)
class OwnersWord:
    """Why the owners of a pod stopped it; empty where they did not."""

    timed_out: bool = False
    cancelled: bool = False
    moved: str = ""
    message: str = ""  # Argo's message about the pod's step
    step: str = ""  # Argo's phase of it: Succeeded | Failed | Error | ...


def read_owners(owners: Sequence[Mapping[str, Any]], pod: Mapping[str, Any], told_at: float | None) -> OwnersWord:
    """Read the owners of a pod, nearest first. ``told_at``: when the pod was told to stop; later changes explain nothing."""
    for index, owner in enumerate(owners):
        word = (
            _workflow(owner, pod)
            if owner.get("kind") == "Workflow"
            else _controller(owner, owners[index + 1 :], told_at)
        )
        if word != OwnersWord():
            return word
    return OwnersWord()


def _controller(owner: Mapping[str, Any], above: Sequence[Mapping[str, Any]], told_at: float | None) -> OwnersWord:
    """The word of a Job, JobSet or TrainJob: its conditions, its deletion, its suspension."""
    kind = text(owner.get("kind")) or "owner"
    for condition in mappings(mapping(owner.get("status")).get("conditions")):
        if condition.get("status") != "True" or not _was_before(condition.get("lastTransitionTime"), told_at):
            continue
        if condition.get("type") in _FAILING:
            reason = text(condition.get("reason"))
            return (
                OwnersWord(timed_out=True) if reason == "DeadlineExceeded" else OwnersWord(moved=f"its {kind} failed")
            )
        if condition.get("type") in _DONE:
            return OwnersWord(moved=f"its {kind} had succeeded")
    if _was_before(mapping(owner.get("metadata")).get("deletionTimestamp"), told_at):
        return _deleted(kind, above)
    if mapping(owner.get("spec")).get("suspend") is True:
        return OwnersWord(moved=f"its {kind} was suspended")
    return OwnersWord()


def _deleted(kind: str, above: Sequence[Mapping[str, Any]]) -> OwnersWord:
    """A deleted owner was cancelled by its user, unless an owner of its own lives on and replaces it."""
    for owner in above:
        if not mapping(owner.get("metadata")).get("deletionTimestamp"):
            return OwnersWord(moved=f"its {text(owner.get('kind'))} replaced its {kind}")
    return OwnersWord(cancelled=True)


def _was_before(time: Any, told_at: float | None) -> bool:
    at = seconds(time)
    return told_at is not None and at is not None and at <= told_at


def _workflow(owner: Mapping[str, Any], pod: Mapping[str, Any]) -> OwnersWord:
    """The word of an Argo Workflow: whether it was stopped, and the message and phase of the pod's step."""
    node_id = text(mapping(mapping(pod.get("metadata")).get("annotations")).get(_NODE_ID))
    step = mapping(mapping(mapping(owner.get("status")).get("nodes")).get(node_id))
    message = text(step.get("message"))
    spec, meta = (mapping(owner.get(name)) for name in ("spec", "metadata"))
    is_ended_by_kfp = spec.get("activeDeadlineSeconds") == 0  # so KFP ends a run that its user cancels
    is_cancelled = bool(spec.get("shutdown") or meta.get("deletionTimestamp")) or is_ended_by_kfp
    is_late = _DEADLINE in message and not is_ended_by_kfp
    return OwnersWord(timed_out=is_late, cancelled=is_cancelled, message=message, step=text(step.get("phase")))
