"""If a controller records a run on KFP, its record is shown; without one, or once it is gone, KFP's facts are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.reading.recorded import KFP_RUN, record_two_teams
from tests.cluster.reading.served import Served, make_certificates, serving
from tests.kubeflow.conftest import Folder
from tests.kubeflow.flows import Flow, Try
from tests.kubeflow.pipelines import POOLS
from tests.kubeflow.stand_in import StandIn, Step

from spotwright.cli import kfp
from spotwright.kubeflow.following import Follower

TRAINING = "digits-abcde(0).root(0).train(0).executor(0)"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    state = tmp_path_factory.mktemp("controller") / "state"
    record_two_teams(state)
    return state


@pytest.fixture
def controller(certificates: Path, recorded: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A controller that has recorded the Workflow of one KFP run, and a kubeconfig with which anna may read it."""
    with serving(certificates, recorded) as served:
        monkeypatch.setenv("SPOTWRIGHT_CONTROLLER_CA", str(certificates / "tls.crt"))
        monkeypatch.setenv("KUBECONFIG", str(served.kubeconfig("anna", token="anna-token")))
        yield served


def load_succeeds(model: str = "") -> list[Step]:
    flow = Flow()
    flow.task("train", Try("Running", began=1, ended=None))
    last = Flow()
    last.task("train", Try(), artifacts={"model": model} if model else {})
    last.task("evaluate", Try())
    return [Step("RUNNING", flow), Step("RUNNING", flow), Step("SUCCEEDED", last.end())]


def test_the_controller_s_record_is_shown_with_its_nodes_and_costs(
    folder: Folder, server: StandIn, controller: Served
) -> None:
    server.run_ids, server.steps = [KFP_RUN], load_succeeds()
    done = folder.run("--controller", controller.url)
    assert done.code == 0
    name = next(word for word in done.out.split() if word.startswith("team-a.iris-")).rstrip(":")
    assert f"the controller records it as {name}: spotwright show {name} --cluster" in done.out
    assert "its account has the pods of KFP's drivers too, which are not counted here" in done.out
    assert "causes come from KFP's messages" not in done.out
    assert ["load", "1", "gpu", "n3", "succeeded"] in [line.split()[:5] for line in done.out.splitlines()]
    assert "  spent   " in done.out
    assert f"Run {name} succeeded" in done.out.splitlines()[-1]


def test_prices_that_differ_are_named_in_both_configurations(
    folder: Folder, server: StandIn, controller: Served
) -> None:
    text = (
        POOLS.replace("  spot: {", "  gpu: {")
        .replace("  od: {", "  gpu-spot: {")
        .replace("capacity: spot", "capacity: X")
    )
    text = text.replace("on-demand", "spot").replace("capacity: X", "capacity: on-demand").replace("1/h", "0.5/h")
    (folder.path / "spotwright.yaml").write_text(text)
    server.run_ids, server.steps = [KFP_RUN], load_succeeds()
    done = folder.run("--controller", controller.url)
    there = "in the controller's configuration: the account here and the controller's differ by that"
    assert "a node of pool gpu costs 0.20 USD an hour in " in done.out
    assert f"spotwright.yaml and 3.00 USD an hour {there}" in done.out
    assert f"spotwright.yaml and 1.00 USD an hour {there}" in done.out


def test_what_only_a_controller_keeps_is_said_only_where_there_is_none(
    folder: Folder, server: StandIn, controller: Served
) -> None:
    lines = ("without the Spotwright controller", "the backend does not count it", "the cluster autoscaler ignores")
    server.run_ids, server.steps = [KFP_RUN], load_succeeds()
    there = folder.run("--controller", controller.url)
    assert [line for line in lines if line in there.err] == []
    server.steps = load_succeeds()
    without = folder.run("--controller", "none", "--name", "second")
    assert [line for line in lines if line in without.err] == list(lines)
    assert len({tuple(server.texts.values())}) == len(server.texts) == 1


def test_the_outputs_and_the_exit_code_are_those_of_kfp(folder: Folder, server: StandIn, controller: Served) -> None:
    server.run_ids, server.steps = [KFP_RUN], [Step("RUNNING", Flow()), Step("FAILED", Flow().end("Failed"))]
    done = folder.run("--controller", controller.url, "--json")
    assert done.code == 1
    assert done.json()["orchestrator"] == "Workflow"


def test_a_run_that_the_controller_does_not_know_is_shown_as_kfp_tells(
    folder: Folder, server: StandIn, controller: Served
) -> None:
    server.steps = load_succeeds()
    done = folder.run("--controller", controller.url)
    assert done.code == 0
    assert "the controller has no record of it: is its namespace one that is watched?" in done.out
    assert done.out.splitlines()[-1].startswith("Run first succeeded")


def test_records_that_cannot_be_read_any_more_leave_kfp_s_facts(
    folder: Folder, server: StandIn, controller: Served
) -> None:
    begin, again, end = load_succeeds()
    leave = Step("RUNNING", again.flow, lambda: controller.kubernetes.hide_records(hidden=True))
    server.run_ids, server.steps = [KFP_RUN], [begin, again, leave, again, end]
    done = folder.run("--controller", controller.url)
    assert done.code == 0
    assert "the controller's record cannot be read (" in done.out
    assert "the API server answers 403" in done.out
    assert done.out.splitlines()[-1].startswith("Run first succeeded")


def test_no_controller_is_asked_if_none_is_wanted(folder: Folder, server: StandIn, controller: Served) -> None:
    server.run_ids, server.steps = [KFP_RUN], load_succeeds()
    done = folder.run("--controller", "none")
    assert "without a controller rungs and notices are not known" in done.out
    assert "the cluster of the kubeconfig showed no pod of the run: causes come from KFP's messages" in done.out
    assert controller.kubernetes.reviews == []


def test_without_a_kubeconfig_the_reason_is_named(folder: Folder) -> None:
    done = folder.run()
    assert "no controller of Spotwright is found" in done.out
    assert "kubeconfig not found" in done.out


def test_without_a_controller_the_pods_of_the_kubeconfig_s_cluster_tell_the_pools(
    folder: Folder, server: StandIn, controller: Served
) -> None:
    training = {
        "metadata": {"uid": "u", "annotations": {"workflows.argoproj.io/node-name": TRAINING}},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running"},
    }
    labels = {f"kubernetes.azure.com/{name}": "spot" for name in ("agentpool", "scalesetpriority")}
    node = {"metadata": {"name": "n1", "labels": labels}}
    controller.kubernetes.objects["/api/v1/namespaces/team-a/pods"] = {"items": [training]}
    controller.kubernetes.objects["/api/v1/nodes/n1"] = node
    server.steps = load_succeeds()
    done = folder.run("--controller", "none")
    assert done.code == 0
    assert ["train", "1", "spot", "n1", "succeeded"] in [line.split()[:5] for line in done.out.splitlines()]
    assert "  spent   " in done.out


def test_pods_are_seen_before_kfp_tells_of_any(
    folder: Folder, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Workflow is in no answer until the persistence agent has reported it: without one, only pods show that it has begun."""
    driver = {
        "metadata": {"uid": "u", "annotations": {"workflows.argoproj.io/node-name": "digits-abcde(0).root-driver(0)"}},
        "spec": {},
        "status": {"phase": "Pending"},
    }
    pods = {"/api/v1/namespaces/kubeflow/pods": {"items": [driver]}}

    def watch_pods(follower: Follower, *_: object) -> bool:
        follower.watch_pods(lambda path, _: pods.get(path, {}))
        return True

    monkeypatch.setattr(kfp, "_watch_pods", watch_pods)
    server.steps = [Step("RUNNING"), Step("FAILED")]
    assert "showed no pod of the run" not in folder.run("--controller", "none").out
    pods.clear()
    assert "showed no pod of the run" in folder.run("--controller", "none", "--name", "second").out
