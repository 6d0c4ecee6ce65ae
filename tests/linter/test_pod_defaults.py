"""A PodDefault places pods that other objects make, so lint looks at whom it lets onto spot nodes."""

from __future__ import annotations

import pytest
from tests.linter.linting import found_in

from spotwright.linter.rule import AKS_POOLS

SPOT = "{key: kubernetes.azure.com/scalesetpriority, operator: Exists}"
KEPT_OFF = (
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: "
    "[{key: kubernetes.azure.com/scalesetpriority, operator: NotIn, values: [spot]}]}]}}}, "
)


def a_pod_default(selector: str = "matchLabels: {spot: 'true'}", given: str = f"tolerations: [{SPOT}]") -> str:
    return (
        "apiVersion: kubeflow.org/v1alpha1\nkind: PodDefault\nmetadata: {name: on-spot}\n"
        f"spec:\n  selector: {{{selector}}}\n  {given}\n"
    )


def a_notebook(labels: str = "spot: 'true'", spec: str = "") -> str:
    return (
        f"---\napiVersion: kubeflow.org/v1\nkind: Notebook\nmetadata: {{name: desk, labels: {{{labels}}}}}\n"
        f"spec: {{template: {{spec: {{{spec}containers: [{{name: desk, image: jupyter}}]}}}}}}\n"
    )


def texts(text: str, configuration: str = AKS_POOLS) -> list[str]:
    return [one.text for one in found_in(text, configuration) if one.rule == "poddefault-on-spot"]


MATCHED = ["PodDefault on-spot lets Notebook desk onto spot nodes: its selector matches the labels"]
OFFERED = ["PodDefault on-spot lets every pod labelled spot=true onto spot nodes, and each new notebook is offered it"]


def test_a_pod_default_that_a_notebook_of_the_file_has_is_named_with_the_notebook() -> None:
    assert texts(a_pod_default() + a_notebook()) == MATCHED
    assert texts(f"{a_notebook()}---\n{a_pod_default()}", "") == MATCHED


@pytest.mark.parametrize(
    "selector",
    [
        "matchExpressions: [{key: spot, operator: Exists}]",
        "matchExpressions: [{key: spot, operator: In, values: ['true', on]}]",
        "matchExpressions: [{key: app, operator: DoesNotExist}]",
        "",
    ],
)
def test_every_form_of_a_selector_is_matched(selector: str) -> None:
    assert texts(a_pod_default(selector) + a_notebook()) == MATCHED


def test_a_pod_default_that_no_notebook_of_the_file_has_is_offered_to_others() -> None:
    assert texts(a_pod_default() + a_notebook("app: desk")) == OFFERED
    assert texts(a_pod_default()) == OFFERED


def test_a_notebook_that_keeps_itself_off_spot_is_not_reached() -> None:
    assert texts(a_pod_default() + a_notebook(spec=KEPT_OFF)) == OFFERED


@pytest.mark.parametrize(
    "given",
    [
        "tolerations: [{operator: Exists}]",
        "nodeSelector: {kubernetes.azure.com/scalesetpriority: spot}",
        "tolerations: [{key: cloud.google.com/gke-spot, operator: Equal, value: 'true', effect: NoSchedule}]",
    ],
)
def test_what_brings_pods_to_spot_is_found(given: str) -> None:
    assert texts(a_pod_default(given=given)) == OFFERED


@pytest.mark.parametrize(
    "text",
    [
        a_pod_default(given="env: [{name: A, value: b}]"),
        a_pod_default(given="tolerations: [{key: sku, value: gpu}]"),
        a_pod_default("matchLabels: {pipelines.kubeflow.org/v2_component: 'true'}"),
        a_pod_default("matchLabels: {workflows.argoproj.io/workflow: train}"),
        a_pod_default().replace("kubeflow.org/v1alpha1", "example.com/v1"),
        a_pod_default(given="tolerations: none"),
        a_pod_default().replace("selector: {matchLabels: {spot: 'true'}}", "selector: some"),
    ],
)
def test_a_pod_default_that_brings_no_notebook_to_spot_is_no_finding(text: str) -> None:
    assert texts(text) == []
