"""Objects as an API server sends them to a webhook, with its defaults, and a configuration of two pools."""

from __future__ import annotations

import copy
from typing import Any

from tests.cluster.json_patches import apply_patch

from spotwright import config as configuration
from spotwright.cluster.admit_objects import Outcome, admit_object
from spotwright.config import Config

__all__ = ["KEY", "a_config", "a_job", "a_jobset", "admitted", "owned_by"]

KEY = "kubernetes.azure.com/scalesetpriority"
_POOLS = """\
version: 1
pools:
  spot-a: {capacity: spot, provider: aks, labels: {pool: a}}
  spot-b: {capacity: spot, provider: aks, labels: {pool: b}}
  regular: {capacity: on-demand, provider: aks, labels: {pool: r}}
"""


def a_config(policy: str = "{default: {spot: require}}") -> Config:
    return configuration.parse(f"{_POOLS}target: {{kubernetes: '1.35'}}\npolicy: {policy}\n", "team-a")


def a_job(**spec: Any) -> dict[str, Any]:
    """A Job of one container whose user wrote ``spec``, with what the API server fills in."""
    pod = {"containers": [{"name": "main", "image": "train:1"}], "restartPolicy": "Never", "dnsPolicy": "ClusterFirst"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "team-a"},
        "spec": {
            "backoffLimit": 6,
            "completionMode": "NonIndexed",
            "completions": 1,
            "parallelism": 1,
            "podReplacementPolicy": "TerminatingOrFailed",
            "suspend": False,
            "template": {"metadata": {}, "spec": {**pod, "terminationGracePeriodSeconds": 30}},
            **spec,
        },
    }


def a_jobset(**metadata: Any) -> dict[str, Any]:
    """A JobSet of two workers as its own webhook leaves it."""
    pod = {"containers": [{"name": "node", "image": "train:1"}], "restartPolicy": "OnFailure"}
    job = {"completionMode": "Indexed", "parallelism": 2, "completions": 2, "template": {"spec": pod}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train", "namespace": "team-a", **metadata},
        "spec": {
            "successPolicy": {"operator": "All"},
            "replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": job}}],
        },
    }


def owned_by(data: dict[str, Any], api_version: str, kind: str, name: str) -> dict[str, Any]:
    """The object as a controller creates it for an owner."""
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": "1", "controller": True}
    return {**data, "metadata": {**data["metadata"], "ownerReferences": [owner]}}


def admitted(data: dict[str, Any], config: Config | None = None, *beside: dict[str, Any]) -> tuple[Any, Outcome]:
    """The object after admission, and the outcome; the given object is not changed."""
    before = copy.deepcopy(data)
    outcome = admit_object(data, config or a_config(), beside)
    assert data == before
    return apply_patch(data, outcome.patch), outcome
