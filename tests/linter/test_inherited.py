"""Tasks of Tekton are linted with what they take from the template of all tasks, roles of Spark with their selectors."""

from __future__ import annotations

import pytest
from tests.linter.linting import found_in

TOLERATION = '{key: cloud.google.com/gke-spot, operator: Equal, value: "true", effect: NoSchedule}'
PREFERENCE = (
    "{nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: "
    '[{key: cloud.google.com/gke-spot, operator: In, values: ["true"]}]}}]}}'
)


def a_run(shared: str, of_task: str, version: str = "v1") -> str:
    is_old = version == "v1beta1"
    template = f"podTemplate: {shared}" if is_old else f"taskRunTemplate: {{podTemplate: {shared}}}"
    return (
        f"apiVersion: tekton.dev/{version}\nkind: PipelineRun\nmetadata: {{name: r}}\nspec:\n  pipelineRef: {{name: p}}\n"
        f"  {template}\n"
        f"  taskRunSpecs:\n  - {{pipelineTaskName: train, {'taskPodTemplate' if is_old else 'podTemplate'}: {of_task}}}\n"
    )


def rules(text: str) -> list[tuple[str, int]]:
    return [(one.rule, one.line) for one in found_in(text)]


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_toleration_beside_the_affinity_of_all_tasks_is_no_finding(version: str) -> None:
    shared = f"{{tolerations: [{TOLERATION}], affinity: {PREFERENCE}}}"

    assert rules(a_run(shared, f"{{tolerations: [{TOLERATION}]}}", version)) == []


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_toleration_of_a_task_without_any_affinity_is_a_finding(version: str) -> None:
    assert rules(a_run("{nodeSelector: {disk: ssd}}", f"{{tolerations: [{TOLERATION}]}}", version)) == [
        ("toleration-without-affinity", 8)
    ]


def test_a_task_that_takes_only_the_tolerations_and_stays_off_spot_is_no_finding() -> None:
    shared = f"{{tolerations: [{TOLERATION}], affinity: {PREFERENCE}}}"

    assert rules(a_run(shared, "{affinity: {}}")) == []


def test_an_affinity_that_a_task_takes_needs_the_toleration_that_it_replaces() -> None:
    preference = PREFERENCE.replace("cloud.google.com/gke-spot", "kubernetes.azure.com/scalesetpriority").replace(
        "true", "spot"
    )
    toleration = "{key: kubernetes.azure.com/scalesetpriority, value: spot, effect: NoSchedule}"
    shared = f"{{tolerations: [{toleration}], affinity: {preference}}}"

    assert rules(a_run(shared, "{tolerations: [{key: team, operator: Exists}]}")) == [
        ("affinity-without-toleration", 6)
    ]


def test_a_node_selector_in_the_conf_of_spark_is_that_of_its_pods() -> None:
    key = "spark.kubernetes.executor.node.selector.kubernetes.azure.com/scalesetpriority"
    text = (
        "apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nmetadata: {name: etl}\nspec:\n"
        "  restartPolicy: {type: OnFailure}\n  driver: {cores: 1}\n  executor: {cores: 1}\n"
        f"  sparkConf:\n    {key}: spot\n"
    )

    found = {one.rule: one for one in found_in(text) if one.rule == "affinity-without-toleration"}
    assert found["affinity-without-toleration"].text.startswith("SparkApplication etl executor asks for spot nodes")
    assert found["affinity-without-toleration"].line == 8
