"""A node that loses its power and boots again under its name: what its pods, of every kind, are charged with.

The status of the pods is that which a kubelet 1.35.4 wrote of a Katib trial's pod (two containers, 255, Unknown, at the moment of
the boot). The states of their nodes are made as they would be: the recording has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import BEGIN, SPOT, at, job, node, pod

from spotwright.cluster.signals import LastSeen, signals_of
from spotwright.cluster.view import SeenPod
from spotwright.kubeflow.task_status import Node
from spotwright.kubeflow.task_status import signals_of as signals_of_argo
from spotwright.model.attempts import Cause, Ending
from spotwright.scheduling.cause import classify
from spotwright.views.run_json import run_view

Object = dict[str, Any]

BEGAN, BOOTED, TOLD = (
    2,
    43,
    45,
)  # seconds: the container, the runtime after the loss of power, the kubelet's word of the pod
ON_DEMAND = {"kubernetes.azure.com/agentpool": "gpu"}
CONTAINERS = {"Pod": ("main",), "Job": ("main",), "JobSet": ("main",), "TrainJob": ("node",)} | {
    "Workflow": ("main", "wait"),
    "Experiment": ("metrics-logger-and-collector", "training-container"),
}


def ended(name: str, code: int = 255, reason: str = "Unknown", second: int = BOOTED) -> Object:
    """The status of a container that was terminated."""
    state = {"exitCode": code, "reason": reason, "startedAt": at(BEGAN), "finishedAt": at(second)}
    return {"name": name, "restartCount": 0, "state": {"terminated": state}}


def dead(*containers: Object, owner: Object | None = None, told: int = TOLD, **more: Any) -> Object:
    """A pod on n1 whose containers ended so, as the kubelet reported it at a second."""
    made = pod("one", owner, node="n1", phase="Failed", **more)
    made["status"]["containerStatuses"] = list(containers)
    made["spec"]["containers"] = [{"name": each["name"]} for each in reversed(containers)]
    made["status"]["startTime"] = at(1)
    made["status"]["conditions"] += [
        {"type": kind, "status": "False", "reason": "PodFailed", "lastTransitionTime": at(told)}
        for kind in ("PodReadyToStartContainers", "Ready", "ContainersReady")
    ]
    return made


def host(
    *, ready: int = 0, status: str = "True", created: int = -600, boot: str = "5d1c0ce2-a", **labels: str
) -> Object:
    """A node that is ready since a second, whose Node object was created at another."""
    made = node("n1", ready=status, **(labels or SPOT))
    made["metadata"]["creationTimestamp"] = at(created) if created >= 0 else "2027-01-15T07:50:00Z"
    made["status"]["conditions"][0]["lastTransitionTime"] = at(ready) if ready > 0 else "2027-01-15T07:50:09Z"
    made["status"]["nodeInfo"] = {"bootID": boot}
    return made


def event(reason: str, second: int, message: str = "") -> Object:
    return {"reason": reason, "message": message, "lastTimestamp": at(second)}


def judged(of: Object, on: Object | None, **seen: Any) -> Ending:
    return classify(signals_of(LastSeen(of, on, **seen)))


RESTARTS: Mapping[str, tuple[Object, Mapping[str, Any]]] = {
    "the boot ID of its node changed": (host(boot="77aa0000-b"), {"boot": "5d1c0ce2"}),
    "the kubelet reported a reboot": (host(), {"node_events": [event("Rebooted", 42)]}),
    "its Node object was created again": (host(created=42), {}),
    "its kubelet started again": (host(), {"node_events": [event("Starting", 42, "Starting kubelet.")]}),
    "its node was not ready in between": (host(ready=44), {}),
}
"""The node's evidence, by the clause that names it."""


@pytest.mark.parametrize("sign", RESTARTS)
@pytest.mark.parametrize(("labels", "cause"), [(SPOT, Cause.INTERRUPTED), (ON_DEMAND, Cause.DISRUPTED)])
def test_a_node_that_restarted_is_an_interruption_on_spot_and_a_disruption_elsewhere(
    sign: str, labels: dict[str, str], cause: Cause
) -> None:
    on, seen = RESTARTS[sign]
    labelled = {**on, "metadata": {**on["metadata"], "labels": labels}}
    signals = signals_of(LastSeen(dead(ended("main")), labelled, **seen), spot="gpu" not in labels.values())
    ending = classify(signals)

    assert (ending.cause, ending.evidence) == (cause, {"node_restarted": sign})
    assert ending.why.endswith(f"restarted: {sign}")


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("was_made_again", [False, True])
def test_pods_of_every_kind_are_judged_alike(kind: str, was_made_again: bool) -> None:
    made = dead(*map(ended, CONTAINERS[kind]))

    assert judged(made, host(created=42) if was_made_again else host(ready=44)).cause is Cause.INTERRUPTED


def test_a_container_that_starts_again_in_its_pod_was_ended_by_the_restart() -> None:
    again = dead(ended("main"))
    (main,) = again["status"]["containerStatuses"]
    main |= {"restartCount": 1, "lastState": main["state"], "state": {"running": {"startedAt": at(47)}}}

    assert classify(signals_of(LastSeen(again, host(ready=44)), restart=0)).cause is Cause.INTERRUPTED


@pytest.mark.parametrize(("code", "reason"), [(255, "Error"), (137, "Error"), (143, "Error")])
def test_a_runtime_that_writes_a_code_of_its_own_for_a_restart_is_judged_by_the_node(code: int, reason: str) -> None:
    """CRI-O and cri-dockerd write 255 with the reason Error, and a shutdown ends processes by signals."""
    made = dead(ended("main", code, reason, second=40))

    assert judged(made, host(boot="77aa0000-b", ready=44), boot="5d1c0ce2").cause is Cause.INTERRUPTED
    assert judged(made, host(created=42)).cause is Cause.INTERRUPTED


@pytest.mark.parametrize("code", [255, 1, 3])
@pytest.mark.parametrize("on", [host(), host(ready=44), None], ids=["lives", "not-ready-once", "unseen"])
def test_the_programs_own_exit_code_stays_its_error(code: int, on: Object | None) -> None:
    assert judged(dead(ended("main", code, "Error", second=20), told=21), on).cause is Cause.FAILED


@pytest.mark.parametrize("code", [255, 137])
def test_an_error_that_the_kubelet_had_told_before_its_node_restarted_stays_an_error(code: int) -> None:
    made = dead(ended("main", code, "Error", second=20), told=21)
    restarted = host(created=300, boot="77aa0000-b", ready=305)

    assert judged(made, restarted, boot="5d1c0ce2").cause is Cause.FAILED


def test_memory_that_ran_out_before_a_restart_stays_an_error() -> None:
    made = dead(ended("main", 137, "OOMKilled", second=40))

    assert judged(made, host(created=42)).cause is Cause.OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("on", "says"),
    [(host(), "and nothing shows that its node restarted"), (None, "and the state of its node is unknown")],
)
def test_a_container_that_its_runtime_lost_on_a_node_that_lives_is_lost_and_says_so(
    on: Object | None, says: str
) -> None:
    """Only containerd restarted, and killed the containers: not an error of the work, and not a restart of the node."""
    ending = judged(dead(ended("main")), on)

    assert ending.cause is Cause.LOST
    assert ending.why == f"its container runtime lost it (exit code 255, reason Unknown), {says}"


def test_what_argo_says_of_such_an_end_is_no_error_of_the_step_either() -> None:
    told = signals_of_argo(Node("", "Failed", message="main: Unknown (exit code 255)"))

    assert classify(told).cause is Cause.LOST


def test_a_loss_of_power_that_was_announced_is_still_told_by_its_notice() -> None:
    noticed = host(ready=44)
    noticed["status"]["conditions"].append({"type": "PreemptionScheduled", "status": "True"})

    assert "announced" in judged(dead(ended("main")), noticed).why


# Recorded


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "state")
    made.now = BEGIN + 60.0
    made.view.put_node(host())
    yield made
    made.store.close()


def root_of(kind: str) -> Object:
    made = job(backoffLimit=6)
    made["kind"] = kind
    made["spec"]["template"]["metadata"] = {"labels": {"spotwright.dev/spot": "prefer"}}
    return made if kind != "Pod" else pod("one", node="n1", phase="Running")


@pytest.mark.parametrize("kind", ["Job", "JobSet", "TrainJob", "Workflow", "Pod"])
@pytest.mark.parametrize("was_away", [False, True])
def test_it_spends_an_interruption_and_no_error_whether_the_controller_was_there_or_not(
    cluster: Cluster, kind: str, was_away: bool
) -> None:
    root = root_of(kind)
    owner = None if kind == "Pod" else root
    owners = () if owner is None else (owner,)
    running = pod("one", owner, node="n1", phase="Running")
    if not was_away:
        cluster.look_at([SeenPod(running, owners)], root)
    cluster.view.put_node(host(ready=44, boot="77aa0000-b"))
    gone = dead(ended("main"), owner=owner)
    cluster.look_at([SeenPod(gone, owners)], gone if kind == "Pod" else root)

    (task,) = cluster.state().tasks.values()
    first = task.attempts[0]
    assert (first.cause, task.spent.interruptions, task.spent.errors) == (Cause.INTERRUPTED, 1, 0)
    sign = "its node was not ready in between" if was_away else "the boot ID of its node changed"
    assert first.cause_why == f"its node restarted: {sign}"
    assert first.ended is not None
    assert first.ended.signals.node_restarted == sign
    (shown,) = run_view(cluster.state(), "train", cluster.now)["tasks"]
    assert (shown["attempts"][0]["why"], shown["spent"]["errors"]) == (f"its node restarted: {sign}", 0)


def test_the_boot_that_a_pod_came_to_is_in_the_journal(cluster: Cluster) -> None:
    train = job(backoffLimit=6)
    cluster.look(train, pod("one", train, node="n1", phase="Running"))
    cluster.kill()

    assert cluster.state().tasks["train"].last.boot == "5d1c0ce2"
    cluster.view.put_node(host(boot="77aa0000-b"))
    cluster.look(train, dead(ended("main"), owner=train))
    assert cluster.state().tasks["train"].attempts[0].cause_why == "its node restarted: the boot ID of its node changed"


def test_the_word_of_the_node_has_time_to_come_before_such_an_end_is_judged(cluster: Cluster) -> None:
    """The streams of pods and nodes are two: the pod's end may be seen first."""
    made = dead(ended("main"))
    cluster.view.put_pod(made)

    assert not cluster.view.is_settled(made)
    cluster.view.clock += 1.0
    assert cluster.view.is_settled(made)
    assert cluster.view.is_settled(dead(ended("main", 1, "Error")))
