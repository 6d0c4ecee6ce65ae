"""The nodes that KWOK pretends: Node objects of the cloud's pools, on which pods run that are nothing but their objects.

They show what a cluster of hundreds of nodes asks of a controller. Every fifth one is of the on-demand pool, all others are
of the spot pool. What happens to their pods stands in `configuration/kwok.yaml`.
"""

from __future__ import annotations

from typing import Any

from testbed.control.api import Api
from testbed.pools import identity
from testbed.settings import Settings

__all__ = ["create", "names"]

_ON_DEMAND = 5  # one of so many nodes
_BATCH = 100  # objects in one call of kubectl
_SIZE = {"cpu": "32", "memory": "128Gi", "pods": "110"}


def names(settings: Settings) -> set[str]:
    """The names of all pretended nodes."""
    return {_name(number) for number in range(1, settings.pretended + 1)}


def create(settings: Settings) -> None:
    """Create the Node objects; KWOK makes them Ready."""
    api, numbers = Api(settings), range(1, settings.pretended + 1)
    for begin in range(0, len(numbers), _BATCH):
        api.create([_node(settings.cloud, number) for number in numbers[begin : begin + _BATCH]])


def _name(number: int) -> str:
    return f"p{number}"


def _node(cloud: str, number: int) -> dict[str, Any]:
    known = identity(cloud, number, spot=number % _ON_DEMAND != 0)
    taints = []
    for taint in known.taints:
        key, _, rest = taint.partition("=")
        value, _, effect = rest.partition(":")
        taints.append({"key": key, "value": value, "effect": effect})
    metadata = {
        "name": _name(number),
        "labels": {"kubernetes.io/hostname": _name(number), **known.labels},
        "annotations": {"kwok.x-k8s.io/node": "fake"},
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": {"providerID": known.provider_id, "taints": taints},
        "status": {"allocatable": _SIZE, "capacity": _SIZE},
    }
