"""Pods are named as tasks: a pipeline's as in a local run, a set's by their number."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.watching.watched_objects import job, pod

from spotwright.cluster.workloads import lineage, outcome_of, task_name
from spotwright.kube.object_fields import uid_of

NODE_NAME = "workflows.argoproj.io/node-name"


@pytest.mark.parametrize(
    ("node_name", "path", "template"),
    [
        ("digits-bnm48(0).root(0).train(0).executor(0)", "train", "train"),
        ("digits-bnm48.root.train.executor(2)", "train", "train"),
        ("digits-bnm48(0).root(0).train-driver(0)", "train-driver", "train-driver"),
        (
            "l(0).root(0).for-loop-2(0).iteration-iterations(1:1)(0).iteration-item(0).flaky(0).executor(1)",
            "for-loop-2/flaky-1",
            "for-loop-2.flaky",
        ),
        (
            "l.root.for-loop-2.iteration-iterations(0:0).iteration-item.flaky.executor",
            "for-loop-2/flaky-0",
            "for-loop-2.flaky",
        ),
    ],
)
def test_a_pod_of_a_kfp_run_has_the_path_of_its_task_in_the_pipeline(node_name: str, path: str, template: str) -> None:
    made = pod("p", labels={"pipeline/runid": "1"}, annotations={NODE_NAME: node_name})
    assert task_name(made, ())[:2] == (path, template)


@pytest.mark.parametrize(
    ("node_name", "path"),
    [
        ("wf.train", "train"),
        ("wf.train(3)", "train"),
        ("wf.loop(2:item with a.dot)(1)", "loop-2"),
        ("wf[0].prepare", "prepare"),
        ("wf[1].outer[0].inner(1)", "outer/inner"),
        ("wf", "wf"),
        ("wf(1)", "wf"),
    ],
)
def test_a_pod_of_a_workflow_has_the_path_of_its_node(node_name: str, path: str) -> None:
    assert task_name(pod("p", annotations={NODE_NAME: node_name}), ()).path == path


def test_pods_of_a_job_with_an_index_are_numbered_by_it() -> None:
    indexed = job(completionMode="Indexed", completions=4)
    made = pod("p", indexed, annotations={"batch.kubernetes.io/job-completion-index": "2"})
    assert task_name(made, (indexed,)) == ("train-2", "train", 1)


def jobset(replicas: int) -> dict[str, Any]:
    return {
        "kind": "JobSet",
        "metadata": {"name": "set", "uid": "set-uid", "namespace": "team-a"},
        "spec": {"replicatedJobs": [{"name": "node", "replicas": replicas}]},
    }


@pytest.mark.parametrize(("replicas", "parallelism", "path"), [(1, 1, "node"), (3, 1, "node-1"), (2, 4, "node-6")])
def test_members_of_a_set_are_numbered_through_all_of_its_jobs(replicas: int, parallelism: int, path: str) -> None:
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "jobset.sigs.k8s.io/job-index": "1"}
    made = pod(
        "p", labels=labels, annotations={"batch.kubernetes.io/job-completion-index": "2" if parallelism > 1 else "0"}
    )
    assert task_name(made, (job(parallelism=parallelism), jobset(replicas))).path == path


def test_the_run_of_a_pod_is_its_topmost_owner_and_an_owner_that_is_missing_is_waited_for() -> None:
    owner = {"kind": "JobSet", "uid": "set-uid", "name": "set", "controller": True}
    child = job("set-node-0", uid="child")
    child["metadata"]["ownerReferences"] = [owner]
    known = {"child": child, "set-uid": jobset(1)}
    made = pod("p", child)
    assert lineage(made, lambda _k, _n, uid: known.get(uid)).root(made)["metadata"]["name"] == "set"
    del known["set-uid"]
    assert not lineage(made, lambda _k, _n, uid: known.get(uid)).is_complete


@pytest.mark.parametrize(
    ("data", "status"),
    [
        ({"kind": "Workflow", "status": {"phase": "Error", "message": "pod deleted"}}, "failed"),
        ({"kind": "JobSet", "status": {"conditions": [{"type": "Completed", "status": "True"}]}}, "succeeded"),
        ({"kind": "Job", "status": {"conditions": [{"type": "Failed", "status": "True", "reason": "X"}]}}, "failed"),
        ({"kind": "Job", "status": {"conditions": [{"type": "Suspended", "status": "True"}]}}, None),
        ({"kind": "Workflow", "status": {"phase": "Running"}}, None),
        ({"kind": "Workflow", "spec": {"activeDeadlineSeconds": 0}, "status": {"phase": "Failed"}}, "cancelled"),
        ({"kind": "Workflow", "spec": {"shutdown": "Terminate"}, "status": {"phase": "Failed"}}, "cancelled"),
        ({"kind": "Workflow", "spec": {"activeDeadlineSeconds": 9}, "status": {"phase": "Failed"}}, "failed"),
        ({"kind": "Workflow", "spec": {"activeDeadlineSeconds": 0}, "status": {"phase": "Succeeded"}}, "succeeded"),
    ],
)
def test_the_end_of_a_workload_is_its_controllers_word(data: dict[str, Any], status: str | None) -> None:
    outcome = outcome_of(data)
    assert (None if outcome is None else outcome.status.value) == status


@pytest.mark.parametrize(("version", "complete"), [("batch/v1", False), ("batch.volcano.sh/v1alpha1", True)])
def test_a_job_of_volcano_is_not_taken_for_a_job_that_is_not_known_yet(version: str, complete: bool) -> None:
    owner = {"apiVersion": version, "kind": "Job", "name": "v", "uid": "1", "controller": True}
    found = lineage({"metadata": {"name": "v-worker-0", "ownerReferences": [owner]}}, lambda *_: None)

    assert found.is_complete is complete
    assert not found.owners


def test_owners_that_own_each_other_are_a_lineage_with_an_end() -> None:
    """A user may write such references: the owner of the first is set after the second was made."""
    first, second = job("first", uid="1"), job("second", uid="2")
    for made, owner in ((first, second), (second, first)):
        made["metadata"]["ownerReferences"] = pod("", owner)["metadata"]["ownerReferences"]
    owners = {"1": first, "2": second}
    found = lineage(pod("one", first), lambda _kind, _namespace, uid: owners.get(uid))
    assert ([uid_of(each) for each in found.owners], found.is_complete) == (["1", "2"], True)
