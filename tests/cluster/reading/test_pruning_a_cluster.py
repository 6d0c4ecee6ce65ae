"""Ended runs are deleted from a cluster by users with the right; active ones, and those to be kept, stay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.reading.recorded import iris_workflow, looks_at_train, pod_of_step
from tests.cluster.reading.served import Printed, spotwright
from tests.cluster.records.bad_days import STEPS, Recording, ended_runs, quick
from tests.cluster.records.bad_days import There as InCluster
from tests.cluster.records.record_server import RecordServer, login, recording_server
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import BEGIN, done, job, pod

from spotwright.cluster.api_client import Api
from spotwright.cluster.api_run_records import ApiRecords
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.recorded_runs import RecordedPruning, RecordedRuns
from spotwright.cluster.run_objects import RUN

ALONE = (
    "spotwright: archived runs stay, because only the recorder can delete them: no Spotwright controller in namespace "
    "spotwright (context here): install it, or name its namespace or URL with --controller\n"
)


class There:
    """A Job and a Workflow that have ended, and an active Job."""

    def __init__(self, server: RecordServer, kubeconfig: Path) -> None:
        self.server, self._kubeconfig = server, kubeconfig

    def prune(self, *words: str) -> Printed:
        return spotwright("prune", "--cluster", "-n", "team-a", "--kubeconfig", str(self._kubeconfig), *words)

    def names(self) -> set[str]:
        return {each["metadata"]["name"] for each in self.server.kept(RUN)}


@pytest.fixture
def there(tmp_path: Path) -> Iterator[There]:
    with recording_server(tmp_path) as (server, kubeconfig), login(kubeconfig) as kubernetes:
        cluster = Cluster(tmp_path / "unused", ApiRecords(kubernetes))
        for step in looks_at_train(cluster):
            step()
        workflow = iris_workflow()
        cluster.look(workflow, pod_of_step(workflow, "p-load", "load", node="n3", phase="Succeeded", exit_code=0))
        going = job("going", uid="uid-going")
        cluster.look(going, pod("g", going, node="n3", phase="Running"))
        for each in server.kept(RUN):
            if each["status"].get("finishedAt"):
                each["status"]["finishedAt"] = "2020-01-01T00:00:00Z"
        yield There(server, kubeconfig)


def test_a_dry_run_deletes_nothing_and_says_what_stays(there: There) -> None:
    done = there.prune("--dry-run", "--keep", "job/train")
    assert (done.code, done.err) == (0, ALONE)
    assert "dry run: no item was deleted" in done.out
    assert "kept: run team-a.train-job-uid (named by --keep)" in done.out
    assert "kept: run team-a.going-uid-goin (under way)" in done.out
    assert len(there.names()) == 3


def test_ended_runs_go_and_those_that_go_on_stay(there: There) -> None:
    done = there.prune("--yes", "--json")
    assert (done.code, done.err) == (0, ALONE)
    items = {item["name"]: item["why"] for item in json.loads(done.out)["items"]}
    assert items["team-a.going-uid-goin"] == "under way"
    assert there.names() == {"team-a.going-uid-goin"}
    deleted = [each for each in there.server.asked if each.startswith("DELETE")]
    assert len(deleted) == 2


def test_what_ended_lately_and_the_newest_stay(there: There) -> None:
    young = there.prune("--yes", "--older-than", "3000d")
    assert (young.code, "nothing to delete" in young.out) == (0, True)
    newest = there.prune("--yes", "--keep-last", "3")
    assert (newest.code, "nothing to delete" in newest.out) == (0, True)
    assert len(there.server.kept(RUN)) == 3


def test_who_may_not_delete_is_told_which_group_may(there: There) -> None:
    def refuse(method: str, _path: str) -> int | None:
        return 403 if method == "DELETE" else None

    there.server.refuse = refuse
    done: Any = there.prune("--yes")
    assert done.code == 1
    assert len(done.err.removeprefix(ALONE).splitlines()) == 2, "a sentence for each run"
    assert "only a member of the group spotwright:repair (records.repairGroup of the chart)" in done.err
    assert len(there.server.kept(RUN)) == 3


def test_a_name_that_no_run_has_deletes_nothing(there: There) -> None:
    done = there.prune("--yes", "--keep", "job/other")
    assert done.code == 2
    assert "no run 'job/other' in namespace team-a" in done.err
    assert len(there.server.kept(RUN)) == 3


def test_a_cluster_without_our_kinds_says_what_to_do(there: There) -> None:
    there.server.served.clear()
    for command in (["prune", "--dry-run"], ["runs"], ["show", "last"]):
        done = spotwright(*command, "--cluster", "--kubeconfig", str(there._kubeconfig))
        assert done.code == 2
        assert done.err == (
            "spotwright: context here: SpotRuns are not installed there: install Spotwright's chart, or name another "
            "context with --context\n"
        )


def pruned(kubernetes: Kubernetes, namespace: str) -> list[str]:
    """Delete all ended runs of a namespace. Returns why some could not be."""
    pruning = RecordedPruning(kubernetes, RecordedRuns(kubernetes), namespace, age=0.0)
    items = [item for item in pruning.take_stock(BEGIN + 100_000.0) if not item.kept]
    assert items
    return [why for _, why in pruning.delete(items) if why]


def test_a_workload_that_is_still_there_is_not_recorded_again_by_a_recorder_that_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch.setattr)
    monkeypatch.setattr(Api, "now", lambda _: BEGIN + 3_000.0)
    with recording_server(tmp_path) as (server, kubeconfig), login(kubeconfig) as kubernetes:
        Recording(kubernetes, tmp_path / "first").play()
        assert ended_runs(server) == {"train", "serve", "iris"}
        assert pruned(kubernetes, "team-a") == []
        made = Recording(kubernetes, tmp_path / "second", InCluster.after(STEPS))
        assert ended_runs(server) == {"serve"}
        later = job("later", uid="uid-later", status=done())
        made.see(
            [("put", "Job", later), ("put", "Pod", pod("l", later, made=500, node="n1", phase="Failed", exit_code=1))]
        )
        assert ended_runs(server) == {"serve", "later"}


def test_nothing_is_deleted_where_it_cannot_be_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch.setattr)
    with recording_server(tmp_path) as (server, kubeconfig), login(kubeconfig) as kubernetes:
        Recording(kubernetes, tmp_path / "first").play()
        server.refuse = lambda _method, path: 403 if "spotcounters" in path else None
        first, *_ = found = pruned(kubernetes, "team-a")
        assert len(found) == 2
        assert "you need the rights to get, create and patch SpotCounters there" in first
        assert ended_runs(server) == {"train", "serve", "iris"}
