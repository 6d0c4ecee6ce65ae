"""Placeholders and labels that no pool states cannot be checked before the work runs, and are no reason to refuse."""

from __future__ import annotations

import pytest
from tests.kinds.argo.workflows import a_workflow
from tests.placing.placed import FILE, REQUIRE, at_path, place, refusal

from spotwright import config
from spotwright.manifests.files import place_text
from spotwright.placing.documents import ManifestError

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
    assert at_path(placed.value, "spec.templates.0.tolerations.0.value") == "spot"
    assert placed.reports("work.yaml:9", "kubernetes.io/arch In {{inputs.parameters.arch}}", "known only at run time")


def test_another_label_of_that_selector_still_counts() -> None:
    text = a_workflow(SELECTED.replace("nodeSelector:\n", "nodeSelector:\n      disk: ssd\n"))
    assert "its node selector asks for disk=ssd" in refusal(text)


def test_a_required_term_with_a_placeholder_is_taken_to_fit() -> None:
    placed = place(a_workflow(TERM), REQUIRE)
    assert placed.reports("zone In {{inputs.parameters.zone}}", "known only at run time")


def test_a_placeholder_stands_for_all_limits_of_a_container() -> None:
    text = place(a_workflow(RESOURCES), REQUIRE).text
    assert '"limits": {{inputs.parameters.resources}}' in text


def a_pod(selector: str) -> str:
    return (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n"
        f"  nodeSelector: {{{selector}}}\n  containers: [{{name: a, image: b}}]\n"
    )


@pytest.mark.parametrize(
    "selector",
    ["kubernetes.io/arch: amd64", "topology.kubernetes.io/zone: eu-1a", "node.kubernetes.io/instance-type: m5.large"],
)
def test_a_well_known_label_that_no_pool_states_counts_as_met_with_a_note(selector: str) -> None:
    key = selector.partition(": ")[0]
    placed = place(a_pod(selector), REQUIRE)
    assert placed.value["spec"]["tolerations"]
    assert placed.reports(
        "work.yaml:5", "note", f"Kubernetes sets {key} on nodes", "labels: of the pool in spotwright.yaml"
    )


def test_nodes_run_linux_unless_their_pool_says_otherwise() -> None:
    assert place(a_pod("kubernetes.io/os: linux"), REQUIRE).value["spec"]["tolerations"]
    assert "its node selector asks for kubernetes.io/os=windows" in refusal(a_pod("kubernetes.io/os: windows"), REQUIRE)


def test_where_a_pool_says_the_label_all_are_compared() -> None:
    settings = config.parse(
        "version: 1\npools:\n  arm: {capacity: spot, provider: aks, labels: {kubernetes.io/arch: arm64}}\n"
        "policy: {default: {spot: require, timeout: 1h}}\n"
    )
    with pytest.raises(ManifestError, match=r"asks for kubernetes\.io/arch=amd64"):
        place_text(a_pod("kubernetes.io/arch: amd64"), FILE, settings)
    assert place_text(a_pod("kubernetes.io/arch: arm64"), FILE, settings).roles[0].pools == ("arm",)


def test_a_pod_that_names_its_node_is_warned() -> None:
    text = a_pod("kubernetes.io/os: linux").replace("spec:\n", "spec:\n  nodeName: foo-node\n")
    assert place(text, REQUIRE).reports("work.yaml:5", "warning", "bypasses the scheduler")


def test_a_refusal_by_label_names_the_setting_for_labels() -> None:
    assert refusal(a_pod("disk: ssd"), REQUIRE).endswith("add it under the pool's labels: in spotwright.yaml")


def test_what_changes_the_runtime_is_refused_inside_the_trainer() -> None:
    text = (
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: a}\nspec:\n"
        "  runtimeRef: {name: torch}\n  trainer:\n    runtimePatches: []\n"
    )
    assert refusal(text).startswith("work.yaml:7: spec.trainer.runtimePatches: ")
    assert "it belongs under spec.runtimePatches" in refusal(text)
