"""What is filled in only when the work runs: a placeholder in a selector, a term or a quantity is no reason to refuse."""

from __future__ import annotations

from tests.manifests.placing import REQUIRE, found, place, refusal
from tests.manifests.workflows import a_workflow

SELECTED = """\
name: main
    nodeSelector:
      kubernetes.io/arch: "{{inputs.parameters.arch}}"
    container: {image: i}
"""
TERM = """\
name: main
    affinity:
      nodeAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions:
            - {key: zone, operator: In, values: ["{{inputs.parameters.zone}}"]}
    container: {image: i}
"""
RESOURCES = """\
name: main
    podSpecPatch: '{"containers":[{"name":"main", "resources":{"limits": {{inputs.parameters.resources}} }}]}'
    container: {image: i}
"""


def test_a_node_selector_with_a_placeholder_is_taken_to_fit() -> None:
    placed = place(a_workflow(SELECTED), REQUIRE)
    assert found(placed.value, "spec.templates.0.tolerations.0.value") == "spot"
    assert placed.says("work.yaml:9", "arch={{inputs.parameters.arch}}", "known only when this runs")


def test_another_label_of_that_selector_still_counts() -> None:
    text = a_workflow(SELECTED.replace("nodeSelector:\n", "nodeSelector:\n      disk: ssd\n"))
    assert "its node selector asks for disk=ssd" in refusal(text)


def test_a_required_term_with_a_placeholder_is_taken_to_fit() -> None:
    placed = place(a_workflow(TERM), REQUIRE)
    assert placed.says("zone In {{inputs.parameters.zone}}", "known only when this runs")


def test_a_placeholder_stands_for_all_limits_of_a_container() -> None:
    text = place(a_workflow(RESOURCES), REQUIRE).text
    assert '"limits": {{inputs.parameters.resources}}' in text
