"""Two replicas of the chart on two nodes, without a volume: if the recording one's node is cut off, the other continues."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from testbed.faults import Faults
from tests.cluster.chart.rendered import CHART, Helm
from tests.cluster.conftest import Measured
from tests.cluster.live.chart.releases import RESTRICTED, SOON
from tests.cluster.live.controllers import configuration
from tests.cluster.live.kube import Kube, job, pod_spec

pytestmark = pytest.mark.cluster

NODES = ("n1", "n3")


@pytest.fixture
def home(helm_for_two: Helm, kube: Kube, namespace: str) -> Iterator[str]:
    """A release with two replicas, whose log store does not answer: only logs wait for it."""
    helm, home = helm_for_two, f"spotwright-{uuid.uuid4().hex[:6]}"
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": home, "labels": RESTRICTED}})
    values = {
        "namespaces": [namespace],
        "config": configuration("10m"),
        "logs": {"url": "s3://nowhere/spotwright"},
        "replicas": 2,
    }
    try:
        helm.run("install", "spotwright", str(CHART), "-n", home, "--wait", f"--timeout={SOON:.0f}s", values=values)
        yield home
    finally:
        helm.run("uninstall", "spotwright", "-n", home, "--ignore-not-found")
        kube.run("delete", "namespace", home, "--ignore-not-found", "--wait=false")


def recorded(kube: Kube, namespace: str) -> dict[str, tuple[str, int]]:
    """The runs by name, each with its status and how many attempts it has."""
    return {
        each["metadata"]["name"]: (each["status"].get("phase", ""), each["status"].get("attempts", 0))
        for each in kube.list("spotruns", namespace)
    }


def test_the_other_replica_records_after_a_power_cut(
    kube: Kube, home: str, namespace: str, faults: Faults, measured: Measured
) -> None:
    pods = kube.list("pods", home, "app.kubernetes.io/component=recorder")
    webhooks = kube.list("pods", home, "app.kubernetes.io/component=webhook")
    for replicas in (pods, webhooks):
        assert {each["spec"]["nodeName"] for each in replicas} == set(NODES)
    (lease,) = kube.list("leases", home)
    leader = next(each for each in pods if lease["spec"]["holderIdentity"].startswith(each["metadata"]["name"]))

    def make(name: str) -> None:
        train = job(name, namespace, pod_spec(kube.container("sleep 2"), node="n2"))
        kube.apply(train)

    make("before")
    kube.wait(
        lambda: any(state == ("succeeded", 1) for state in recorded(kube, namespace).values()), "it is recorded", SOON
    )
    make("during")
    faults.cut_power(int(leader["spec"]["nodeName"].removeprefix("n")))
    cut = time.monotonic()
    kube.wait(
        lambda: [state for state in recorded(kube, namespace).values() if state[0] == "succeeded"][1:] or None,
        "what ended after the cut is recorded by the other replica",
        SOON,
    )
    measured("from the power cut of the leader's node until the other replica has recorded", time.monotonic() - cut)
    make("after")
    kube.wait(lambda: len(recorded(kube, namespace)) == 3 or None, "the next one is recorded", SOON)
    assert set(recorded(kube, namespace).values()) <= {("succeeded", 1), ("running", 1), ("running", 0)}
