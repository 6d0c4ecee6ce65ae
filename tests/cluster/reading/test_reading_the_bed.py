"""On a real Kubernetes: a recorder in a pod records Jobs of two teams, and people read theirs through the API server."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.cluster.live.kube import Kube, job, pod_spec
from tests.cluster.reading import on_the_bed as bed_pods
from tests.cluster.reading.bed_readers import read

pytestmark = pytest.mark.cluster

TEAMS = ("team-a", "team-b")
LINES = 3_000
LONG = f"for number in $(seq {LINES}); do echo Züge; done"


@pytest.fixture(scope="module")
def teams(kube: Kube, controller: str) -> Iterator[dict[str, str]]:
    """The namespaces of two teams, each with a Job that has ended and one whose code failed."""
    names = {team: f"{team}-{uuid.uuid4().hex[:6]}" for team in TEAMS}
    for team in names.values():
        labels = {"spotwright.dev/enabled": "true"}
        kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team, "labels": labels}})
        kube.wait(partial(kube.get, "serviceaccount", "default", team), "the namespace's account", 60)
        kube.apply(job("good", team, pod_spec(kube.container("echo well"))))
        kube.apply(job("bad", team, pod_spec(kube.container("echo badly; exit 3"))))
    kube.apply(job("long", names["team-a"], pod_spec(kube.container(LONG))))
    kube.wait(lambda: _have_ended(kube, controller, names), "all Jobs are recorded", 180)
    yield names
    for team in names.values():
        kube.run("delete", "namespace", team, "--wait=false")


def _have_ended(kube: Kube, controller: str, teams: dict[str, str]) -> bool:
    runs = [
        run
        for team in teams.values()
        for run in json.loads(read(kube, controller, "runs", "-n", team, "--json").out)
        if run["finished_at"] is not None
    ]
    return len(runs) == 2 * len(TEAMS) + 1


def test_an_admin_reads_what_became_of_a_job_and_its_whole_log(
    kube: Kube, controller: str, teams: dict[str, str]
) -> None:
    there = "-n", teams["team-a"], "--json"
    shown = json.loads(read(kube, controller, "show", "job/bad", *there).out)
    assert [each["cause"] for task in shown["tasks"] for each in task["attempts"]] == ["failed"]
    assert read(kube, controller, "report", shown["run"]).code == 0
    for name, text in (("bad", "badly\n"), ("long", "Züge\n" * LINES)):
        kept = json.loads(read(kube, controller, "logs", f"job/{name}", *there).out)
        assert "".join(each["text"] for each in kept) == text


def test_a_person_with_a_token_reads_the_own_team_alone(
    kube: Kube, controller: str, teams: dict[str, str], tmp_path: Path
) -> None:
    team_a, team_b = teams["team-a"], teams["team-b"]
    bed_pods.let_read(kube, "anna", team_a, controller)
    anna = bed_pods.kubeconfig_of(kube, "anna", team_a, tmp_path / "anna")
    mine = json.loads(read(kube, controller, "runs", "--json", kubeconfig=anna).out)
    assert {run["pipeline"] for run in mine} == {f"Job {team_a}/{name}" for name in ("good", "bad", "long")}
    assert read(kube, controller, "logs", "job/good", kubeconfig=anna).code == 0
    refused = read(kube, controller, "runs", "-n", team_b, kubeconfig=anna)
    assert (refused.code, refused.out) == (2, "")
    assert f"you may not list SpotRuns in namespace {team_b}; the role view allows it" in refused.err


def test_a_person_who_may_not_reach_the_controller_is_told_what_to_ask_for(
    kube: Kube, controller: str, teams: dict[str, str], tmp_path: Path
) -> None:
    bed_pods.let_view(kube, "carl", teams["team-b"])
    carl = bed_pods.kubeconfig_of(kube, "carl", teams["team-b"], tmp_path / "carl")
    assert read(kube, controller, "show", "job/bad", kubeconfig=carl).code == 0
    refused = read(kube, controller, "logs", "job/bad", kubeconfig=carl)
    assert refused.code == 2
    assert "ask for the Role spotwright-reader there" in refused.err
