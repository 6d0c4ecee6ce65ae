"""The controller in a pod with the rights that it prints: it places, records, moves and is read, and needs no others.

Missing rights would appear in its log: at the end it has no refusals of the API server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed.faults import Faults
from testbed.settings import Settings
from tests.cluster.live.controller_pod import ControllerPod, controller_pod
from tests.cluster.live.controllers import configuration
from tests.cluster.live.idle_autoscaler import idle_autoscaler
from tests.cluster.live.kube import Kube, Object, job, pod_spec
from tests.cluster.live.workloads import KINDS, make
from tests.cluster.reading import on_the_bed

pytestmark = pytest.mark.cluster

SOON = 180.0  # seconds, on a busy machine
EMPTY: Object = {"capacity": "spot", "provider": "aks", "price": "0.50/h", "node": {"cpu": 2, "memory": "4Gi"}}
REFUSALS = re.compile(r"answers 40[13] |forbidden|may not", re.IGNORECASE)


@pytest.fixture(scope="module")
def controller(kube: Kube, bed: Settings) -> Iterator[ControllerPod]:
    """One controller for all tests, which sends each attempt to one pool."""
    every = configuration("20s", **{empty_for(kind): EMPTY for kind in KINDS})
    with idle_autoscaler(kube, every), controller_pod(kube, configuration("20s")) as made:
        yield made


@pytest.fixture
def team(kube: Kube, namespace: str) -> str:
    """A namespace of a team that uses the controller."""
    kube.run("label", "namespace", namespace, "spotwright.dev/enabled=true")
    return namespace


@pytest.fixture
def anna(kube: Kube, controller: ControllerPod, team: str, tmp_path: Path) -> Path:
    """The login of somebody who has the Role for readers, and may get the objects, pods and logs of her team."""
    on_the_bed.let_read(kube, "anna", team, controller.home)
    subject = {"kind": "ServiceAccount", "name": "anna", "namespace": team}
    groups = {"jobs": "batch", "jobsets": "jobset.x-k8s.io", "trainjobs": "trainer.kubeflow.org"}
    groups["workflows"] = "argoproj.io"
    rules = [on_the_bed.rule([plural], ["get"], group) for plural, group in groups.items()]
    kube.apply(
        on_the_bed.role("objects", team, [on_the_bed.rule(["pods"], ["list"]), *rules]),
        on_the_bed.binding("objects", team, "Role", "objects", subject),
    )
    return on_the_bed.kubeconfig_of(kube, "anna", team, tmp_path / "anna")


def explained(controller: ControllerPod, login: Path, team: str, name: str) -> dict[str, Any]:
    """The output of ``explain`` for an object."""
    printed = controller.read("explain", name, "-n", team, "--json", kubeconfig=login)
    assert printed.code == 0, printed.err
    (found,) = json.loads(printed.out)["objects"]
    return dict(found)


@pytest.mark.parametrize("kind", KINDS)
def test_of_each_kind_it_is_told_why_it_waits_where_it_runs_and_what_became_of_it(
    kube: Kube, controller: ControllerPod, team: str, anna: Path, kind: str
) -> None:
    empty = empty_for(kind)
    prefer_a_pool_without_nodes(kube, controller, team, empty)
    if not make(kube, kind, team, "sleep 12; echo well done"):
        pytest.skip(f"this cluster has no {kind}s")
    name = f"{kind}/{kind}"

    def pods(status: str) -> list[dict[str, Any]]:
        return [pod for pod in explained(controller, anna, team, name)["pods"] if pod["status"] == status]

    waiting = kube.wait(
        lambda: [pod for pod in pods("waiting") if pod["scheduler"] and pod["move"]], "explain tells why it waits", SOON
    )
    for pod in waiting:
        assert "nodes are available" in pod["scheduler"]
        assert pod["rung"]["pools"] == [empty]
        assert pod["move"]["to"] == ["spot"]
        assert (pod["attempt"], pod["webhook"]["attempt"]) == (1, "1")
        assert pod["not_enforced"] == []
    assert controller.read("explain", f"pod/{waiting[0]['name']}", "-n", team, kubeconfig=anna).code == 0
    # Kubernetes says that a pod runs a moment before the controller has recorded on which pool.
    running = kube.wait(lambda: [pod for pod in pods("running") if pod["pool"]], "explain tells where it runs", SOON)
    for pod in running:
        assert (pod["pool"], pod["capacity"], pod["attempt"]) == ("spot", "spot", 2)
        assert pod["node"] in {"n2", "n3"}
        assert "attempt 1" in pod["history"][0]
        assert "pool" in pod["webhook"]["why"] or pod["webhook"]["why"]
    assert pods("waiting") == []
    shown = kube.wait(lambda: finished(controller, team, name, anna), "the end is recorded", SOON)
    assert shown["status"] == "succeeded"
    causes = {attempt["cause"] for task in shown["tasks"] for attempt in task["attempts"][:1]}
    assert "unschedulable" in causes
    logs = controller.read("logs", shown["run"], kubeconfig=anna)
    assert "well done\n" in logs.out
    for command in (["show", shown["run"]], ["report", shown["run"]], ["logs", shown["run"]]):
        as_admin = controller.read(*command, "--json")
        assert (as_admin.code, controller.read(*command, "--json", kubeconfig=anna).out) == (0, as_admin.out)
    assert not [line for line in controller.log().splitlines() if REFUSALS.search(line)]


def empty_for(kind: str) -> str:
    """The pool without nodes for work of this kind."""
    return f"empty-for-{kind}"


def prefer_a_pool_without_nodes(kube: Kube, controller: ControllerPod, team: str, name: str) -> None:
    """Give a team a separate pool that has no nodes, and is the cheapest.

    Each kind has another one: a pool on which a pod got no node is skipped for a while.
    """
    text = {"spotwright.yaml": configuration("20s", **{name: EMPTY})}
    kube.apply({**on_the_bed.named("ConfigMap", "v1", "spotwright", team), "data": text})
    kube.wait(lambda: f"ConfigMap {team}/spotwright was read" in controller.log(), "the pools are read", SOON)


def finished(controller: ControllerPod, team: str, name: str, login: Path) -> dict[str, Any] | None:
    """The output of ``show`` for a workload once its end is recorded."""
    shown = recorded(controller, team, name, login)
    return shown if shown is not None and shown["finished_at"] is not None else None


def recorded(controller: ControllerPod, team: str, name: str, login: Path) -> dict[str, Any] | None:
    """The output of ``show`` for a workload, if it is recorded."""
    printed = controller.read("show", name, "-n", team, "--json", kubeconfig=login)
    return json.loads(printed.out) if printed.code == 0 else None


def first_cause(controller: ControllerPod, team: str, name: str, login: Path) -> str:
    """Why the first attempt of a workload ended; empty before that is recorded. Its Job may have made another pod already."""
    shown = recorded(controller, team, name, login)
    attempts = [attempt for task in (shown or {}).get("tasks", ()) for attempt in task["attempts"]]
    return str(attempts[0]["cause"] or "") if attempts else ""


def test_a_wrong_configuration_a_lost_machine_and_its_deleted_node_need_no_other_right(
    kube: Kube, controller: ControllerPod, team: str, anna: Path, faults: Faults
) -> None:
    wrong = {**on_the_bed.named("ConfigMap", "v1", "spotwright", team), "data": {"spotwright.yaml": "version: 7\n"}}
    kube.apply(wrong)
    events = ["events", team, "--field-selector=reason=NotInForce"]
    kube.wait(
        lambda: "version" in kube.run("get", events[0], "-n", events[1], events[2], "-o", "json"), "the Event", SOON
    )
    kube.run("delete", "configmap", "spotwright", "-n", team)
    spec = pod_spec(kube.container("sleep 600"), "n3", terminationGracePeriodSeconds=600)
    kube.apply(job("lost", team, spec))
    (pod,) = kube.wait(
        lambda: [each for each in kube.list("pods", team) if each["status"]["phase"] == "Running"], "it runs", SOON
    )
    faults.cut_power(3)
    faults.delete(3)
    kube.wait(lambda: kube.get("pod", pod["metadata"]["name"], team) is None, "its pod is gone", SOON)
    cause = kube.wait(lambda: first_cause(controller, team, "job/lost", anna), "its end is recorded", SOON)
    assert cause in {"lost", "interrupted"}
    assert not [line for line in controller.log().splitlines() if REFUSALS.search(line)]


def test_a_person_without_the_role_is_told_what_to_ask_for(
    kube: Kube, controller: ControllerPod, team: str, tmp_path: Path
) -> None:
    kube.apply(on_the_bed.named("ServiceAccount", "v1", "carl", team))
    carl = on_the_bed.kubeconfig_of(kube, "carl", team, tmp_path / "carl")
    for command in (["runs"], ["show", "job/job"], ["logs", "job/job"], ["explain", "job/job"]):
        refused = controller.read(*command, kubeconfig=carl)
        assert (refused.code, refused.out) == (2, "")
        assert "you may not" in refused.err


def test_a_person_with_the_role_alone_reaches_the_controller_and_sees_nothing(
    kube: Kube, controller: ControllerPod, team: str, anna: Path, tmp_path: Path
) -> None:
    kube.apply(job("hers", team, pod_spec(kube.container("true"))))
    kube.wait(lambda: recorded(controller, team, "job/hers", anna), "the Job is recorded", SOON)
    kube.apply(on_the_bed.named("ServiceAccount", "v1", "dora", team))
    subject = {"kind": "ServiceAccount", "name": "dora", "namespace": team}
    kube.apply(on_the_bed.binding("read-dora", controller.home, "Role", "spotwright-reader", subject))
    dora = on_the_bed.kubeconfig_of(kube, "dora", team, tmp_path / "dora")
    for command in (["runs"], ["show", "job/hers"], ["logs", "job/hers"], ["explain", "job/hers"]):
        refused = controller.read(*command, kubeconfig=dora)
        assert (refused.code, refused.out) == (2, "")
        assert f"you may not list SpotRuns in namespace {team}; the role view allows it" in refused.err
