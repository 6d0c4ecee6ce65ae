"""The steps of Tekton's tasks are the containers of their pods, each task with the pod template that it has."""

from __future__ import annotations

import pytest
from tests.linter.linting import found_in, linted

_SPOT = "{nodeSelector: {kubernetes.azure.com/scalesetpriority: spot}, tolerations: [{operator: Exists, key: a}]}"


def run(*tasks: str, specs: str = "") -> str:
    """A PipelineRun whose tasks have these steps."""
    lines = "".join(
        f"    - name: t{number}\n      taskSpec:\n        steps:\n        - {{name: main, image: i, {step}}}\n"
        for number, step in enumerate(tasks)
    )
    return (
        "apiVersion: tekton.dev/v1\nkind: PipelineRun\nmetadata: {name: r}\nspec:\n"
        f"  taskRunTemplate: {{podTemplate: {_SPOT}}}\n{specs}  pipelineSpec:\n    tasks:\n{lines}"
    )


def lines_of(text: str, rule: str) -> list[tuple[int, str]]:
    return [(one.line, one.text) for one in found_in(text) if one.rule == rule]


@pytest.mark.parametrize("step", ["script: 'train; echo done'", "command: [sh, -c, 'train; echo done']"])
def test_the_step_of_each_task_is_judged_at_its_line(step: str) -> None:
    found = lines_of(run("command: [train]", step), "exit-code-swallowed")
    assert [text for _, text in found] == [
        "PipelineRun r t1 does not end as its work does: it has the exit code of echo behind it"
    ]
    assert "echo done" in run("command: [train]", step).splitlines()[found[0][0] - 1]


def test_a_task_with_its_own_template_is_judged_by_it() -> None:
    own = "  taskRunSpecs:\n  - {pipelineTaskName: t1, podTemplate: {nodeSelector: {disk: ssd}}}\n"
    step = "command: [sh, -c, 'train; echo done']"
    assert len(lines_of(run(step, step), "exit-code-swallowed")) == 2
    assert [text.split()[2] for _, text in lines_of(run(step, step, specs=own), "exit-code-swallowed")] == ["t0"]


_QUOTA = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {requests.cpu: 4}}\n---\n"


def test_requests_are_those_of_one_task_and_not_of_all() -> None:
    small, large = (f"computeResources: {{requests: {{cpu: {cpu}}}}}" for cpu in (3, 5))
    assert lines_of(_QUOTA + run(small, small), "quota-refuses-pods") == []
    [(_, said)] = lines_of(_QUOTA + run(small, large), "quota-refuses-pods")
    assert said == "PipelineRun r t1: ResourceQuota q allows 4 cpu, and one pod has 5 cpu"


def test_what_the_run_asks_for_a_whole_task_counts_before_its_steps() -> None:
    specs = "  taskRunSpecs:\n  - {pipelineTaskName: t0, podTemplate: {}, computeResources: {requests: {cpu: 6}}}\n"
    text = _QUOTA + run("computeResources: {requests: {cpu: 1}}", specs=specs)
    [(_, said)] = lines_of(text, "quota-refuses-pods")
    assert said == "PipelineRun r t0: ResourceQuota q allows 4 cpu, and one pod has 6 cpu"


def test_a_step_has_what_the_step_template_gives() -> None:
    text = run("command: [train]").replace(
        "        steps:\n", "        stepTemplate: {command: [sh, -c, 'train; echo done']}\n        steps:\n"
    )
    assert lines_of(text, "exit-code-swallowed") == []  # its own command counts
    assert lines_of(text.replace(", command: [train]", ""), "exit-code-swallowed")


def test_a_template_without_tasks_in_the_file_is_still_judged() -> None:
    text = run("command: [train]")
    elsewhere = text[: text.index("  pipelineSpec:")] + "  pipelineRef: {name: p}\n"
    assert {one.rule for one in found_in(elsewhere)} >= {"affinity-without-toleration"}


@pytest.mark.parametrize("steps", ["7", "[7]", "{a: b}", "[{script: 7, resources: []}]"])
def test_steps_of_another_shape_stop_no_rule(steps: str) -> None:
    text = run("command: [train]")
    start = text.index("        steps:\n")
    assert linted(f"{text[:start]}        steps: {steps}\n").documents == 1
