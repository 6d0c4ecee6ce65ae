"""A cluster comes up with the nodes of each cloud, beside another one, and nothing of it is left afterwards."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from testbed.cluster import bring_down, bring_up, build_first
from testbed.control import control_plane
from testbed.control.api import Api
from testbed.errors import TestbedError
from testbed.machine import leftovers, network, nodes
from testbed.machine.processes import Processes, wait_until
from testbed.pools import identity
from testbed.settings import Settings
from tests.cluster.conftest import Measured

pytestmark = pytest.mark.cluster


@pytest.fixture
def second(bed: Settings) -> Iterator[Settings]:
    """A small cluster beside the test bed, taken down whatever happens."""
    settings = dataclasses.replace(bed, name="swsecond", port=bed.port + 1, nodes=2, controllers=())
    build_first(settings, print)
    yield settings
    bring_down(settings)


@pytest.mark.parametrize("cloud", ["gke", "eks"])
def test_a_second_cluster_has_the_nodes_of_its_cloud_and_leaves_nothing_behind(
    second: Settings, cloud: str, measured: Measured
) -> None:
    settings = dataclasses.replace(second, cloud=cloud)
    started = time.monotonic()
    bring_up(settings, print)
    measured(f"a second cluster of two nodes, {cloud}: up", time.monotonic() - started)
    found = Api(settings).nodes()
    for number in settings.numbers:
        known = identity(cloud, number)
        taints = [
            f"{taint['key']}={taint['value']}:{taint['effect']}"
            for taint in found[f"n{number}"]["spec"].get("taints", [])
            if "value"
            in taint  # Kubernetes' own not-ready, which has none, may stay a moment longer than the condition
        ]
        assert known.labels.items() <= found[f"n{number}"]["metadata"]["labels"].items()
        assert tuple(taints) == known.taints
    assert leftovers.find(settings) != []  # the check sees a cluster that is there
    started = time.monotonic()
    bring_down(settings)
    measured(f"a second cluster of two nodes, {cloud}: down", time.monotonic() - started)
    assert leftovers.find(settings) == []


def test_an_interrupted_start_is_taken_down_as_well(second: Settings) -> None:
    settings = second
    child = os.fork()
    if child == 0:
        try:
            bring_up(settings, lambda text: None)
        finally:
            os._exit(1)
    wait_until(lambda: nodes.is_running(settings, 1), "the first node runs", 120)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert leftovers.find(settings) != []
    bring_down(settings)
    assert leftovers.find(settings) == []
    assert network.namespaces(settings) == []


def test_a_port_that_is_taken_is_one_message(bed: Settings, second: Settings) -> None:
    with pytest.raises(TestbedError, match=f"127.0.0.1:{bed.port} is taken .*TESTBED_PORT"):
        bring_up(dataclasses.replace(second, port=bed.port), print)


@pytest.mark.parametrize("name", ["apiserver", "etcd"])
def test_the_control_plane_survives_the_end_of_one_of_its_processes(bed: Settings, name: str) -> None:
    api, processes = Api(bed), Processes(bed)
    before = {node: item["metadata"]["uid"] for node, item in api.nodes().items()}
    processes.end(name, kill=True)
    wait_until(lambda: not api.ready(), f"the API server misses {name}", 60)
    control_plane.restart(bed, name)
    wait_until(api.ready, "the API server is ready", 120)
    assert {node: item["metadata"]["uid"] for node, item in api.nodes().items()} == before


def test_a_burst_of_connections_waits_for_a_relay_that_gets_no_processor(bed: Settings) -> None:
    relay = Processes(bed).pid("relay")
    assert relay is not None
    os.kill(relay, signal.SIGSTOP)
    try:
        with ExitStack() as opened:
            for _ in range(100):  # a connection for which there is no room would wait for a second try of the kernel
                opened.enter_context(socket.create_connection(("127.0.0.1", bed.port), timeout=0.5))
    finally:
        os.kill(relay, signal.SIGCONT)
    wait_until(Api(bed).ready, "the API server is reached", 60)
