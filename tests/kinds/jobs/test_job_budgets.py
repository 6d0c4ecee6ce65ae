"""The budgets of a Job without a controller of ours: what its rules do to each ending of a pod, and limits for each index."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kinds.schemas import job_schema, strange
from tests.placing.placed import FILE, SHARED, Outcome, a_config, at_path, place

from spotwright.manifests.files import place_text
from spotwright.placing.context import Group, PlaceOptions

JOBSET = SHARED / "crds" / "jobset-v0.12.0" / "jobset.json.gz"
INDEXED = "\n  completionMode: Indexed\n  completions: 4"
PARALLEL = f"{INDEXED}\n  parallelism: 4"
NO_ERRORS = "{default: {spot: prefer, interruptions: {max: 7}, errors: {retries: 0}}}"
TWO_ERRORS = "{default: {spot: prefer, interruptions: {max: 7}, errors: {retries: 2}}}"
BOUNDED = "{default: {spot: prefer, timeout: 1h, errors: {retries: 2}}}"


def a_job(more: str = "", restart: str = "Never") -> str:
    return f"""\
apiVersion: batch/v1
kind: Job
metadata: {{name: train}}
spec:{more}
  template:
    spec:
      restartPolicy: {restart}
      containers:
      - {{name: main, image: "trainer:1"}}
"""


def spec(outcome: Outcome, *names: str) -> dict[str, Any]:
    """These fields of the Job's spec, as far as it has them."""
    found = {name: at_path(outcome.value, f"spec.{name}") for name in names}
    return {name: value for name, value in found.items() if value is not None}


def effect(outcome: Outcome, exit_code: int, *, disrupted: bool) -> str:
    """The action of the first rule that matches a failed pod, as the Job controller chooses it; without one it counts."""
    for rule in at_path(outcome.value, "spec.podFailurePolicy.rules") or ():
        codes = rule.get("onExitCodes")
        by_code = bool(codes) and (exit_code in codes["values"]) is (codes["operator"] == "In")
        if by_code or ("onPodConditions" in rule and disrupted):
            return str(rule["action"])
    return "Count"


LIMITS = ("backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes")


@pytest.mark.parametrize(
    ("exit_code", "disrupted", "action"),
    [(143, True, "Count"), (1, True, "Count"), (143, False, "Count"), (137, False, "Count"), (1, False, "FailJob")],
)
def test_where_no_error_is_retried_an_error_ends_the_job_and_only_interruptions_count(
    exit_code: int, disrupted: bool, action: str
) -> None:
    outcome = place(a_job(), NO_ERRORS)

    assert effect(outcome, exit_code, disrupted=disrupted) == action
    assert spec(outcome, *LIMITS) == {"backoffLimit": 7}


def test_the_report_says_which_field_holds_which_budget() -> None:
    outcome = place(a_job(), NO_ERRORS)

    assert outcome.roles["train"].after_interruption == (
        "the pod is created again; it counts against backoffLimit 7, and an error of the code ends the Job at once"
    )
    assert outcome.reports("note", "exit codes 137, 143 and 255", "count as interruptions, against backoffLimit 7")
    assert not outcome.reports("together")


@pytest.mark.parametrize(
    ("more", "policy"),
    [
        ("", TWO_ERRORS),
        ("\n  parallelism: 3", NO_ERRORS),
        ("\n  parallelism: ${trialParameters.n}", NO_ERRORS),
        ("\n  backoffLimit: 6", NO_ERRORS),
        (
            "\n  podFailurePolicy:\n    rules:\n    - {action: Ignore, onExitCodes: {operator: In, values: [42]}}",
            NO_ERRORS,
        ),
    ],
)
def test_errors_are_counted_where_a_rule_on_exit_codes_would_do_something_else(more: str, policy: str) -> None:
    assert effect(place(a_job(more), policy), 1, disrupted=False) == "Count"


OWN_IGNORE = "{action: Ignore, onExitCodes: {operator: In, values: [137, 143]}}"
OWN_FAIL = "{action: FailJob, onExitCodes: {operator: In, values: [42]}}"


@pytest.mark.parametrize(
    ("rules", "exit_code", "action"),
    [
        ([OWN_IGNORE], 143, "Ignore"),
        ([OWN_IGNORE, OWN_FAIL], 143, "Ignore"),
        ([OWN_FAIL, OWN_IGNORE], 143, "Ignore"),
        ([OWN_FAIL, OWN_IGNORE], 42, "Ignore"),
        ([OWN_FAIL], 42, "Count"),
    ],
)
def test_an_interruption_is_not_counted_that_the_user_s_rules_ignored(
    rules: list[str], exit_code: int, action: str
) -> None:
    more = "\n  backoffLimit: 0\n  podFailurePolicy:\n    rules:" + "".join(f"\n    - {rule}" for rule in rules)

    assert effect(place(a_job(more)), exit_code, disrupted=True) == action


def test_an_indexed_job_has_its_budgets_for_each_index() -> None:
    outcome = place(a_job(PARALLEL), TWO_ERRORS)

    assert spec(outcome, *LIMITS) == {"backoffLimitPerIndex": 9, "maxFailedIndexes": 0}
    assert "against backoffLimitPerIndex 9" in outcome.roles["train"].after_interruption


def test_an_error_fails_an_index_whose_interruptions_are_counted_alone() -> None:
    outcome = place(a_job(INDEXED), NO_ERRORS)

    assert effect(outcome, 1, disrupted=False) == "FailIndex"
    assert effect(outcome, 143, disrupted=True) == "Count"
    assert spec(outcome, *LIMITS) == {"backoffLimitPerIndex": 7, "maxFailedIndexes": 0}


def test_where_interruptions_are_ignored_each_index_has_room_for_those_that_leave_no_condition() -> None:
    outcome = place(a_job(PARALLEL), BOUNDED)

    assert effect(outcome, 143, disrupted=True) == "Ignore"
    assert spec(outcome, *LIMITS) == {"backoffLimitPerIndex": 10 + 2, "maxFailedIndexes": 0}


@pytest.mark.parametrize(
    ("more", "restart", "target"),
    [
        (PARALLEL, "Never", "{kubernetes: '1.28'}"),
        (PARALLEL, "OnFailure", "{kubernetes: '1.33'}"),
        (f"{PARALLEL}\n  backoffLimit: 6", "Never", "{kubernetes: '1.33'}"),
        ("\n  parallelism: 4", "Never", "{kubernetes: '1.33'}"),
    ],
)
def test_a_job_that_allows_no_limit_for_each_index_has_one_for_all(more: str, restart: str, target: str) -> None:
    outcome = place(a_job(more, restart), TWO_ERRORS, target=target)

    assert spec(outcome, *LIMITS).keys() == {"backoffLimit"}


def test_a_number_of_failed_indexes_that_the_user_allows_stays() -> None:
    outcome = place(a_job(f"{PARALLEL}\n  backoffLimitPerIndex: 1\n  maxFailedIndexes: 3"), TWO_ERRORS)

    assert spec(outcome, *LIMITS) == {"backoffLimitPerIndex": 1, "maxFailedIndexes": 3}


def test_a_placeholder_for_completions_leaves_no_deadline_and_a_note() -> None:
    outcome = place(
        a_job("\n  completions: ${trialParameters.n}"), "{default: {spot: prefer, timeout: 1h, errors: {retries: 0}}}"
    )

    assert spec(outcome, "activeDeadlineSeconds") == {}
    assert outcome.reports("no deadline bounds all attempts while completions is a placeholder")


@pytest.mark.skipif(not JOBSET.exists(), reason="the schemas are not beside this project")
@pytest.mark.parametrize("more", ["", INDEXED, PARALLEL])
@pytest.mark.parametrize("policy", [NO_ERRORS, TWO_ERRORS, BOUNDED])
def test_kubernetes_knows_every_field_and_type(more: str, policy: str) -> None:
    assert list(strange(job_schema(JOBSET), place(a_job(more), policy).value)) == []


@pytest.mark.parametrize(("more", "field"), [("", "backoffLimit"), (INDEXED, "backoffLimitPerIndex")])
def test_a_job_on_on_demand_has_the_users_budget_for_errors(more: str, field: str) -> None:
    outcome = place(a_job(more), "{default: {spot: never, errors: {retries: 1}}}")

    assert spec(outcome, "backoffLimit", "backoffLimitPerIndex") == {field: 1}
    assert outcome.roles["train"].enforcement["errors.retries"].text.startswith(f"{field} 1")


def test_a_job_on_on_demand_keeps_the_retries_of_kubernetes_where_nobody_sets_any() -> None:
    assert spec(place(a_job(), "{default: {spot: never}}"), *LIMITS) == {}


@pytest.mark.parametrize("replace_retries", [False, True])
def test_a_limit_of_the_users_job_on_on_demand_stays_without_the_option(*, replace_retries: bool) -> None:
    policy = "{default: {spot: never}, tasks: {train: {errors: {retries: 1}}}}"
    outcome = place(a_job("\n  backoffLimit: 3"), policy, replace_retries=replace_retries)

    assert spec(outcome, *LIMITS) == {"backoffLimit": 1 if replace_retries else 3}
    assert bool(outcome.reports("backoffLimit 3 stays, the policy says 1")) is not replace_retries


@pytest.mark.parametrize("spot", ["never", "prefer"])
def test_the_timeout_is_the_deadline_of_each_pod(spot: str) -> None:
    outcome = place(a_job(), f"{{default: {{spot: {spot}, timeout: 90.5s}}}}")

    assert at_path(outcome.value, "spec.template.spec.activeDeadlineSeconds") == 91
    assert outcome.roles["train"].enforcement["timeout"].text == "activeDeadlineSeconds 91, for each pod"
    assert not outcome.reports("no effect here")


@pytest.mark.parametrize("replace_retries", [False, True])
def test_a_deadline_of_the_users_pods_stays_without_the_option(*, replace_retries: bool) -> None:
    text = a_job().replace("restartPolicy: Never", "restartPolicy: Never\n      activeDeadlineSeconds: 60")
    outcome = place(text, BOUNDED, replace_retries=replace_retries)

    assert at_path(outcome.value, "spec.template.spec.activeDeadlineSeconds") == (3600 if replace_retries else 60)
    assert bool(outcome.reports("activeDeadlineSeconds 60 of the pod stays")) is not replace_retries


def test_without_the_group_of_retries_a_job_on_on_demand_gets_neither() -> None:
    config = a_config("{default: {spot: never, errors: {retries: 1}, timeout: 1h}}")
    text = place_text(a_job(), FILE, config, options=PlaceOptions(only=frozenset({Group.PLACEMENT}))).text

    assert "backoffLimit" not in text
    assert "activeDeadlineSeconds" not in text


def test_a_bare_pod_gets_the_timeout_as_its_deadline() -> None:
    text = "apiVersion: v1\nkind: Pod\nmetadata: {name: bare}\nspec:\n  containers: [{name: main, image: x}]\n"
    outcome = place(text, "{default: {spot: prefer, timeout: 1h}}")

    assert outcome.value["spec"]["activeDeadlineSeconds"] == 3600
    assert outcome.roles["bare"].enforcement["timeout"].text == (
        "activeDeadlineSeconds 3600, for all restarts of its containers together"
    )
