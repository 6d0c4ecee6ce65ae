"""Pod templates as a task graph: needs, policy and order of every template, planned like any other graph."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.engine.builders import ON_DEMAND, SPOT, a_config, a_pool

from spotwright.engine.plan import Plan, PlannedTask
from spotwright.errors import InputError
from spotwright.graph import PodTemplate
from spotwright.manifests.pod_graph import PodTask, pod_graph
from spotwright.model.policy import Spot
from spotwright.model.scheduling_terms import Toleration

GPU = a_pool("gpu-spot", node={"cpu": 8000, "memory": 2**35, "nvidia.com/gpu": 1})
POOLS = {pool.name: pool for pool in (SPOT, GPU, ON_DEMAND)}


def a_pod(requests: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod spec of one container."""
    return {"containers": [{"name": "main", "image": "train:1", "resources": {"requests": requests or {}}}], **spec}


def planned(task: PodTask, **policy: Any) -> PlannedTask:
    """The only task of a run, planned on three pools."""
    graph = pod_graph("run", [task], POOLS)
    return Plan(graph, a_config(*POOLS.values(), policy=policy or {"spot": "prefer"})).unfold()[0]


def test_a_template_is_a_task_with_the_needs_of_its_pod() -> None:
    toleration = {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}
    spec = a_pod({"cpu": "500m", "memory": "1Gi"}, tolerations=[toleration], nodeSelector={"team": "a"})
    task = pod_graph("run", [PodTask("Job", "train", spec)], POOLS).root.tasks["train"]
    assert task.requests == {"cpu": 500, "memory": 2**30}
    assert task.constraints.tolerations == (Toleration("sku", "Equal", "gpu", "NoSchedule"),)
    assert task.constraints.selector == {"team": "a"}
    assert task.executor == PodTemplate("Job", spec)


def test_the_ladder_of_a_template_follows_from_its_needs() -> None:
    rungs = planned(PodTask("TrainJob", "node", a_pod({"nvidia.com/gpu": "1"}))).ladder.rungs
    assert [rung.pools for rung in rungs] == [("gpu-spot",)]


@pytest.mark.parametrize(
    "said",
    [
        {"annotations": {"spotwright.dev/policy": json.dumps({"spot": "never"})}},
        {"labels": {"spotwright.dev/spot": "never"}},
    ],
)
def test_labels_and_annotations_say_the_policy(said: dict[str, Any]) -> None:
    task = planned(PodTask("Pod", "a", a_pod(), **said))
    assert task.policy.spot is Spot.NEVER
    assert task.policy.sources["spot"] == "Pod a"
    assert [rung.pools for rung in task.ladder.rungs] == [("on-demand",)]


def test_what_kubernetes_itself_says_is_weaker_than_the_policy() -> None:
    spec = a_pod(activeDeadlineSeconds=60, terminationGracePeriodSeconds=5)
    annotations = {"spotwright.dev/policy": json.dumps({"grace_period": "20s"})}
    policy = planned(PodTask("Job", "a", spec, annotations=annotations, retries=3)).policy
    assert (policy.timeout, policy.grace_period, policy.retries) == (60.0, 20.0, 3)


def test_tasks_stand_upstream_before_downstream() -> None:
    tasks = [
        PodTask("Job", "report", a_pod(), after=("a", "b")),
        PodTask("Job", "a", a_pod()),
        PodTask("Job", "b", a_pod()),
    ]
    graph = pod_graph("run", tasks, POOLS)
    assert list(graph.root.tasks) == ["a", "b", "report"]
    assert graph.root.tasks["report"].after == ("a", "b")


def test_a_label_that_no_pool_states_is_taken_to_fit_and_noted() -> None:
    spec = a_pod(nodeSelector={"kubernetes.io/arch": "arm64"})
    graph = pod_graph("run", [PodTask("Job", "a", spec)], POOLS)
    notes = Plan(graph, a_config(*POOLS.values())).check()
    assert [note for note in notes if note.startswith("Job a: Kubernetes sets kubernetes.io/arch on nodes")] != []


@pytest.mark.parametrize(
    ("tasks", "text"),
    [
        ([PodTask("Job", "a", a_pod({"cpu": "much"}))], r"Job a: containers\.0\.resources\.requests\.cpu: "),
        ([PodTask("Job", "a", a_pod()), PodTask("Pod", "a", a_pod())], "Pod a has the name of Job a"),
        ([PodTask("Job", "a/b", a_pod())], "holds no slash"),
        ([PodTask("Job", "a", a_pod(), after=("b",))], "Job a waits for 'b', which is not one of a"),
        (
            [PodTask("Job", "a", a_pod(), after=("b",)), PodTask("Job", "b", a_pod(), after=("a",))],
            "these tasks wait for each other in a circle",
        ),
        ([PodTask("Job", "a", a_pod(), annotations={"spotwright.dev/policy": "{"})], "Job a: .*spotwright.dev/policy"),
        ([PodTask("Job", "a", a_pod(), labels={"spotwright.dev/spot": "maybe"})], "Job a: spotwright.dev/spot: "),
    ],
)
def test_what_cannot_be_read_names_its_template(tasks: list[PodTask], text: str) -> None:
    with pytest.raises(InputError, match=text):
        pod_graph("run", tasks, POOLS)
