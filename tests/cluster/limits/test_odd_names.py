"""Names, numbers and objects that controllers never write raise nothing and take no time."""

from __future__ import annotations

import time
from typing import Any

import pytest

from spotwright.cluster.attempt_lookup import _slim
from spotwright.cluster.workloads import (
    MOST_RESTARTS,
    attempts_of,
    retries_of,
    task_name,
    template_of_pod,
    templates_of,
    workflow_task,
)

LONG = 40_000


@pytest.mark.parametrize(
    "text", ["(", "[", "(0:", "[1", "a(", "a[0](", ".", "(a)", "((((.", "[1].", "x.(1:", "\u0661", "a", ")", "]"]
)
def test_a_name_of_a_node_takes_time_with_its_length_alone(text: str) -> None:
    def cost(length: int) -> float:
        name = (text * length)[:length]
        began = time.thread_time()
        for _ in range(5):
            workflow_task(name, is_kfp=True)
        return (time.thread_time() - began) / 5

    assert cost(LONG) < 0.05 + 40 * cost(LONG // 20)


def test_a_long_name_has_a_short_path_and_stays_apart_from_others() -> None:
    one, two = (workflow_task("wf." + "step." * 8_000 + end, is_kfp=False) for end in ("a", "b"))
    assert one.path != two.path
    assert len(one.path) < 2_100


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("wf", "wf"),
        ("wf.train", "train"),
        ("wf.loop(2:a.b).train", "loop-2/train"),
        ("wf[0].train(1:x:2)", "train-1"),
        ("wf.a(b).c", "a/c"),
        ("wf.a(unclosed.b", "a/unclosed/b"),
        ("wf.train(3)", "train"),
    ],
)
def test_the_path_of_a_task_is_that_of_its_node(name: str, path: str) -> None:
    assert workflow_task(name, is_kfp=False).path == path


@pytest.mark.parametrize("index", ["x", "\u00b2", "9" * 5_000, "-1", "1e3", "", " 1", "\u0661"])
def test_an_index_that_is_no_number_raises_nothing(index: str) -> None:
    owner = {"kind": "Job", "metadata": {"name": "j"}, "spec": {"completions": 3, "completionMode": "Indexed"}}
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "jobset.sigs.k8s.io/job-index": index}
    annotations = {"batch.kubernetes.io/job-completion-index": index}
    job_set = {
        "kind": "JobSet",
        "metadata": {"name": "s"},
        "spec": {"replicatedJobs": [{"name": "node", "replicas": 2}]},
    }
    assert task_name({"metadata": {"annotations": annotations}}, [owner]).path == "j-0"
    pod = {"metadata": {"labels": labels, "annotations": annotations}}
    assert task_name(pod, [owner, job_set]).path == "node-0"


@pytest.mark.parametrize(
    "spec", [5, "x", [], None, {"replicatedJobs": 5}, {"replicatedJobs": [None, 7, {"name": "a"}]}]
)
def test_an_owner_with_any_spec_can_be_kept(spec: Any) -> None:
    assert _slim({"kind": "Workflow", "metadata": {"name": "w"}, "spec": spec})["metadata"] == {"name": "w"}


ODD: list[Any] = [None, 5, -1, 1.5, True, "x", "", [], {}, [None], [[5]], {"a": 5}, [{"name": []}], 10**20]
ROLE = "training.kubeflow.org/replica-type"
NODE_ID = "workflows.argoproj.io/node-id"


def read_all(pod: dict[str, Any], owner: dict[str, Any]) -> None:
    task = task_name(pod, [owner])
    assert task.slots >= 1
    retries_of(pod, [owner])
    templates_of([owner])
    template_of_pod(task.template, pod, [owner], [[{"key": "x"}]])


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_a_workflow_with_fields_of_any_type_raises_nothing(odd: Any) -> None:
    argo = {"metadata": {"name": "p", "annotations": {NODE_ID: "n"}}, "spec": {"containers": [{"name": "main"}]}}
    node = {"templateName": "t", "inputs": odd}
    named = {"name": "t", "retryStrategy": {"limit": "{{inputs.parameters.x}}"}}
    for spec, status in (
        (odd, odd),
        ({"templates": odd}, {"nodes": odd, "storedTemplates": odd, "storedWorkflowTemplateSpec": odd}),
        ({"templates": [odd], "templateDefaults": odd}, {"nodes": {"n": odd}, "storedTemplates": {"t": odd}}),
        ({"templates": [{"name": "t"}], "templateDefaults": {"retryStrategy": odd}}, {"nodes": {"n": node}}),
        ({"templates": [{"name": "t", "retryStrategy": odd}]}, {"nodes": {"n": node}}),
        ({"templates": [{"name": "t", "retryStrategy": {"limit": odd}}]}, {"nodes": {"n": node}}),
        ({"templates": [named]}, {"nodes": {"n": {**node, "inputs": {"parameters": odd}}}}),
    ):
        read_all(argo, {"kind": "Workflow", "metadata": {"name": "w", "uid": "u"}, "spec": spec, "status": status})


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_roles_and_jobs_with_fields_of_any_type_raise_nothing(odd: Any) -> None:
    pod = {"metadata": {"name": "p", "labels": {ROLE: "Worker"}}, "spec": odd}
    for spec in (
        odd,
        {"pytorchReplicaSpecs": odd},
        {"pytorchReplicaSpecs": {"Worker": odd}},
        {"pytorchReplicaSpecs": {"Worker": {"replicas": odd}}},
    ):
        read_all(pod, {"kind": "PyTorchJob", "metadata": {"name": "t"}, "spec": spec})
    for spec in (odd, {"completions": odd, "parallelism": odd, "template": odd, "backoffLimit": odd}):
        read_all({"metadata": {"name": "p"}}, {"kind": "Job", "metadata": {"name": "j"}, "spec": spec})


def test_a_pod_with_an_empty_role_is_named_as_others() -> None:
    job = {"kind": "Job", "metadata": {"name": "j"}, "spec": {}}
    assert task_name({"metadata": {"name": "p", "labels": {ROLE: ""}}}, [job]).path == "j"


def test_a_limit_with_thousands_of_digits_is_not_known() -> None:
    owner = {
        "kind": "Workflow",
        "spec": {"templates": [{"name": "t", "retryStrategy": {"limit": "9" * 5_000}}]},
        "status": {"nodes": {"n": {"templateName": "t"}}},
    }
    assert retries_of({"metadata": {"annotations": {NODE_ID: "n"}}}, [owner]) is None


@pytest.mark.parametrize("restarts", [0, 1, MOST_RESTARTS, MOST_RESTARTS + 1, 2_000_000_000])
def test_of_very_many_restarts_the_newest_are_attempts(restarts: int) -> None:
    status = {"phase": "Running", "containerStatuses": [{"name": "main", "restartCount": restarts}]}
    pod = {"metadata": {"uid": "u"}, "spec": {"nodeName": "n", "containers": [{"name": "main"}]}, "status": status}
    keys = [attempt.key for attempt in attempts_of(pod)]
    assert len(keys) == min(restarts, MOST_RESTARTS) + 1
    assert keys[-1] == f"u/{restarts}"
