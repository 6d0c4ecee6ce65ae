"""A deadline of a policy has no effect on a cluster, and its user is told so once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.admission_objects import a_config, a_job, admitted
from tests.cluster.admitted_pods import a_pod, conditions, precise, taken
from tests.cluster.folder_records import FolderRecords
from tests.cluster.watching.watched_objects import job

from spotwright import config as configuration
from spotwright.cluster.configurations import Configurations
from spotwright.cluster.run_store import RunStore
from spotwright.cluster.workloads import templates_of
from spotwright.config import Config
from spotwright.records.state_folder import StateFolder

WITHOUT = "{default: {spot: prefer, interruptions: {max: 3}}}"
WITH = WITHOUT.replace("}}}", "}, deadline: 8h}}")
LOST = "has no effect on a cluster: only spotwright run on one machine keeps it"


def ladder_and_policy(config: Config, folder: Path) -> tuple[Any, Any]:
    """The text of a Job run's plan."""
    store = RunStore(FolderRecords(StateFolder.open(folder)), config)
    run = store.create(job(), templates_of([job()]), (), 1_900_000_000.0)
    planned = run.state.plan.instance("train", "train")
    store.close()
    return planned.policy, run.state.plan.lost_deadline(planned)


def test_an_object_is_placed_as_without_it_and_its_creator_gets_one_warning() -> None:
    placed, outcome = admitted(a_job(), a_config(WITH))
    assert placed["spec"] == admitted(a_job(), a_config(WITHOUT))[0]["spec"]
    [warning] = [each for each in outcome.warnings if each.startswith("spotwright: ")]
    assert f"deadline (team-a:7) {LOST}" in " ".join(outcome.warnings).replace("spotwright: … ", "")
    assert len([each for each in outcome.warnings if "deadline" in each]) == 1, warning


def test_a_pod_gets_the_same_rung_as_without_it() -> None:
    for past in ([], ["spot-a"], ["spot-a", "spot-b"], ["spot-a", "spot-b", "spot-a"]):
        with_it, without = (
            precise(a_pod(a_config(policy)), taken(*past), a_config(policy))[0] for policy in (WITH, WITHOUT)
        )
        assert conditions(with_it) == conditions(without)


def test_a_deadline_alone_asks_for_no_spot(tmp_path: Path) -> None:
    config = a_config("{default: {deadline: 8h}}")
    placed, outcome = admitted(a_job(), config)
    assert placed["spec"]["template"] == a_job()["spec"]["template"]
    assert LOST in outcome.warnings[0]
    assert ladder_and_policy(config, tmp_path)[0].spot is None


def test_a_deadline_in_an_annotation_counts_as_little() -> None:
    given = a_job()
    given["metadata"]["annotations"] = {"spotwright.dev/policy": json.dumps({"spot": "prefer", "deadline": "8h"})}
    _, outcome = admitted(given, a_config(WITHOUT))
    assert sum(LOST in each for each in outcome.warnings) == 1


def test_the_journal_s_plan_has_none_and_says_which_one_is_left_out(tmp_path: Path) -> None:
    policy, lost = ladder_and_policy(a_config(WITH), tmp_path)
    assert policy.deadline is None
    assert lost.startswith(f"deadline (team-a:7) {LOST}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{default: {spot: prefer, deadline: 8h}}", "deadline (spotwright: spotwright.yaml:2) has"),
        ("{default: {spot: prefer}, tasks: {train: {deadline: 8h}}}", "spotwright.yaml:2) has no effect on a cluster"),
    ],
)
def test_a_config_map_with_a_deadline_is_in_force_and_its_namespace_is_told(text: str, said: str) -> None:
    found = Configurations("home")
    pools = "{a: {capacity: spot}, b: {capacity: on-demand}}"
    found.apply("home", {"data": {"spotwright.yaml": f"version: 1\npools: {pools}\n"}})
    found.apply("team-a", {"data": {"spotwright.yaml": f"version: 1\npolicy: {text}\n"}})
    found.apply("team-b", {"data": {"spotwright.yaml": "version: 1\npolicy: {default: {spot: prefer}}\n"}})
    assert found.problems == []
    [told] = found.without_effect
    assert told.namespace == "team-a"
    assert said in told.message
    found.apply("team-a", {"data": {"spotwright.yaml": "version: 1\npolicy: {default: {spot: prefer}}\n"}})
    assert found.without_effect == []


def test_a_run_on_one_machine_keeps_it() -> None:
    from spotwright.engine.plan import Plan
    from spotwright.manifests.pod_graph import PodTask, pod_graph

    config = configuration.from_mapping(
        {
            "pools": {"a": {"capacity": "spot"}, "b": {"capacity": "on-demand"}},
            "policy": {"default": {"deadline": "8h"}},
        }
    )
    source = PodTask("Job", "work", {"containers": [{"name": "main"}]})
    plan = Plan(pod_graph("work", [source], config.pools), config)
    planned = plan.instance("work", "work")
    assert planned.policy.deadline is not None
    assert plan.lost_deadline(planned) == ""
