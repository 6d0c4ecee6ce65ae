"""Runs read from the API, with logs from the controller, are those that were recorded, as far as the caller may read."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.left_out_pools import leave_out
from tests.cluster.reading.recorded import KFP_NAME, KFP_RUN, LOGS
from tests.cluster.reading.served import Served, serving, spotwright
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import job, pod

from spotwright.cli.cluster import Place, open_run
from spotwright.cluster.log_client import Controller
from spotwright.cluster.unavailable_pools import Findings
from spotwright.model.pools import Capacity, Pool
from spotwright.records.reader import list_logs
from spotwright.records.state_folder import StateFolder
from spotwright.scheduling.budgets import Pause


@pytest.fixture
def train(recorded: Path) -> str:
    """The name of the run of team-a's Job."""
    return next(run.name for run in StateFolder.existing(recorded).runs() if run.name.startswith("team-a.train"))


@pytest.mark.parametrize(
    "command",
    [
        ["runs"],
        ["runs", "--json"],
        ["show", "RUN"],
        ["show", "RUN", "--json"],
        ["show", "RUN", "--follow"],
        ["report", "RUN"],
        ["report", "RUN", "--json"],
        ["logs", "RUN"],
        ["logs", "RUN", "--json"],
        ["logs", "RUN", "train"],
        ["logs", "RUN", "train", "2"],
        ["logs", "RUN", "--follow"],
        ["logs", "RUN", "train", "3", "--follow", "--json"],
        ["logs", "RUN", "train", "4"],
        ["logs", "RUN", "nothing"],
    ],
)
def test_a_command_prints_the_same_as_of_a_state_folder(
    served: Served, recorded: Path, train: str, command: list[str]
) -> None:
    named = [train if word == "RUN" else word for word in command]
    here = spotwright(*named, "--state", str(recorded))
    there = spotwright(*named, *served.options("admin"))
    assert there == here._replace(out=here.out.replace(f"{recorded}/runs/", ""))
    assert here.out or here.err


@pytest.mark.parametrize("name", ["job/train", "Job/train", "jobs/train", "team-a.train", "RUN"])
def test_a_run_has_several_names(served: Served, train: str, name: str) -> None:
    found = spotwright("show", train if name == "RUN" else name, "--json", *served.options())
    assert json.loads(found.out)["run"] == train


@pytest.mark.parametrize("name", [KFP_RUN, KFP_NAME])
def test_a_run_of_kfp_is_found_by_its_id_and_by_the_name_that_its_user_gave_it(served: Served, name: str) -> None:
    found = spotwright("show", name, "--json", *served.options())
    assert json.loads(found.out)["pipeline"] == "Workflow team-a/iris"
    assert spotwright("show", "last", "--json", *served.options()).out == found.out


def test_a_person_sees_what_kubernetes_lets_that_person_see(served: Served) -> None:
    mine = json.loads(spotwright("runs", "--json", *served.options("anna")).out)
    assert {run["pipeline"] for run in mine} == {"Job team-a/train", "Workflow team-a/iris"}
    everything = json.loads(spotwright("runs", "--json", *served.options("admin")).out)
    assert {run["pipeline"] for run in everything} == {run["pipeline"] for run in mine} | {"Job team-b/serve"}
    ours = json.loads(spotwright("runs", "--json", "-n", "team-b", *served.options("admin")).out)
    assert [run["pipeline"] for run in ours] == ["Job team-b/serve"]


def test_a_run_that_one_may_not_read_is_not_there(served: Served) -> None:
    theirs = json.loads(spotwright("runs", "--json", "-n", "team-b", *served.options("admin")).out)[0]["run"]
    for name in (theirs, "job/serve", "team-b"):
        refused = spotwright("show", name, *served.options("anna"))
        assert (refused.code, refused.out) == (2, "")
        assert refused.err.startswith(
            f"spotwright: no run {name!r} in the namespaces that you may read: the newest are"
        )
    asked = spotwright("runs", "-n", "team-b", *served.options("anna"))
    expected = "context bed: you may not list SpotRuns in namespace team-b; the role view allows it"
    assert (asked.code, asked.err) == (2, f"spotwright: {expected}\n")


def test_a_client_certificate_is_a_login_and_logs_are_a_right_of_their_own(served: Served, train: str) -> None:
    assert spotwright("show", train, *served.options("bert")).code == 0
    logs = spotwright("logs", train, *served.options("bert"))
    expected = "bert may not read logs in namespace team-a: ask for a Role there that allows to get pods/log"
    assert (logs.code, logs.err) == (2, f"spotwright: {expected}\n")
    asked = served.kubernetes.reviews[-1]
    assert (asked["user"], asked["groups"]) == ("bert", ["people", "system:authenticated"])
    assert asked["resourceAttributes"] == {
        "verb": "get", "version": "v1", "resource": "pods", "namespace": "team-a", "subresource": "log"
    }  # fmt: skip


def test_a_log_comes_in_parts(served: Served, train: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spotwright.cluster.log_server.LOG_AT_ONCE", 65536)
    monkeypatch.setattr("spotwright.cluster.log_client.LOG_AT_ONCE", 65536)
    printed = spotwright("logs", train, "train", "3", *served.options())
    assert printed.out.encode() == LOGS[3]


def test_any_part_of_a_log_can_be_read(served: Served, train: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spotwright.cluster.log_server.LOG_AT_ONCE", 65536)
    monkeypatch.setattr("spotwright.cluster.log_client.LOG_AT_ONCE", 65536)
    sent: list[int] = []
    answered = Controller.ask

    def ask(controller: Controller, path: str, params: Mapping[str, object] | None = None) -> bytes:
        data = answered(controller, path, params)
        sent.append(len(data))
        return data

    monkeypatch.setattr(Controller, "ask", ask)
    place = Place(
        Path(), cluster=True, kubeconfig=str(served.kubeconfig("anna", token="anna-token")), controller=served.url
    )
    with open_run(place, train) as reader:
        log = next(each for each in list_logs(reader, "train") if each.attempt == 3)
        for offset, at_most in (
            (0, 0),
            (0, 10),
            (5, 70_000),
            (100, 65_536),
            (len(LOGS[3]) - 5, 100),
            (len(LOGS[3]), 1),
        ):
            sent.clear()
            assert log.read(offset, at_most) == LOGS[3][offset : offset + at_most]
            assert sum(sent) <= at_most


def a_found() -> Findings:
    """Some namespaces' findings about some pools."""
    now, found = time.time(), Findings()
    pools = {name: Pool(name, Capacity.SPOT) for name in ("gpu-spot", "tried-again", "theirs", "hidden")}
    leave_out(found, "team-a", {"gpu-spot": Pause(2, now, now + 600.0)}, pools)
    leave_out(found, "team-a", {"tried-again": Pause(1, now - 400.0, now - 100.0)}, pools)
    leave_out(found, "team-b", {"theirs": Pause(1, now, now + 600.0)}, pools)
    for namespace in ("team-b", "team-c"):
        leave_out(found, namespace, {"hidden": Pause(1, now, now + 600.0)}, pools)
    return found


def test_runs_names_the_pools_that_attempts_pass_over(certificates: Path, recorded: Path) -> None:
    with serving(certificates, recorded, found=a_found()) as served:
        printed = spotwright("runs", *served.options("anna"))
        as_json = spotwright("runs", "--json", *served.options("anna"))
    _, _, told = printed.out.partition("Pools left out, because attempts waited in vain for a node\n")
    told_once = r"  gpu-spot in namespace team-a until \d\d:\d\d:\d\d, 2 times in a row\n"
    assert re.fullmatch(told_once, told), "of other namespaces no name is told"
    assert all("run" in line for line in json.loads(as_json.out))


def test_who_may_not_read_pools_is_told_that_they_are_not_known(certificates: Path, recorded: Path) -> None:
    with serving(certificates, recorded, found=a_found()) as served:
        served.kubernetes.pools_are_seen = False
        printed = spotwright("runs", *served.options("anna"))
    assert (printed.code, "Pools left out" in printed.out) == (0, False)
    assert printed.err == (
        "spotwright: cannot tell which pools new attempts skip: SpotPools: you may not list them, which takes a "
        "ClusterRole\n"
    )


def lease(ago: float, lasts: int) -> dict[str, Any]:
    """A Lease that was renewed so long ago."""
    renewed = datetime.fromtimestamp(time.time() - ago, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"spec": {"holderIdentity": "x", "leaseDurationSeconds": lasts, "renewTime": renewed}}


@pytest.mark.parametrize(
    ("held", "is_driven"),
    [
        ((2, 15), True),
        ((25, 15), True),
        ((3600, 15), False),
        ((3600, 1), False),
        (None, True),
    ],
    ids=["held", "handed over", "lost", "given up", "not for the caller"],
)
def test_a_run_is_driven_only_while_somebody_records(
    certificates: Path, tmp_path: Path, held: tuple[float, int] | None, is_driven: bool
) -> None:
    cluster = Cluster(tmp_path / "state")
    cluster.look(job(), pod("one", job(), node="n1", phase="Running"))
    cluster.store.close()
    path = "/apis/coordination.k8s.io/v1/namespaces/spotwright/leases/spotwright"
    with serving(certificates, tmp_path / "state") as served:
        served.kubernetes.objects = {} if held is None else {path: lease(*held)}
        named = [word for word in served.options("anna") if word not in ("--controller", served.url)]
        shown = json.loads(spotwright("show", "last", "--json", *named).out)
    assert (shown["status"], shown["driven"]) == ("running", is_driven)
