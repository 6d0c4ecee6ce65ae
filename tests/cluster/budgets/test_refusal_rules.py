"""The exit code of a refused pod is final, whatever else the object's rules retry."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.admission_objects import a_config, a_job, a_jobset, admitted
from tests.placing.placed import at_path

from spotwright.scheduling.budgets import MAX_MOVES

REFUSED = {"operator": "In", "values": [86]}
BOTH = "{default: {spot: require, interruptions: {max: 3}, errors: {retries: 2}}}"
BOUNDED = "{default: {spot: require, errors: {retries: 2}, timeout: 1h}}"


def rules_of(job: dict[str, Any]) -> list[dict[str, Any]]:
    rules = at_path(job, "spec.podFailurePolicy.rules")
    assert isinstance(rules, list)
    return rules


@pytest.mark.parametrize("policy", [BOTH, BOUNDED])
def test_a_job_ends_at_a_refusal_before_any_other_rule_counts(policy: str) -> None:
    job, _ = admitted(a_job(), a_config(policy))
    assert rules_of(job)[0] == {"action": "FailJob", "onExitCodes": REFUSED}
    assert job["spec"]["podReplacementPolicy"] == "Failed"


def test_a_rule_that_ends_the_job_at_any_error_ends_it_at_a_refusal_too() -> None:
    job, _ = admitted(a_job(), a_config("{default: {spot: require, errors: {retries: 0}}}"))
    assert [rule["action"] for rule in rules_of(job)] == ["Count", "FailJob"]
    assert rules_of(job)[1]["onExitCodes"] == {"operator": "NotIn", "values": [0, 137, 143, 255]}


def test_an_index_ends_alone() -> None:
    job, _ = admitted(a_job(completionMode="Indexed"), a_config(BOTH))
    assert rules_of(job)[0] == {"action": "FailIndex", "onExitCodes": REFUSED}


def test_a_job_that_restarts_its_containers_in_place_gets_no_rule() -> None:
    given = a_job()
    given["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    job, _ = admitted(given, a_config(BOTH))
    assert "podFailurePolicy" not in job["spec"]


def test_a_job_set_fails_at_a_refusal_and_restarts_at_an_interruption() -> None:
    jobset, outcome = admitted(a_jobset(), a_config(BOTH))
    first, second = jobset["spec"]["failurePolicy"]["rules"]
    assert (first["action"], first["onJobFailureMessagePatterns"]) == ("FailJobSet", ["exit code 86 "])
    assert (second["action"], second["onJobFailureReasons"]) == ("RestartJobSet", ["PodFailurePolicy"])
    child = jobset["spec"]["replicatedJobs"][0]["template"]
    assert rules_of(child)[0] == {"action": "FailJob", "onExitCodes": REFUSED}
    assert list(outcome.warnings) == []


def test_a_rule_of_the_user_s_comes_after_the_refusal() -> None:
    given = a_jobset()
    own = {"name": "own", "action": "RestartJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
    given["spec"]["failurePolicy"] = {"maxRestarts": 3, "rules": [own]}
    jobset, _ = admitted(given, a_config(BOTH))
    assert [rule["name"] for rule in jobset["spec"]["failurePolicy"]["rules"]] == ["spotwright_refused", "own"]


@pytest.mark.parametrize("policy", [BOTH, BOUNDED, "{default: {spot: never, errors: {retries: 2}}}"])
def test_the_limit_of_a_job_has_room_for_both_budgets_and_for_moves(policy: str) -> None:
    job, outcome = admitted(a_job(), a_config(policy))
    interruptions = 3 if policy == BOTH else 10
    assert job["spec"]["backoffLimit"] == interruptions + 2 + MAX_MOVES
    assert list(outcome.warnings) == []


def test_a_job_of_many_pods_has_room_for_the_budgets_of_each() -> None:
    job, _ = admitted(a_job(completions=4, parallelism=2), a_config(BOTH))
    assert job["spec"]["backoffLimit"] == 4 * (3 + 2 + MAX_MOVES)


def test_a_bounded_job_without_retries_ends_at_an_error_and_not_at_a_kill() -> None:
    job, _ = admitted(a_job(), a_config("{default: {spot: require, timeout: 1h, errors: {retries: 0}}}"))
    assert [rule["action"] for rule in rules_of(job)] == ["Ignore", "FailJob"]
    assert rules_of(job)[1]["onExitCodes"] == {"operator": "NotIn", "values": [0, 137, 143, 255]}
    assert job["spec"]["backoffLimit"] == 10 + MAX_MOVES


def test_a_job_on_on_demand_ends_at_a_refusal_too() -> None:
    job, _ = admitted(a_job(), a_config("{default: {spot: never, errors: {retries: 2}}}"))
    assert rules_of(job) == [{"action": "FailJob", "onExitCodes": REFUSED}]


@pytest.mark.parametrize("spot", ["require", "never"])
def test_a_step_of_a_workflow_is_not_retried_after_a_refusal(spot: str) -> None:
    step = {"name": "train", "container": {"image": "train:1", "command": ["train"]}}
    workflow = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "one"},
        "spec": {"entrypoint": "train", "templates": [step]},
    }
    config = a_config(BOTH.replace("require", spot))
    strategy = admitted(workflow, config)[0]["spec"]["templates"][0]["retryStrategy"]
    assert strategy["limit"] == str((3 if spot == "require" else 0) + 2 + MAX_MOVES)
    assert strategy["expression"] == "lastRetry.exitCode != '86'"
