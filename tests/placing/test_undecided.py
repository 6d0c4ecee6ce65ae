"""Nothing is required of nodes beside a condition that only the run decides: with some of its values no node would fit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.kinds.argo.workflows import a_workflow
from tests.placing.placed import PREFER, REQUIRE, Outcome, place

NEVER = "{default: {spot: never, timeout: 1h}}"
PATCHED = """\
name: main
    podSpecPatch: '{"nodeSelector": {"pool": "{{inputs.parameters.pool}}"}}'
    container: {image: i}
"""
SELECTED = """\
name: main
    nodeSelector: {pool: "{{workflow.parameters.pool}}"}
    container: {image: i}
"""


def a_job(spec: str) -> str:
    return (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec:\n  template:\n    spec:\n      restartPolicy: Never\n"
        f"      {spec}\n      containers: [{{name: a, image: b}}]\n"
    )


def node_affinity(outcome: Outcome) -> dict[str, Any]:
    value = outcome.value
    pods = value["spec"]["templates"] if value["kind"] == "Workflow" else [value["spec"]["template"]["spec"]]
    found = [pod.get("affinity", {}).get("nodeAffinity", {}) for pod in pods]
    return {name: value for one in found for name, value in one.items()}


@pytest.mark.parametrize("text", [a_workflow(PATCHED), a_workflow(SELECTED)])
@pytest.mark.parametrize("policy", [PREFER, REQUIRE, NEVER])
def test_beside_a_parameter_of_argo_all_is_a_wish_and_the_user_is_told(text: str, policy: str) -> None:
    outcome = place(text, policy)
    assert list(node_affinity(outcome)) == ["preferredDuringSchedulingIgnoredDuringExecution"]
    assert outcome.reports("warning", "its condition on pool is decided when it runs", "no attempt is moved")
    assert "spotwright.dev/any-node" not in outcome.text  # the condition that moves later attempts


@pytest.mark.parametrize(
    "value",
    ['"{{ .Values.pool }}"', '"${POOL}"', "$POOL", '"<pool>"', '"@POOL@"', "__POOL__", '"%POOL%"', '"[[pool]]"'],
)
def test_beside_a_placeholder_of_a_template_all_is_a_wish(value: str) -> None:
    outcome = place(a_job(f"nodeSelector: {{pool: {value}}}"), REQUIRE)
    assert list(node_affinity(outcome)) == ["preferredDuringSchedulingIgnoredDuringExecution"]


@pytest.mark.parametrize(
    "spec",
    [
        "nodeSelector: {kubernetes.io/hostname: aks-spot-000001}",
        (
            "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
            "[{matchFields: [{key: metadata.name, operator: In, values: [aks-spot-000001]}]}]}}}"
        ),
    ],
)
def test_beside_the_name_of_a_node_nothing_more_is_required(spec: str) -> None:
    outcome = place(a_job(spec), REQUIRE)
    assert "scalesetpriority" not in json.dumps(
        node_affinity(outcome).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    )
    assert outcome.reports("warning", "names nodes, which pools do not state")


def test_beside_a_label_of_unknown_value_the_policy_is_still_required() -> None:
    outcome = place(a_job("nodeSelector: {kubernetes.azure.com/mode: user}"), REQUIRE)
    assert list(node_affinity(outcome)) == ["requiredDuringSchedulingIgnoredDuringExecution"]
    assert outcome.reports("note", "AKS sets kubernetes.azure.com/mode on nodes", "every pool counts as fitting")
