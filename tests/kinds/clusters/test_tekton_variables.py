"""Variables of attempts on Tekton: in the template of all tasks, merged by name as Tekton does, over those of the steps."""

from __future__ import annotations

from typing import Any

import pytest
from tests.placing.placed import at_path, place

URL = "{default: {spot: prefer, checkpoint: 's3://b/c'}}"
STEP = "taskSpec: {steps: [{name: fit, image: i}]}"
RUN = "$(SPOTWRIGHT_RUN)/$(SPOTWRIGHT_TASK)/$(SPOTWRIGHT_INDEX)"


def a_run(*tasks: str, spec: str = "") -> str:
    given = "".join(f"\n    - {{name: t{index}, {task}}}" for index, task in enumerate(tasks))
    return (
        f"apiVersion: tekton.dev/v1\nkind: PipelineRun\nmetadata: {{name: r}}\nspec:{spec}\n"
        f"  pipelineSpec:\n    tasks:{given}\n"
    )


def env(template: Any) -> dict[str, Any]:
    """The variables of a pod template by name."""
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in template.get("env", ())}


def of_all(value: Any) -> dict[str, Any]:
    return env(at_path(value, "spec.taskRunTemplate.podTemplate"))


def in_container(run: Any, name: str, step: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """The variables of a step in their order, as Tekton merges them: the task's, those of all tasks, over the step's own."""
    shared = at_path(run, "spec.taskRunTemplate.podTemplate").get("env", [])
    own = [
        one
        for entry in run["spec"].get("taskRunSpecs", ())
        if entry["pipelineTaskName"] == name
        for one in entry.get("podTemplate", {}).get("env", ())
    ]
    names = {one["name"] for one in own}
    merged = [*own, *(one for one in shared if one["name"] not in names)]
    found: dict[str, Any] = {}
    for one in (*(step or ()), *merged):
        found.pop(one["name"], None)
        found[one["name"]] = one.get("value", one.get("valueFrom"))
    return found


def label(name: str) -> dict[str, Any]:
    return {"fieldRef": {"fieldPath": f"metadata.labels['tekton.dev/{name}']"}}


def test_run_task_and_taskrun_are_labels_of_the_pod_so_one_list_does_for_all_tasks() -> None:
    value = place(a_run(STEP, STEP), URL).value

    seen = of_all(value)
    assert seen["SPOTWRIGHT_RUN"] == label("pipelineRun")
    assert seen["SPOTWRIGHT_TASK"] == label("pipelineTask")
    assert seen["SPOTWRIGHT_INDEX"] == label("taskRun")
    assert seen["SPOTWRIGHT_CHECKPOINT"] == f"s3://b/c/{RUN}"
    assert "taskRunSpecs" not in value["spec"]


def test_a_variable_refers_to_earlier_ones_only_also_where_a_task_has_a_checkpoint_of_its_own() -> None:
    policy = "{default: {spot: prefer, checkpoint: 's3://b/c'}, tasks: {r/t1: {checkpoint: 's3://other'}}}"
    value = place(a_run(STEP, STEP), policy).value

    seen = in_container(value, "t1")
    assert seen["SPOTWRIGHT_CHECKPOINT"] == f"s3://other/{RUN}"
    order = list(seen)
    assert max(order.index(f"SPOTWRIGHT_{name}") for name in ("RUN", "TASK", "INDEX")) < order.index(
        "SPOTWRIGHT_CHECKPOINT"
    )
    assert in_container(value, "t0")["SPOTWRIGHT_CHECKPOINT"] == f"s3://b/c/{RUN}"


@pytest.mark.parametrize(
    "where", ["steps: [{name: fit, image: i, ENV}]", "stepTemplate: {ENV}, steps: [{name: fit, image: i}]"]
)
def test_what_a_step_sets_itself_is_not_hidden_and_other_tasks_have_it_from_us(where: str) -> None:
    own = "taskSpec: {" + where.replace("ENV", "env: [{name: SPOTWRIGHT_CHECKPOINT, value: /mine}]") + "}"
    value = place(a_run(own, STEP), URL).value

    step = [{"name": "SPOTWRIGHT_CHECKPOINT", "value": "/mine"}]
    assert in_container(value, "t0", step)["SPOTWRIGHT_CHECKPOINT"] == "/mine"
    assert in_container(value, "t1")["SPOTWRIGHT_CHECKPOINT"] == f"s3://b/c/{RUN}"


def test_variables_of_the_user_stay() -> None:
    spec = (
        "\n  taskRunTemplate: {podTemplate: {env: [{name: SPOTWRIGHT_RUN, value: theirs}, {name: A, value: b}]}}"
        "\n  taskRunSpecs:\n  - {pipelineTaskName: t1, podTemplate: {env: [{name: SPOTWRIGHT_TASK, value: own}]}}"
    )
    value = place(a_run(STEP, STEP, spec=spec), URL).value

    assert of_all(value)["SPOTWRIGHT_RUN"] == "theirs"
    seen = in_container(value, "t1")
    assert (seen["A"], seen["SPOTWRIGHT_TASK"]) == ("b", "own")
    assert seen["SPOTWRIGHT_CHECKPOINT"] == f"s3://b/c/{RUN}"


def test_a_task_with_variables_of_its_own_has_ours_beside_them_for_releases_that_do_not_merge() -> None:
    spec = "\n  taskRunSpecs:\n  - {pipelineTaskName: t0, podTemplate: {env: [{name: A, value: b}]}}"
    [entry] = at_path(place(a_run(STEP, spec=spec), URL).value, "spec.taskRunSpecs")

    assert {"A", "SPOTWRIGHT_RUN", "SPOTWRIGHT_CHECKPOINT"} <= env(entry["podTemplate"]).keys()


def test_a_volume_cannot_be_passed_on_and_a_message_says_so() -> None:
    outcome = place(a_run(STEP), "{default: {spot: prefer, checkpoint: 'pvc://ckpt'}}")

    assert "SPOTWRIGHT_RUN" in of_all(outcome.value)
    assert "SPOTWRIGHT_CHECKPOINT" not in of_all(outcome.value)
    assert outcome.reports("checkpoint", "no effect here")


def test_a_url_is_passed_on_so_that_no_message_says_otherwise() -> None:
    assert not place(a_run(STEP), URL).reports("no effect here")


def test_a_task_run_is_known_by_its_name() -> None:
    text = f"apiVersion: tekton.dev/v1\nkind: TaskRun\nmetadata: {{name: t}}\nspec:\n  {STEP}\n"
    seen = env(place(text, URL).value["spec"]["podTemplate"])

    assert seen["SPOTWRIGHT_RUN"] == label("taskRun")
    assert seen["SPOTWRIGHT_CHECKPOINT"] == "s3://b/c/$(SPOTWRIGHT_RUN)/t"


def test_a_run_whose_tasks_are_not_known_has_them_too() -> None:
    text = (
        "apiVersion: tekton.dev/v1\nkind: PipelineRun\nmetadata: {name: r}\nspec:\n  pipelineRef: {name: elsewhere}\n"
    )

    assert of_all(place(text, URL).value)["SPOTWRIGHT_CHECKPOINT"] == f"s3://b/c/{RUN}"
