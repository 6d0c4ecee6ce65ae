"""The advice of the check of pools holds for the nodes and pools that it is about."""

from __future__ import annotations

from typing import Any

from spotwright import config as configuration
from spotwright.pools.checks import check
from spotwright.pools.cluster_inventory import Finding, Objects, ground_of, pod_works

CONFIG = configuration.from_mapping(
    {
        "version": 1,
        "pools": {
            "system": {
                "capacity": "on-demand",
                "provider": "aks",
                "node": {"cpu": 4},
                "taints": ["CriticalAddonsOnly=true:NoSchedule"],
            },
            "spot": {"capacity": "spot", "provider": "aks", "node": {"cpu": 4}},
        },
    }
)


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {}}


def findings(*nodes: dict[str, Any], work: dict[str, Any] | None = None) -> list[Finding]:
    pods = [] if work is None else list(pod_works(work, "f.yaml", CONFIG))
    return check(ground_of(CONFIG, Objects(nodes=list(nodes)), pods))


def test_a_node_of_the_control_plane_is_not_said_to_be_imported() -> None:
    found = findings(node("c", **{"node-role.kubernetes.io/control-plane": ""}), node("w", team="a"))
    said = {one.where: one for one in found if one.code == "node-of-no-pool"}
    assert said["control plane"].text.startswith("c: ")
    assert "leaves them out" in said["control plane"].fix
    assert said["nodes of no pool"].text.startswith("w: ")
    assert said["nodes of no pool"].fix == "spotwright pools import prints them as pools"


def test_nobody_is_told_to_place_work_on_the_pool_of_the_cluster_s_add_ons() -> None:
    pod = {"containers": [{"name": "a", "image": "i"}]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": pod}}}
    advice = [one.fix for one in findings(work=job) if one.where == "pool system"]
    assert not any("ladder" in one for one in advice)
    assert any("add-ons" in one for one in advice)
