"""A folder of this machine as the volume of a claim: all nodes of the test bed see it, as they would see a file share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.live.kube import Kube, Object

__all__ = ["POOLS", "claimed_folder"]

_POOL = {"provider": "aks", "node": {"cpu": 2, "memory": "4Gi"}}
POOLS = {"spot": {**_POOL, "capacity": "spot"}, "system": {**_POOL, "capacity": "on-demand"}}
"""The pools of the test bed, for a configuration."""


@contextmanager
def claimed_folder(kube: Kube, namespace: str, folder: Path) -> Iterator[Path]:
    """The folder, made, as the volume of the claim ``saves`` in a namespace, while the block runs."""
    folder.mkdir(mode=0o777)
    name = f"saves-{namespace}"
    size, modes = {"storage": "1Gi"}, {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    claimed = {"namespace": namespace, "name": "saves"}
    volume: Object = {**modes, "capacity": size, "hostPath": {"path": str(folder)}, "claimRef": claimed}
    claim: Object = {**modes, "resources": {"requests": size}, "volumeName": name}
    kube.apply(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": claimed, "spec": claim},
    )
    try:
        yield folder
    finally:
        kube.run("delete", "persistentvolume", name, "--wait=false")
