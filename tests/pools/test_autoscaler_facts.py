"""What ``pools check`` finds in the cluster autoscaler's ConfigMaps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests import plain_yaml

from spotwright import config as configuration
from spotwright.config import Config
from spotwright.pools.checks import check
from spotwright.pools.cluster_inventory import Finding, ground_of, read_objects

AKS = {"cpuspot": {"capacity": "spot", "provider": "aks"}, "cpu": {"capacity": "on-demand", "provider": "aks"}}
NAMES = {"status": "cluster-autoscaler-status", "priorities": "cluster-autoscaler-priority-expander"}
IN_ORDER = "20:\n- ^aks-cpuspot-.*\n10:\n- ^aks-cpu-.*\n"


def config_map(key: str, text: str, namespace: str = "kube-system") -> dict[str, Any]:
    return {"kind": "ConfigMap", "metadata": {"name": NAMES[key], "namespace": namespace}, "data": {key: text}}


def group(name: str, target: int = 0, most: int = 10, **scale_up: Any) -> dict[str, Any]:
    health = {"cloudProviderTarget": target, "maxSize": most, "nodeCounts": {"registered": {"ready": target}}}
    return {"name": name, "health": health, "scaleUp": scale_up}


def status(*groups: dict[str, Any]) -> dict[str, Any]:
    return config_map("status", json.dumps({"autoscalerStatus": "Running", "nodeGroups": list(groups)}))


BOTH = (group("aks-cpuspot-12345678-vmss"), group("aks-cpu-12345678-vmss"))


def config_of(pools: dict[str, dict[str, Any]]) -> Config:
    return configuration.from_mapping({"version": 1, "pools": pools})


def found(*objects: dict[str, Any], pools: dict[str, dict[str, Any]] | None = None) -> dict[str, Finding]:
    text = json.dumps({"kind": "List", "items": list(objects)})
    findings = check(ground_of(config_of(AKS if pools is None else pools), read_objects(text, "file.yaml"), ()))
    return {finding.code: finding for finding in findings if finding.code != "hints-at-zero"}


def test_an_expander_that_keeps_the_order_is_no_finding() -> None:
    assert found(status(*BOTH), config_map("priorities", IN_ORDER)) == {}
    assert found(config_map("priorities", IN_ORDER, "autoscaler")) == {}  # one that was started in another namespace


@pytest.mark.parametrize(
    ("priorities", "words"),
    [
        ("10:\n- .*\n", "gives cpuspot the priority 10, and cpu 10 ('10: .*' for cpu)"),
        ("20:\n- ^aks-cpu-.*\n10:\n- spot\n", "gives cpuspot the priority 10, and cpu 20 ('20: ^aks-cpu-.*' for cpu)"),
        (
            "10:\n- of-nobody\n",
            "no pattern of the ConfigMap cluster-autoscaler-priority-expander matches the group of cpuspot",
        ),
        ("10:\n- ^aks-cpu-.*\n", "matches the group of cpuspot ('10: ^aks-cpu-.*' for cpu)"),
        ('"10":\n- .*\n', "cannot be understood"),
        ("10:\n- (spot\n", "cannot be understood"),
    ],
)
def test_an_expander_that_ignores_preferences_is_told_with_the_lines_and_the_config_map(
    priorities: str, words: str
) -> None:
    finding = found(status(*BOTH), config_map("priorities", priorities))["preference-ignored"]
    assert words in finding.text
    assert finding.severity == "warning"
    advice, _, objects = finding.fix.partition("\n")
    assert "apply this ConfigMap" in advice
    applied = plain_yaml.load(objects)
    assert "preference-ignored" not in found(status(*BOTH), applied)


@pytest.mark.parametrize("priorities", ["20:\n- .*spot.*\n", "20:\n- .*spot.*\n10:\n# - nobody\n"])
def test_a_group_without_a_pattern_comes_after_those_with_one(priorities: str) -> None:
    assert "preference-ignored" not in found(status(*BOTH), config_map("priorities", priorities))


def test_a_config_map_that_was_not_given_is_a_note_where_another_one_was() -> None:
    finding = found(status(*BOTH))["expander-not-given"]
    assert finding.severity == "note"
    assert "kubectl get configmap -n kube-system cluster-autoscaler-priority-expander" in finding.fix
    assert found() == {}


@pytest.mark.parametrize(
    ("pools", "codes"),
    [
        ({name: {**pool, "min_nodes": 2, "max_nodes": 2} for name, pool in AKS.items()}, set()),
        ({name: {**pool, "provider": "karpenter"} for name, pool in AKS.items()}, set()),
        ({"cpuspot": AKS["cpuspot"]}, set()),
        ({**AKS, "cpu": {**AKS["cpu"], "node": {"cpu": 4, "memory": "8Gi", "nvidia.com/gpu": 1}}}, set()),
        ({name: {**pool, "provider": "gke"} for name, pool in AKS.items()}, {"preference-ignored"}),
        (
            {
                name: {**pool, "labels": {"cloud.google.com/compute-class": "c"}, "provider": "gke"}
                for name, pool in AKS.items()
            },
            set(),
        ),
    ],
)
def test_only_pools_that_the_autoscaler_grows_for_the_same_work_need_an_order(
    pools: dict[str, dict[str, Any]], codes: set[str]
) -> None:
    wrong = config_map("priorities", "10:\n- .*\n")
    codes_found = found(wrong, status(*BOTH), pools=pools).keys()
    assert codes_found & {"preference-ignored", "expander-not-given"} == codes


def test_the_config_map_has_the_names_of_groups_where_patterns_for_the_pools_would_not_match_them() -> None:
    """Groups of eksctl's own kind have other names than those of EKS."""
    pools = {"gpu": {"capacity": "on-demand", "provider": "eks"}, "gpu-spot": {"capacity": "spot", "provider": "eks"}}
    names = [f"eksctl-c-nodegroup-{one}-NodeGroup-1.A" for one in pools]
    groups = status(*(group(name) for name in names))
    fix = found(groups, config_map("priorities", "10:\n- .*\n"), pools=pools)["preference-ignored"].fix
    applied = plain_yaml.load(fix.partition("\n")[2])
    assert applied["data"]["priorities"] == (
        "20:\n  - ^eksctl-c-nodegroup-gpu-spot-NodeGroup-1\\.A$\n10:\n  - ^eksctl-c-nodegroup-gpu-NodeGroup-1\\.A$"
    )
    assert "preference-ignored" not in found(groups, applied, pools=pools)


def test_a_name_that_would_be_other_yaml_is_no_pattern() -> None:
    pools = {"gpu": {"capacity": "on-demand", "provider": "eks"}, "gpu-spot": {"capacity": "spot", "provider": "eks"}}
    groups = status(group("a-gpu-spot-b\n        99:\n          - .*"), group("a-gpu-b"))
    fix = found(groups, config_map("priorities", "10:\n- .*\n"), pools=pools)["preference-ignored"].fix
    applied = plain_yaml.load(fix.partition("\n")[2])
    assert applied["data"]["priorities"] == "20:\n  - ^eks-gpu-spot-[0-9a-f]{8}-.*\n10:\n  - ^a-gpu-b$"


def test_a_group_in_backoff_is_told_with_its_time_and_error() -> None:
    error = {"errorCode": "SkuNotAvailable", "errorMessage": "none in zone '2'"}
    scale_up: dict[str, Any] = {
        "status": "Backoff",
        "lastTransitionTime": "2026-11-25T11:48:02.5Z",
        "backoffInfo": error,
    }
    finding = found(status(BOTH[1], group("aks-cpuspot-12345678-vmss", **scale_up)))["group-in-backoff"]
    assert (finding.severity, finding.where) == ("warning", "group aks-cpuspot-12345678-vmss")
    assert finding.text.startswith(
        "is in backoff since 2026-11-25 11:48:02 UTC (SkuNotAvailable: none in zone '2'): pool cpuspot gets no node of it"
    )
    cases: list[dict[str, Any]] = [{}, {"lastTransitionTime": "0001-01-01T00:00:00Z"}]  # what Go writes for no time
    for bare in cases:
        finding = found(status(group("a", status="Backoff", **bare)))["group-in-backoff"]
        assert finding.text.startswith("is in backoff: it gives no node before")


def test_a_group_at_its_maximum_is_told() -> None:
    finding = found(status(BOTH[0], group("aks-cpu-12345678-vmss", 4, 4)))["group-at-maximum"]
    assert finding.text == "has all 4 nodes that it may have: pool cpu gets no node of it beyond them"


def test_groups_and_pools_that_do_not_know_each_other_are_told() -> None:
    codes = found(status(group("aks-agentpool-12345678-vmss"), BOTH[0]))
    assert codes["group-of-no-pool"].text.startswith("aks-agentpool-12345678-vmss: no pool of spotwright.yaml")
    assert codes["pool-without-group"].where == "pool cpu"
    assert codes["pool-without-group"].severity == "warning"
    assert "pool-without-group" not in found(status())  # an autoscaler that has just started tells no groups


def test_a_line_that_matches_no_group_is_told() -> None:
    finding = found(status(*BOTH), config_map("priorities", f"{IN_ORDER}5:\n- ^aks-old-.*\n"))[
        "pattern-matches-no-group"
    ]
    assert "'5: ^aks-old-.*'" in finding.text


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("status", "Cluster-autoscaler status at 2020-01-01:\nCluster-wide:\n  Health: Healthy\n", "from 1.30 on"),
        ("status", "a: [b", "it is not valid YAML"),
        ("status", "[" * 100_000, "it is not valid YAML"),
        ("status", "x" * 1_000_001, "more than 1000000 characters"),
        ("priorities", "10:\n- (a+)+$\n", "repeats too much"),
        ("priorities", "", "expected lists of patterns"),
    ],
)
def test_a_text_that_cannot_be_read_is_one_finding_with_its_place(key: str, text: str, words: str) -> None:
    finding = found(config_map(key, text))["config-map-not-readable"]
    assert finding.where == f"file.yaml: ConfigMap {NAMES[key]}"
    assert finding.text.startswith(f"{key}: ")
    assert words in finding.text
    assert len(finding.text.splitlines()) == 1
