"""Rules are switched off in spotwright.yaml, with a reason; a reason that is missing and a rule that is unknown are refused."""

from __future__ import annotations

import pytest
import yaml
from tests.linter.linting import found_in, linted, settings

from spotwright import config
from spotwright.errors import ConfigError
from spotwright.kube.pod import scheduling_of
from spotwright.linter.linting import refuse_unknown
from spotwright.linter.rule import AKS_POOLS, ON_SPOT, PREFERS_SPOT, job
from spotwright.linter.spot_reach import Reach, reach_of

BOUND = job(ON_SPOT + "nodeName: a\n")


def test_a_rule_is_switched_off_for_all_files() -> None:
    assert {one.rule for one in found_in(BOUND)} == {"node-name-set"}
    assert found_in(BOUND, 'version: 1\nlint: {off: {node-name-set: "one node has the licence"}}\n') == []


def test_a_comment_about_a_rule_that_is_switched_off_is_not_unused() -> None:
    text = f"# spotwright: allow node-name-set: one node has the licence\n{BOUND}"

    assert found_in(text, "version: 1\nlint: {off: {node-name-set: of no use here}}\n") == []


@pytest.mark.parametrize("reason", ['""', "null", "[]", "true"])
def test_a_rule_is_not_switched_off_without_a_reason(reason: str) -> None:
    with pytest.raises(ConfigError, match=r"lint\.off\.node-name-set: expected"):
        config.parse(f"version: 1\nlint: {{off: {{node-name-set: {reason}}}}}\n")


def test_a_rule_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"lint\.off: no rule has the name node-named"):
        refuse_unknown(config.parse("version: 1\nlint: {off: {node-named: a typo}}\n"))


def test_without_pools_of_its_own_a_configuration_says_nothing_about_pools() -> None:
    assert linted(job("nodeSelector: {disk: ssd}\n"), "version: 1\n").findings == []
    assert {one.rule for one in found_in(job("nodeSelector: {disk: ssd}\n"), AKS_POOLS)} == {"selector-matches-no-pool"}


def test_labels_of_spot_pools_count_as_spot() -> None:
    labelled = (
        "version: 1\npools:\n  a: {capacity: spot, labels: {team: x}}\n  b: {capacity: on-demand, labels: {team: y}}\n"
    )

    assert "no-fallback" in {one.rule for one in found_in(job("nodeSelector: {team: x}\n"), labelled)}


def test_the_taint_of_a_providers_spot_nodes_is_known_without_a_configuration() -> None:
    assert {one.rule for one in found_in(job(PREFERS_SPOT))} == {"affinity-without-toleration"}


_THREE_CLOUDS = """\
version: 1
pools:
  aks: {capacity: spot, provider: aks, labels: {cloud: aks}}
  gke: {capacity: spot, provider: gke, labels: {cloud: gke}}
  eks: {capacity: spot, provider: eks, labels: {cloud: eks}}
"""


@pytest.mark.parametrize(("cloud", "longest"), [("aks", 30), ("gke", 15), ("eks", 120)])
def test_a_grace_period_is_compared_with_the_notice_of_the_pools_that_admit_the_pods(cloud: str, longest: int) -> None:
    for seconds, expected in ((longest, False), (longest + 1, True)):
        pods = f"{ON_SPOT}nodeSelector: {{cloud: {cloud}}}\nterminationGracePeriodSeconds: {seconds}\n"
        rules = {one.rule for one in found_in(job(pods), _THREE_CLOUDS)}
        assert ("grace-longer-than-notice" in rules) is expected


_KARPENTER = """\
tolerations: [{key: karpenter.sh/capacity-type, operator: Exists}]
nodeSelector: {karpenter.sh/capacity-type: spot}
terminationGracePeriodSeconds: """


@pytest.mark.parametrize(("seconds", "expected"), [(120, False), (121, True)])
def test_the_notice_of_karpenters_nodes_is_known_without_a_configuration(
    seconds: int, expected: bool
) -> None:  # a parameter
    rules = {one.rule for one in found_in(job(f"{_KARPENTER}{seconds}\n"))}
    assert ("grace-longer-than-notice" in rules) is expected


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("{key: lifecycle, operator: In, values: [Ec2Spot]}", Reach.REQUIRED),
        ("{key: node.kubernetes.io/lifecycle, operator: In, values: [spot]}", Reach.REQUIRED),
        ("{key: kubernetes.azure.com/scalesetpriority, operator: In, values: [low]}", Reach.REQUIRED),
        ("{key: kubernetes.azure.com/scalesetpriority, operator: In, values: [spot, low]}", Reach.REQUIRED),
        ("{key: kubernetes.azure.com/scalesetpriority, operator: Exists}", Reach.REQUIRED),
        ("{key: node.kubernetes.io/lifecycle, operator: Exists}", Reach.TOLERATED),
        ("{key: kubernetes.azure.com/scalesetpriority, operator: NotIn, values: [low]}", Reach.TOLERATED),
        ("{key: kubernetes.azure.com/scalesetpriority, operator: NotIn, values: [spot]}", Reach.NONE),
        ("{key: kubernetes.azure.com/scalesetpriority, operator: DoesNotExist}", Reach.NONE),
        ("{key: node.kubernetes.io/lifecycle, operator: In, values: [normal]}", Reach.NONE),
        ("{key: lifecycle, operator: NotIn, values: [Ec2Spot]}", Reach.NONE),
        ("{key: lifecycle, operator: In, values: [production]}", Reach.TOLERATED),
        ("{key: lifecycle, operator: DoesNotExist}", Reach.TOLERATED),
    ],
)
def test_labels_of_spot_nodes_are_those_of_the_clouds_with_every_value(label: str, expected: Reach) -> None:
    terms = f"requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{{matchExpressions: [{label}]}}]}}"
    pod = yaml.safe_load(f"tolerations: [{{operator: Exists}}]\naffinity: {{nodeAffinity: {{{terms}}}}}\n")
    assert reach_of(scheduling_of(pod), settings()) is expected


_ZONES = """\
version: 1
pools:
  a: {capacity: spot, provider: aks, zones: ["1", "2"]REGION}
"""
_SELECTS = "nodeSelector: {topology.kubernetes.io/zone: ZONE, kubernetes.azure.com/scalesetpriority: spot}\n"


@pytest.mark.parametrize(
    ("region", "zone", "is_found"),
    [
        (", region: eastus", "eastus-2", False),
        (", region: eastus", '"2"', True),
        (", region: eastus", "westus-2", True),
        ("", "eastus-2", False),  # nothing says the region, so nothing is wrong for certain
    ],
)
def test_a_selector_of_a_zone_is_compared_with_the_labels_of_all_zones(
    region: str, zone: str, is_found: object
) -> None:
    rules = {one.rule for one in found_in(job(_SELECTS.replace("ZONE", zone)), _ZONES.replace("REGION", region))}
    assert ("selector-matches-no-pool" in rules) is is_found
