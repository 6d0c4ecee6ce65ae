"""Pod, Job and CronJob: the additions, and what an interruption does then."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kinds.jobs.jobs import IGNORED, a_job
from tests.placing.placed import PREFER, REQUIRE, at_path, place, refusal

COUNTED = {**IGNORED, "action": "Count"}
ON_EXIT = """
  podFailurePolicy:
    rules:
    - action: FailJob
      onExitCodes: {operator: NotIn, values: [0]}"""


ERRORS_END = {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [0, 137, 143, 255]}}


def rules(value: Any) -> Any:
    return at_path(value, "spec.podFailurePolicy.rules")


def limit(value: Any) -> Any:
    return at_path(value, "spec.backoffLimit")


def test_with_a_timeout_interruptions_are_ignored_and_all_attempts_together_have_an_end() -> None:
    outcome = place(
        a_job(),
        "{default: {spot: prefer, timeout: 1h, interruptions: {max: 2, backoff: 10s}, pending_timeout: 5m, "
        "errors: {retries: 0}}}",
    )

    assert rules(outcome.value) == [IGNORED, ERRORS_END]
    assert at_path(outcome.value, "spec.activeDeadlineSeconds") == 3 * 3600 + 3 * 300 + 10 + 20
    assert limit(outcome.value) == 2, "room for interruptions that leave no condition, as those of a node that restarts"


def test_errors_have_a_budget_of_their_own_where_interruptions_are_ignored() -> None:
    outcome = place(a_job(), "{default: {spot: prefer, timeout: 1h, errors: {retries: 4}}}")

    assert limit(outcome.value) == 10 + 4


def test_completions_that_follow_one_another_lengthen_the_deadline() -> None:
    policy = (
        "{default: {spot: prefer, timeout: 1h, interruptions: {max: 0}, errors: {retries: 0}, pending_timeout: 1s}}"
    )
    outcome = place(a_job("\n  completions: 12\n  parallelism: 5"), policy)

    assert at_path(outcome.value, "spec.activeDeadlineSeconds") == 3 * 3601


def test_without_a_timeout_interruptions_count_as_errors_with_a_warning() -> None:
    outcome = place(a_job(), "{default: {spot: prefer, interruptions: {max: 7}, errors: {retries: 2}}}")

    assert rules(outcome.value) is None
    assert limit(outcome.value) == 9
    assert outcome.reports("warning", "backoffLimit 9 counts interruptions (7) and errors (2) together", "no timeout")


def test_a_deadline_that_the_user_wrote_is_a_bound_and_stays() -> None:
    outcome = place(a_job("\n  activeDeadlineSeconds: 600"))

    assert rules(outcome.value) == [IGNORED, ERRORS_END]
    assert at_path(outcome.value, "spec.activeDeadlineSeconds") == 600


def test_a_deadline_shorter_than_the_policy_allows_is_named_with_its_line() -> None:
    outcome = place(a_job("\n  activeDeadlineSeconds: 600"), REQUIRE)

    assert outcome.reports("work.yaml:5: warning", "activeDeadlineSeconds 600 stays", "--replace-retries")


def test_replace_retries_replaces_the_deadline_and_the_limit() -> None:
    outcome = place(a_job("\n  activeDeadlineSeconds: 600\n  backoffLimit: 6"), REQUIRE, replace_retries=True)

    assert at_path(outcome.value, "spec.activeDeadlineSeconds") > 11 * 3600
    assert limit(outcome.value) == 10


def test_a_limit_that_the_user_wrote_stays_and_is_named() -> None:
    outcome = place(a_job("\n  backoffLimit: 6"))

    assert limit(outcome.value) == 6
    assert outcome.reports("backoffLimit 6 stays, the policy says 16")


def test_the_rule_on_interruptions_stands_before_those_on_exit_codes() -> None:
    outcome = place(a_job(ON_EXIT), REQUIRE)

    assert rules(outcome.value)[0] == IGNORED
    assert rules(outcome.value)[1]["onExitCodes"] == {"operator": "NotIn", "values": [0]}


def test_counted_interruptions_come_before_rules_on_exit_codes_as_well() -> None:
    outcome = place(a_job(ON_EXIT))

    assert rules(outcome.value)[0] == COUNTED


def test_a_rule_on_exit_codes_that_catches_sigterm_first_is_named() -> None:
    own = "\n    - action: Ignore\n      onPodConditions: [{type: DisruptionTarget, status: 'True'}]"
    outcome = place(a_job(ON_EXIT + own), REQUIRE)

    assert len(rules(outcome.value)) == 2
    assert outcome.reports("work.yaml:7: warning", "comes before the one on DisruptionTarget", "move this rule down")


def test_an_unbounded_rule_of_the_users_is_named() -> None:
    own = "\n  podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}"
    outcome = place(a_job(own))

    assert outcome.reports("interrupted pods are ignored without a bound", "timeout")


@pytest.mark.parametrize(("policy", "action"), [(REQUIRE, "Ignore"), (PREFER, "Count")])
def test_a_rule_that_fails_the_job_at_an_interruption_changes_only_with_replace_retries(
    policy: str, action: str
) -> None:
    own = "\n  podFailurePolicy: {rules: [{action: FailJob, onPodConditions: [{type: DisruptionTarget, status: 'True'}]}]}"
    left, changed = place(a_job(own), policy), place(a_job(own), policy, replace_retries=True)

    assert rules(left.value)[0]["action"] == "FailJob"
    assert left.reports("makes an interruption fail the Job")
    assert left.roles["train"].after_interruption.startswith("the Job fails")
    assert rules(changed.value)[0]["action"] == action


def test_restart_policy_never_is_written_where_there_is_none() -> None:
    outcome = place(a_job(pod=""), REQUIRE)

    assert at_path(outcome.value, "spec.template.spec.restartPolicy") == "Never"


def test_with_restart_policy_on_failure_no_pod_failure_policy_is_written() -> None:
    outcome = place(a_job(pod="\n      restartPolicy: OnFailure"), REQUIRE)

    assert rules(outcome.value) is None
    assert at_path(outcome.value, "spec.template.spec.restartPolicy") == "OnFailure"
    assert outcome.reports("a podFailurePolicy needs restartPolicy Never")
    assert "it counts, together with errors" in outcome.roles["train"].after_interruption


def test_replace_retries_makes_room_for_a_pod_failure_policy() -> None:
    text = a_job("\n  podReplacementPolicy: TerminatingOrFailed", pod="\n      restartPolicy: OnFailure")
    outcome = place(text, REQUIRE, replace_retries=True)

    assert rules(outcome.value) == [IGNORED, ERRORS_END]
    assert at_path(outcome.value, "spec.podReplacementPolicy") == "Failed"
    assert at_path(outcome.value, "spec.template.spec.restartPolicy") == "Never"


def test_a_replacement_policy_that_allows_no_pod_failure_policy_is_named() -> None:
    outcome = place(a_job("\n  podReplacementPolicy: TerminatingOrFailed"), REQUIRE)

    assert rules(outcome.value) is None
    assert outcome.reports("needs podReplacementPolicy Failed")


def test_kubernetes_before_1_26_gets_no_pod_failure_policy() -> None:
    outcome = place(a_job(), REQUIRE, target="{kubernetes: '1.25'}")

    assert rules(outcome.value) is None
    assert limit(outcome.value) == 10


def test_twenty_rules_leave_no_room_for_another() -> None:
    twenty = "".join(
        f"\n    - {{action: Count, onExitCodes: {{operator: In, values: [{code}]}}}}" for code in range(1, 21)
    )
    outcome = place(a_job(f"\n  podFailurePolicy:\n    rules:{twenty}"), REQUIRE)

    assert len(rules(outcome.value)) == 20
    assert outcome.reports("at most 20 rules")


def test_a_limit_for_each_index_is_the_one_that_counts() -> None:
    outcome = place(a_job("\n  completionMode: Indexed\n  completions: 4\n  backoffLimitPerIndex: 1"))

    assert limit(outcome.value) is None
    assert outcome.reports("backoffLimitPerIndex 1 stays, the policy says 11")


def test_a_placeholder_for_completions_leaves_no_bound_to_compute() -> None:
    outcome = place(a_job("\n  completions: ${trialParameters.n}"), REQUIRE)

    assert at_path(outcome.value, "spec.completions") == "${trialParameters.n}"
    assert limit(outcome.value) == 10
    assert outcome.reports("completions is a placeholder")


def test_work_that_stays_on_on_demand_gets_no_failure_policy() -> None:
    outcome = place(a_job(), "{default: {spot: never, timeout: 1h}}")

    assert set(outcome.value["spec"]) == {"template"}
    assert outcome.roles["train"].pools == ("regular",)


def test_without_a_policy_for_spot_a_job_stays_unchanged() -> None:
    assert place(a_job(), "{default: {errors: {retries: 1}}}").text == a_job()


def test_each_index_has_its_own_place_for_checkpoints() -> None:
    text = a_job("\n  completionMode: Indexed")
    outcome = place(text, "{default: {spot: prefer, checkpoint: 's3://bucket/ckpt/'}}")

    env = {item["name"]: item for item in at_path(outcome.value, "spec.template.spec.containers.0.env")}
    assert env["SPOTWRIGHT_CHECKPOINT"]["value"] == "s3://bucket/ckpt/$(SPOTWRIGHT_RUN)/train/$(SPOTWRIGHT_INDEX)"
    assert "job-completion-index" in str(env["SPOTWRIGHT_INDEX"])
    assert list(env).index("SPOTWRIGHT_RUN") < list(env).index("SPOTWRIGHT_CHECKPOINT")


def test_parallel_pods_without_an_index_share_their_checkpoints_with_a_warning() -> None:
    policy = "{default: {spot: prefer, checkpoint: 's3://bucket/ckpt/'}}"
    shared = place(a_job("\n  parallelism: 3"), policy)
    apart = place(a_job("\n  parallelism: 3\n  completions: 3\n  completionMode: Indexed"), policy)

    assert shared.reports("work.yaml:5: warning", "share one place for checkpoints", "Indexed")
    assert not apart.reports("share one place")


def test_a_claim_for_checkpoints_is_mounted_below_the_run() -> None:
    outcome = place(a_job(), "{default: {spot: prefer, checkpoint: 'pvc://ckpt/team'}}")

    pod = at_path(outcome.value, "spec.template.spec")
    [volume], [mount] = pod["volumes"], pod["containers"][0]["volumeMounts"]
    assert volume["persistentVolumeClaim"] == {"claimName": "ckpt"}
    assert (mount["name"], mount["subPathExpr"]) == (volume["name"], "team/$(SPOTWRIGHT_RUN)/train")
    assert {"name": "SPOTWRIGHT_CHECKPOINT", "value": mount["mountPath"]} in pod["containers"][0]["env"]


@pytest.mark.parametrize("null", ["", " null", " ~", "   # nothing yet"])
def test_a_null_in_the_place_of_a_mapping_is_filled_and_comes_back(null: str) -> None:
    text = (
        a_job()
        .replace("  template:\n", f"  template:\n    metadata:{null}\n")
        .replace("{name: train}", "{name: train, labels: }")
    )
    outcome = place(text)

    assert set(at_path(outcome.value, "spec.template.metadata")) == {"labels", "annotations"}


def test_a_null_in_flow_style_is_filled_and_comes_back() -> None:
    pod = "{restartPolicy: Never, tolerations: null, affinity: , containers: [{name: a, env: }]}"
    text = f"{{apiVersion: batch/v1, kind: Job, metadata: {{name: a, annotations: }}, spec: {{template: {{spec: {pod}}}}}}}\n"
    outcome = place(text)

    assert len(at_path(outcome.value, "spec.template.spec.tolerations")) == 1


def test_a_variable_that_the_user_set_stays() -> None:
    text = a_job().replace("        image: trainer:1\n", "        env: [{name: SPOTWRIGHT_RUN, value: mine}]\n")
    env = at_path(place(text).value, "spec.template.spec.containers.0.env")

    assert [item for item in env if item["name"] == "SPOTWRIGHT_RUN"] == [{"name": "SPOTWRIGHT_RUN", "value": "mine"}]


@pytest.mark.parametrize(
    "field", ["tolerations: []", "nodeSelector: {a: b}", "affinity: {}", "terminationGracePeriodSeconds: 5"]
)
def test_a_field_of_the_pod_in_the_job_spec_is_refused_with_its_line_and_the_right_path(field: str) -> None:
    name = field.partition(":")[0]
    message = refusal(a_job(f"\n  {field}"))

    assert message.startswith(f"work.yaml:5: spec.{name}: ")
    assert message.endswith(f"it belongs under spec.template.spec.{name}")


def test_a_job_without_a_template_is_refused_with_the_place_of_its_containers() -> None:
    text = "apiVersion: batch/v1\nkind: Job\nspec:\n  containers:\n  - {name: a, image: b}\n  nodeSelector: {a: b}\n"

    assert "work.yaml:4: spec.containers: " in refusal(text)
    assert refusal(text).endswith("under spec.template.spec.containers")


@pytest.mark.parametrize(
    ("more", "pod", "right"),
    [
        ("", "\n      restartPolicy: Never\n      backoffLimit: 2", "spec.backoffLimit"),
        ("", "\n      restartPolicy: Never\n      podFailurePolicy: {}", "spec.podFailurePolicy"),
    ],
)
def test_a_field_of_the_job_in_its_pod_is_refused(more: str, pod: str, right: str) -> None:
    assert refusal(a_job(more, pod)).endswith(f"it belongs under {right}")


def test_a_field_of_the_pod_in_its_template_or_in_a_container_is_refused() -> None:
    in_template = a_job().replace("  template:\n", "  template:\n    tolerations: []\n")
    in_container = a_job() + "        nodeSelector: {a: b}\n"

    assert "spec.template.tolerations" in refusal(in_template)
    assert refusal(in_container).endswith("spec.template.spec.nodeSelector")


def test_a_job_without_a_pod_template_is_refused() -> None:
    text = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {backoffLimit: 1}\n"

    assert "expected a pod template" in refusal(text)


A_POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: shell}\nspec:\n  containers:\n  - {name: a, image: b}\n"


def test_a_bare_pod_is_placed_with_a_warning_that_an_interruption_ends_it() -> None:
    outcome = place(A_POD)

    assert at_path(outcome.value, "spec.tolerations.0.value") == "spot"
    assert outcome.reports("not scheduled again", "use a Job")


def test_a_field_of_the_pod_beside_its_spec_is_refused() -> None:
    assert refusal(A_POD + "tolerations: []\n").endswith("it belongs under spec.tolerations")


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("apps/v1 Deployment", "an interruption is an outage"),
        ("apps/v1 StatefulSet", "often a datastore"),
        ("apps/v1 DaemonSet", "runs on every node"),
        ("kubeflow.org/v1 Notebook", "it is used interactively"),
        ("serving.kserve.io/v1beta1 InferenceService", "an interruption is an outage"),
    ],
)
def test_what_serves_or_stores_passes_through_with_the_reason(kind: str, why: str) -> None:
    api_version, name = kind.split()
    text = f"apiVersion: {api_version}\nkind: {name}\nmetadata: {{name: x}}\nspec: {{template: {{spec: {{containers: []}}}}}}\n"
    outcome = place(text)

    assert outcome.text == text
    assert outcome.reports(f"work.yaml:2: warning: {name} x stays unchanged", why)


def test_a_deployment_with_a_claim_is_taken_for_a_datastore() -> None:
    volumes = "volumes: [{name: data, persistentVolumeClaim: {claimName: minio}}]"
    text = f"apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: minio}}\nspec: {{template: {{spec: {{{volumes}}}}}}}\n"

    assert place(text).reports("often a datastore")
