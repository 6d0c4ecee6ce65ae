"""Small complete manifests for the examples of rules, made of the lines that matter.

An example has to be a whole file that a reader can paste and run ``spotwright lint`` on, and two examples of a rule differ in as
few lines as possible.
"""

from __future__ import annotations

from textwrap import dedent, indent

__all__ = [
    "AKS_POOLS",
    "KFP_ON_SPOT",
    "KFP_TASK",
    "ON_SPOT",
    "PREFERS_SPOT",
    "TOLERATION",
    "job",
    "kfp",
    "pod",
    "training_job",
]

AKS_POOLS = """\
version: 1
pools:
  spot: {capacity: spot, provider: aks}
  regular: {capacity: on-demand, provider: aks}
"""
"""A configuration with a spot pool and an on-demand pool on AKS."""

TOLERATION = """\
tolerations:
- {key: kubernetes.azure.com/scalesetpriority, operator: Equal, value: spot, effect: NoSchedule}
"""
"""Lets pods on the spot nodes of AKS."""

PREFERS_SPOT = """\
affinity:
  nodeAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      preference:
        matchExpressions:
        - {key: kubernetes.azure.com/scalesetpriority, operator: In, values: [spot]}
"""
"""Prefers the spot nodes of AKS."""

ON_SPOT = TOLERATION + PREFERS_SPOT
"""The lines of a pod that prefers spot nodes of AKS and may run on them."""

_SAFE = 'metadata:\n  annotations: {cluster-autoscaler.kubernetes.io/safe-to-evict: "false"}\n'


def _lines(text: str, depth: int) -> str:
    return indent(dedent(text), " " * depth)


def job(pod_spec: str = "", *, spec: str = "", container: str = "", name: str = "train") -> str:
    """A Job: the lines of its pod spec, of its own spec, and of its container."""
    return (
        f"apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}\nspec:\n"
        + _lines(spec, 2)
        + "  template:\n"
        + _lines(_SAFE, 4)
        + "    spec:\n      restartPolicy: Never\n"
        + _lines(pod_spec, 6)
        + "      containers:\n      - name: main\n        image: trainer:1\n"
        + _lines(container, 8)
    )


def pod(
    pod_spec: str = "",
    *,
    kind: str = "Deployment",
    api_version: str = "apps/v1",
    container: str = "",
    image: str = "app:1",
) -> str:
    """An object whose pods stand under ``spec.template``."""
    return (
        f"apiVersion: {api_version}\nkind: {kind}\nmetadata:\n  name: app\nspec:\n  selector: {{matchLabels: {{app: app}}}}\n"
        "  template:\n    metadata:\n      labels: {app: app}\n    spec:\n"
        + _lines(pod_spec, 6)
        + f"      containers:\n      - name: app\n        image: {image}\n"
        + _lines(container, 8)
    )


def training_job(
    worker: str, *, role: str = "", kind: str = "TFJob", container: str = "tensorflow", spec: str = ""
) -> str:
    """A job of the training operator with a worker: the lines of its pod spec, of its role, and of the job's spec."""
    field = {"TFJob": "tf", "PyTorchJob": "pytorch", "MPIJob": "mpi"}[kind]
    return (
        f"apiVersion: kubeflow.org/v1\nkind: {kind}\nmetadata:\n  name: mnist\nspec:\n"
        + _lines(spec, 2)
        + f"  {field}ReplicaSpecs:\n    Worker:\n      replicas: 2\n"
        + _lines(role, 6)
        + "      template:\n"
        + _lines(_SAFE, 8)
        + "        spec:\n"
        + _lines(worker, 10)
        + f"          containers:\n          - name: {container}\n            image: training:1\n"
    )


KFP_TASK = """\
retryPolicy: {maxRetryCount: 3, backoffDuration: 60s, backoffFactor: 2, backoffMaxDuration: 2592000s}
"""
"""Retries of a task that last as long as the task may."""


def kfp(task: str = KFP_TASK, *, platform: str = ON_SPOT, executor: str = "") -> str:
    """A compiled pipeline with one task: the lines of the task, of its executor, and of its settings for Kubernetes."""
    settings = platform if platform != ON_SPOT else KFP_ON_SPOT
    return (
        "components:\n  comp-train: {executorLabel: exec-train}\n"
        "deploymentSpec:\n  executors:\n    exec-train:\n      container:\n        image: python:3.12\n"
        + _lines(executor, 8)
        + "pipelineInfo: {name: train}\nroot:\n  dag:\n    tasks:\n      train:\n"
        "        componentRef: {name: comp-train}\n        taskInfo: {name: train}\n"
        + _lines(task, 8)
        + "schemaVersion: 2.1.0\nsdkVersion: kfp-2.17.0\n---\nplatforms:\n  kubernetes:\n    deploymentSpec:\n"
        "      executors:\n        exec-train:\n" + _lines(settings, 10)
    )


KFP_ON_SPOT = """\
tolerations:
- {key: kubernetes.azure.com/scalesetpriority, operator: Equal, value: spot, effect: NoSchedule}
nodeAffinity:
- weight: 100
  matchExpressions:
  - {key: kubernetes.azure.com/scalesetpriority, operator: In, values: [spot]}
"""
