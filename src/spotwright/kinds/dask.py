"""Dask's kinds, which are not placed: where their pods are. Source: dask/dask-kubernetes, ``dask_kubernetes/operator``."""

from __future__ import annotations

from functools import partial

from spotwright.kinds.kind import Kind, pods_at
from spotwright.placing.pods import Duty

__all__ = ["KINDS"]

_kind = partial(Kind, group="kubernetes.dask.org")
_head = partial(pods_at, duty=Duty.COORDINATOR)

KINDS = (
    _kind(name="DaskCluster", places=(_head("spec.scheduler"), pods_at("spec.worker"))),
    _kind(
        name="DaskJob",
        places=(_head("spec.job"), _head("spec.cluster.spec.scheduler"), pods_at("spec.cluster.spec.worker")),
    ),
    _kind(name="DaskWorkerGroup", places=(pods_at("spec.worker"),)),
)
