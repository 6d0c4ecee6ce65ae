"""Argo's retries and patches: which endings are interruptions, what is counted, and where the next attempt runs."""

from __future__ import annotations

import json
import re

import pytest
from tests import plain_yaml
from tests.kinds.argo.workflows import FALL_BACK, LEAF, a_workflow, patch_of, place, template
from tests.placing.placed import at_path, refusal

from spotwright.kinds.argo_steps import from_attempt

TERMS = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
OWN = "{name: train, retryStrategy: %s, container: {image: trainer}}"
REQUIRED = "[{matchExpressions: [{key: disk, operator: DoesNotExist}]}, {matchExpressions: [{key: os, operator: DoesNotExist}]}]"


def with_patch(patch: str) -> str:
    body = "\n".join(f"      {line}" for line in patch.splitlines())
    return f"{a_workflow('name: train').rstrip()}\n    podSpecPatch: |\n{body}\n    container: {{image: trainer}}\n"


def test_interruptions_and_errors_share_argos_limit() -> None:
    policy = "{default: {spot: prefer, interruptions: {max: 7, backoff: 2s, factor: 3, max_backoff: 1m}, errors: {retries: 2}}}"
    outcome = place(a_workflow(), policy)

    strategy = template(outcome)["retryStrategy"]
    assert (strategy["limit"], strategy["retryPolicy"]) == ("9", "Always")
    assert strategy["backoff"] == {"duration": "2s", "factor": "3", "cap": "60s"}
    assert strategy["expression"].endswith(" || asInt(retries) < 2")
    assert outcome.reports("an error is retried only as one of the first 2 retries")
    assert outcome.roles["nightly/train"].after_interruption.startswith("Argo retries it, at most 7 times")


@pytest.mark.parametrize(
    ("message", "is_interruption"),
    [
        ("Pod was terminated in response to imminent node shutdown.", True),
        ("pod deleted", True),
        ("main: Error (exit code 143)", True),
        ("Error (exit code 137)", True),
        ("The node was low on resource: memory. Container main was using 2Gi", True),
        ("Pod failed before main container starts due to PodInitializing: ", True),
        ("pod failed: neither main nor wait container completed successfully", True),
        ("main: OOMKilled (exit code 137)", False),
        ("main: Error (exit code 1)", False),
        ("Error (exit code 14)", False),
        ("Pod was active on the node longer than the specified deadline", False),
        ("wait: Error (exit code 64): failed to save outputs", False),
    ],
)
def test_the_message_tells_an_interruption_from_an_error(message: str, is_interruption: bool) -> None:
    expression = template(place(a_workflow()))["retryStrategy"]["expression"]
    told = re.fullmatch(r"lastRetry\.message matches '([^']*)'", expression)

    assert told is not None
    assert bool(re.search(told[1], message)) is is_interruption


def test_before_3_5_there_is_no_message_so_status_and_exit_code_must_do() -> None:
    expression = template(place(a_workflow(), argo="3.4"))["retryStrategy"]["expression"]

    assert expression == "lastRetry.status == 'Error' || lastRetry.exitCode in ['-1', '137', '143', '255']"


def test_before_argo_3_2_a_warning_reports_that_errors_are_retried_too() -> None:
    outcome = place(a_workflow(), argo="3.1")

    assert "expression" not in template(outcome)["retryStrategy"]
    assert outcome.reports("errors of the code are retried too")


def test_before_3_7_a_factor_keeps_the_last_wait_below_the_ceiling() -> None:
    policy = "{default: {spot: prefer, interruptions: {max: 6, backoff: 1s, factor: 4, max_backoff: 5m}}}"
    outcome = place(a_workflow(), policy, argo="3.6")

    assert template(outcome)["retryStrategy"]["backoff"] == {"duration": "1s", "factor": "3"}
    assert outcome.reports("waits grow by the factor 3 instead of 4")


def test_a_factor_becomes_a_whole_number() -> None:
    outcome = place(a_workflow(), "{default: {spot: prefer, interruptions: {factor: 1.5}}}")

    assert template(outcome)["retryStrategy"]["backoff"]["factor"] == "2"
    assert outcome.reports("waits grow by the factor 2 instead of 1.5")


def test_without_a_wait_there_is_no_backoff() -> None:
    outcome = place(a_workflow(), "{default: {spot: prefer, interruptions: {backoff: 0s}}}")

    assert "backoff" not in template(outcome)["retryStrategy"]


@pytest.mark.parametrize(
    ("own", "messages"),
    [
        (
            "{limit: 2}",
            "OnFailure retries it after a drain, but not where Argo records 'pod deleted' (seen on Argo 3.7.3), at most 2 times",
        ),
        ("{limit: 2, expression: 'true'}", "Always retries it after an interruption, at most 2 times"),
        (
            "{retryPolicy: OnError}",
            "OnError does not retry it after a drain, which ends as Failed with exit code 143 (seen on Argo 4.0.5)",
        ),
        ("{retryPolicy: OnTransientError}", "OnTransientError misses some interruptions, without a bound"),
    ],
)
def test_a_retry_strategy_of_the_users_stays_and_is_explained(own: str, messages: str) -> None:
    outcome = place(a_workflow(OWN % own))

    assert template(outcome)["retryStrategy"] == plain_yaml.load(own)
    assert outcome.reports("your retryStrategy stays", messages, "--replace-retries")
    assert outcome.roles["nightly/train"].after_interruption.startswith(messages)


@pytest.mark.parametrize("where", ["templateDefaults: {retryStrategy: {limit: 2}}", "retryStrategy: {limit: 2}"])
def test_one_that_is_inherited_stays_too(where: str) -> None:
    outcome = place(a_workflow(spec=f"  {where}\n"))

    assert "retryStrategy" not in template(outcome)
    assert outcome.reports("your retryStrategy stays", "at most 2 times")


def test_it_is_replaced_on_request_field_by_field() -> None:
    own = (
        "{limit: 2, retryPolicy: OnError, backoff: {duration: '9', maxDuration: 1h}, affinity: {nodeAntiAffinity: {}}}"
    )
    outcome = place(a_workflow(OWN % own), replace_retries=True)

    strategy = template(outcome)["retryStrategy"]
    assert (strategy["limit"], strategy["retryPolicy"]) == ("10", "Always")
    assert strategy["backoff"]["duration"] == "1s"
    assert strategy["affinity"] == {"nodeAntiAffinity": {}}
    assert outcome.reports("maxDuration stays")


def test_a_limit_below_the_fall_back_is_named() -> None:
    outcome = place(a_workflow(OWN % "{limit: 2, retryPolicy: Always}"))

    assert outcome.reports("with limit 2, the fallback to on-demand after 3 interruptions is never reached")
    assert "affinity" not in patch_of(template(outcome))


def test_later_attempts_require_on_demand_and_earlier_ones_nothing() -> None:
    outcome = place(a_workflow())

    [term] = at_path(patch_of(template(outcome)), TERMS)
    assert term["matchExpressions"] == [
        {
            "key": "{{=asInt(retries) < 3 ? 'spotwright.dev/any-node' : 'kubernetes.azure.com/agentpool'}}",
            "operator": "{{=asInt(retries) < 3 ? 'NotIn' : 'In'}}",
            "values": ["regular"],
        }
    ]
    report = outcome.roles["nightly/train"].after_interruption
    assert "; after 3 retries, errors included, on on-demand only; a lost node: the same attempt again" in report


@pytest.mark.parametrize(
    ("argo", "source"),
    [
        ("3.7", "(seen on Argo 3.7.3 and 4.0.5)"),
        ("4.0", "(seen on Argo 3.7.3 and 4.0.5)"),
        ("3.5", "(seen on Argo 3.7.3 and 4.0.5; assumed for 3.5 too)"),
    ],
)
def test_a_note_reports_once_that_lost_nodes_are_not_counted(argo: str, source: str) -> None:
    outcome = place(a_workflow(LEAF, "{name: other, container: {image: trainer}}"), argo=argo)

    assert outcome.roles["nightly/train"].after_interruption.endswith(f"not counted {source}")
    [note] = [text for text in outcome.messages if "no lost node" in text]
    assert "note" in note
    assert note.endswith(f"interruptions.max and fall_back_after have no effect there {source}")


def test_work_that_stays_on_on_demand_gets_no_note_of_lost_nodes() -> None:
    outcome = place(a_workflow(), "{default: {spot: never, errors: {retries: 1}}}")

    assert not outcome.reports("no lost node")
    assert "lost node" not in outcome.roles["nightly/train"].after_interruption


def test_on_spot_without_a_budget_an_interruption_ends_the_step() -> None:
    outcome = place(a_workflow(), "{default: {spot: require, interruptions: {max: 0}}}")

    assert outcome.roles["nightly/train"].after_interruption.startswith(
        "an interruption ends the step: it has no retries; a lost node: the same attempt again"
    )


def test_the_condition_is_joined_to_every_term_that_is_there() -> None:
    own = f"affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: {REQUIRED}}}}}}}"
    terms = at_path(patch_of(template(place(a_workflow(LEAF.replace("container", f"{own}, container"))))), TERMS)

    assert [term["matchExpressions"][0]["key"] for term in terms] == ["disk", "os"]
    assert all("asInt(retries) < 3" in term["matchExpressions"][1]["key"] for term in terms)


def test_a_condition_that_keeps_labels_out_needs_no_other_operator() -> None:
    [term] = at_path(
        {"affinity": from_attempt(2, {}, [{"key": "spot", "operator": "NotIn", "values": ["true"]}])}, TERMS
    )

    key = "{{=asInt(retries) < 2 ? 'spotwright.dev/any-node' : 'spot'}}"
    assert term == {"matchExpressions": [{"key": key, "operator": "NotIn", "values": ["true"]}]}


@pytest.mark.parametrize("policy", ["{default: {spot: require}}", "{default: {spot: never}}"])
def test_only_a_preference_depends_on_the_attempt(policy: str) -> None:
    assert "retries) <" not in place(a_workflow(), policy).text


def test_before_argo_3_1_a_warning_reports_that_no_attempt_falls_back() -> None:
    outcome = place(a_workflow(), argo="3.0")

    assert "{{=" not in template(outcome).get("podSpecPatch", "")
    assert outcome.reports("Argo before 3.1 cannot place attempts differently")


def test_the_grace_period_has_no_field_but_the_patch() -> None:
    assert patch_of(template(place(a_workflow())))["terminationGracePeriodSeconds"] == 25


def test_a_patch_in_yaml_keeps_its_lines_and_comments() -> None:
    patch = (
        "# mine\ncontainers:\n- name: main  # the code\n  resources: {limits: {memory: {{inputs.parameters.memory}}Mi}}"
    )
    outcome = place(with_patch(patch))

    lines = [line.strip() for line in outcome.text.splitlines()]
    for line in patch.splitlines():
        assert line.strip() in lines
    assert "terminationGracePeriodSeconds: 25" in lines


def test_a_patch_in_json_stays_json_because_argo_reads_it_as_such() -> None:
    own = '{"containers":[{"name":"main","resources":{"limits":{"cpu": "{{workflow.parameters.cpu}}" }}}]}'
    outcome = place(a_workflow(f"{{name: train, podSpecPatch: '{own}', container: {{image: trainer}}}}"))

    patch = template(outcome)["podSpecPatch"]
    assert patch.endswith(own[1:])
    assert json.loads(patch)["terminationGracePeriodSeconds"] == 25


@pytest.mark.parametrize("empty", ["''", '"{}"'])
def test_an_empty_patch_is_filled(empty: str) -> None:
    outcome = place(a_workflow(f"{{name: train, podSpecPatch: {empty}, container: {{image: trainer}}}}"))

    assert patch_of(template(outcome))["terminationGracePeriodSeconds"] == 25


def test_a_grace_period_in_a_patch_of_the_workflow_is_the_users_own() -> None:
    outcome = place(a_workflow(spec="  podSpecPatch: 'terminationGracePeriodSeconds: 10'\n"))

    assert "terminationGracePeriodSeconds" not in patch_of(template(outcome))


def test_the_defaults_patch_is_written_again_because_the_template_hides_it() -> None:
    outcome = place(a_workflow(spec="  templateDefaults: {podSpecPatch: 'hostNetwork: true'}\n"))

    assert patch_of(template(outcome))["hostNetwork"] is True
    assert patch_of(template(outcome))["terminationGracePeriodSeconds"] == 25


@pytest.mark.parametrize("name", ["tolerations", "affinity"])
def test_a_patch_that_would_hide_what_is_placed_is_refused(name: str) -> None:
    empty = "[{key: x, operator: Exists}]" if name == "tolerations" else "{podAffinity: {}}"
    message = refusal(with_patch(f"{name}: {empty}"), FALL_BACK)

    assert message.startswith("work.yaml:8: ")
    assert f"the patch sets {name}, which would override the placement; move it to {name} of template train" in message


@pytest.mark.parametrize("patch", ["just text", "- a list", "a: b: c"])
def test_a_patch_that_is_no_patch_is_refused_with_its_line(patch: str) -> None:
    assert refusal(with_patch(patch)).startswith("work.yaml:8: ")
