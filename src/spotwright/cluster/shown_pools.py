"""The objects of a cluster that show its pools, read with the caller's own rights: nodes, NodePools and what tells of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from spotwright.clouds.cluster_autoscaler import PRIORITIES, STATUS
from spotwright.cluster.api_client import Api, ApiFailed, connect, find_cluster
from spotwright.errors import InputError
from spotwright.pools.autoscaler_config_maps import NAMESPACE as AUTOSCALER_NAMESPACE

__all__ = ["ShownPools", "ask_for_pools"]


_DAEMON_SETS = "/apis/apps/v1/daemonsets"
_NODE_POOLS = "/apis/karpenter.sh/v1/nodepools"
_NOT_FOR_US = (403, 404)  # no right to list them; a server without them, such as a control plane of one's own


class ShownPools(NamedTuple):
    """The objects of a cluster that show its pools, as the API writes them.

    ``no_daemon_sets`` says why its DaemonSets are not known; empty if they are. ``config_maps`` are those of the cluster
    autoscaler, none without it; ``no_config_maps`` says why they are not known.
    """

    nodes: list[dict[str, Any]]
    node_pools: list[dict[str, Any]]
    daemon_sets: list[dict[str, Any]]
    no_daemon_sets: str = ""
    config_maps: Sequence[dict[str, Any]] = ()
    no_config_maps: str = ""


def ask_for_pools(context: str | None = None) -> ShownPools:
    """The nodes and NodePools of the cluster of a context; the default is that of the kubeconfig, or the pod's own.

    Raises :class:`InputError` where the cluster cannot be found, reached, or refuses to list its nodes.
    """
    return asyncio.run(_ask(context))


async def _ask(context: str | None) -> ShownPools:
    api = Api(connect(find_cluster(context)))
    try:
        nodes = await api.get("/api/v1/nodes")
        found = await api.get_or_none(_NODE_POOLS)
        sets, no_sets = await _daemon_sets(api)
        maps, no_maps = await _config_maps(api)
    except ApiFailed as error:
        raise InputError(
            f"{error}: reading pools needs a cluster that answers, and the right to list its nodes"
        ) from error
    finally:
        await api.close()
    pools = list((found or {}).get("items") or ())
    return ShownPools(list(nodes.get("items") or ()), pools, sets, no_sets, maps, no_maps)


async def _config_maps(api: Api) -> tuple[list[dict[str, Any]], str]:
    """The ConfigMaps of the cluster autoscaler that may be seen, and why another one may not. Raises :class:`ApiFailed`."""
    found, why = [], ""
    for name in (STATUS, PRIORITIES):
        try:
            found.append(await api.get_or_none(f"/api/v1/namespaces/{AUTOSCALER_NAMESPACE}/configmaps/{name}"))
        except ApiFailed as error:
            if error.status not in _NOT_FOR_US:
                raise
            why = str(error)
    return [one for one in found if one is not None], why


async def _daemon_sets(api: Api) -> tuple[list[dict[str, Any]], str]:
    """The DaemonSets of all namespaces, with the kind that items of a list lack; or why there are none to see.

    Pools can be read without them, so one who may not list them is told so. Raises :class:`ApiFailed` for anything else.
    """
    try:
        answer = await api.get(_DAEMON_SETS)
    except ApiFailed as error:
        if error.status not in _NOT_FOR_US:
            raise
        return [], str(error)
    return [{"kind": "DaemonSet", **item} for item in answer.get("items") or ()], ""
