"""Each fault of the test bed does to a real node and its pods what it says, and can be undone."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from testbed.faults import FAULT_TAINT, Faults
from testbed.pools import identity
from testbed.settings import Settings
from tests.cluster.conftest import Measured
from tests.cluster.live.kube import LOST_NODE_SECONDS, Kube, Object, has_condition, pod, pod_spec, reason_of

pytestmark = pytest.mark.cluster

NODE, NUMBER = "n2", 2
SPARE = 20.0  # seconds that a busy machine may need on top
COUNTING = "trap 'echo told to end; exit 143' TERM; while :; do date +%s >>/count/seconds; sleep 0.2; done"


@pytest.fixture
def victim(kube: Kube, namespace: str) -> Object:
    """A running pod on the node, which writes the time into a volume and ends with 143 on SIGTERM."""
    container = {**kube.container(COUNTING), "volumeMounts": [{"name": "count", "mountPath": "/count"}]}
    kube.apply(pod("victim", namespace, pod_spec(container, NODE, volumes=[{"name": "count", "emptyDir": {}}])))
    return kube.wait_for_phase("victim", namespace, "Running")


def wait_until_not_ready(kube: Kube) -> Object:
    def gone() -> Object | None:
        node = kube.get("node", NODE)
        return node if node and not has_condition(node, "Ready") else None

    return kube.wait(gone, f"{NODE} is NotReady", 60)


def wait_until_deleted(kube: Kube, namespace: str) -> Object:
    """Wait until Kubernetes has marked the pod for deletion, and return its last state."""

    def marked() -> Object | None:
        found = kube.get("pod", "victim", namespace)
        return found if found and "deletionTimestamp" in found["metadata"] else None

    return kube.wait(marked, "the pod is marked for deletion", 60)


def wait_until_gone(kube: Kube, namespace: str, seconds: float = 60) -> None:
    kube.wait(lambda: kube.get("pod", "victim", namespace) is None, "the pod is gone", seconds)


def counted(bed: Settings, victim: Object) -> int:
    """How often the pod has written, read on the node's disk."""
    volume = f"kubelet/pods/{victim['metadata']['uid']}/volumes/kubernetes.io~empty-dir/count/seconds"
    return len((bed.node_folder(NUMBER) / volume).read_text().split())


@pytest.mark.parametrize("way", ["power cut", "network unplugged"])
def test_a_node_without_power_or_network_is_not_ready_after_the_grace_and_its_pods_are_taken_as_lost(
    bed: Settings, kube: Kube, faults: Faults, victim: Object, namespace: str, measured: Measured, way: str
) -> None:
    started = time.monotonic()
    faults.cut_power(NUMBER) if way == "power cut" else faults.unplug(NUMBER)
    wait_until_not_ready(kube)
    not_ready = time.monotonic() - started
    lost = wait_until_deleted(kube, namespace)
    deleted = time.monotonic() - started
    assert bed.monitor_grace - bed.lease < not_ready < bed.monitor_grace + SPARE
    assert not_ready + LOST_NODE_SECONDS - 1 < deleted < not_ready + LOST_NODE_SECONDS + SPARE
    assert reason_of(lost, "DisruptionTarget") == "DeletionByTaintManager"
    assert lost["status"]["phase"] == "Running"  # nobody is there to say otherwise
    before = counted(bed, victim)
    time.sleep(1.0)
    assert (counted(bed, victim) > before) == (way == "network unplugged")
    ready = faults.restore(NUMBER)
    started = time.monotonic()
    wait_until_gone(kube, namespace)
    measured(f"{way}: until the node is NotReady", not_ready)
    measured(f"{way}: until the pod is marked for deletion", deleted)
    measured(f"{way}: from its way back to Ready", ready)
    measured(f"{way}: from Ready until the pod is gone", time.monotonic() - started)


def test_a_graceful_shutdown_ends_the_pods_with_sigterm_before_the_power_goes(
    kube: Kube, faults: Faults, victim: Object, namespace: str, measured: Measured
) -> None:
    seconds = faults.shut_down(NUMBER)
    ended = kube.pod("victim", namespace)
    assert (ended["status"]["phase"], ended["status"]["reason"]) == ("Failed", "Terminated")
    assert ended["status"]["message"] == "Pod was terminated in response to imminent node shutdown."
    assert reason_of(ended, "DisruptionTarget") == "TerminationByKubelet"
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
    assert reason_of(wait_until_not_ready(kube), "Ready") in ("KubeletNotReady", "NodeStatusUnknown")
    measured("graceful shutdown: until the kubelet lets the machine go", seconds)
    measured("graceful shutdown: from its way back to Ready", faults.restore(NUMBER))


def test_a_drain_evicts_pods_with_sigterm_and_leaves_the_node_unschedulable(
    kube: Kube, faults: Faults, victim: Object, namespace: str, measured: Measured
) -> None:
    started = time.monotonic()
    faults.drain(NUMBER)
    measured("drain: until the pod is gone", time.monotonic() - started)
    assert kube.get("pod", "victim", namespace) is None
    assert (kube.get("node", NODE) or {})["spec"]["unschedulable"] is True
    faults.restore(NUMBER)
    assert "unschedulable" not in (kube.get("node", NODE) or {})["spec"]


def test_a_taint_deletes_pods_that_do_not_tolerate_it(
    kube: Kube, faults: Faults, victim: Object, namespace: str, measured: Measured
) -> None:
    started = time.monotonic()
    faults.taint(NUMBER)
    assert reason_of(wait_until_deleted(kube, namespace), "DisruptionTarget") == "DeletionByTaintManager"
    wait_until_gone(kube, namespace)
    measured("taint: until the pod is gone", time.monotonic() - started)
    faults.restore(NUMBER)
    assert FAULT_TAINT not in json.dumps((kube.get("node", NODE) or {})["spec"])


def test_a_deleted_node_object_takes_its_pods_along_and_comes_back_with_its_labels(
    bed: Settings, kube: Kube, faults: Faults, victim: Object, namespace: str, measured: Measured
) -> None:
    started = time.monotonic()
    faults.delete(NUMBER)
    kube.wait(lambda: kube.get("node", NODE) is None, "the Node object is gone", 30)
    kube.wait(lambda: kube.get("pod", "victim", namespace) is None, "the pod is gone", 180)
    measured("Node object deleted: until the pod is gone", time.monotonic() - started)
    measured("Node object deleted: from its way back to Ready", faults.restore(NUMBER))
    labels = (kube.get("node", NODE) or {})["metadata"]["labels"]
    assert identity(bed.cloud, NUMBER).labels.items() <= labels.items()


READER = {
    "aks": "from spotwright.notices.metadata_services import AzureSource as Source",
    "gke": "from spotwright.notices.metadata_services import GcpSource as Source",
    "eks": "from spotwright.notices.metadata_services import AwsSource as Source",
}


def read_notice(cloud: str) -> str:
    """What Spotwright's own source of notices reads on the node, from the address that every cloud uses."""
    script = f"{READER[cloud]}\nprint(Source().wait(2.0))"
    command = [sys.executable, "-m", "testbed", "exec", "--node", NODE, "--", sys.executable, "-c", script]
    root = Path(__file__).resolve().parents[3]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=root, timeout=60).stdout


def test_a_notice_is_read_at_the_address_of_the_cloud_and_can_be_withdrawn(bed: Settings, faults: Faults) -> None:
    assert read_notice(bed.cloud) == "None\n"
    faults.notice(NUMBER)
    assert read_notice(bed.cloud).startswith("Notice(")
    faults.withdraw(NUMBER)
    assert read_notice(bed.cloud) == "None\n"


def test_pods_of_a_node_reach_its_metadata_server_and_those_of_other_nodes_do_not_see_its_notice(
    bed: Settings, kube: Kube, faults: Faults, namespace: str
) -> None:
    if bed.cloud != "aks":
        pytest.skip("the request of this test is Azure's")
    faults.notice(NUMBER)
    url = "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
    script = f"wget -q -O - --header 'Metadata: true' '{url}'"
    for node in ("n2", "n3"):
        kube.apply(pod(f"asks-on-{node}", namespace, pod_spec(kube.container(script), node)))
    answers = {}
    for node in ("n2", "n3"):
        kube.wait_for_phase(f"asks-on-{node}", namespace, "Succeeded")
        answers[node] = json.loads(kube.run("logs", f"asks-on-{node}", "-n", namespace))
    assert [event["EventType"] for event in answers["n2"]["Events"]] == ["Preempt"]
    assert answers["n3"]["Events"] == []
