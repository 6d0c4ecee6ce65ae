"""Dask's kinds, which are not placed: the places of their pods. Source: dask/dask-kubernetes, ``dask_kubernetes/operator``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from spotwright.kinds.kind import Kind, number_at, pods_at
from spotwright.placing.documents import Path
from spotwright.placing.pods import PodRole

__all__ = ["KINDS"]


def _workers(data: Mapping[str, Any], path: Path) -> int | None:
    """The workers of a group at one time."""
    return number_at(data, (*path, "replicas"))


_kind = partial(Kind, group="kubernetes.dask.org")
_head = partial(pods_at, duty=PodRole.COORDINATOR)

KINDS = (
    _kind(name="DaskCluster", places=(_head("spec.scheduler"), pods_at("spec.worker", at_once=_workers))),
    _kind(
        name="DaskJob",
        places=(
            _head("spec.job"),
            _head("spec.cluster.spec.scheduler"),
            pods_at("spec.cluster.spec.worker", at_once=_workers),
        ),
    ),
    _kind(name="DaskWorkerGroup", places=(pods_at("spec.worker", at_once=_workers),)),
)
