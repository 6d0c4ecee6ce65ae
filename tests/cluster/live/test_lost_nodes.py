"""On the test bed: a node loses its power for good, and the successors of all kinds start once it is declared gone.

Beside it the same without our controller, for the table in ``docs/explanation/moving.md``. With it the successors of Jobs
start without a declaration, as they do on a cluster without Spotwright; those of Workflows start there and here only after
one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from testbed.faults import Faults
from testbed.settings import Settings
from tests.cluster.conftest import Measured
from tests.cluster.live.controllers import Controller, configuration, controller
from tests.cluster.live.kube import Kube, Object, reason_of
from tests.cluster.live.workloads import KINDS, make, selector_of

pytestmark = pytest.mark.cluster

LOST, OTHER = 2, 3  # two spot nodes
STARTS = 180.0  # seconds until pods run, on a busy machine
SUCCESSOR = 300.0
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
SCRIPT = "sleep 3600"


@pytest.fixture
def in_service(kube: Kube, faults: Faults) -> Iterator[Faults]:
    """Faults of nodes; the taint that says that a machine is gone is removed after the test."""
    yield faults
    node = kube.get("node", f"n{LOST}")
    if any(taint["key"] == OUT_OF_SERVICE for taint in ((node or {}).get("spec") or {}).get("taints") or ()):
        kube.run("taint", "nodes", f"n{LOST}", f"{OUT_OF_SERVICE}-")


@pytest.mark.parametrize("has_controller", [True, False], ids=["with", "without"])
@pytest.mark.parametrize("word", ["deleted", "tainted"])
def test_the_successors_start_once_somebody_says_that_the_machine_is_gone(
    kube: Kube,
    bed: Settings,
    in_service: Faults,
    namespace: str,
    tmp_path: Path,
    measured: Measured,
    word: str,
    has_controller: bool,
) -> None:
    with controller(kube, bed, tmp_path, configuration("10m")) as leader:
        leader.enable(namespace)
        kinds = start(kube, namespace)
        if not has_controller:
            leader.end()
        in_service.cut_power(LOST)
        cut = time.monotonic()
        marked = wait_until_marked(kube, namespace, kinds, cut)
        if has_controller and word == "tainted" and "workflow" in kinds:
            check_that_it_is_named(kube, leader, namespace)
        began = time.monotonic()
        say(kube, word)
        label = f"node {word}, {'with' if has_controller else 'without'} the controller"
        for kind, at in wait_for_successors(kube, namespace, kinds).items():
            measured(f"{label}: {kind}, from the power cut until it was marked", marked[kind])
            measured(f"{label}: {kind}, from the word until its successor runs", at - began)
        if has_controller:
            for kind in kinds:
                check_that_it_is_recorded(kube, leader, kind)


def start(kube: Kube, namespace: str) -> list[str]:
    """Start a workload of each kind that the cluster has on the node that will be lost."""
    kube.run("cordon", f"n{OTHER}")
    try:
        kinds = [kind for kind in KINDS if make(kube, kind, namespace, SCRIPT)]
        for kind in kinds:
            kube.wait(partial(running, kube, namespace, kind, LOST), f"the pods of the {kind} run", STARTS)
    finally:
        kube.run("uncordon", f"n{OTHER}")
    return kinds


def running(kube: Kube, namespace: str, kind: str, node: int | None = None) -> list[Object]:
    """The pods of a workload, if all that are not being deleted run; on one node if it is named."""
    pods = [
        pod for pod in kube.list("pods", namespace, selector_of(kind)) if "deletionTimestamp" not in pod["metadata"]
    ]
    is_here = all(node is None or pod["spec"].get("nodeName") == f"n{node}" for pod in pods)
    wanted = 1 if kind in ("job", "workflow") else 2
    is_complete = len(pods) == wanted and all(pod["status"].get("phase") == "Running" for pod in pods)
    return pods if is_here and is_complete else []


def wait_until_marked(kube: Kube, namespace: str, kinds: list[str], cut: float) -> dict[str, float]:
    """Wait until Kubernetes marks the pods of the lost node for deletion; the seconds after the cut, by kind."""
    marked: dict[str, float] = {}

    def look() -> bool:
        for kind in kinds:
            pods = kube.list("pods", namespace, selector_of(kind))
            lost = [pod for pod in pods if pod["spec"].get("nodeName") == f"n{LOST}"]
            if kind not in marked and all("deletionTimestamp" in pod["metadata"] for pod in lost):
                marked[kind] = time.monotonic() - cut
        return len(marked) == len(kinds)

    kube.wait(look, "the pods of the lost node are marked for deletion", STARTS)
    return marked


def say(kube: Kube, word: str) -> None:
    """Say that the machine is gone, by one of the commands that ``show`` names."""
    if word == "deleted":
        kube.run("delete", "node", f"n{LOST}", "--wait=false")
    else:
        kube.run("taint", "nodes", f"n{LOST}", f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute")


def wait_for_successors(kube: Kube, namespace: str, kinds: list[str]) -> dict[str, float]:
    """Wait until the successors of all kinds run on another node; the moment of each."""
    started: dict[str, float] = {}

    def look() -> bool:
        for kind in kinds:
            pods = running(kube, namespace, kind)
            if kind not in started and pods and all(pod["spec"]["nodeName"] != f"n{LOST}" for pod in pods):
                started[kind] = time.monotonic()
        return len(started) == len(kinds)

    try:
        kube.wait(look, f"the successors run: {sorted(started)} of {kinds}", SUCCESSOR)
    except AssertionError as error:
        left = [(pod["metadata"]["name"], pod["status"].get("phase")) for pod in kube.list("pods", namespace)]
        raise AssertionError(f"{error}; started: {sorted(started)}; pods: {left}") from error
    return started


def check_that_it_is_named(kube: Kube, leader: Controller, namespace: str) -> None:
    """Until the machine is declared gone, a step's pod stays, and the journal names the node that holds it."""
    held = kube.wait(lambda: [a for a in leader.attempts("workflow") if a.held], "the silent node is recorded", 60)
    assert held[0].held is not None
    assert held[0].held.node == f"n{LOST}"
    assert held[0].released == ""
    pods = kube.list("pods", namespace, selector_of("workflow"))
    assert [reason_of(pod, "DisruptionTarget") for pod in pods] == ["DeletionByTaintManager"]


def check_that_it_is_recorded(kube: Kube, leader: Controller, kind: str) -> None:
    """The first attempt was interrupted or lost, and its pod was released by a decision that is in the journal."""
    first = kube.wait(lambda: [a for a in leader.attempts(kind) if a.number == 1 and a.cause], f"its end ({kind})", 60)
    assert all(attempt.cause is not None and attempt.cause.is_interruption for attempt in first)
    assert all(attempt.released for attempt in first), [attempt.released for attempt in first]
