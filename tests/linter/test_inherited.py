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


STEP = "container: {image: python}, retryStrategy: {limit: 1, retryPolicy: Always}, metadata: {annotations: {a: b}}"
SPOT = "kubernetes.azure.com/scalesetpriority"


def a_workflow(template: str = "", workflow: str = "", caller: str = "", inline: str = "") -> str:
    call = f"inline: {{{STEP}, {inline}}}" if inline else "template: train"
    return (
        "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec:\n  entrypoint: main\n"
        f"{workflow}  templates:\n  - {{name: main, {caller}steps: [[{{name: s, {call}}}]]}}\n"
        f"  - {{name: train, {template}{STEP}}}\n"
    )


def off_spot(text: str) -> list[tuple[str, int]]:
    return [one for one in rules(text) if one[0] == "affinity-without-toleration"]


def test_a_step_takes_the_selector_of_the_template_that_calls_it() -> None:
    assert off_spot(a_workflow(caller=f"nodeSelector: {{{SPOT}: spot}}, ")) == [("affinity-without-toleration", 7)]


def test_a_template_is_merged_with_the_defaults_of_templates() -> None:
    defaults = f"  templateDefaults: {{tolerations: [{{key: {SPOT}, operator: Exists}}]}}\n"
    template = f"tolerations: [{{key: team, operator: Exists}}], nodeSelector: {{{SPOT}: spot}}, "

    assert off_spot(a_workflow(template, defaults)) == []
    assert off_spot(a_workflow(template)) == [("affinity-without-toleration", 8)]


def test_an_inline_step_is_linted() -> None:
    assert off_spot(a_workflow(inline=f"nodeSelector: {{{SPOT}: spot}}")) == [("affinity-without-toleration", 7)]


@pytest.mark.parametrize(("version", "found"), [("2.4.8", 1), ("3.5.0", 0)])
def test_the_template_of_a_role_of_spark_hides_the_fields_beside_it(version: str, found: int) -> None:
    text = (
        "apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nmetadata: {name: etl}\nspec:\n"
        f"  sparkVersion: {version}\n  driver: {{cores: 1}}\n"
        f"  executor: {{cores: 1, nodeSelector: {{{SPOT}: spot}}, template: {{spec: {{containers: [{{name: e}}]}}}}}}\n"
    )
    assert len(off_spot(text)) == found
