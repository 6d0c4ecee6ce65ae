"""What ``place`` writes has no finding, except what no manifest can mend: an autoscaler that does not read a preference."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.linter.linting import found_in
from tests.placing.placed import a_config

from spotwright import config as configuration
from spotwright.manifests.files import place_text
from spotwright.placing.retries import PREFERENCE_IGNORED

GOLDEN = Path(__file__).parents[1] / "kinds" / "golden"
CASES = sorted(path.name for path in GOLDEN.iterdir())


@pytest.mark.parametrize("case", CASES)
def test_what_place_writes_has_no_finding(case: str) -> None:
    assert found_in((GOLDEN / case / "out.yaml").read_text()) == []


@pytest.mark.parametrize("case", CASES)
def test_beside_the_pools_it_has_no_other_finding_than_that_the_autoscaler_does_not_read_a_preference(
    case: str,
) -> None:
    """It is a warning of ``place`` too, and the next reader of the file has not seen that."""
    found = found_in((GOLDEN / case / "out.yaml").read_text(), a_config("{default: {spot: prefer}}").text)
    assert {finding.rule for finding in found} <= {"preference-ignored"}


def test_that_the_autoscaler_does_not_read_a_preference_is_said_of_placed_files_too() -> None:
    found = found_in((GOLDEN / "job" / "out.yaml").read_text(), a_config("{default: {spot: prefer}}").text)
    assert [finding.rule for finding in found] == ["preference-ignored"]


def test_placing_takes_findings_away() -> None:
    placed = (GOLDEN / "tfjob" / "out.yaml").read_text()
    without = placed.replace("restartPolicy: ExitCode", "restartPolicy: Never")

    assert {finding.rule for finding in found_in(without)} == {"role-never-restarts"}


SIZE = "node: {cpu: 16, memory: 64Gi}"
AKS = f"  a: {{provider: aks, capacity: spot, {SIZE}}}\n  b: {{provider: aks, capacity: on-demand, {SIZE}}}\n"
KARPENTER = AKS.replace("aks", "karpenter")
GKE = AKS.replace("aks", "gke")
CLASSED = GKE.replace("node:", "labels: {cloud.google.com/compute-class: cheap}, node:")
FIXED = AKS.replace("node:", "min_nodes: 2, max_nodes: 2, node:")
BOTH = KARPENTER.replace("  b: {provider: karpenter", "  b: {provider: aks")
WORK = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: python:3.11}]}}}
"""


@pytest.mark.parametrize(
    ("pools", "target", "advice"),
    [
        (AKS, "", "the expander 'priority' with the spot pools first (spotwright explain prints it)"),
        (AKS.replace("aks", "eks"), "", "the expander 'priority' with the spot pools first"),
        (AKS, "target: {autoscaler: karpenter}\n", ""),
        (KARPENTER, "", ""),
        (GKE, "", "a ComputeClass with spot first (GKE's autoscaler has no priority expander)"),
        (CLASSED, "", ""),
        (FIXED, "", ""),
        (AKS.replace("on-demand,", "on-demand, min_nodes: 2, max_nodes: 2,"), "", ""),
        (BOTH, "", "one autoscaler for both capacities"),
        (AKS + KARPENTER.replace(" a:", " c:").replace(" b:", " d:"), "", "explain prints it), and one autoscaler for"),
        (AKS + GKE.replace(" a:", " c:").replace(" b:", " d:"), "", "explain prints it), and on GKE a ComputeClass"),
    ],
)
def test_place_and_lint_say_one_sentence_about_a_preference_that_is_ignored(
    pools: str, target: str, advice: str
) -> None:
    """Both of the same pools: nothing where no cluster autoscaler chooses, else the sentence with the same advice."""
    text = f"version: 1\n{target}pools:\n{pools}policy: {{default: {{spot: prefer}}}}\n"
    placed = place_text(WORK, "work.yaml", configuration.parse(text))
    said = [one.text.partition(": ")[2] for one in placed.findings if PREFERENCE_IGNORED in one.text]
    found = [one for one in found_in(placed.text, text) if one.rule == "preference-ignored"]
    linted = [f"{one.text.partition(': ')[2]}; {one.fix.replace('Use', 'use', 1).removesuffix('.')}" for one in found]

    assert linted == said
    assert [advice in one for one in said] == ([True] if advice else [])


def test_a_preference_that_no_on_demand_pool_can_spoil_is_not_said_to_be_ignored() -> None:
    """The on-demand pool does not admit the pod: only spot can be grown for it."""
    text = f"version: 1\npools:\n{AKS.replace('on-demand,', 'on-demand, taints: [team=other:NoSchedule],')}"
    placed = place_text(
        WORK, "work.yaml", configuration.parse(f"{text}policy: {{default: {{spot: prefer, ladder: [a, b]}}}}\n")
    )
    own = placed.text.replace("key: team", "key: squad")
    assert "key: squad" in own
    assert [one.rule for one in found_in(placed.text, text)] == ["preference-ignored"]
    assert "preference-ignored" not in [one.rule for one in found_in(own, text)]
