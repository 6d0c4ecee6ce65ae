"""Every kind of workload runs to its end on the cluster, through its real controller."""

from __future__ import annotations

import pytest
from tests.cluster.conftest import Require
from tests.cluster.live.kube import Kube, Object, has_condition, job, pod_spec
from tests.cluster.live.runtimes import training_runtime

pytestmark = [pytest.mark.cluster, pytest.mark.cluster_ci]

ENDED = 120.0  # seconds for a workload, on a busy machine


def test_a_job_completes(kube: Kube, namespace: str) -> None:
    kube.apply(job("work", namespace, pod_spec(kube.container("true"))))
    kube.wait(lambda: has_condition(kube.get("job", "work", namespace), "Complete"), "the Job is Complete", ENDED)


def test_a_workflow_of_two_steps_succeeds_and_passes_a_parameter_on(
    kube: Kube, namespace: str, require: Require
) -> None:
    require("workflows.argoproj.io")
    scheduling = {"tolerations": pod_spec({})["tolerations"]}
    first = {
        "name": "first",
        "container": kube.container("echo 42 >/tmp/answer"),
        "outputs": {"parameters": [{"name": "answer", "valueFrom": {"path": "/tmp/answer"}}]},  # noqa: S108
    }
    second = {
        "name": "second",
        "inputs": {"parameters": [{"name": "answer"}]},
        "container": kube.container("test {{inputs.parameters.answer}} = 42"),
    }
    parameter = {"name": "answer", "value": "{{tasks.first.outputs.parameters.answer}}"}
    tasks = [
        {"name": "first", "template": "first"},
        {"name": "second", "template": "second", "depends": "first", "arguments": {"parameters": [parameter]}},
    ]
    workflow = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "steps", "namespace": namespace},
        "spec": {
            "entrypoint": "main",
            "templates": [{"name": "main", "dag": {"tasks": tasks}}, first, second],
            **scheduling,
        },
    }
    kube.apply(workflow)
    ended = kube.wait(
        lambda: finished_workflow(kube.get("workflow", "steps", namespace)), "the workflow has ended", ENDED
    )
    assert ended["status"]["phase"] == "Succeeded", ended["status"]
    assert {node["type"] for node in ended["status"]["nodes"].values()} == {"DAG", "Pod"}


def finished_workflow(item: Object | None) -> Object | None:
    return item if item and item.get("status", {}).get("phase") in ("Succeeded", "Failed", "Error") else None


def jobset_spec(kube: Kube, script: str, *, pods: int) -> Object:
    template = {"spec": {"backoffLimit": 0, "completions": pods, "parallelism": pods, "template": {}}}
    template["spec"]["template"] = {"spec": pod_spec(kube.container(script))}
    return {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": template}]}


def test_a_jobset_completes(kube: Kube, namespace: str, require: Require) -> None:
    require("jobsets.jobset.x-k8s.io")
    metadata = {"name": "set", "namespace": namespace}
    spec = jobset_spec(kube, "true", pods=2)
    kube.apply({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec})
    kube.wait(
        lambda: has_condition(kube.get("jobset", "set", namespace), "Completed"), "the JobSet is Completed", ENDED
    )


def test_a_trainjob_of_two_nodes_completes(kube: Kube, namespace: str, require: Require) -> None:
    require("trainjobs.trainer.kubeflow.org")
    kube.apply(training_runtime(kube, namespace, "true"))
    train = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "train", "namespace": namespace},
        "spec": {"runtimeRef": {"name": "plain", "kind": "TrainingRuntime"}, "trainer": {"numNodes": 2}},
    }
    kube.apply(train)
    kube.wait(
        lambda: has_condition(kube.get("trainjob", "train", namespace), "Complete"), "the TrainJob is Complete", ENDED
    )
    assert len(kube.list("pods", namespace, "jobset.sigs.k8s.io/jobset-name=train")) == 2


def test_kueue_admits_a_job_when_its_queue_has_room(kube: Kube, namespace: str, require: Require) -> None:
    require("clusterqueues.kueue.x-k8s.io")
    api, flavor, queue = "kueue.x-k8s.io/v1beta2", f"flavor-{namespace}", f"queue-{namespace}"
    quota = [{"name": "cpu", "nominalQuota": "0"}, {"name": "memory", "nominalQuota": "1Gi"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": flavor, "resources": quota}]}
    cluster_queue = {
        "apiVersion": api,
        "kind": "ClusterQueue",
        "metadata": {"name": queue},
        "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
    }
    try:
        kube.apply(
            {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": flavor}, "spec": {}}, cluster_queue
        )
        local = {"name": "local", "namespace": namespace}
        kube.apply(
            {"apiVersion": api, "kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": queue}},
            job("queued", namespace, pod_spec(kube.container("true")), labels={"kueue.x-k8s.io/queue-name": "local"}),
        )
        kube.wait(lambda: kube.list("workloads.kueue.x-k8s.io", namespace), "Kueue made a Workload", ENDED)
        assert (kube.get("job", "queued", namespace) or {})["spec"]["suspend"] is True
        quota[0]["nominalQuota"] = "1"
        kube.apply(cluster_queue)
        kube.wait(lambda: has_condition(kube.get("job", "queued", namespace), "Complete"), "the Job ran", ENDED)
    finally:
        kube.run("delete", "localqueue,job", "--all", "-n", namespace, "--ignore-not-found")
        kube.run("delete", "clusterqueue", queue, "--ignore-not-found", "--wait=false")
        kube.run("delete", "resourceflavor", flavor, "--ignore-not-found", "--wait=false")
