"""On the test bed: a node falls silent for good and is never declared gone, with our controller and without us.

A node does not delay anything for longer with us, and if a gang's worker fails first, for lack of its peer, the node is
charged.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest
from testbed.faults import Faults
from testbed.settings import Settings
from tests.cluster.conftest import Measured, Require
from tests.cluster.live.controllers import configuration, controller
from tests.cluster.live.kube import Kube, Object
from tests.cluster.live.workloads import make, selector_of

pytestmark = pytest.mark.cluster

LOST, OTHER = 2, 3  # two spot nodes
STARTS = 180.0  # seconds until pods run, on a busy machine
SUCCESSOR = 240.0
CRDS = {"jobset": "jobsets.jobset.x-k8s.io", "trainjob": "trainjobs.trainer.kubeflow.org"}
FAILS_WHEN_TOLD = "while [ ! -e /tmp/fail ]; do sleep 0.2; done; exit 1"


def running(kube: Kube, namespace: str, kind: str, *nodes: int) -> list[Object]:
    """The pods of a workload that run on these nodes and are not being deleted, if all of it does."""
    pods = kube.list("pods", namespace, selector_of(kind))
    here = [
        pod
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
        and pod["status"].get("phase") == "Running"
        and pod["spec"].get("nodeName") in {f"n{number}" for number in nodes}
    ]
    return here if len(here) == (1 if kind == "job" else 2) else []


def is_spread(kube: Kube, namespace: str, kind: str) -> bool:
    pods = running(kube, namespace, kind, LOST, OTHER)
    return {pod["spec"]["nodeName"] for pod in pods} == {f"n{LOST}", f"n{OTHER}"}


@pytest.mark.parametrize("who", ["with us", "without us"])
@pytest.mark.parametrize("kind", ["job", "jobset", "trainjob"])
def test_a_silent_node_holds_nothing_up_for_longer_than_without_us(
    kube: Kube,
    bed: Settings,
    faults: Faults,
    namespace: str,
    tmp_path: Path,
    measured: Measured,
    kind: str,
    who: str,
) -> None:
    if kind in CRDS and (reason := kube.lacks(CRDS[kind])):
        pytest.skip(reason)
    with controller(kube, bed, tmp_path, configuration("10m")) as leader:
        if who == "with us":
            leader.enable(namespace)
        kube.run("cordon", f"n{OTHER}", "n1")
        try:
            make(kube, kind, namespace, "sleep 3600")
            kube.wait(partial(running, kube, namespace, kind, LOST), f"the pods of the {kind} run", STARTS)
        finally:
            kube.run("uncordon", f"n{OTHER}", "n1")
        faults.cut_power(LOST)
        cut = time.monotonic()
        kube.wait(partial(running, kube, namespace, kind, 1, OTHER), f"the successors of the {kind} run", SUCCESSOR)
        took = time.monotonic() - cut
        measured(f"silent node, {who}: {kind}, from the cut until its successor runs", took)
        assert took < bed.monitor_grace + bed.toleration + 30
        if who == "with us":
            first = [one for one in leader.attempts(kind) if one.number == 1]
            assert all(one.cause is not None and one.cause.is_interruption for one in first)


@pytest.mark.parametrize("kind", ["jobset", "trainjob"])
def test_a_gang_whose_worker_fails_before_its_peer_s_node_is_known_to_be_silent_is_charged_for_the_node(
    kube: Kube,
    bed: Settings,
    faults: Faults,
    namespace: str,
    tmp_path: Path,
    measured: Measured,
    require: Require,
    kind: str,
) -> None:
    require(CRDS[kind])
    no_errors = configuration("10m").replace("spot: prefer", "errors: {retries: 0}\n    spot: prefer")
    with controller(kube, bed, tmp_path, no_errors) as leader:
        leader.enable(namespace)
        kube.run("cordon", "n1")
        try:
            make(kube, kind, namespace, FAILS_WHEN_TOLD)
            pods = kube.wait(
                partial(running, kube, namespace, kind, LOST, OTHER), f"the pods of the {kind} run", STARTS
            )
        finally:
            kube.run("uncordon", "n1")
        nodes = {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in pods}
        if len(nodes) < 2:
            pytest.fail(f"both workers are on one node: {nodes}")
        faults.cut_power(LOST)
        cut = time.monotonic()
        time.sleep(3)  # the time in which a worker finds its peer silent
        kube.run("exec", nodes[f"n{OTHER}"], "-n", namespace, "--", "touch", "/tmp/fail")  # noqa: S108 (in the pod)
        kube.wait(partial(running, kube, namespace, kind, 1, OTHER), "the gang runs again", SUCCESSOR)
        measured(f"gang whose peer fails first: {kind}, from the cut until it runs again", time.monotonic() - cut)
        run = leader.run(kind)
        assert run is not None
        assert {(task.spent.interruptions, task.spent.errors) for task in run.tasks.values()} == {(1, 0)}
        assert not [note for note in run.notes if "was refused" in note]
