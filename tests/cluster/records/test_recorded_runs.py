"""People read recorded runs by the commands that they know, with their own rights, and without a controller."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.reading.recorded import KFP_NAME, KFP_RUN, iris_workflow, looks_at_train, pod_of_step
from tests.cluster.reading.served import Printed, spotwright
from tests.cluster.records.kind_schemas import misfits
from tests.cluster.records.record_server import RecordServer, login, recording_server
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import job, pod

from spotwright.cluster.api_run_records import ApiRecords
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.recorded_runs import RecordedRuns
from spotwright.views.account import account
from spotwright.views.account_report import amount_json


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("served")
    with recording_server(folder) as (server, kubeconfig), login(kubeconfig) as kubernetes:
        cluster = Cluster(folder / "unused", ApiRecords(kubernetes))
        for step in looks_at_train(cluster):
            step()
        workflow = iris_workflow()
        cluster.look(workflow, pod_of_step(workflow, "p-load", "load", node="n3", phase="Succeeded", exit_code=0))
        yield server, kubeconfig


def read(kubeconfig: Path, *arguments: str) -> Printed:
    return spotwright(*arguments, "--cluster", "--kubeconfig", str(kubeconfig))


def test_runs_are_listed_with_what_they_cost(served: tuple[RecordServer, Path]) -> None:
    code, out, err = read(served[1], "runs", "--json")
    assert (code, err) == (0, "")
    lines = {line["pipeline"]: line for line in json.loads(out)}
    assert {name: (line["status"], line["attempts"]) for name, line in lines.items()} == {
        "Job team-a/train": ("succeeded", 3),
        "Workflow team-a/iris": ("succeeded", 1),
    }
    assert lines["Job team-a/train"]["cost"]["money"] > 0


@pytest.mark.parametrize("name", ["job/train", "team-a.train", "team-a.train-job-uid"])
def test_a_run_is_shown_by_any_of_its_names(served: tuple[RecordServer, Path], name: str) -> None:
    code, out, err = read(served[1], "show", name, "--json")
    assert (code, err) == (0, "")
    (task,) = json.loads(out)["tasks"]
    assert [attempt["cause"] for attempt in task["attempts"]] == ["lost", "failed", "succeeded"]


@pytest.mark.parametrize("name", [KFP_RUN, KFP_NAME])
def test_a_run_is_found_by_its_name_in_kubeflow_pipelines(served: tuple[RecordServer, Path], name: str) -> None:
    code, out, _ = read(served[1], "show", name, "--json")
    assert code == 0
    assert json.loads(out)["pipeline"] == "Workflow team-a/iris"


def test_report_adds_up(served: tuple[RecordServer, Path]) -> None:
    code, out, _ = read(served[1], "report", "job/train", "--json")
    assert code == 0
    assert json.loads(out)["attempts"]["money"] > 0


def test_a_run_that_is_not_there_is_named_with_those_that_are(served: tuple[RecordServer, Path]) -> None:
    code, _, err = read(served[1], "show", "job/other")
    assert code == 2
    assert "no run 'job/other'" in err
    assert "team-a.iris-uid-iris" in err


def test_who_may_not_list_records_is_told_which_role_allows_it(served: tuple[RecordServer, Path]) -> None:
    server, kubeconfig = served
    server.forbidden = True
    try:
        code, _, err = read(kubeconfig, "runs")
        assert code == 2
        assert "you may not list SpotRuns in namespace default; the role view allows it" in err
        code, _, err = read(kubeconfig, "show", "job/train", "-n", "team-a")
        assert code == 2
        assert "you may not list SpotRuns in namespace team-a" in err
    finally:
        server.forbidden = False


@pytest.fixture
def under_way(tmp_path: Path) -> Any:
    """An active run, recorded by the holder of the Lease ``mine`` in namespace ``ops``; and a login at its server."""
    with recording_server(tmp_path) as (server, kubeconfig), login(kubeconfig) as kubernetes:
        cluster = Cluster(tmp_path / "unused", ApiRecords(kubernetes, recorder="ops/mine"))
        cluster.look(job(), pod("one", job(), node="n1", phase="Running"))
        for run in cluster.store.runs.values():
            run.tell(cluster.now)
        assert [misfits(each) for each in server.kept("SpotRun")] == [[]]
        yield server, kubernetes, RecordedRuns(kubernetes)


def held(server: RecordServer, kubernetes: Kubernetes, ago: float) -> None:
    """The Lease was renewed so long ago."""
    renewed = datetime.fromtimestamp(kubernetes.api.now() - ago, UTC).isoformat()
    spec = {"holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": renewed}
    server.put("/apis/coordination.k8s.io/v1/namespaces/ops/leases", "mine", spec=spec)


@pytest.mark.parametrize(("ago", "is_driven"), [(2.0, True), (3600.0, False)])
def test_a_run_names_the_lease_of_who_records_it(under_way: Any, ago: float, is_driven: bool) -> None:
    server, kubernetes, runs = under_way
    held(server, kubernetes, ago)
    assert runs.open("job/train").is_driven is is_driven
    asked = {line.partition("/leases/")[2] for line in server.asked if "/leases/" in line}
    assert asked == {"mine"}


def test_what_a_run_costs_is_reckoned_up_to_now_in_each_command(
    under_way: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, kubernetes, runs = under_way
    (written,), _ = runs.lines()
    at = written["started_at"] + written["seconds"] + 3600.0
    monkeypatch.setattr(kubernetes.api, "now", lambda: at)
    ((line,), problems), reader = runs.lines(), runs.open("job/train")
    costs = account(reader.state, reader.now)
    assert problems == []
    assert reader.now == at
    assert line["cost"]["money"] == pytest.approx(written["cost"]["money"] + 0.5)  # half of a node at 1 an hour
    assert line["cost"] == pytest.approx(amount_json(costs.whole))
    assert (line["seconds"], costs.until) == (written["seconds"] + 3600.0, at)
    assert "each_second" not in line


def test_what_a_run_costs_that_nobody_records_is_as_of_its_record(
    under_way: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, kubernetes, runs = under_way
    held(server, kubernetes, 3600.0)
    (written,), _ = runs.lines()
    now = kubernetes.api.now()
    monkeypatch.setattr(kubernetes.api, "now", lambda: max(now, written["started_at"]) + 10_000.0)
    (line,), _ = runs.lines()
    assert line == written
