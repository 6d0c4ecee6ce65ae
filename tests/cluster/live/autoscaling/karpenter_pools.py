"""NodePools of Karpenter on the test bed, made by the text of ``spotwright pools command``, and the faults of each.

Karpenter's provider is kwok: a NodeClaim becomes a node that KWOK pretends, after the delay of its KWOKNodeClass.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tests.cluster.live.kube import Kube, Object

__all__ = ["BOOT", "Trouble", "capacity_is_back", "configuration", "group", "node_pools", "pool"]

BOOT = 2.0  # seconds until a node has booted, if nothing else is said

_GONE = 120.0  # seconds until NodePools, their NodeClaims and their nodes are gone
_OF = "karpenter.sh/nodepool"
_SOLD_OUT = "testbed.spotwright.dev/out-of-capacity"
_ROOT = Path(__file__).parents[4]


@dataclass(frozen=True)
class Trouble:
    """The faults of a NodePool. ``boot`` is in seconds, ``sold_out`` a capacity type, ``spec`` overrides its own."""

    boot: float = BOOT
    sold_out: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)


def pool(capacity: str, price: float, **more: object) -> Object:
    """A pool of spotwright.yaml that Karpenter makes: 4 CPUs a node, with the taint of spot where it is spot."""
    taints = {"taints": ["spot=true:NoSchedule"]} if capacity == "spot" else {}
    size = {"machine": "m5.xlarge", "node": {"cpu": 4, "memory": "16Gi"}, "max_nodes": 10}
    return {"capacity": capacity, "provider": "karpenter", "price": f"{price:g}/h", **size, **taints, **more}


def configuration(pools: Mapping[str, Object], pending_timeout: str = "10m") -> str:
    """A configuration whose policy prefers spot. Each pool has a node class of its name."""
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass"}
    known = {
        name: {**one, "create_flags": {"nodeClassRef": {**reference, "name": name}}} for name, one in pools.items()
    }
    policy = {"spot": "prefer", "pending_timeout": pending_timeout, "timeout": "1h", "grace_period": "5s"}
    return yaml.safe_dump({"version": 1, "pools": known, "policy": {"default": policy}}, sort_keys=False)


def group(node: Object) -> str:
    """The group of a node: its NodePool and its capacity, as in ``cpu-spot/spot``."""
    labels = node["metadata"].get("labels") or {}
    return f"{labels.get(_OF)}/{labels.get('karpenter.sh/capacity-type')}"


@contextmanager
def node_pools(kube: Kube, folder: Path, config: str, troubles: Mapping[str, Trouble]) -> Iterator[None]:
    """The NodePools of all pools of a configuration, with the trouble that each has, while the block runs."""
    names = list(yaml.safe_load(config)["pools"])
    try:
        for name in names:
            trouble = troubles.get(name, Trouble())
            kube.apply(_node_class(name, trouble.boot))
            for made in _written(folder, config, name):
                _lay_over(made["spec"], trouble.spec)
                if trouble.sold_out:
                    made["metadata"]["annotations"] = {_SOLD_OUT: trouble.sold_out}
                kube.apply(made)
        kube.wait(lambda: _are_ready(kube), "the NodePools are ready", 30)
        yield
    finally:
        kube.run("delete", "nodepools,nodeclaims", "--all", "--wait=false")
        kube.wait(lambda: not _left(kube, "nodepools", "nodeclaims"), "NodePools and NodeClaims are gone", _GONE)
        kube.run("delete", "nodes", "-l", _OF, "--wait=false")  # those whose NodeClaim went before they had booted
        kube.wait(lambda: not _left(kube, "nodes"), "the nodes are gone", _GONE)
        kube.run("delete", "kwoknodeclasses", "--all")
        kube.run(
            "delete", "--raw", "/api/v1/namespaces/default/events"
        )  # those of NodePools: the next ones have the same names


def capacity_is_back(kube: Kube, name: str) -> None:
    """Let a NodePool buy sold-out capacity again."""
    kube.run("annotate", "nodepool", name, f"{_SOLD_OUT}-")


def _written(folder: Path, config: str, name: str) -> Sequence[Object]:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "spotwright.yaml"
    path.write_text(config, encoding="utf-8")
    command = [sys.executable, "-m", "spotwright", "pools", "command", name, "--config", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_ROOT)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def _node_class(name: str, boot: float) -> Object:
    kind = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass"}
    return {**kind, "metadata": {"name": name}, "spec": {"nodeRegistrationDelay": f"{boot:.0f}s"}}


def _lay_over(spec: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, Mapping) and isinstance(spec.get(key), dict):
            _lay_over(spec[key], value)
        else:
            spec[key] = value


def _are_ready(kube: Kube) -> bool:
    found = kube.list("nodepools")
    conditions = [one.get("status", {}).get("conditions") or () for one in found]
    return all(any(one["type"] == "Ready" and one["status"] == "True" for one in each) for each in conditions)


def _left(kube: Kube, *kinds: str) -> list[Object]:
    return [one for kind in kinds for one in kube.list(kind, selector=_OF if kind == "nodes" else "")]
