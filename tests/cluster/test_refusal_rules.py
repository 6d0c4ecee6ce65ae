"""The exit code of a refused pod is final, whatever else the object's rules retry."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.admission_objects import a_config, a_job, a_jobset, admitted
from tests.manifests.placing import at_path

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
    job, _ = admitted(a_job())
    assert [rule["action"] for rule in rules_of(job)] == ["Count", "FailJob"]
    assert rules_of(job)[1]["onExitCodes"] == {"operator": "NotIn", "values": [0, 137, 143]}


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


def test_a_step_of_a_workflow_is_not_retried_after_a_refusal() -> None:
    step = {"name": "train", "container": {"image": "train:1", "command": ["train"]}}
    workflow = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "one"},
        "spec": {"entrypoint": "train", "templates": [step]},
    }
    strategy = admitted(workflow, a_config(BOTH))[0]["spec"]["templates"][0]["retryStrategy"]
    assert (strategy["limit"], strategy["expression"]) == ("25", "lastRetry.exitCode != '86'")
