"""The author's retries, or Kubernetes' defaults, are the error budget: a workload that succeeds without us succeeds with us.

The objects are placed as the webhook does it, and the next pod is reviewed with the policy that they gave to their pods.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cluster.admission_objects import a_config, a_job, a_jobset, admitted
from tests.cluster.admitted_pods import IMAGE
from tests.placing.placed import at_path, place

from spotwright.cluster.admit_pods import AdmissionContext, admit_pod
from spotwright.config import Config
from spotwright.model.attempts import Cause
from spotwright.scheduling.next_attempt import PastAttempt

PLAIN = "{default: {spot: prefer}}"
POLICY = "spotwright.dev/policy"


def policy_of(template: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(template["metadata"]["annotations"][POLICY])
    return found


def verdict(template: dict[str, Any], config: Config, *causes: Cause) -> str:
    """The webhook's result for the pod of a placed template after attempts with these ends."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1", "controller": True}
    metadata = {**template["metadata"], "name": "train-1", "namespace": "team-a", "ownerReferences": [owner]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    history = [PastAttempt(cause, ("regular",), "regular") for cause in causes]
    return admit_pod(pod, config, AdmissionContext(history), IMAGE).verdict


def written(job: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """The object as ``kubectl apply`` sends it: its annotation shows the author's text."""
    sent = {"spec": spec}
    annotation = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(sent)}
    return {**job, "metadata": {**job["metadata"], "annotations": annotation}, "spec": {**job["spec"], **spec}}


@pytest.mark.parametrize(
    ("spec", "errors"), [({}, 6), ({"backoffLimit": 6}, 6), ({"backoffLimit": 2}, 2), ({"backoffLimit": 0}, 0)]
)
def test_a_job_may_fail_as_often_as_its_own_limit_or_the_default_of_six_lets_it(
    spec: dict[str, int], errors: int
) -> None:
    config = a_config(PLAIN)
    job, _ = admitted(written(a_job(), **spec), config)
    template = job["spec"]["template"]
    assert policy_of(template)["errors"] == {"retries": errors}
    assert verdict(template, config, *[Cause.FAILED] * errors) == "pod is admitted"
    assert verdict(template, config, *[Cause.FAILED] * (errors + 1)) == "pod is refused"


def test_more_retries_than_interruptions_max_are_interruptions_too_and_on_demand_comes_as_before() -> None:
    config = a_config(PLAIN)
    template = admitted(a_job(backoffLimit=15), config)[0]["spec"]["template"]
    assert policy_of(template) == {
        "spot": "prefer",
        "interruptions": {"max": 15},
        "errors": {"retries": 15},
        "fall_back_after": 10,
    }
    assert verdict(template, config, *[Cause.INTERRUPTED] * 15) == "pod is admitted"


def test_the_policy_s_default_is_stronger_than_kubernetes_s_and_weaker_than_the_author_s() -> None:
    config = a_config("{default: {spot: prefer, errors: {retries: 1}}}")
    assert policy_of(admitted(a_job(), config)[0]["spec"]["template"])["errors"] == {"retries": 1}
    template = admitted(a_job(backoffLimit=3), config)[0]["spec"]["template"]
    assert policy_of(template)["errors"] == {"retries": 3}


def test_a_policy_of_the_task_lowers_the_author_s_retries_with_a_message() -> None:
    config = a_config("{default: {spot: prefer}, tasks: {train: {errors: {retries: 1}}}}")
    job, outcome = admitted(a_job(backoffLimit=3), config)
    assert policy_of(job["spec"]["template"])["errors"] == {"retries": 1}
    assert "holds, and not its own backoffLimit" in " ".join(outcome.warnings)


def test_a_job_set_may_restart_as_often_as_its_own_retries_together() -> None:
    given = a_jobset()
    given["spec"]["failurePolicy"] = {"maxRestarts": 1}
    given["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] = 2
    placed, _ = admitted(given, a_config(PLAIN))
    template = at_path(placed, "spec.replicatedJobs.0.template.spec.template")
    assert policy_of(template)["errors"] == {"retries": 5}


def test_a_job_set_without_retries_of_its_own_has_those_of_its_jobs() -> None:
    placed, _ = admitted(a_jobset(), a_config(PLAIN))
    template = at_path(placed, "spec.replicatedJobs.0.template.spec.template")
    assert policy_of(template)["errors"] == {"retries": 6}
    assert placed["spec"]["failurePolicy"]["maxRestarts"] == 10 + 6 + 20


def a_workflow(strategy: dict[str, Any] | None) -> dict[str, Any]:
    template: dict[str, Any] = {"name": "main", "container": {"image": "train:1", "command": ["train"]}}
    if strategy is not None:
        template["retryStrategy"] = strategy
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "train", "namespace": "team-a"},
        "spec": {"entrypoint": "main", "templates": [template]},
    }


NOT_REFUSED = "lastRetry.exitCode != '86'"


@pytest.mark.parametrize(
    ("strategy", "errors", "expression"),
    [
        ({"limit": 3}, 3, NOT_REFUSED),
        ({"limit": "3", "retryPolicy": "OnFailure"}, 3, NOT_REFUSED),
        (
            {"limit": 2, "expression": "asInt(lastRetry.exitCode) > 1"},
            2,
            f"(asInt(lastRetry.exitCode) > 1) && {NOT_REFUSED}",
        ),
        ({"limit": "{{inputs.parameters.tries}}"}, 10_000, NOT_REFUSED),
        ({}, 10_000, NOT_REFUSED),
    ],
)
def test_a_step_may_fail_as_often_as_its_own_strategy_lets_it_and_its_refusal_is_not_tried_again(
    strategy: dict[str, Any], errors: int, expression: str
) -> None:
    placed, _ = admitted(a_workflow(strategy), a_config(PLAIN))
    (template,) = placed["spec"]["templates"]
    assert policy_of(template)["errors"] == {"retries": errors}
    assert template["retryStrategy"] == {**strategy, "expression": expression}


def test_a_step_without_a_strategy_is_not_tried_again_after_an_error() -> None:
    (template,) = admitted(a_workflow(None), a_config(PLAIN))[0]["spec"]["templates"]
    assert policy_of(template)["errors"] == {"retries": 0}


def test_a_file_that_is_placed_twice_keeps_its_budgets() -> None:
    config = a_config(PLAIN)
    once, _ = admitted(a_jobset(), config)
    again, outcome = admitted(once, config)
    assert again == once
    assert list(outcome.warnings) == []


def a_job_file(more: str = "") -> str:
    return f"""\
apiVersion: batch/v1
kind: Job
metadata: {{name: train}}
spec:{more}
  template:
    spec:
      restartPolicy: Never
      containers:
      - {{name: main, image: "trainer:1"}}
"""


@pytest.mark.parametrize("errors", [0, 1])
@pytest.mark.parametrize("bound", ["", ", timeout: 1h"])
def test_a_job_that_a_file_alone_places_outlives_as_many_reboots_as_without_us(errors: int, bound: str) -> None:
    policy = f"{{default: {{spot: prefer, interruptions: {{max: 5}}, errors: {{retries: {errors}}}{bound}}}}}"
    spec = place(a_job_file(), policy).value["spec"]
    for rule in spec.get("podFailurePolicy", {}).get("rules", ()):
        codes = rule.get("onExitCodes")
        ends = codes and (255 in codes["values"]) is (codes["operator"] == "In") and rule["action"] == "FailJob"
        assert not ends
    assert spec["backoffLimit"] >= 5 + errors


def test_a_limit_that_a_policy_makes_small_is_not_below_that_of_kubernetes() -> None:
    policy = "{default: {spot: prefer, interruptions: {max: 2}, errors: {retries: 1}}}"
    assert place(a_job_file(), policy).value["spec"]["backoffLimit"] == 6
