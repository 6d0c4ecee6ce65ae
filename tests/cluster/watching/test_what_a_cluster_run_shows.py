"""`show` for a workload: who retries it and how often, why an attempt waits, and never how to resume it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.admissions import PINNED
from tests.cluster.watching.watched_cluster import CONFIG, Cluster
from tests.cluster.watching.watched_objects import SPOT, done, job, node, pod

from spotwright import config as configuration
from spotwright.cluster.signals import waits_for
from spotwright.cluster.workloads import retries_of
from spotwright.engine.decide import take_back as decide_to_take_back
from spotwright.engine.events import AttemptReleased, PodStuckTerminating
from spotwright.engine.waits import in_vain_at
from spotwright.model.attempts import Cause
from spotwright.placing.affinity import rung_conditions
from spotwright.scheduling.budgets import BudgetUse
from spotwright.views.run_json import run_view
from spotwright.views.run_text import show_text


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    made = Cluster(tmp_path / "state")
    yield made
    made.store.close()


def shown(cluster: Cluster) -> str:
    return show_text(run_view(cluster.state(), "the-run"))


@pytest.mark.parametrize("ending", ["failed", "deleted", "left"])
def test_a_cluster_run_is_never_said_to_be_resumable(cluster: Cluster, ending: str) -> None:
    train = job(backoffLimit=0, status=done("Failed", "BackoffLimitExceeded") if ending == "failed" else None)
    if ending == "failed":
        cluster.look(train, pod("one", train, node="n1", phase="Failed", exit_code=1))
    else:
        cluster.look(train, pod("one", train, node="n1", phase="Running"))
    if ending == "deleted":
        cluster.look(train, deleted=True)
    cluster.kill()
    text = shown(cluster)
    assert "resume" not in text
    assert "seed" not in text
    assert "engine" not in text


# Retries

JOB_SET = {"kind": "JobSet", "spec": {"failurePolicy": {"maxRestarts": 2}}}
TRAIN_JOB = {"kind": "TrainJob", "spec": {}}


def step(template: str, *, limit: Any = None, strategy: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
    """A pod of an Argo Workflow, which names its template in its environment, and the Workflow."""
    variable = {"name": "ARGO_TEMPLATE", "value": json.dumps({"name": template})}
    made = {
        "metadata": {"annotations": {"workflows.argoproj.io/node-id": "wf-1"}},
        "spec": {"containers": [{"name": "wait", "env": [variable]}]},
    }
    own = {"name": "work", **({"retryStrategy": {} if limit is None else {"limit": limit}} if strategy else {})}
    return made, {"kind": "Workflow", "spec": {"templates": [own, {"name": "other"}]}, "status": {}}


def test_the_retries_of_a_job_are_its_limit() -> None:
    assert retries_of({}, [job(backoffLimit=3)]) == 3
    assert retries_of({}, [job(backoffLimit=2147483647, backoffLimitPerIndex=2)]) == 2


def test_a_set_of_jobs_makes_each_job_again_in_each_restart() -> None:
    assert retries_of({}, [job(backoffLimit=0), JOB_SET]) == 2
    assert retries_of({}, [job(backoffLimit=1), JOB_SET, TRAIN_JOB]) == 5
    assert retries_of({}, [job(backoffLimit=1), {"kind": "JobSet", "spec": {}}]) == 1


@pytest.mark.parametrize(("limit", "expected"), [("3", 3), (2, 2), (None, None), ("{{inputs.parameters.n}}", None)])
def test_the_retries_of_a_node_of_argo_are_those_of_its_template(limit: Any, expected: int | None) -> None:
    made, workflow = step("work", limit=limit)
    assert retries_of(made, [workflow]) == expected


def test_a_template_without_a_strategy_is_not_tried_again() -> None:
    made, workflow = step("work", strategy=False)
    assert retries_of(made, [workflow]) == 0
    workflow["spec"]["retryStrategy"] = {"limit": "5"}
    assert retries_of(made, [workflow]) == 5
    workflow["spec"]["templateDefaults"] = {"retryStrategy": {"limit": "4"}}
    assert retries_of(made, [workflow]) == 4


def test_a_limit_that_is_an_input_stands_in_the_status_of_the_node() -> None:
    made, workflow = step("work", limit="{{inputs.parameters.retry-max-count}}")
    inputs = {"parameters": [{"name": "retry-max-count", "value": "4"}]}
    workflow["status"]["nodes"] = {"wf-1": {"templateName": "work", "inputs": inputs}}
    assert retries_of(made, [workflow]) == 4


def test_templates_of_a_workflow_template_are_in_the_status() -> None:
    made, workflow = step("work", limit="1")
    templates = workflow["spec"].pop("templates")
    workflow["status"]["storedWorkflowTemplateSpec"] = {"templates": templates}
    assert retries_of(made, [workflow]) == 1


def test_of_other_kinds_and_of_pods_that_are_started_again_nothing_is_known() -> None:
    assert retries_of({}, [{"kind": "PyTorchJob", "spec": {}}]) is None
    assert retries_of({"spec": {"restartPolicy": "Always"}}, []) is None
    assert retries_of({"spec": {"restartPolicy": "Never"}}, []) == 0


def test_show_does_not_say_that_no_retry_is_left_where_nobody_knows(cluster: Cluster) -> None:
    owner = {"kind": "Workflow", "metadata": {"name": "wf", "namespace": "team-a", "uid": "wf-uid"}, "status": {}}
    cluster.look(owner, pod("one", owner, node="n1", phase="Failed", exit_code=3))
    text = " ".join(shown(cluster).split())
    assert "its Workflow decides whether to retry it: its retries are unknown" in text
    assert "no retry is left" not in text


def test_retries_that_are_known_only_at_the_end_of_an_attempt_are_counted(cluster: Cluster) -> None:
    made, workflow = step("work", limit="{{inputs.parameters.n}}")
    owner = {**workflow, "metadata": {"name": "wf", "namespace": "team-a", "uid": "wf-uid"}}
    first = pod("one", owner, node="n1", phase="Running", annotations=made["metadata"]["annotations"])
    cluster.look(owner, first)
    inputs = {"parameters": [{"name": "n", "value": "2"}]}
    later = {**owner, "status": {"nodes": {"wf-1": {"templateName": "work", "inputs": inputs}}}}
    ended = pod(
        "one", owner, node="n1", phase="Failed", exit_code=3, annotations=made["metadata"]["annotations"]
    )  # fmt: skip
    cluster.look(later, ended)
    cluster.kill()
    task = cluster.state().tasks["wf"]
    assert (task.last.following, task.plan.policy.retries) == ("retry 1 of 2", 2)


# Waiting


def test_show_says_why_a_pod_has_no_node(cluster: Cluster) -> None:
    waiting = pod("one", train := job())
    words = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    waiting["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    ]
    cluster.look(train, waiting)
    before = len(cluster.events())
    waiting["status"]["conditions"][0]["message"] = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
    cluster.look(train, waiting)
    assert len(cluster.events()) == before  # other words for the same reason are no news
    cluster.kill()
    assert "Unschedulable: 0/3 nodes are available" in " ".join(shown(cluster).split())
    cluster.look(train, pod("one", train, node="n1", phase="Running"))
    assert "Unschedulable" not in shown(cluster)


def waiting_on_spot(cluster: Cluster) -> tuple[dict[str, Any], dict[str, Any]]:
    """A Job whose pod waits for a node of the spot pool, and is recorded."""
    train = job()
    train["spec"]["template"]["metadata"] = {"labels": {"spotwright.dev/spot": "prefer"}}
    waiting = pod("one", train, annotations={"spotwright.dev/rung": "gpu-spot"})
    waiting["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    cluster.look(train, waiting)
    return train, waiting


def take_back(cluster: Cluster) -> None:
    (run,) = cluster.store.runs.values()
    (task,) = run.state.tasks.values()
    due = in_vain_at(task, task.last)
    assert due is not None
    cluster.now = due
    for event in decide_to_take_back(run.state, task, task.last, {}, {}, due):
        run.add(event)
    run.commit()


def test_show_says_what_was_taken_back_and_which_pool_is_left_out_until_when(cluster: Cluster) -> None:
    train, waiting = waiting_on_spot(cluster)
    take_back(cluster)
    text = " ".join(shown(cluster).split())
    assert "train is recalled: no node on gpu-spot for 10m00s" in text
    assert "Pools left out, because attempts waited in vain for a node gpu-spot until " in text
    cluster.look(train, waiting, gone=("one",))
    (run,) = cluster.store.runs.values()
    assert (run.state.tasks["train"].last.cause, run.state.tasks["train"].spent) == (Cause.UNSCHEDULABLE, BudgetUse())
    assert "attempt 1 found no node: no node on gpu-spot" in " ".join(shown(cluster).split())


def test_a_successor_that_was_made_before_the_end_of_its_predecessor_changes_nothing_about_the_cause(
    cluster: Cluster,
) -> None:
    train, waiting = waiting_on_spot(cluster)
    take_back(cluster)
    cluster.look(train, waiting, pod("two", train, made=700, node="n3"))
    cluster.look(train, waiting, pod("two", train, made=700, node="n3"), gone=("one",))
    task = cluster.state().tasks["train"]
    assert [attempt.cause for attempt in task.attempts] == [Cause.UNSCHEDULABLE, None]
    assert task.spent == BudgetUse()


def test_show_names_the_silent_node_that_holds_a_pod_and_the_commands_that_free_it(cluster: Cluster) -> None:
    train = job(backoffLimit=3)
    cluster.look(train, pod("one", train, node="n1", phase="Running"))
    cluster.view.put_node(node("n1", ready="Unknown", **SPOT))
    cluster.look(train, pod("one", train, node="n1", phase="Running", deletionTimestamp="2027-01-15T08:00:40Z"))
    (run,) = cluster.store.runs.values()
    run.add(PodStuckTerminating(cluster.now, "train", 1, node="n1", since=cluster.now - 60))
    run.commit()
    text = " ".join(shown(cluster).split())
    assert (
        "waits until its Job makes attempt 2; node n1, which holds the pod of attempt 1, does not report since " in text
    )
    assert "kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute" in text
    run.add(AttemptReleased(cluster.now, "train", 1, why="the Node object n1 was deleted"))
    run.commit()
    text = " ".join(shown(cluster).split())
    assert "then its pod was deleted: the Node object n1 was deleted" in text
    assert "does not report" not in text


def test_the_ladder_of_a_pod_that_was_admitted_for_a_rung_has_the_other_rungs_too(cluster: Cluster) -> None:
    workflow = {"kind": "Workflow", "metadata": {"name": "wf", "namespace": "team-a", "uid": "wf-uid"}, "status": {}}
    marks = {"spotwright.dev/rung": "gpu-spot", "workflows.argoproj.io/node-name": "wf.train"}
    labels = {"spotwright.dev/spot": "prefer"}
    made = pod("one", workflow, annotations=marks, labels=labels)
    pools = configuration.from_mapping(CONFIG).pools
    ours = rung_conditions([pools["gpu-spot"]], pools)
    own = {"key": "example.com/rack", "operator": "NotIn", "values": ["7"]}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = [{"matchExpressions": [own, *ours]}]
    made["metadata"]["annotations"][PINNED] = json.dumps([ours])
    made["spec"]["affinity"] = {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}}
    cluster.look(workflow, made)
    (task,) = cluster.state().tasks.values()
    assert [rung.pools for rung in task.plan.ladder.rungs] == [("gpu-spot",), ("gpu",)]


def held_up(train: dict[str, Any], reason: str) -> dict[str, Any]:
    waiting = pod("one", train, node="n1")
    state = {"waiting": {"reason": reason, "message": "no such image"}}
    waiting["status"]["containerStatuses"] = [{"name": "main", "restartCount": 0, "state": state}]
    return waiting


def test_show_says_why_a_pod_does_not_start_on_its_node(cluster: Cluster) -> None:
    train = job()
    for reason in ("ErrImagePull", "ImagePullBackOff", "ErrImagePull"):
        cluster.look(train, held_up(train, reason))
    assert [event.kind for event in cluster.events()].count("waits") == 1
    assert "train has a node and does not start: ImagePullBackOff: no such image" in " ".join(shown(cluster).split())


def test_a_pod_that_waited_for_its_image_until_it_was_deleted_has_that_as_its_cause(cluster: Cluster) -> None:
    train = job()
    cluster.view.put_pod(held_up(train, "ImagePullBackOff"))
    cluster.look(train, held_up(train, "ImagePullBackOff"))
    ended = pod("one", train, node="n1", phase="Failed", deletionTimestamp="2027-01-15T08:01:00Z")
    terminated = {"exitCode": 137, "reason": "ContainerStatusUnknown"}
    ended["status"]["containerStatuses"] = [{"name": "main", "restartCount": 0, "state": {"terminated": terminated}}]
    cluster.look(train, ended, gone=("one",))
    assert cluster.state().tasks["train"].last.cause is Cause.START_UP


def test_a_pod_whose_containers_are_being_made_waits_for_nothing() -> None:
    assert waits_for(held_up(job(), "ContainerCreating")).kind == ""
    assert waits_for(pod("one", job())).kind == ""
