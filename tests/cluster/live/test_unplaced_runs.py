"""Objects created while the controller was down, on a real API server: the reviewed pods, and the place of the next one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from testbed.settings import Settings
from tests.cluster.live.controllers import Controller, configuration, controller
from tests.cluster.live.idle_autoscaler import idle_autoscaler
from tests.cluster.live.kube import Kube, Object, job, pod

pytestmark = pytest.mark.cluster

_FOLLOWED = 90.0  # seconds, on a busy machine
OWNERS = {
    "job": ("batch/v1", "Job"),
    "workflow": ("argoproj.io/v1alpha1", "Workflow"),
    "torch": ("kubeflow.org/v1", "PyTorchJob"),
    "mpi": ("kubeflow.org/v2beta1", "MPIJob"),
}
STRANGERS = {
    "web": ("apps/v1", "ReplicaSet"),
    "agent": ("apps/v1", "DaemonSet"),
    "store": ("apps/v1", "StatefulSet"),
    "volcano": ("batch.volcano.sh/v1alpha1", "Job"),
    "node": ("v1", "Node"),
}


def owned_pod(kube: Kube, namespace: str, name: str, owner: tuple[str, str], *, is_controller: bool = True) -> Object:
    made = pod(name, namespace, {"restartPolicy": "Never", "containers": [kube.container("true")]})
    version, kind = owner
    reference = {"apiVersion": version, "kind": kind, "name": "owner", "uid": "0-0", "controller": is_controller}
    made["metadata"]["ownerReferences"] = [reference]
    made["spec"]["nodeSelector"] = {"nobody": "has-it"}
    return made


def asked(made: Controller, namespace: str) -> list[str]:
    """The pods of a namespace about which the API server has asked."""
    lines = made.log.read_text(encoding="utf-8").splitlines()
    return [line.partition(f"Pod {namespace}/")[2].partition(":")[0] for line in lines if f"Pod {namespace}/" in line]


def test_the_api_server_asks_about_pods_of_runs_and_of_no_others(
    kube: Kube, bed: Settings, namespace: str, tmp_path: Path
) -> None:
    with controller(kube, bed, tmp_path, configuration("10m")) as made:
        made.enable(namespace)
        time.sleep(2.0)  # the API server has the label
        for name, owner in STRANGERS.items():
            kube.apply(owned_pod(kube, namespace, name, owner))
        kube.apply(owned_pod(kube, namespace, "no-controller", OWNERS["job"], is_controller=False))
        kube.apply(pod("bare", namespace, {"containers": [kube.container("true")], "nodeSelector": {"nobody": "no"}}))
        left = owned_pod(kube, namespace, "ignored", OWNERS["job"])
        left["metadata"]["annotations"] = {"spotwright.dev/ignore": "true"}
        kube.apply(left)
        for name, owner in OWNERS.items():
            kube.apply(owned_pod(kube, namespace, name, owner))
        kube.wait(lambda: set(asked(made, namespace)) >= set(OWNERS), "the pods of runs are asked about", 10)
        assert set(asked(made, namespace)) == set(OWNERS)


def test_the_next_pod_of_a_job_that_was_created_without_a_controller_is_placed(
    kube: Kube, bed: Settings, namespace: str, tmp_path: Path
) -> None:
    if kube.get("node", "n1") is None:
        pytest.skip("this cluster has no node of its own")
    kube.run("label", "namespace", namespace, "spotwright.dev/enabled=true")
    script = 'if [ -z "$SPOTWRIGHT_ATTEMPT" ]; then sleep 600; fi; sleep 3'
    train = job("train", namespace, {"restartPolicy": "Never", "containers": [kube.container(script)]})
    lost = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    train["spec"] |= {"backoffLimit": 3, "podFailurePolicy": {"rules": [lost]}}
    train["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    kube.apply(train)

    def pods() -> list[Object]:
        found = kube.list("pods", namespace)
        return [each for each in found if each["status"].get("phase") in ("Running", "Succeeded")]

    (first,) = kube.wait(pods, "the first pod runs, unplaced", _FOLLOWED)
    assert "spotwright.dev/policy" not in first["metadata"].get("annotations", {})
    config = configuration("10m")
    with idle_autoscaler(kube, config), controller(kube, bed, tmp_path, config) as made:
        kube.wait(lambda: made.attempts("train"), "the first attempt is recorded", _FOLLOWED)
        kube.run("delete", "pod", first["metadata"]["name"], "-n", namespace, "--wait=false")
        second = kube.wait(
            lambda: next((each for each in pods() if each["metadata"]["uid"] != first["metadata"]["uid"]), None),
            "the next pod runs",
            _FOLLOWED,
        )
        annotations = second["metadata"].get("annotations") or {}
        assert annotations, made.log.read_text(encoding="utf-8")[-3000:]
        assert annotations["spotwright.dev/rung"] == "spot", annotations
        assert annotations["spotwright.dev/attempt"] == "2"
        assert "its own retries (backoffLimit 3, podFailurePolicy) end it" in annotations["spotwright.dev/why"]
        node = kube.get("node", second["spec"]["nodeName"]) or {}
        assert node["metadata"]["labels"]["agentpool"] == "spot"
        kube.wait(lambda: made.has_ended("train"), "the Job has ended", _FOLLOWED)
        before, after = made.attempts("train")
        assert (after.pools, after.pool) == (("spot",), "spot")
        assert before.pool == "system"
        run = made.run("train")
        assert run is not None
        assert not any("unplaced" in note and second["metadata"]["name"] in note for note in run.notes)
