"""Says whether a pod that waits for a node may be taken back: only where being made again costs its workload nothing.

====================  ================================================================================================
controller            a pod that is evicted while it waits
====================  ================================================================================================
Argo                  is made again as the same attempt: a node that is Pending is not an error (Argo 3.7.3,
                      ``workflow/controller/operator.go``, ``podReconciliation``)
Job                   is made again and not counted where its ``podFailurePolicy`` ignores ``DisruptionTarget``, which an
                      eviction sets; otherwise it counts against ``backoffLimit``
JobSet, TrainJob      fails its Job where the ``podFailurePolicy`` says ``FailJob`` for ``DisruptionTarget``, and the set
                      restarts as a whole, as long as it has restarts left
anything else         counts, or is not made again
====================  ================================================================================================

And only where the pod that is made next waits for other nodes: the webhook has admitted it for a rung.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spotwright.cluster.evidence.fields import mapping, mappings, text
from spotwright.cluster.workloads.owners import controller_reference, metadata

__all__ = ["why_not_moved"]

_RUNG = "spotwright.dev/rung"
_QUEUE = "kueue.x-k8s.io/queue-name"
_EVICTED = "Pod team-a/one has condition DisruptionTarget matching FailJob rule at index 0"  # kubernetes, pod_failure_policy.go
_RESTARTS = ("RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts")


def why_not_moved(pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]]) -> str:
    """Why a pod is left where it waits; empty if it may be taken back. ``owners`` are those of the pod, nearest first."""
    labelled = [metadata(each).get("labels") or {} for each in (pod, *owners)]
    if any(labels.get(_QUEUE) for labels in labelled):
        return "Kueue chooses its flavor, and with it its nodes"
    if controller_reference(pod) is None:
        return "nobody makes a pod without a controller again"
    if not (metadata(pod).get("annotations") or {}).get(_RUNG):
        return "no webhook has admitted it for a rung, so the next pod would wait for the same nodes"
    kinds = [text(owner.get("kind")) for owner in owners]
    if "Workflow" in kinds:
        return ""
    if kinds[:1] != ["Job"]:
        kind = kinds[0] if kinds else str((controller_reference(pod) or {}).get("kind", "controller"))
        return f"its {kind} would count it as a failure"
    job_set = next((owner for owner in owners if owner.get("kind") == "JobSet"), None)
    action = _action_for_disruptions(owners[0])
    if job_set is not None:
        return _of_job_set(job_set, action, owners[0])
    if action == "Ignore":
        return ""
    limit = mapping(owners[0].get("spec")).get("backoffLimit", 6)
    return f"its Job would count it against backoffLimit {limit}: its podFailurePolicy does not ignore DisruptionTarget"


def _of_job_set(job_set: Mapping[str, Any], action: str, job: Mapping[str, Any]) -> str:
    if action != "FailJob":
        return "its JobSet would not restart: no podFailurePolicy fails its Job on DisruptionTarget"
    failure = mapping(mapping(job_set.get("spec")).get("failurePolicy"))
    chosen = _action_of_set(
        failure, str((metadata(job).get("labels") or {}).get("jobset.sigs.k8s.io/replicatedjob-name"))
    )
    if chosen not in _RESTARTS:
        return f"its JobSet would not restart as a whole: its failurePolicy says {chosen}"
    most, used = failure.get("maxRestarts") or 0, _restarts(mapping(job_set.get("status")))
    if chosen == "RestartJobSet" and used >= most:
        return f"its JobSet would fail: {used} of maxRestarts {most} are used"
    return ""


def _restarts(status: Mapping[str, Any]) -> int:
    """The restarts that count against ``maxRestarts``."""
    counted = status.get("restartsCountTowardsMax", status.get("restarts", 0))
    return counted if isinstance(counted, int) else 0


def _action_for_disruptions(job: Mapping[str, Any]) -> str:
    """The action of the first rule on the condition that an eviction sets; empty without one."""
    rules = mappings(mapping(mapping(job.get("spec")).get("podFailurePolicy")).get("rules"))
    return next((text(rule.get("action")) for rule in rules if any(_on_disruption(rule))), "")


def _on_disruption(rule: Mapping[str, Any]) -> Iterator[bool]:
    for pattern in mappings(rule.get("onPodConditions")):
        yield pattern.get("type") == "DisruptionTarget" and pattern.get("status", "True") == "True"


def _is_about_disruptions(patterns: Any) -> bool:
    """Whether a rule's patterns match what the Job controller says of a pod that was evicted; without patterns it does."""
    if not isinstance(patterns, list) or not patterns:
        return True
    for pattern in patterns:
        with contextlib.suppress(re.error):  # Go's and Python's expressions differ; the API server has checked Go's
            if re.search(str(pattern), _EVICTED):
                return True
    return False


def _action_of_set(failure: Mapping[str, Any], name: str) -> str:
    """What a JobSet does when a Job of this name fails by its podFailurePolicy: without a rule it restarts."""
    for rule in mappings(failure.get("rules")):
        reasons, targets = rule.get("onJobFailureReasons"), rule.get("targetReplicatedJobs")
        is_for_it = (not reasons or "PodFailurePolicy" in reasons) and (not targets or name in targets)
        if is_for_it and _is_about_disruptions(rule.get("onJobFailureMessagePatterns")):
            return text(rule.get("action"))
    return "RestartJobSet" if failure else "FailJobSet"
