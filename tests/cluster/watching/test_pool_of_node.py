"""The pool of a node is the configured one whose labels it carries, zones included; else the one that its provider names."""

from __future__ import annotations

import pytest

from spotwright.cluster.view import NodePool, pool_of_node
from spotwright.model.pools import Capacity, Pool

LABELS = {
    "kubernetes.azure.com/agentpool": "gpuspot",
    "kubernetes.azure.com/scalesetpriority": "spot",
    "topology.kubernetes.io/zone": "eastus-1",
}
NODE = {"metadata": {"name": "n1", "labels": LABELS}}


@pytest.mark.parametrize(
    ("zones", "region"),
    [(("1",), "eastus"), (("1",), ""), (("eastus-1",), ""), (("1", "2"), "eastus"), (("1", "2"), ""), ((), "")],
)
def test_a_node_of_aks_is_in_its_pool_however_the_zones_are_written(zones: tuple[str, ...], region: str) -> None:
    pool = Pool("gpuspot", Capacity.SPOT, "aks", zones=zones, region=region)
    assert pool_of_node(NODE, {"gpuspot": pool}) == NodePool("gpuspot", is_spot=True, is_configured=True)


def test_of_two_pools_of_one_label_the_zone_decides() -> None:
    def pool(name: str, zone: str) -> Pool:
        label = {"kubernetes.azure.com/agentpool": "gpuspot"}
        return Pool(name, Capacity.SPOT, "aks", zones=(zone,), region="eastus", labels=label)

    assert pool_of_node(NODE, {"a": pool("a", "2"), "b": pool("b", "1")}) == NodePool("b", True, True)
