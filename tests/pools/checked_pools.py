"""Pools, nodes and work, and what the checks find in them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from spotwright import config as configuration
from spotwright.config import Config
from spotwright.pools.checks import check
from spotwright.pools.cluster_inventory import Finding, ground_of, pod_works, read_objects

NODES = Path(__file__).parent / "nodes"


POOLS: dict[str, Any] = {
    "agentpool": {"capacity": "on-demand", "provider": "aks", "machine": "Standard_D4s_v3", "min_nodes": 1},
    "gpuspot": {
        "capacity": "spot",
        "provider": "aks",
        "machine": "Standard_NC6s_v3",
        "node": {"cpu": 6, "memory": "112Gi", "nvidia.com/gpu": 1},
        "labels": {"gpu": "true"},
        "taints": ["sku=gpu:NoSchedule"],
    },
}


SPOT_TOLERATION = {"key": "kubernetes.azure.com/scalesetpriority", "value": "spot", "effect": "NoSchedule"}


GPU_TOLERATION = {"key": "sku", "value": "gpu", "effect": "NoSchedule"}


def aks() -> dict[str, Any]:
    data: dict[str, Any] = json.loads((NODES / "aks.json").read_text())
    return data


def config_of(policy: dict[str, Any] | None = None, **changes: Any) -> Config:
    pools = copy.deepcopy(POOLS)
    pools["gpuspot"].update(changes)
    return configuration.from_mapping({"version": 1, "pools": pools, "policy": {"default": policy or {}}})


def found(data: Any, *manifests: Any, config: Config | None = None) -> dict[str, Finding]:
    config = config or config_of()
    works = [work for manifest in manifests for work in pod_works(manifest, "work.yaml", config)]
    findings = check(ground_of(config, read_objects(json.dumps(data), "nodes.json"), works))
    return {finding.code: finding for finding in findings}


def errors(data: Any, *manifests: Any, config: Config | None = None) -> set[str]:
    return {code for code, one in found(data, *manifests, config=config).items() if one.severity == "error"}


def daemon_set(name: str, *tolerations: dict[str, Any], **spec: Any) -> dict[str, Any]:
    pods = {
        "containers": [{"name": "a", "image": f"registry.example/{name}:1"}],
        "tolerations": list(tolerations),
        **spec,
    }
    return {"kind": "DaemonSet", "metadata": {"name": name}, "spec": {"template": {"spec": pods}}}


def job(*tolerations: dict[str, Any], **spec: Any) -> dict[str, Any]:
    pods = {
        "containers": [{"name": "a", "image": "b", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
        "tolerations": list(tolerations),
        "terminationGracePeriodSeconds": 20,
        **spec,
    }
    return {"kind": "Job", "metadata": {"name": "train"}, "spec": {"template": {"spec": pods}}}


PLACED = job(SPOT_TOLERATION, GPU_TOLERATION, nodeSelector={"gpu": "true"})


PLUGIN = daemon_set("nvidia-device-plugin", SPOT_TOLERATION, GPU_TOLERATION)


def with_plugin(data: dict[str, Any], *more: dict[str, Any]) -> dict[str, Any]:
    return {**data, "items": [*data["items"], PLUGIN, *more]}
