"""Workloads of each kind that run a script until it ends, made so that placement decides about their retries."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.cluster.live.kube import Kube, Object, job, pod_spec
from tests.cluster.live.runtimes import training_runtime

__all__ = ["KINDS", "is_served", "make", "objects_of", "selector_of"]

_CRDS = {"workflow": "workflows.argoproj.io", "jobset": "jobsets.jobset.x-k8s.io"}
_CRDS["trainjob"] = "trainjobs.trainer.kubeflow.org"


def _job(kube: Kube, namespace: str, script: str) -> list[Object]:
    made = job("job", namespace, pod_spec(kube.container(script)))
    del made["spec"]["backoffLimit"]  # the policy's counts
    return [made]


def _workflow(kube: Kube, namespace: str, script: str) -> list[Object]:
    template = {"name": "main", "container": kube.container(script)}
    scheduling = {"tolerations": pod_spec({})["tolerations"]}
    meta = {"name": "workflow", "namespace": namespace}
    spec = {"entrypoint": "main", "templates": [template], **scheduling}
    return [{"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": meta, "spec": spec}]


def _jobset(kube: Kube, namespace: str, script: str) -> list[Object]:
    spec = {"completions": 2, "parallelism": 2, "template": {"spec": pod_spec(kube.container(script))}}
    jobs = [{"name": "workers", "replicas": 1, "template": {"spec": spec}}]
    meta = {"name": "jobset", "namespace": namespace}
    return [
        {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta, "spec": {"replicatedJobs": jobs}}
    ]


def _trainjob(kube: Kube, namespace: str, script: str) -> list[Object]:
    runtime = training_runtime(kube, namespace, script)
    spec = {"runtimeRef": {"name": "plain", "kind": "TrainingRuntime"}, "trainer": {"numNodes": 2}}
    meta = {"name": "trainjob", "namespace": namespace}
    return [
        runtime,
        {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": meta, "spec": spec},
    ]


_MAKERS: Mapping[str, Callable[[Kube, str, str], list[Object]]] = {
    "job": _job,
    "workflow": _workflow,
    "jobset": _jobset,
    "trainjob": _trainjob,
}
KINDS = tuple(_MAKERS)
"""The kinds."""


def is_served(kube: Kube, kind: str) -> bool:
    """Whether the cluster has a kind."""
    crd = _CRDS.get(kind)
    return crd is None or not kube.lacks(crd)


def objects_of(kube: Kube, kind: str, namespace: str, script: str, name: str = "") -> list[Object]:
    """A workload whose pods run a script, and the runtime that it needs before it. By default it has the name of its kind."""
    made = _MAKERS[kind](kube, namespace, script)
    made[-1]["metadata"]["name"] = name or kind
    return made


def make(kube: Kube, kind: str, namespace: str, script: str, **labels: str) -> bool:
    """Create a workload whose pods run a script, with labels; False where the cluster does not have the kind."""
    if not is_served(kube, kind):
        return False
    for made in objects_of(kube, kind, namespace, script):
        if labels and made["kind"] != "TrainingRuntime":
            made["metadata"]["labels"] = {**made["metadata"].get("labels", {}), **labels}
        kube.apply(made)
    return True


def selector_of(kind: str) -> str:
    """The label that the pods of the workload of this kind have."""
    if kind == "job":
        return "batch.kubernetes.io/job-name=job"
    if kind == "workflow":
        return "workflows.argoproj.io/workflow=workflow"
    return f"jobset.sigs.k8s.io/jobset-name={kind}"
