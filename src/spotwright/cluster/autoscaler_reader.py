"""Reads the observable state of a cluster's autoscalers and pools: every ten seconds for the webhook, on request for people.

An object that cannot be read leaves its autoscaler unknown; a missing one means that there is no autoscaler. The watcher has
separate streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from spotwright.clouds.cluster_autoscaler import PRIORITIES, STATUS
from spotwright.clouds.pool_order import UNKNOWN, Autoscalers
from spotwright.cluster.api_client import Api, ApiFailed, connect, find_cluster
from spotwright.cluster.autoscaler_status import SCALER, AutoscalerStatus, is_word
from spotwright.cluster.signals import events_of_pod
from spotwright.errors import InputError
from spotwright.kube.object_fields import mappings, metadata
from spotwright.pools.autoscaler_config_maps import NAMESPACE, priorities_of, status_of, weights_of

__all__ = ["AutoscalerReader", "ShownPools", "ask_for_pools", "hear_of_pod", "hear_of_pools"]


_CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_NODE_POOLS = "/apis/karpenter.sh/v1/nodepools"

_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
_NODE_POOL_EVENTS = {"fieldSelector": "involvedObject.kind=NodePool"}

_LOG = logging.getLogger(__name__)
_EVERY = 10.0  # seconds: an autoscaler's own scan
_ANSWERS = 10.0  # seconds: reviews wait for the first answers, and a hanging conversion must not delay them
_MOST_NODE_POOLS = _MOST_EVENTS = "500"


class _Found(NamedTuple):
    """An answer of the API server: the object, or None if it does not exist; ``unread`` says why it is unknown."""

    data: Mapping[str, Any] | None
    unread: str = ""


def _seen(found: Sequence[_Found], speaks: bool, now: float) -> Autoscalers:
    """The autoscalers by the answers to :data:`_QUESTIONS`. ``speaks``: a cluster autoscaler writes Events."""
    status, priorities, node_pools = found
    unread = "; ".join(dict.fromkeys(one.unread for one in (status, priorities, node_pools) if one.unread))
    state, has_status = _understood(status, status_of)
    if state is not None and not state.is_kept(now):
        state = None
    if has_status is False and speaks:
        has_status, unread = None, "a cluster autoscaler writes Events but has no status ConfigMap in kube-system"
    patterns, has_priorities = _understood(priorities, priorities_of)
    weights = None if node_pools.unread else weights_of((node_pools.data or {}).get("items") or ())
    return Autoscalers(has_status, state, has_priorities, patterns, weights, unread)


def _understood(found: _Found, read: Callable[[Mapping[str, Any]], Any]) -> tuple[Any, bool | None]:
    if found.unread:
        return None, None
    if found.data is None:
        return None, False
    try:
        return read(found.data), True
    except InputError as error:
        _LOG.debug("%s", error)  # `pools check` reports it; the order of pools is then not kept
        return None, True


_QUESTIONS: Sequence[tuple[str, Mapping[str, str]]] = (
    (f"{_CONFIG_MAPS}/{STATUS}", {}),
    (f"{_CONFIG_MAPS}/{PRIORITIES}", {}),
    (_NODE_POOLS, {"limit": _MOST_NODE_POOLS}),
)


class AutoscalerReader:
    """The cluster's state, at most ten seconds old: ``seen``. Await :meth:`follow`.

    Events are read only in ``namespaces``; if empty, in all.
    """

    def __init__(self, api: Api, namespaces: Sequence[str] = ()) -> None:
        self._api, self._namespaces = api, namespaces
        self.seen = UNKNOWN
        self.is_complete = False

    async def follow(self) -> None:
        """Read periodically until cancelled."""
        while True:
            found = [await self._answer(path, query) for path, query in _QUESTIONS]
            speaks = found[0].data is None and not found[0].unread and await self._speaks()
            now = self._api.now()
            seen = await asyncio.to_thread(_seen, found, speaks, now)  # 200 groups take a third of a second
            if seen.unread and seen.unread != self.seen.unread:
                _LOG.warning("cannot tell what adds nodes to the pools: %s", seen.unread)
            self.seen, self.is_complete = seen, True
            await asyncio.sleep(_EVERY)

    async def _speaks(self) -> bool:
        """Whether a cluster autoscaler writes Events.

        A tenant can write any Event in its namespace, and the answer applies to all: so Events in two namespaces are required,
        or in the only served one.
        """
        query, found = {"fieldSelector": f"source={SCALER}", "limit": _MOST_EVENTS}, set[str]()
        needed = 1 if len(self._namespaces) == 1 else 2
        for path in [f"/api/v1/namespaces/{name}/events" for name in self._namespaces] or ["/api/v1/events"]:
            listed = (await self._answer(path, query)).data or {}
            found |= {str(metadata(event).get("namespace", "")) for event in mappings(listed.get("items"))}
            if len(found) >= needed:
                return True
        return False

    async def _answer(self, path: str, query: Mapping[str, str]) -> _Found:
        try:
            async with asyncio.timeout(_ANSWERS):
                return _Found(await self._api.get(path, query))
        except TimeoutError:
            return _Found(None, f"{path}: no answer within {_ANSWERS:g} s")
        except ApiFailed as error:
            return _Found(None) if error.status == 404 else _Found(None, str(error))


Get = Callable[..., Mapping[str, Any]]
"""Reads a path of the API server, with a query; raises :class:`ApiFailed`."""


def hear_of_pools(get: Get) -> AutoscalerStatus:
    """The autoscalers' status of pools that this caller may read."""
    words = AutoscalerStatus()
    with contextlib.suppress(ApiFailed):  # no readable status: Events about a pod say less
        words.put_status(get(f"{_CONFIG_MAPS}/{STATUS}"))
    with contextlib.suppress(ApiFailed):
        for claim in mappings(get(_CLAIMS).get("items")):
            words.put_claim(claim)
        words.sees_claims = True
    with contextlib.suppress(ApiFailed):
        _hear(words, get("/api/v1/namespaces/default/events", _NODE_POOL_EVENTS))
    return words


def hear_of_pod(words: AutoscalerStatus, get: Get, pod: Mapping[str, Any]) -> None:
    """Add their status of one pod."""
    try:
        _hear(words, get(*events_of_pod(pod)))
    except ApiFailed:
        words.can_hear = False


def _hear(words: AutoscalerStatus, listed: Mapping[str, Any]) -> None:
    for event in mappings(listed.get("items")):
        if is_word(event, (str(metadata(event).get("namespace", "")),)):
            words.put_event(event)


_DAEMON_SETS = "/apis/apps/v1/daemonsets"
_NOT_FOR_US = (403, 404)  # no right to list them, or a server without them, such as a separate control plane


class ShownPools(NamedTuple):
    """The objects of a cluster that show its pools, as the API writes them.

    ``no_daemon_sets`` says why its DaemonSets are unknown; empty if they are known. ``config_maps`` are the cluster
    autoscaler's, empty without it; ``no_config_maps`` says why they are unknown.
    """

    nodes: list[dict[str, Any]]
    node_pools: list[dict[str, Any]]
    daemon_sets: list[dict[str, Any]]
    no_daemon_sets: str = ""
    config_maps: Sequence[dict[str, Any]] = ()
    no_config_maps: str = ""


def ask_for_pools(context: str | None = None) -> ShownPools:
    """The nodes and NodePools of a context's cluster; by default the kubeconfig's, or the pod's own.

    Raises :class:`InputError` if the cluster cannot be found or reached, or refuses to list its nodes.
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
            f"{error}: reading pools needs a cluster that answers and the right to list its nodes"
        ) from error
    finally:
        await api.close()
    pools = list((found or {}).get("items") or ())
    return ShownPools(list(nodes.get("items") or ()), pools, sets, no_sets, maps, no_maps)


async def _config_maps(api: Api) -> tuple[list[dict[str, Any]], str]:
    """The readable ConfigMaps of the cluster autoscaler, and why another one is not. Raises :class:`ApiFailed`."""
    found, why = [], ""
    for name in (STATUS, PRIORITIES):
        try:
            found.append(await api.get_or_none(f"{_CONFIG_MAPS}/{name}"))
        except ApiFailed as error:
            if error.status not in _NOT_FOR_US:
                raise
            why = str(error)
    return [one for one in found if one is not None], why


async def _daemon_sets(api: Api) -> tuple[list[dict[str, Any]], str]:
    """The DaemonSets of all namespaces, with the kind that list items lack; or the reason why they are unknown.

    Pools can be read without them, so a caller who may not list them gets the reason. Raises :class:`ApiFailed` for any other
    error.
    """
    try:
        answer = await api.get(_DAEMON_SETS)
    except ApiFailed as error:
        if error.status not in _NOT_FOR_US:
            raise
        return [], str(error)
    return [{"kind": "DaemonSet", **item} for item in answer.get("items") or ()], ""
