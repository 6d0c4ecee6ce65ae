"""Says whether a workload is over and how, from what its controller wrote into its status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from spotwright.engine.events import RunStatus

__all__ = ["Outcome", "outcome_of"]

_GOOD = ("Complete", "Completed", "Succeeded")
_BAD = ("Failed",)
_PHASES = {"Succeeded": RunStatus.SUCCEEDED, "Failed": RunStatus.FAILED, "Error": RunStatus.FAILED}


class Outcome(NamedTuple):
    """The end of a workload in the controller's own words."""

    status: RunStatus
    why: str


def outcome_of(root: Mapping[str, Any]) -> Outcome | None:
    """How a Job, JobSet, TrainJob, Workflow or pod has ended; None while it goes on."""
    status = root.get("status") or {}
    if "phase" in status and root.get("kind") in ("Workflow", "Pod"):
        ended = _PHASES.get(status["phase"])
        if ended is RunStatus.FAILED and _was_stopped(root.get("spec") or {}):
            return Outcome(RunStatus.CANCELLED, "somebody ended its Workflow")
        return None if ended is None else Outcome(ended, _words(status) if ended is RunStatus.FAILED else "")
    for condition in status.get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in (*_GOOD, *_BAD):
            is_good = condition["type"] in _GOOD
            return Outcome(*(RunStatus.SUCCEEDED, "") if is_good else (RunStatus.FAILED, _words(condition)))
    return None


def _was_stopped(spec: Mapping[str, Any]) -> bool:
    """Whether a user ended a Workflow: through Argo, or through KFP, which sets its deadline to 0 (seen on 2.16.1 and 2.17.0)."""
    return bool(spec.get("shutdown")) or spec.get("activeDeadlineSeconds") == 0


def _words(source: Mapping[str, Any]) -> str:
    return ": ".join(str(source[name]) for name in ("reason", "message") if source.get(name))
