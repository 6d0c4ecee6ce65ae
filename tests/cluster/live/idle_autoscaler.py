"""What a cluster autoscaler leaves in a cluster while it adds nothing: its status, and no order of pools.

Nothing adds nodes to the test bed, so that the first attempt of a pod may have any pool of its ladder there. With this status the
controller takes the pools for some that grow in no order, and sends each attempt to one of them. Tests of such attempts use it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import yaml
from tests.cluster.live.autoscaling.autoscaler import STATUS_MAP
from tests.cluster.live.autoscaling.status_text import GroupState, StatusText
from tests.cluster.live.kube import Kube

from spotwright.clouds.cluster_autoscaler import likely_group
from spotwright.config import parse

__all__ = ["idle_autoscaler"]

_MOST = 9  # nodes that each group may have


@contextmanager
def idle_autoscaler(kube: Kube, config: str) -> Iterator[None]:
    """The status of an autoscaler that could grow the pools of a configuration, during the block.

    Begin it before the controller, whose webhook reads it at its start and then every ten seconds. Groups without nodes have
    no times in it, so that it never counts as out of date.
    """
    names = map(likely_group, parse(config).pools.values())
    groups = [GroupState(name, 0, 0, 0, min=0, max=_MOST, in_progress=False) for name in names]
    meta = {"name": STATUS_MAP, "namespace": "kube-system"}
    written = yaml.safe_load(StatusText().write(groups, time.time()))
    text = yaml.safe_dump(
        {key: written[key] for key in ("autoscalerStatus", "nodeGroups")}
    )  # nothing that tells a time
    data = {"status": text}
    kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})
    try:
        yield
    finally:
        kube.run("delete", "configmap", STATUS_MAP, "-n", "kube-system", "--ignore-not-found")
