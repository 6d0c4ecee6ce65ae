"""Where a kubeconfig shows the pods and nodes of a run, they tell its pools, and why a pod that was deleted has ended."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kubeflow.flows import BEGIN, Flow, Try
from tests.kubeflow.pipelines import POOLS
from tests.kubeflow.recorded_runs import Recorded, of_workflow
from tests.kubeflow.shown_pods import PODS, TRAINING, Cluster, a_pod, moment

from spotwright import config
from spotwright.checkpoint_file import config_map
from spotwright.engine.events import RunStatus
from spotwright.kubeflow.following import SILENT
from spotwright.kubeflow.recorder import PodsSeen
from spotwright.model.attempts import Cause
from spotwright.views.run_json import run_view

EVENTS = "/api/v1/namespaces/team-a/events"
DELETED = Try("Error", "pod deleted", "n1", 1, 5)


@pytest.fixture
def cluster() -> Cluster:
    """A cluster in which the training runs on a spot node."""
    made = Cluster()
    made.has_pods(a_pod(TRAINING))
    made.has_node("n1")
    return made


@pytest.fixture
def pods(cluster: Cluster) -> PodsSeen:
    return PodsSeen(cluster.read, "run-1", config.parse(POOLS, "spotwright.yaml").pools, pause=0.0)


@pytest.fixture
def recorded(pods: PodsSeen) -> Recorded:
    """A run whose training runs, and was seen to."""
    made = Recorded(of_workflow)
    made.recorder.pods = pods
    flow = Flow()
    flow.task("train", Try("Running", host="n1", began=1, ended=None))
    pods.look("team-a")
    made.look(flow)
    return made


def deleted(recorded: Recorded, pods: PodsSeen) -> Cause | None:
    """The cause of the training's end once its pod is gone and Argo says so."""
    pods.look("team-a")
    flow = Flow()
    flow.task("train", DELETED)
    recorded.look(flow)
    return recorded.causes("train")[0]


def test_only_pods_of_the_run_are_asked_for(cluster: Cluster, pods: PodsSeen) -> None:
    pods.look("team-a")
    assert cluster.queries[0] == {"labelSelector": "pipeline/runid=run-1"}


def test_an_attempt_has_the_pool_and_the_price_of_its_node(recorded: Recorded) -> None:
    last = recorded.task("train").last
    assert (last.node, last.pool) == ("n1", "spot")
    view = run_view(recorded.state, "first", BEGIN + 60)
    [attempt] = next(task["attempts"] for task in view["tasks"] if task["path"] == "train")
    assert attempt["capacity"] == "spot"
    assert attempt["cost"]["money"] > 0


def test_a_pod_that_went_with_its_node_was_interrupted(cluster: Cluster, recorded: Recorded, pods: PodsSeen) -> None:
    cluster.objects.clear()
    cluster.has_pods()
    assert deleted(recorded, pods) is Cause.INTERRUPTED


def test_a_pod_that_was_deleted_on_a_node_that_lives_was_disrupted(
    cluster: Cluster, recorded: Recorded, pods: PodsSeen
) -> None:
    cluster.has_pods()
    assert deleted(recorded, pods) is Cause.DISRUPTED


def test_a_node_that_does_not_report_any_more_is_lost(cluster: Cluster, recorded: Recorded, pods: PodsSeen) -> None:
    cluster.has_pods()
    cluster.has_node("n1", ready="Unknown")
    assert deleted(recorded, pods) is Cause.LOST


def test_a_node_that_was_never_there_is_no_sign_of_an_interruption(cluster: Cluster, pods: PodsSeen) -> None:
    del cluster.objects["/api/v1/nodes/n1"]
    pods.look("team-a")
    cluster.has_pods()
    pods.look("team-a")
    signals = pods.signals(TRAINING)
    assert signals is not None
    assert not signals.node_gone


def test_a_pod_that_nobody_saw_has_what_argo_says(pods: PodsSeen) -> None:
    pods.look("team-a")
    assert pods.signals("digits-abcde(0).root(0).evaluate(0).executor(0)") is None
    assert pods.pool("n7") == ""


def test_a_node_of_no_configured_pool_has_none(cluster: Cluster, pods: PodsSeen) -> None:
    cluster.has_node("n1", labels={"some": "label"})
    pods.look("team-a")
    assert pods.pool("n1") == ""


def test_pods_that_may_not_be_read_are_a_trouble_until_they_may(cluster: Cluster, pods: PodsSeen) -> None:
    cluster.refused.add(PODS)
    pods.look("team-a")
    assert "forbidden" in pods.trouble
    assert not pods.are_any
    cluster.refused.clear()
    pods.look("team-a")
    assert (pods.trouble, pods.are_any) == ("", True)


def test_a_pod_that_argo_makes_again_in_silence_is_the_next_attempt(
    cluster: Cluster, recorded: Recorded, pods: PodsSeen
) -> None:
    again = a_pod(TRAINING, "n2")
    again["metadata"]["uid"] = "another"
    cluster.has_pods(again)
    cluster.has_node("n1", ready="Unknown")
    cluster.has_node("n2")
    pods.look("team-a")
    flow = Flow()
    flow.task("train", Try("Running", host="n2", began=1, ended=None))
    recorded.look(flow)
    recorded.look(flow)
    attempts = recorded.task("train").attempts
    assert [(each.node, each.cause) for each in attempts] == [("n1", Cause.LOST), ("n2", None)]
    flow.task("train", Try("Succeeded", "", "n2", 1, 30))
    recorded.look(flow)
    assert recorded.causes("train") == [Cause.LOST, Cause.SUCCEEDED]


def test_who_follows_later_goes_on_with_the_newest_attempt_of_a_try(
    cluster: Cluster, recorded: Recorded, pods: PodsSeen
) -> None:
    again = a_pod(TRAINING, "n2")
    again["metadata"]["uid"] = "another"
    cluster.has_pods(again)
    pods.look("team-a")
    flow = Flow()
    flow.task("train", Try("Running", host="n2", began=1, ended=None))
    recorded.look(flow)
    recorded.recorder.pods = None
    flow.task("train", Try("Succeeded", "", "n2", 1, 30))
    recorded.look(flow)
    assert len(recorded.task("train").attempts) == 2
    assert recorded.causes("train")[-1] is Cause.SUCCEEDED


def test_a_cluster_that_cannot_be_read_is_not_asked_at_each_look(cluster: Cluster) -> None:
    pods = PodsSeen(cluster.read, "run-1", {})
    cluster.refused.add(PODS)
    pods.look("team-a")
    pods.look("team-a")
    assert len(cluster.queries) == 1


def test_pods_are_read_also_where_nodes_may_not_be(cluster: Cluster, pods: PodsSeen) -> None:
    cluster.refused.add("/api/v1/nodes/n1")
    pods.look("team-a")
    pods.look("team-a")
    assert "forbidden" in pods.trouble
    assert [len(query) for query in cluster.queries] == [1, 0, 1]
    assert (pods.host(TRAINING), pods.pool("n1")) == ("n1", "")


def stuck(host: str = "n1") -> dict[str, Any]:
    """A pod that has a node since ``BEGIN``, and no container yet."""
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": moment(0)}
    pod = a_pod(TRAINING, host, "Pending", conditions=[bound], containerStatuses=[])
    return {**pod, "metadata": {**pod["metadata"], "namespace": "team-a"}}


def mount_failed(at: str = "2026-09-21T14:20:00Z") -> dict[str, Any]:
    """The status by the kubelet of Kubernetes 1.35.4 of a pod whose ConfigMap does not exist."""
    name = config_map()["metadata"]["name"]
    message = f'MountVolume.SetUp failed for volume "{name}" : configmap "{name}" not found'
    return {"type": "Warning", "reason": "FailedMount", "message": message, "lastTimestamp": at}


def test_a_pod_whose_config_map_is_missing_says_so_after_a_minute_with_the_fix(cluster: Cluster) -> None:
    cluster.has_pods(stuck())
    cluster.objects[EVENTS] = {"items": [mount_failed()]}
    seen = PodsSeen(cluster.read, "run-1", {})
    seen.look("team-a")
    assert list(seen.held_up(BEGIN + SILENT - 1, SILENT)) == []
    (told,) = seen.held_up(BEGIN + SILENT, SILENT)
    assert told.startswith("train has not started on n1: FailedMount: MountVolume.SetUp failed")
    assert told.endswith("; create it: spotwright checkpoint-file --config-map | kubectl -n team-a apply -f -")
    assert list(seen.held_up(BEGIN + SILENT, SILENT)) == []  # its events are not read at every look


def test_what_was_in_the_way_before_is_not_told(cluster: Cluster) -> None:
    cluster.has_pods(stuck())
    pulling = {"type": "Normal", "reason": "Pulling", "message": "", "lastTimestamp": "2026-09-21T14:20:01Z"}
    cluster.objects[EVENTS] = {"items": [pulling, mount_failed()]}
    seen = PodsSeen(cluster.read, "run-1", {})
    seen.look("team-a")
    assert list(seen.held_up(BEGIN + SILENT, SILENT)) == []


def test_events_that_may_not_be_read_are_named(cluster: Cluster) -> None:
    cluster.has_pods(stuck())
    cluster.refused.add(EVENTS)
    seen = PodsSeen(cluster.read, "run-1", {})
    seen.look("team-a")
    (told,) = seen.held_up(BEGIN + SILENT, SILENT)
    assert "its events may say why, but cannot be read" in told


def ended_by_sigterm(said: str) -> dict[str, Any]:
    """The pod of the training, whose code exited with 0 and left these words."""
    ended = {"exitCode": 0, "reason": "Completed", "message": said, "finishedAt": moment(29)}
    return a_pod(TRAINING, phase="Succeeded", containerStatuses=[{"name": "main", "state": {"terminated": ended}}])


@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_step_that_kfp_calls_a_success_with_work_left_after_a_notice_is_an_interruption(
    cluster: Cluster, recorded: Recorded, pods: PodsSeen, is_noticed: bool
) -> None:
    cluster.has_pods(ended_by_sigterm("spotwright.dev/progress: 0.25"))
    taints = [{"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}] if is_noticed else []
    cluster.objects["/api/v1/nodes/n1"]["spec"] = {"taints": taints}
    pods.look("team-a")
    flow = Flow()
    flow.task("train", Try("Succeeded", "", "n1", 1, 30))
    recorded.look(flow)
    assert recorded.causes("train") == [Cause.INTERRUPTED if is_noticed else Cause.SUCCEEDED]
    recorded.recorder.finish(RunStatus.SUCCEEDED, "", BEGIN + 60)
    assert recorded.state.status is (RunStatus.FAILED if is_noticed else RunStatus.SUCCEEDED)
    assert ("KFP step counts that as done" in recorded.state.why) is is_noticed
