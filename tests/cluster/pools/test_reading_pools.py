"""Pools read from a cluster: missing list rights are reported, and a failure is not an empty answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner, Result
from tests.cluster.controller.controller_process import kubeconfig
from tests.cluster.watching.small_api_server import SmallApiServer, serving

from spotwright.cli import cli
from spotwright.cluster.autoscaler_reader import ShownPools, ask_for_pools
from spotwright.errors import InputError

DAEMON_SETS = "/apis/apps/v1/daemonsets"
CONFIG = "version: 1\npools: {main: {capacity: on-demand, labels: {pool: main}}}\npolicy: {default: {spot: never}}\n"


def asked(folder: Path, monkeypatch: pytest.MonkeyPatch, status: int, ask: Callable[[], Any]) -> Any:
    """The pools of a cluster with one node that answers DaemonSet requests with this status."""

    async def refuse(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "message": "you may not"}, status=status)

    async def scenario() -> Any:
        async with serving() as server:
            show(server)
            server.pages[DAEMON_SETS] = refuse
            monkeypatch.setenv("KUBECONFIG", str(kubeconfig(folder, server)))
            return await asyncio.to_thread(ask)

    return asyncio.run(scenario())


def show(server: SmallApiServer) -> None:
    server.put("/api/v1/nodes", "n1", kind="Node", metadata={"labels": {"pool": "main"}})


@pytest.mark.parametrize("status", [403, 404])
def test_without_daemon_sets_pools_are_read_and_it_is_said_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    shown: ShownPools = asked(tmp_path, monkeypatch, status, ask_for_pools)
    assert (len(shown.nodes), shown.daemon_sets) == (1, [])
    assert f"{DAEMON_SETS}: the API server answers {status} you may not" in shown.no_daemon_sets


@pytest.mark.parametrize("status", [400, 401])
def test_a_cluster_that_does_not_answer_is_an_error_and_no_cluster_without_daemon_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    with pytest.raises(InputError, match=f"daemonsets: the API server answers {status}"):
        asked(tmp_path, monkeypatch, status, ask_for_pools)


def test_pools_check_says_that_the_daemon_sets_may_not_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spotwright.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    result: Result = asked(
        tmp_path,
        monkeypatch,
        403,
        lambda: CliRunner().invoke(cli, ["pools", "check", "--cluster"], standalone_mode=False),
    )
    assert "DaemonSets cannot be listed, so device plugins, drivers and logs are not checked" in result.output
    assert "the cluster has no DaemonSets" not in result.output


MAPS = "/api/v1/namespaces/kube-system/configmaps"
AKS = "version: 1\npools:\n  a: {capacity: spot, provider: aks}\n  b: {capacity: on-demand, provider: aks}\n"


def checked(folder: Path, monkeypatch: pytest.MonkeyPatch, show_maps: Callable[[SmallApiServer], None]) -> Result:
    """The output of ``pools check --cluster`` for a cluster without nodes, with these ConfigMaps."""

    async def scenario() -> Result:
        async with serving() as server:
            server.objects["/api/v1/nodes"] = {}
            show_maps(server)
            monkeypatch.setenv("KUBECONFIG", str(kubeconfig(folder, server)))
            arguments = ["pools", "check", "--cluster"]
            return await asyncio.to_thread(lambda: CliRunner().invoke(cli, arguments, standalone_mode=False))

    (folder / "spotwright.yaml").write_text(AKS)
    monkeypatch.chdir(folder)
    return asyncio.run(scenario())


GROUPS = "autoscalerStatus: Running\nnodeGroups: [{name: aks-a-12345678-vmss}, {name: aks-b-12345678-vmss}]\n"


def show_status(server: SmallApiServer) -> None:
    server.put(MAPS, "cluster-autoscaler-status", kind="ConfigMap", data={"status": GROUPS})


def test_pools_check_reads_the_autoscaler_of_a_cluster_without_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def show_both(server: SmallApiServer) -> None:
        show_status(server)
        server.put(MAPS, "cluster-autoscaler-priority-expander", data={"priorities": "10: [.*]\n"})

    printed = checked(tmp_path, monkeypatch, show_both).stdout
    assert "gives a the priority 10, and b 10 ('10: .*' for b) [preference-ignored]" in printed
    assert "groups of the cluster autoscaler: 2" in printed
    assert "nodes: 0, 0 of them in 0 of 2 pools" in printed
    assert "no nodes were given" not in printed


def test_an_expander_whose_config_map_a_cluster_does_not_have_ignores_preferences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = checked(tmp_path, monkeypatch, show_status).stdout
    assert "ConfigMap cluster-autoscaler-priority-expander is not there [preference-ignored]" in printed
    assert "preference-ignored" not in checked(tmp_path, monkeypatch, lambda _server: None).stdout  # no autoscaler


def test_a_config_map_that_may_not_be_read_is_said_to_be_unchecked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rights may be for one of the two."""

    async def refuse(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "message": "you may not"}, status=403)

    def show_one(server: SmallApiServer) -> None:
        show_status(server)
        server.pages[f"{MAPS}/cluster-autoscaler-priority-expander"] = refuse

    result = checked(tmp_path, monkeypatch, show_one)
    assert result.return_value == 0, result.exception
    assert "a ConfigMap of the cluster autoscaler cannot be read, so it is not checked" in result.stdout
    assert "you may not" in result.stdout
    assert "groups of the cluster autoscaler: 2" in result.stdout
    assert "[expander-not-given]" in result.stdout
    assert "preference-ignored" not in result.stdout
