"""On the test bed: work in a queue of Kueue is placed, runs on its flavor's pool, and an eviction by Kueue costs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from testbed.settings import Settings
from tests.cluster.live.controllers import Controller, configuration, controller
from tests.cluster.live.kube import Kube, Object, has_condition, job, pod_spec
from tests.cluster.live.workloads import make, selector_of

from spotwright.engine.events import RunStatus
from spotwright.model.attempts import Cause

pytestmark = pytest.mark.cluster

API = "kueue.x-k8s.io/v1beta2"
QUEUE = "kueue.x-k8s.io/queue-name"
AKS = "kubernetes.azure.com"
ENDED = 180.0  # seconds for a workload, on a busy machine
KINDS = ("job", "jobset", "trainjob")


@pytest.fixture(scope="module")
def placing(kube: Kube, bed: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    """A controller for the tests of this module."""
    if reason := kube.lacks("clusterqueues.kueue.x-k8s.io"):
        pytest.skip(reason)
    with controller(kube, bed, tmp_path_factory.mktemp("kueue"), configuration("10m"), "--log-limit", "0") as made:
        yield made


@pytest.fixture
def queue(kube: Kube, namespace: str, placing: Controller) -> Iterator[str]:
    """A LocalQueue ``local`` whose flavors are the spot pool, with the quota of one CPU, then the on-demand pool without any."""
    placing.enable(namespace)
    spot = {"nodeLabels": {f"{AKS}/agentpool": "spot", f"{AKS}/scalesetpriority": "spot"}}
    taint = {"key": f"{AKS}/scalesetpriority", "value": "spot", "effect": "NoSchedule"}
    flavors = {f"spot-{namespace}": {**spot, "nodeTaints": [taint]}}
    flavors[f"system-{namespace}"] = {"nodeLabels": {f"{AKS}/agentpool": "system"}}
    quotas = [
        {"name": name, "resources": [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": "1Gi"}]}
        for name, cpu in zip(flavors, ("1", "0"), strict=True)
    ]
    spec = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": quotas}],
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }
    names = [f"queue-{namespace}", *flavors, f"low-{namespace}", f"high-{namespace}"]
    try:
        for name, flavor in flavors.items():
            kube.apply({"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": flavor})
        for name, value in zip(names[-2:], (10, 1000), strict=True):
            kube.apply({"apiVersion": API, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value})
        kube.apply(
            {"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": names[0]}, "spec": spec},
            {
                "apiVersion": API,
                "kind": "LocalQueue",
                "metadata": {"name": "local", "namespace": namespace},
                "spec": {"clusterQueue": names[0]},
            },
        )
        yield "local"
    finally:
        with ExitStack() as stack:
            for kind, group in (("workloadpriorityclass", names[-2:]), ("resourceflavor", names[1:3])):
                stack.callback(kube.run, "delete", kind, *group, "--ignore-not-found", "--wait=false")
            stack.callback(kube.run, "delete", "clusterqueue", names[0], "--ignore-not-found", "--wait=false")
            stack.callback(kube.run, "delete", "trainjob,jobset,job,localqueue", "--all", "-n", namespace)


def queued(kube: Kube, name: str, namespace: str, script: str, priority: str) -> None:
    """Create a Job in the queue, with a priority of Kueue's. It takes most of the quota."""
    container = kube.container(script)
    container["resources"] = {"requests": {"cpu": "600m", "memory": "8Mi"}}
    labels = {QUEUE: "local", "kueue.x-k8s.io/priority-class": f"{priority}-{namespace}"}
    made = job(name, namespace, pod_spec(container), labels=labels)
    del made["spec"]["backoffLimit"]  # the policy's counts
    kube.apply(made)


def pods_of(kube: Kube, kind: str, namespace: str) -> list[Object]:
    return kube.list("pods", namespace, selector_of(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_queue_admits_is_placed_and_runs_on_the_pool_of_its_flavor(
    kube: Kube, namespace: str, queue: str, placing: Controller, kind: str
) -> None:
    assert make(kube, kind, namespace, "true", **{QUEUE: queue})
    kube.wait(lambda: placing.has_ended(kind), f"the {kind} has ended", ENDED)
    run = placing.run(kind)
    assert run is not None
    assert run.status is RunStatus.SUCCEEDED, run.why
    attempts = placing.attempts(kind)
    assert {attempt.pool for attempt in attempts} == {"spot"}, "the first flavor that has quota"
    assert all(attempt.number == 1 and attempt.cause is Cause.SUCCEEDED for attempt in attempts)
    found = pods_of(kube, kind, namespace)
    assert found
    for pod in found:
        annotations = pod["metadata"]["annotations"]
        assert "spotwright.dev/policy" in annotations, "the webhook has placed it"
        assert "spotwright.dev/rung" not in annotations, "under Kueue the flavor is the rung"
        assert pod["spec"]["nodeSelector"][f"{AKS}/agentpool"] == "spot", "Kueue has chosen"


def test_work_that_kueue_evicts_for_a_higher_priority_spends_no_budget_and_goes_on_afterwards(
    kube: Kube, namespace: str, queue: str, placing: Controller
) -> None:
    assert queue == "local"
    queued(kube, "low", namespace, "test -e /tmp/never || sleep 20", "low")
    kube.wait(lambda: [one for one in placing.attempts("low") if one.bound_at], "the first Job runs", ENDED)
    queued(kube, "high", namespace, "sleep 5", "high")
    kube.wait(
        lambda: has_condition(kube.get("job", "high", namespace), "Complete"), "the urgent Job is Complete", ENDED
    )
    kube.wait(lambda: placing.has_ended("low"), "the first Job has ended", ENDED)
    run = placing.run("low")
    assert run is not None
    assert run.status is RunStatus.SUCCEEDED, run.why
    [task] = run.tasks.values()
    assert [attempt.cause for attempt in task.attempts] == [Cause.CANCELLED, Cause.SUCCEEDED]
    assert "suspended by Kueue" in task.attempts[0].cause_why
    assert (task.spent.interruptions, task.spent.errors) == (0, 0)
    assert [attempt.cause for attempt in placing.attempts("high")] == [Cause.SUCCEEDED]
