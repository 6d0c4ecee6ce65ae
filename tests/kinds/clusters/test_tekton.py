"""Tekton's runs: pod templates for all tasks and for one, retries of each task, and what the affinity assistant does."""

from __future__ import annotations

from typing import Any

import pytest
from tests.placing.placed import PREFER, REQUIRE, at_path, place, refusal

SPOT = "kubernetes.azure.com/scalesetpriority"
STEPS = "taskSpec: {steps: [{name: fit, image: i%s}]}"
GPU = ", computeResources: {limits: {nvidia.com/gpu: 1}}"


def a_run(*tasks: str, spec: str = "", version: str = "v1") -> str:
    given = "".join(f"\n    - {{name: t{index}, {task}}}" for index, task in enumerate(tasks))
    pipeline = f"\n  pipelineSpec:\n    tasks:{given}" if tasks else ""
    return f"apiVersion: tekton.dev/{version}\nkind: PipelineRun\nmetadata: {{name: r}}\nspec:{spec}{pipeline}\n"


def of_all(value: Any) -> Any:
    return at_path(value, "spec.taskRunTemplate.podTemplate")


def test_all_tasks_share_one_template_and_each_has_its_retries() -> None:
    outcome = place(a_run(STEPS % "", STEPS % ""))

    assert of_all(outcome.value)["tolerations"][0]["key"] == SPOT
    assert "taskRunSpecs" not in outcome.value["spec"]
    assert [task["retries"] for task in at_path(outcome.value, "spec.pipelineSpec.tasks")] == [10, 10]
    assert list(outcome.roles) == ["r/t0", "r/t1"]


def test_a_task_with_gpus_gets_tolerations_of_its_own_which_replace_those_of_all_tasks() -> None:
    [entry] = at_path(place(a_run(STEPS % "", STEPS % GPU)).value, "spec.taskRunSpecs")

    assert entry["pipelineTaskName"] == "t1"
    assert {one["key"] for one in entry["podTemplate"]["tolerations"]} == {"sku", SPOT}


def test_a_task_whose_own_template_replaces_the_tolerations_gets_ours_there() -> None:
    own = "\n  taskRunSpecs:\n  - pipelineTaskName: t0\n    podTemplate: {tolerations: [{key: team, operator: Exists}]}"
    [entry] = at_path(place(a_run(STEPS % "", spec=own)).value, "spec.taskRunSpecs")

    assert {one["key"] for one in entry["podTemplate"]["tolerations"]} == {"team", SPOT}


def test_a_task_with_another_policy_is_placed_by_it() -> None:
    outcome = place(
        a_run(STEPS % "", STEPS % ""), "{default: {spot: require, timeout: 1h}, tasks: {r/t1: {spot: never}}}"
    )
    [entry] = at_path(outcome.value, "spec.taskRunSpecs")

    assert entry["pipelineTaskName"] == "t1"
    assert outcome.roles["r/t1"].pools == ("regular",)
    assert "retries" not in at_path(outcome.value, "spec.pipelineSpec.tasks.1")


def test_what_runs_at_the_end_stays_on_on_demand() -> None:
    text = a_run(STEPS % "") + f"    finally:\n    - {{name: clean, {STEPS % ''}}}\n"
    role = place(text).roles["r/clean"]

    assert role.pools == ("regular",)
    assert role.on_demand_reason == "it runs after all other tasks, also when they have failed"


def test_retries_of_the_user_stay_and_what_they_count_is_said() -> None:
    outcome = place(a_run(f"retries: 1, {STEPS % ''}"))

    assert at_path(outcome.value, "spec.pipelineSpec.tasks.0.retries") == 1
    assert outcome.reports("warning", "t0: retries 1 stays; the policy allows 10 (--replace-retries)")
    assert "counted, with errors, against retries 1" in outcome.roles["r/t0"].after_interruption


def test_a_run_of_v1beta1_has_its_templates_elsewhere() -> None:
    own = "\n  taskRunSpecs:\n  - pipelineTaskName: t0\n    taskPodTemplate: {tolerations: [{key: team, operator: Exists}]}"
    value = place(a_run(STEPS % "", spec=own, version="v1beta1")).value

    assert at_path(value, "spec.podTemplate.tolerations.0.key") == SPOT
    assert len(at_path(value, "spec.taskRunSpecs.0.taskPodTemplate.tolerations")) == 2


@pytest.mark.parametrize(
    ("spec", "place_of_it"),
    [
        ("\n  podTemplate: {}", "spec.taskRunTemplate.podTemplate"),
        ("\n  tolerations: []", "spec.taskRunTemplate.podTemplate.tolerations"),
        ("\n  taskRunTemplate: {nodeSelector: {}}", "spec.taskRunTemplate.podTemplate.nodeSelector"),
    ],
)
def test_a_field_that_tekton_would_drop_is_refused_with_its_place(spec: str, place_of_it: str) -> None:
    assert place_of_it in refusal(a_run(STEPS % "", spec=spec))


@pytest.mark.parametrize("kind", ["PipelineRun", "TaskRun", "Pipeline"])
def test_an_object_without_a_spec_is_refused(kind: str) -> None:
    text = f"apiVersion: tekton.dev/v1\nkind: {kind}\nmetadata: {{name: a}}\nspec:\n"

    assert refusal(text).endswith(f"expected the spec of a {kind}")


PIPELINE = (
    "apiVersion: tekton.dev/v1\nkind: Pipeline\nmetadata: {name: p}\nspec:\n  tasks:\n"
    f"  - {{name: t0, {STEPS % GPU}}}\n  - {{name: t1, taskRef: {{name: unknown}}}}\n"
)
NAMED = a_run(spec="\n  pipelineRef: {name: p}")


def test_a_run_reads_the_tasks_of_its_pipeline_and_the_pipeline_has_the_retries() -> None:
    outcome = place(f"{PIPELINE}---\n{NAMED}")
    pipeline, run = outcome.documents

    assert [task["retries"] for task in pipeline["spec"]["tasks"]] == [10, 10]
    assert {one["key"] for one in run["spec"]["taskRunSpecs"][0]["podTemplate"]["tolerations"]} == {"sku", SPOT}
    assert outcome.roles["r/t0"].after_interruption.endswith("as often as the retries of its Pipeline allow")


def test_a_pipeline_that_is_only_read_keeps_its_retries_and_a_message_says_so() -> None:
    outcome = place(NAMED, beside=PIPELINE)

    assert outcome.reports("the retries of its tasks are in Pipeline p (beside.yaml), which is only read")


def test_a_run_whose_pipeline_is_not_given_is_placed_and_says_that_nothing_retries() -> None:
    outcome = place(NAMED)

    assert of_all(outcome.value)["tolerations"][0]["key"] == SPOT
    assert outcome.reports("warning", "its pipeline was not given, so no retries are written")


def test_tasks_whose_steps_are_not_known_are_not_kept_off_gpu_nodes() -> None:
    assert "requiredDuringScheduling" not in str(of_all(place(NAMED, PREFER).value))


@pytest.mark.parametrize(("policy", "warns"), [(REQUIRE, True), (PREFER, False)])
def test_a_required_affinity_beside_a_shared_volume_may_wait_for_ever(policy: str, warns: bool) -> None:
    shared = "\n  workspaces:\n  - {name: data, persistentVolumeClaim: {claimName: data}}"

    assert place(a_run(STEPS % "", spec=shared), policy).reports("affinity assistant") is warns


def test_a_task_run_has_its_template_and_its_retries_in_its_spec() -> None:
    text = f"apiVersion: tekton.dev/v1\nkind: TaskRun\nmetadata: {{name: t}}\nspec:\n  {STEPS % GPU}\n"
    outcome = place(text, "{default: {spot: require, interruptions: {max: 3}}}")

    assert outcome.value["spec"]["retries"] == 3
    assert outcome.roles["t"].pools == ("gpu-spot",)


def test_on_on_demand_the_budget_of_errors_is_written() -> None:
    value = place(a_run(STEPS % ""), "{default: {spot: never, errors: {retries: 2}}}").value

    assert at_path(value, "spec.pipelineSpec.tasks.0.retries") == 2
