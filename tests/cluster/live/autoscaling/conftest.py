"""A test bed without real nodes, on which KWOK pretends the nodes that autoscalers make, beside the other bed.

Karpenter runs on it: it makes nothing as long as there is no NodePool, so the stand-in of the cluster autoscaler is alone
then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from testbed import builder
from testbed.building.builds import Cache
from testbed.building.requirements import obstacle
from testbed.cluster import bring_down, bring_up, build_first
from testbed.settings import Settings
from tests.cluster.conftest import Say, is_up, kube_of
from tests.cluster.live.autoscaling.machines import Group
from tests.cluster.live.autoscaling.requests import Requests
from tests.cluster.live.kube import Kube

_PORTS = 200  # between this bed's port and that of the other one


@pytest.fixture(scope="session")
def bed(external: bool, say: Say) -> Iterator[Settings]:
    """The bed of ``TESTBED_*``, where KWOK makes all nodes; else a separate one. One of its nodes is in no pool."""
    if external:
        pytest.skip("the nodes of an external cluster are made by somebody else")
    settings = Settings.from_environment()
    if settings.nodes or "kwok" not in settings.controllers:
        own = dataclasses.replace(settings, name="swscale", port=settings.port + _PORTS, nodes=0, pretended=0)
        settings = dataclasses.replace(own, controllers=("kwok", "karpenter"))
    if reason := obstacle(building=bool(Cache(settings.cache).missing(()))):
        pytest.skip(reason)
    was_up = is_up(settings)
    try:
        if not was_up:
            bring_up(settings, say, build_first(settings, say))
        if reason := builder.wait_for(settings, "kwok", say):
            pytest.skip(f"this cluster has no kwok: {reason}")
        _add_system_node(Requests(settings))
        yield settings
    finally:
        if not was_up:
            bring_down(settings)


@pytest.fixture(scope="session")
def kube(bed: Settings, say: Say) -> Kube:
    """That bed."""
    return kube_of(bed, say)


@pytest.fixture(scope="session")
def api(bed: Settings) -> Requests:
    """Plain requests to that bed."""
    return Requests(bed)


def _add_system_node(api: Requests) -> None:
    """The node on which a cluster's own pods run: no group of the autoscaler's, in no configuration, and closed to work."""
    taints = [("CriticalAddonsOnly", "true", "NoSchedule")]
    group = Group("system", {"agentpool": "system", "kubernetes.azure.com/mode": "system"}, taints)
    if api.send("GET", "/api/v1/nodes/system-1") is None:
        api.send("POST", "/api/v1/nodes", group.node("system-1"))
