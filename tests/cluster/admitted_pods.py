"""Pods before and after the webhook."""

from __future__ import annotations

import copy
from typing import Any

from tests.cluster.admission_objects import a_config, a_job, admitted
from tests.cluster.json_patches import apply_patch
from tests.placing.placed import at_path

from spotwright.cluster.admit_objects import Outcome
from spotwright.cluster.admit_pods import AdmissionContext, admit_pod
from spotwright.config import Config
from spotwright.model.attempts import Cause
from spotwright.scheduling.next_attempt import PastAttempt

PREFER = "{default: {spot: prefer, interruptions: {max: 3}, fall_back_after: 2, errors: {retries: 1}}}"


IMAGE = "spotwright-refusal:1"


def taken(*pools: str) -> AdmissionContext:
    """Attempts that were interrupted on these pools."""
    return AdmissionContext([PastAttempt(Cause.INTERRUPTED, (pool,), pool) for pool in pools])


def a_pod(config: Config | None = None, **pod_spec: Any) -> dict[str, Any]:
    """A pod as a placed Job makes it, with the defaults of the API server."""
    job = a_job()
    job["spec"]["template"]["spec"].update(pod_spec)
    placed, _ = admitted(job, config or a_config(PREFER))
    template = placed["spec"]["template"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1", "controller": True}
    metadata = {**template["metadata"], "generateName": "train-", "ownerReferences": [owner]}
    spec = {"terminationGracePeriodSeconds": 30, "schedulerName": "default-scheduler", **template["spec"]}
    return copy.deepcopy({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def precise(
    pod: dict[str, Any], facts: AdmissionContext | None = None, config: Config | None = None
) -> tuple[dict[str, Any], Outcome]:
    before = copy.deepcopy(pod)
    outcome = admit_pod(pod, config or a_config(PREFER), facts or AdmissionContext(), IMAGE)
    assert pod == before
    return apply_patch(pod, outcome.patch), outcome


def variables(pod: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in pod["spec"]["containers"][0].get("env", [])}


SPENT = taken("spot-a", "spot-b", "regular", "regular")

REQUIRED = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
PREFERRED = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"


def conditions(pod: dict[str, Any]) -> dict[str, list[str]]:
    [term] = at_path(pod, REQUIRED)
    return {one["key"]: one["values"] for one in term["matchExpressions"] if one["operator"] == "In"}
