"""On a real Kubernetes: a controller in a pod records Jobs of two teams, and people read theirs through the API server."""

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
from tests.cluster.reading.served import Printed

pytestmark = pytest.mark.cluster

TEAMS = ("team-a", "team-b")


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
    kube.wait(lambda: _have_ended(kube, controller), "the four Jobs are recorded", 180)
    yield names
    for team in names.values():
        kube.run("delete", "namespace", team, "--wait=false")


def _have_ended(kube: Kube, controller: str) -> bool:
    listed = bed_pods.in_pod(kube, controller, "python3", "-m", "spotwright", "runs", "--state", "/state", "--json")
    runs = json.loads(listed)
    return len(runs) == 2 * len(TEAMS) and all(run["finished_at"] is not None for run in runs)


@pytest.mark.parametrize("json_too", [[], ["--json"]])
def test_what_an_admin_reads_is_what_lies_in_the_pod(
    kube: Kube, controller: str, teams: dict[str, str], json_too: list[str]
) -> None:
    (run,) = [
        each["run"]
        for each in json.loads(read(kube, controller, "runs", "--json").out)
        if each["pipeline"] == f"Job {teams['team-a']}/bad"
    ]
    bed_pods.put_file(kube, controller, f"/state/runs/{run}/tasks/bad/attempt-1/log.txt", "Züge\n".encode() * 3_000)
    for command in (["runs"], ["show", run], ["report", run], ["logs", run]):
        there = bed_pods.in_pod(
            kube, controller, "python3", "-m", "spotwright", *command, *json_too, "--state", "/state"
        )
        assert read(kube, controller, *command, *json_too) == Printed(0, there, "")
    found = read(kube, controller, "show", "job/bad", "-n", teams["team-a"], "--json")
    assert json.loads(found.out)["run"] == run


def test_a_person_with_a_token_reads_the_own_team_alone(
    kube: Kube, controller: str, teams: dict[str, str], tmp_path: Path
) -> None:
    team_a, team_b = teams["team-a"], teams["team-b"]
    bed_pods.let_read(kube, "anna", team_a, controller)
    anna = bed_pods.kubeconfig_of(kube, "anna", team_a, tmp_path / "anna")
    mine = json.loads(read(kube, controller, "runs", "--json", kubeconfig=anna).out)
    assert {run["pipeline"] for run in mine} == {f"Job {team_a}/good", f"Job {team_a}/bad"}
    assert read(kube, controller, "logs", "job/good", kubeconfig=anna).code == 0
    refused = read(kube, controller, "runs", "-n", team_b, kubeconfig=anna)
    assert (refused.code, refused.out) == (2, "")
    assert f"system:serviceaccount:{team_a}:anna may not read runs in namespace {team_b}" in refused.err


def test_a_person_who_may_not_reach_the_controller_is_told_what_to_ask_for(
    kube: Kube, controller: str, teams: dict[str, str], tmp_path: Path
) -> None:
    kube.apply(bed_pods.named("ServiceAccount", "v1", "carl", teams["team-b"]))
    carl = bed_pods.kubeconfig_of(kube, "carl", teams["team-b"], tmp_path / "carl")
    refused = read(kube, controller, "runs", kubeconfig=carl)
    assert refused.code == 2
    assert "ask for the Role spotwright-reader there" in refused.err
