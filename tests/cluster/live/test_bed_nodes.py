"""The nodes of the test bed have the properties of their cloud, and real pods run on them."""

from __future__ import annotations

import pytest
from testbed.control.api import Api
from testbed.pools import identity
from testbed.settings import Settings
from tests.cluster.conftest import Measured
from tests.cluster.live.kube import Kube, pod, pod_spec

pytestmark = pytest.mark.cluster


def test_every_node_is_ready_with_the_labels_taints_and_machine_of_its_cloud(bed: Settings) -> None:
    api = Api(bed)
    assert api.ready_nodes() == {f"n{number}" for number in bed.numbers}
    for number in bed.numbers:
        node, expected = api.nodes()[f"n{number}"], identity(bed.cloud, number)
        taints = [
            f"{taint['key']}={taint.get('value', '')}:{taint['effect']}" for taint in node["spec"].get("taints", [])
        ]
        assert expected.labels.items() <= node["metadata"]["labels"].items()
        assert tuple(taints) == expected.taints
        assert node["spec"]["providerID"] == expected.provider_id


@pytest.mark.parametrize("node", ["n1", "n2", "n3"])
def test_a_pod_runs_to_its_end_on_each_node_and_its_log_is_read(
    bed: Settings, kube: Kube, namespace: str, node: str
) -> None:
    kube.apply(pod("hello", namespace, pod_spec(kube.container("echo hello from $(hostname)"), node)))
    done = kube.wait_for_phase("hello", namespace, "Succeeded", "Failed")
    assert (done["status"]["phase"], done["spec"]["nodeName"]) == ("Succeeded", node)
    assert kube.run("logs", "hello", "-n", namespace) == "hello from hello\n"


def test_a_pod_without_tolerations_stays_off_spot_nodes(kube: Kube, namespace: str, bed: Settings) -> None:
    if bed.cloud == "eks":
        pytest.skip("EKS sets no taint on spot nodes")
    for number in range(4):
        spec = {"restartPolicy": "Never", "containers": [kube.container("true")]}
        kube.apply(pod(f"plain-{number}", namespace, spec))
    for number in range(4):
        assert kube.wait_for_phase(f"plain-{number}", namespace, "Succeeded")["spec"]["nodeName"] == "n1"


def test_a_pod_is_bound_and_runs_within_seconds(kube: Kube, namespace: str, measured: Measured, bed: Settings) -> None:
    kube.apply(pod("quick", namespace, pod_spec(kube.container("sleep 60"), "n2")))
    running = kube.wait_for_phase("quick", namespace, "Running", seconds=30)
    started = running["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
    measured("from creating a pod to its start, in whole seconds", seconds_between(running, started))


def seconds_between(item: dict[str, dict[str, str]], moment: str) -> float:
    from datetime import datetime

    return (
        datetime.fromisoformat(moment) - datetime.fromisoformat(item["metadata"]["creationTimestamp"])
    ).total_seconds()
