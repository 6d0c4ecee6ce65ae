"""The cluster autoscaler's ConfigMaps and Karpenter's NodePools, as the API gives them."""

from __future__ import annotations

from typing import Any

import pytest

from spotwright.errors import InputError
from spotwright.pools.autoscaler_config_maps import priorities_of, status_of, weights_of

STATUS = """\
time: 2026-11-27 07:00:00.1 +0000 UTC
autoscalerStatus: Running
nodeGroups:
- name: aks-cpuspot-12345678-vmss
  health:
    status: Healthy
    nodeCounts: {registered: {total: 1, ready: 1}}
    cloudProviderTarget: 2
    maxSize: 2
    lastProbeTime: "2026-11-27T07:00:00.1Z"
  scaleUp: {status: InProgress, lastTransitionTime: 2026-11-27T06:59:50Z}
"""


def test_a_status_is_read() -> None:
    group = status_of({"data": {"status": STATUS}}).groups["aks-cpuspot-12345678-vmss"]
    assert (group.target, group.ready, group.max_size, group.is_coming) == (2, 1, 2, True)
    assert group.since == 1795762790.0


def test_priorities_are_read() -> None:
    priorities = priorities_of({"data": {"priorities": "20:\n  - .*spot.*\n10:\n  - .*\n"}})
    assert (priorities.of("aks-cpuspot-1-vmss"), priorities.of("aks-cpu-1-vmss")) == (20, 10)


@pytest.mark.parametrize("data", [{}, {"status": "a: [b"}, {"status": "Cluster-wide:"}, {"status": "x" * 1_000_001}])
def test_another_text_is_refused_with_the_name_of_its_config_map(data: dict[str, str]) -> None:
    with pytest.raises(InputError, match="ConfigMap cluster-autoscaler-status: status: "):
        status_of({"data": data})


def test_a_text_nested_too_deep_is_refused() -> None:
    with pytest.raises(InputError, match="ConfigMap cluster-autoscaler-priority-expander: priorities: "):
        priorities_of({"data": {"priorities": "[" * 100_000}})


def test_weights_of_node_pools_are_read() -> None:
    made: list[dict[str, Any]] = [
        {"metadata": {"name": "a"}, "spec": {"weight": 50}},
        {"metadata": {"name": "b"}, "spec": {}},
    ]
    assert weights_of(made) == {"a": 50, "b": 0}
