"""Argo's retries and patches: what an interruption is, who counts, and where the next attempt may go."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from tests.manifests.placing import found, refusal
from tests.manifests.workflows import FALL_BACK, LEAF, a_workflow, patch_of, place, template

from spotwright.manifests.kinds.argo_patch import from_attempt

TERMS = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
OWN = "{name: train, retryStrategy: %s, container: {image: trainer}}"
REQUIRED = "[{matchExpressions: [{key: disk, operator: DoesNotExist}]}, {matchExpressions: [{key: os, operator: DoesNotExist}]}]"


def with_patch(patch: str) -> str:
    body = "\n".join(f"      {line}" for line in patch.splitlines())
    return f"{a_workflow('name: train').rstrip()}\n    podSpecPatch: |\n{body}\n    container: {{image: trainer}}\n"


def test_interruptions_and_errors_share_argos_limit() -> None:
    policy = (
        "{default: {spot: prefer, interruptions: {max: 7, backoff: 2s, factor: 3, ceiling: 1m}, errors: {retries: 2}}}"
    )
    outcome = place(a_workflow(), policy)

    strategy = template(outcome)["retryStrategy"]
    assert (strategy["limit"], strategy["retryPolicy"]) == ("9", "Always")
    assert strategy["backoff"] == {"duration": "2s", "factor": "3", "cap": "60s"}
    assert strategy["expression"].endswith(" || asInt(retries) < 2")
    assert outcome.says("an error is tried again only as one of the first 2 retries")
    assert outcome.roles["nightly/train"].after_interruption.startswith("Argo starts it again, 7 times at most")


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

    assert expression == "lastRetry.status == 'Error' || lastRetry.exitCode in ['-1', '137', '143']"


def test_before_3_2_errors_cannot_be_told_apart_and_that_is_said() -> None:
    outcome = place(a_workflow(), argo="3.1")

    assert "expression" not in template(outcome)["retryStrategy"]
    assert outcome.says("errors of the code are tried again as well")


def test_before_3_7_a_factor_keeps_the_last_wait_below_the_ceiling() -> None:
    policy = "{default: {spot: prefer, interruptions: {max: 6, backoff: 1s, factor: 4, ceiling: 5m}}}"
    outcome = place(a_workflow(), policy, argo="3.6")

    assert template(outcome)["retryStrategy"]["backoff"] == {"duration": "1s", "factor": "3"}
    assert outcome.says("waits grow by 3, not by 4")


def test_a_factor_becomes_a_whole_number() -> None:
    outcome = place(a_workflow(), "{default: {spot: prefer, interruptions: {factor: 1.5}}}")

    assert template(outcome)["retryStrategy"]["backoff"]["factor"] == "2"
    assert outcome.says("waits grow by 2, not by 1.5")


def test_without_a_wait_there_is_no_backoff() -> None:
    outcome = place(a_workflow(), "{default: {spot: prefer, interruptions: {backoff: 0s}}}")

    assert "backoff" not in template(outcome)["retryStrategy"]


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (
            "{limit: 2}",
            "OnFailure does not start it again when its pod was deleted (argo-workflows#2881), 2 times at most",
        ),
        ("{limit: 2, expression: 'true'}", "Always starts it again after an interruption, 2 times at most"),
        ("{retryPolicy: OnError}", "OnError misses some interruptions, without an end"),
    ],
)
def test_a_retry_strategy_of_the_users_stays_and_is_explained(own: str, said: str) -> None:
    outcome = place(a_workflow(OWN % own))

    assert template(outcome)["retryStrategy"] == yaml.safe_load(own)
    assert outcome.says("this retryStrategy is yours and stays", said, "--replace-retries")
    assert outcome.roles["nightly/train"].after_interruption.startswith(said)


@pytest.mark.parametrize("where", ["templateDefaults: {retryStrategy: {limit: 2}}", "retryStrategy: {limit: 2}"])
def test_one_that_is_inherited_stays_too(where: str) -> None:
    outcome = place(a_workflow(spec=f"  {where}\n"))

    assert "retryStrategy" not in template(outcome)
    assert outcome.says("this retryStrategy is yours and stays", "2 times at most")


def test_it_is_replaced_on_request_field_by_field() -> None:
    own = (
        "{limit: 2, retryPolicy: OnError, backoff: {duration: '9', maxDuration: 1h}, affinity: {nodeAntiAffinity: {}}}"
    )
    outcome = place(a_workflow(OWN % own), replace_retries=True)

    strategy = template(outcome)["retryStrategy"]
    assert (strategy["limit"], strategy["retryPolicy"]) == ("10", "Always")
    assert strategy["backoff"]["duration"] == "1s"
    assert strategy["affinity"] == {"nodeAntiAffinity": {}}
    assert outcome.says("maxDuration stays")


def test_a_limit_below_the_fall_back_is_named() -> None:
    outcome = place(a_workflow(OWN % "{limit: 2, retryPolicy: Always}"))

    assert outcome.says("on-demand after 3 interruptions is never reached with limit 2")
    assert "affinity" not in patch_of(template(outcome))


def test_later_attempts_require_on_demand_and_earlier_ones_nothing() -> None:
    outcome = place(a_workflow())

    [term] = found(patch_of(template(outcome)), TERMS)
    assert term["matchExpressions"] == [
        {
            "key": "{{=asInt(retries) < 3 ? 'spotwright.dev/any-node' : 'kubernetes.azure.com/agentpool'}}",
            "operator": "{{=asInt(retries) < 3 ? 'NotIn' : 'In'}}",
            "values": ["regular"],
        }
    ]
    assert outcome.roles["nightly/train"].after_interruption.endswith("; after 3 retries on on-demand only")


def test_the_condition_is_joined_to_every_term_that_is_there() -> None:
    own = f"affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: {REQUIRED}}}}}}}"
    terms = found(patch_of(template(place(a_workflow(LEAF.replace("container", f"{own}, container"))))), TERMS)

    assert [term["matchExpressions"][0]["key"] for term in terms] == ["disk", "os"]
    assert all("asInt(retries) < 3" in term["matchExpressions"][1]["key"] for term in terms)


def test_a_condition_that_keeps_labels_out_needs_no_other_operator() -> None:
    [term] = found({"affinity": from_attempt(2, {}, [{"key": "spot", "operator": "NotIn", "values": ["true"]}])}, TERMS)

    key = "{{=asInt(retries) < 2 ? 'spotwright.dev/any-node' : 'spot'}}"
    assert term == {"matchExpressions": [{"key": key, "operator": "NotIn", "values": ["true"]}]}


@pytest.mark.parametrize("policy", ["{default: {spot: require}}", "{default: {spot: never}}"])
def test_only_a_preference_depends_on_the_attempt(policy: str) -> None:
    assert "retries) <" not in place(a_workflow(), policy).text


def test_before_3_1_nothing_depends_on_the_attempt_and_that_is_said() -> None:
    outcome = place(a_workflow(), argo="3.0")

    assert "{{=" not in template(outcome).get("podSpecPatch", "")
    assert outcome.says("Argo before 3.1 cannot choose by attempt")


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
    assert f"the patch sets {name}, which would hide what is placed; move it to {name} of template train" in message


@pytest.mark.parametrize("patch", ["just text", "- a list", "a: b: c"])
def test_a_patch_that_is_no_patch_is_refused_with_its_line(patch: str) -> None:
    assert refusal(with_patch(patch)).startswith("work.yaml:8: ")


REFERENCE = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: mine}
spec:
  workflowTemplateRef: {name: shared}
"""


def shared(*templates: str, spec: str = "") -> str:
    return a_workflow(*templates, spec=spec, kind="WorkflowTemplate", metadata="{name: shared}")


def test_a_workflow_by_reference_is_placed_at_its_own_spec() -> None:
    outcome = place(REFERENCE, "{default: {spot: prefer, image_pull_secrets: [acr]}}", beside=shared())

    spec = outcome.value["spec"]
    assert [one["value"] for one in spec["tolerations"]] == ["spot"]
    assert patch_of(spec) == {"terminationGracePeriodSeconds": 25}
    assert spec["podMetadata"]["labels"] == {"spotwright.dev/spot": "prefer"}
    assert spec["imagePullSecrets"] == [{"name": "acr"}]
    assert spec["retryStrategy"]["limit"] == "10"
    assert "keeps the templates it was started with" in outcome.roles["mine/train"].frozen


def test_its_retries_are_left_where_they_would_repeat_whole_steps() -> None:
    steps = "{name: main, steps: [[{name: go, template: train}]]}"
    outcome = place(REFERENCE, beside=shared(steps, LEAF))

    assert "retryStrategy" not in outcome.value["spec"]
    assert outcome.says("an interruption ends the workflow", "place beside.yaml as well")


@pytest.mark.parametrize(
    ("beside", "why"),
    [
        ("", "is not here: pass its file with --with"),
        (shared(LEAF, "{name: db, daemon: true, container: {image: x}}"), "template db must stay on on-demand"),
        (
            shared("{name: train, tolerations: [{operator: Exists}], container: {image: x}}"),
            "scheduling fields of its own",
        ),
        (
            shared(LEAF, "{name: gpu, container: {image: x, resources: {limits: {nvidia.com/gpu: 1}}}}"),
            "its templates need different nodes",
        ),
    ],
)
def test_nothing_is_written_where_the_workflows_own_fields_would_not_do(beside: str, why: str) -> None:
    taints = "{default: {spot: prefer, ladder: [gpu-spot, spot, regular, gpu]}}" if "gpu:" in beside else FALL_BACK
    outcome = place(REFERENCE, taints, beside=beside)

    assert outcome.text == REFERENCE
    assert outcome.says(why)
