"""Argo: each template is placed with its inherited fields; templates that must not be interrupted stay on on-demand."""

from __future__ import annotations

import pytest
from tests.kinds.argo.workflows import FALL_BACK, LEAF, a_workflow, env_of, patch_of, place, template
from tests.placing.placed import at_path, refusal

SPOT = {"key": "kubernetes.azure.com/scalesetpriority", "operator": "Equal", "value": "spot", "effect": "NoSchedule"}
MINE = {"key": "team", "operator": "Exists"}
ON_DEMAND = {"key": "kubernetes.azure.com/agentpool", "operator": "In", "values": ["regular"]}
NEVER = "requiredDuringSchedulingIgnoredDuringExecution"
STEPS = "{name: main, steps: [[{name: go, template: train}]]}"


@pytest.mark.parametrize("kind", ["Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate"])
def test_a_template_tolerates_spot_and_prefers_it(kind: str) -> None:
    placed = template(place(a_workflow(kind=kind)))

    assert placed["tolerations"] == [SPOT]
    [preferred] = at_path(placed, "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution")
    assert preferred["preference"]["matchExpressions"][0]["values"] == ["spot"]


def test_a_cron_workflow_has_its_templates_one_level_down_and_a_warning_of_overlaps() -> None:
    text = a_workflow(kind="CronWorkflow").replace("spec:\n", "spec:\n  schedules: [daily]\n  workflowSpec:\n", 1)
    text = (
        text.replace("  entrypoint", "    entrypoint")
        .replace("  templates", "    templates")
        .replace("  - {", "    - {")
    )
    outcome = place(text)

    assert template(outcome)["tolerations"] == [SPOT]
    assert outcome.reports("overlap the next workflow of the schedule", "concurrencyPolicy")


def test_what_the_workflow_tolerates_is_written_again_because_the_template_hides_it() -> None:
    outcome = place(a_workflow(spec="  tolerations: [{key: team, operator: Exists}]\n"))

    assert template(outcome)["tolerations"] == [MINE, SPOT]
    assert at_path(outcome.value, "spec.tolerations") == [MINE]


def test_a_template_keeps_its_own_tolerations_and_not_those_it_hid_before() -> None:
    own = "{name: train, tolerations: [{key: own, operator: Exists}], container: {image: trainer}}"
    outcome = place(a_workflow(own, spec="  tolerations: [{key: team, operator: Exists}]\n"))

    assert template(outcome)["tolerations"] == [SPOT, {"key": "own", "operator": "Exists"}]


def test_terms_that_the_workflow_requires_are_joined_for_the_template() -> None:
    terms = "[{matchExpressions: [{key: disk, operator: In, values: [fast]}]}]"
    spec = f"  affinity: {{nodeAffinity: {{{NEVER}: {{nodeSelectorTerms: {terms}}}}}}}\n"
    refused = refusal(a_workflow(spec=spec))

    assert "its required node affinity does not match" in refused
    outcome = place(
        a_workflow(spec=spec.replace("disk, operator: In, values: [fast]", "disk, operator: DoesNotExist")),
        "{default: {spot: never}}",
    )
    [term] = at_path(template(outcome), f"affinity.nodeAffinity.{NEVER}.nodeSelectorTerms")
    assert [one["key"] for one in term["matchExpressions"]] == ["disk", ON_DEMAND["key"]]


def test_from_argo_3_6_on_a_template_inherits_from_the_one_that_calls_it() -> None:
    caller = STEPS.replace("{name: main,", "{name: main, tolerations: [{key: team, operator: Exists}],")

    assert template(place(a_workflow(caller, LEAF), argo="3.6"))["tolerations"] == [MINE, SPOT]
    assert template(place(a_workflow(caller, LEAF), argo="3.5"))["tolerations"] == [SPOT]


def test_callers_that_pass_down_different_affinities_are_refused_with_both_lines() -> None:
    affinity = "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}"
    one = STEPS.replace("{name: main,", f"{{name: one, {affinity},")
    two = STEPS.replace("{name: main,", "{name: two, affinity: {podAffinity: {}},")

    message = refusal(a_workflow(one, two, LEAF))
    assert "template train pass down different affinities (lines 7 and 8)" in message
    assert "give the template its own affinity" in message


def test_the_defaults_of_templates_are_part_of_each() -> None:
    spec = "  templateDefaults: {tolerations: [{key: team, operator: Exists}], nodeSelector: {disk: fast}}\n"

    assert "its node selector asks for disk=fast" in refusal(a_workflow(spec=spec))
    outcome = place(a_workflow(spec=spec.replace(", nodeSelector: {disk: fast}", "")))
    assert template(outcome)["tolerations"] == [MINE, SPOT]


@pytest.mark.parametrize(
    "kind", ["steps: [[]]", "dag: {tasks: []}", "suspend: {}", "http: {url: 'http://x'}", "plugin: {}"]
)
def test_templates_without_pods_are_left_as_they_are(kind: str) -> None:
    outcome = place(a_workflow(f"{{name: other, {kind}}}", LEAF))

    assert set(template(outcome, "other")) == {"name", kind.split(":", maxsplit=1)[0]}


@pytest.mark.parametrize(
    "kept",
    [
        "{name: other, daemon: true, container: {image: redis}}",
        "{name: other, resource: {action: delete, manifest: ''}}",
        "{name: other, data: {source: {}}}",
    ],
)
def test_daemons_and_argos_own_pods_stay_on_on_demand_without_retries(kept: str) -> None:
    outcome = place(a_workflow(kept, LEAF))

    placed = template(outcome, "other")
    [term] = at_path(placed, f"affinity.nodeAffinity.{NEVER}.nodeSelectorTerms")
    assert term["matchExpressions"] == [ON_DEMAND]
    assert "tolerations" not in placed
    assert "retryStrategy" not in placed
    assert "env" not in placed.get("container", {})
    assert outcome.roles["nightly/other"].pools == ("regular",)


@pytest.mark.parametrize(
    ("spec", "main"),
    [
        ("  onExit: clean\n", STEPS),
        ("  hooks: {exit: {template: clean}}\n", STEPS),
        ("", "{name: main, steps: [[{name: go, template: train, onExit: clean}]]}"),
        ("", "{name: main, dag: {tasks: [{name: go, template: train, hooks: {exit: {template: clean}}}]}}"),
    ],
)
def test_exit_handlers_stay_with_all_that_they_call(spec: str, main: str) -> None:
    clean = "{name: clean, steps: [[{name: rm, template: remove}]]}"
    remove = "{name: remove, container: {image: busybox}}"
    outcome = place(a_workflow(main, LEAF, clean, remove, spec=spec))

    assert outcome.roles["nightly/remove"].pools == ("regular",)
    assert outcome.roles["nightly/train"].pools == ("spot", "regular")


def test_the_user_may_send_a_daemon_to_spot_all_the_same() -> None:
    policy = '{default: {spot: prefer}, tasks: {"nightly/other": {spot: require}}}'
    outcome = place(a_workflow("{name: other, daemon: true, container: {image: redis}}"), policy)

    assert outcome.roles["nightly/other"].pools == ("spot",)


@pytest.mark.parametrize(
    "main",
    [
        "{name: main, steps: [[{name: go, inline: {container: {image: trainer}}}]]}",
        "{name: main, dag: {tasks: [{name: go, inline: {container: {image: trainer}}}]}}",
    ],
)
def test_inline_templates_are_placed_by_the_name_of_their_step(main: str) -> None:
    outcome = place(a_workflow(main))

    assert outcome.roles["nightly/main/go"].pools == ("spot", "regular")
    assert "scalesetpriority" in outcome.text


def test_retries_around_steps_are_reported_because_they_multiply_those_of_the_steps() -> None:
    """Seen on Argo 3.7.3: with limit 1 here and one retry of errors in the step, four pods ran."""
    main = "{name: main, retryStrategy: {limit: 1}, steps: [[{name: go, template: train}]]}"
    outcome = place(a_workflow(main, LEAF))

    assert outcome.reports("warning: main: your retryStrategy (limit: 1) starts its steps again", "for each time")
    assert not place(a_workflow(main.replace("retryStrategy: {limit: 1}, ", ""), LEAF)).reports(
        "starts its steps again"
    )


def test_a_step_on_on_demand_is_retried_as_often_as_its_limit_says() -> None:
    outcome = place(a_workflow(), "{default: {spot: never, errors: {retries: 1}}}")

    assert template(outcome)["retryStrategy"]["limit"] == "1"
    assert "at most 1 times" in outcome.roles["nightly/train"].after_interruption


@pytest.mark.parametrize(
    "asks",
    [
        "container: {image: trainer, resources: {limits: {nvidia.com/gpu: 1}}}",
        "script: {image: trainer, source: x, resources: {limits: {nvidia.com/gpu: 1}}}",
        "containerSet: {containers: [{name: a, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}",
        "container: {image: trainer}, sidecars: [{name: a, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]",
        'container: {image: x}, podSpecPatch: \'{"containers":[{"name":"main","resources":{"limits":{"nvidia.com/gpu":1}}}]}\'',
    ],
)
def test_gpu_work_goes_to_gpu_pools_however_it_asks(asks: str) -> None:
    assert place(a_workflow(f"{{name: train, {asks}}}")).roles["nightly/train"].pools == ("gpu-spot", "gpu")


def test_cpu_work_is_kept_off_gpu_pools() -> None:
    assert place(a_workflow()).roles["nightly/train"].refusals.keys() == {"gpu-spot", "gpu"}


def test_resources_of_the_defaults_count() -> None:
    spec = "  templateDefaults: {container: {resources: {limits: {nvidia.com/gpu: 1}}}}\n"

    assert place(a_workflow(spec=spec)).roles["nightly/train"].pools == ("gpu-spot", "gpu")


@pytest.mark.parametrize(
    ("code", "path"),
    [
        ("container: {image: trainer}", "container"),
        ("script: {image: trainer, source: x}", "script"),
        ("containerSet: {containers: [{name: a, image: x}]}", "containerSet.containers.0"),
    ],
)
def test_the_code_gets_its_environment_and_its_checkpoints(code: str, path: str) -> None:
    outcome = place(a_workflow(f"{{name: train, {code}}}"), "{default: {spot: prefer, checkpoint: 'pvc://ckpt'}}")

    variables = env_of(at_path(template(outcome), path))
    assert variables["SPOTWRIGHT_TASK"] == "nightly/train"
    assert variables["SPOTWRIGHT_RUN"] == "{{workflow.name}}"
    assert "node.name" in variables["SPOTWRIGHT_INDEX"]
    mount = at_path(template(outcome), f"{path}.volumeMounts.0")
    assert mount["subPath"] == f"{{{{workflow.name}}}}/nightly/train/{variables['SPOTWRIGHT_INDEX']}"
    assert "subPathExpr" not in mount, "Argo's own container mounts it too, without the variables"
    assert at_path(template(outcome), "volumes.0.persistentVolumeClaim.claimName") == "ckpt"


def test_a_variable_of_the_users_stays() -> None:
    own = "{name: train, container: {image: trainer, env: [{name: SPOTWRIGHT_TASK, value: mine}]}}"

    assert env_of(template(place(a_workflow(own)))["container"])["SPOTWRIGHT_TASK"] == "mine"


def test_pods_are_marked_at_the_template_and_secrets_named_at_the_workflow() -> None:
    outcome = place(a_workflow(), "{default: {spot: prefer, image_pull_secrets: [acr]}}")

    assert at_path(template(outcome), "metadata.labels") == {"spotwright.dev/spot": "prefer"}
    assert at_path(outcome.value, "spec.imagePullSecrets") == [{"name": "acr"}]


@pytest.mark.parametrize(
    ("spec", "own"),
    [
        ("  podMetadata: {labels: {kueue.x-k8s.io/queue-name: team}}\n", ""),
        ("", "metadata: {labels: {kueue.x-k8s.io/queue-name: team}}, "),
    ],
)
def test_pods_that_kueue_admits_get_no_affinity_by_attempt_or_otherwise(spec: str, own: str) -> None:
    placed = template(place(a_workflow(LEAF.replace("container:", f"{own}container:"), spec=spec)))

    assert "affinity" not in placed
    assert "affinity" not in patch_of(placed)
    assert placed["tolerations"] == [SPOT]


def test_a_template_without_a_policy_stays_unchanged() -> None:
    text = a_workflow()

    assert place(text, "{default: {errors: {retries: 1}}}").text == text


def test_the_object_that_a_resource_template_makes_is_placed_by_its_own_kind() -> None:
    outcome = place(
        """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: nightly}
spec:
  templates:
  - name: job
    resource:
      action: create
      manifest: |
        # a Job of ours
        apiVersion: batch/v1
        kind: Job
        metadata: {generateName: train-}
        spec:
          completions: {{inputs.parameters.count}}
          template:
            spec:
              containers:
              - {name: main, image: "trainer:{{workflow.name}}"}
"""
    )

    manifest = at_path(template(outcome, "job"), "resource.manifest")
    assert manifest.startswith("# a Job of ours\n")
    assert "completions: {{inputs.parameters.count}}\n" in manifest
    assert "value: spot" in manifest
    assert outcome.roles["train"].pools == ("spot", "regular")
    assert outcome.roles["nightly/job"].pools == ("regular",)


def test_a_manifest_that_is_only_read_or_deleted_stays_as_it_is() -> None:
    job = "apiVersion: batch/v1\\nkind: Job\\nmetadata: {name: x}\\nspec: {template: {spec: {containers: []}}}"
    outcome = place(a_workflow(f'{{name: job, resource: {{action: get, manifest: "{job}"}}}}'))

    assert "tolerations" not in at_path(template(outcome, "job"), "resource.manifest")


def test_markers_in_quotes_keep_their_bytes() -> None:
    own = "{name: train, container: {image: trainer, args: [\"{{inputs.parameters.x}}\", '{{=asInt(y) + 1}}']}}"

    assert "[\"{{inputs.parameters.x}}\", '{{=asInt(y) + 1}}']" in place(a_workflow(own)).text


def test_a_marker_without_quotes_gives_the_parsers_message() -> None:
    message = refusal(a_workflow("{name: train, container: {image: trainer, args: [{{x}}]}}"))

    assert message.startswith("work.yaml:7: ")
    assert "needs quotes" in message


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (a_workflow(spec="  terminationGracePeriodSeconds: 5\n"), "spec.podSpecPatch.terminationGracePeriodSeconds"),
        (
            a_workflow(LEAF.replace("container", "restartPolicy: Never, container")),
            "templates[0].podSpecPatch.restartPolicy",
        ),
        (a_workflow(LEAF.replace("image", "tolerations: [], image")), "spec.templates[0].tolerations"),
        (a_workflow(LEAF.replace("image", "nodeSelector: {}, image")), "spec.templates[0].nodeSelector"),
    ],
)
def test_fields_at_the_wrong_level_are_refused_with_the_right_path(text: str, right: str) -> None:
    message = refusal(text)

    assert message.startswith("work.yaml:")
    assert right in message


def test_missing_templates_of_other_objects_are_reported() -> None:
    main = "{name: main, steps: [[{name: go, templateRef: {name: shared, template: fit, clusterScope: true}}]]}"
    outcome = place(a_workflow(main, LEAF))

    assert outcome.reports("template fit is in ClusterWorkflowTemplate shared, which was not given")
    there = a_workflow(LEAF, kind="ClusterWorkflowTemplate", metadata="{name: shared}")
    assert not place(a_workflow(main, LEAF), beside=there).reports("which was not given")


def test_a_policy_names_a_template_by_its_path() -> None:
    policy = '{default: {spot: prefer}, tasks: {"nightly/deploy": {spot: never}}}'
    outcome = place(a_workflow(LEAF, "{name: deploy, container: {image: kubectl}}"), policy)

    assert outcome.roles["nightly/deploy"].pools == ("regular",)
    assert template(outcome, "deploy").get("retryStrategy") is None


def test_errors_are_retried_on_on_demand_as_well() -> None:
    outcome = place(a_workflow(), "{default: {spot: never, errors: {retries: 2}}}")

    assert template(outcome)["retryStrategy"]["limit"] == "2"
    assert "expression" not in template(outcome)["retryStrategy"]


def test_a_container_set_is_placed_with_a_warning() -> None:
    outcome = place(a_workflow("{name: train, containerSet: {containers: [{name: a, image: x}]}}"), FALL_BACK)

    assert outcome.reports("train: a containerSet can hang when its pod is deleted (argo-workflows#13951)", "timeout")


@pytest.mark.parametrize(
    ("policy", "more"),
    [("{default: {spot: prefer, timeout: 1h}}", ""), ("{default: {spot: prefer}}", "activeDeadlineSeconds: 60, ")],
)
def test_a_container_set_with_a_deadline_is_not_warned_of(policy: str, more: str) -> None:
    outcome = place(a_workflow(f"{{name: train, {more}containerSet: {{containers: [{{name: a, image: x}}]}}}}"), policy)

    assert not outcome.reports("can hang")
