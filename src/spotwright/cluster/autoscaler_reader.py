"""Reads what a cluster shows of its autoscalers: for the webhook every ten seconds, for ``explain`` about one pod.

What cannot be read is unknown, and what is not there is no autoscaler. The watcher has streams of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from spotwright.clouds.cluster_autoscaler import PRIORITIES, STATUS
from spotwright.clouds.pool_order import UNKNOWN, Autoscalers
from spotwright.cluster.api_client import Api, ApiFailed
from spotwright.cluster.autoscaler_words import AutoscalerWords
from spotwright.cluster.signals import events_of_pod, mappings
from spotwright.errors import InputError
from spotwright.pools.autoscaler_config_maps import NAMESPACE, priorities_of, status_of, weights_of

__all__ = ["AutoscalerReader", "heard"]


_CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_NODE_POOLS = "/apis/karpenter.sh/v1/nodepools"

_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
_NODE_POOL_EVENTS = {"fieldSelector": "involvedObject.kind=NodePool"}

_LOG = logging.getLogger(__name__)
_EVERY = 10.0  # seconds: an autoscaler's own scan
_MOST_NODE_POOLS = "500"


class _Found(NamedTuple):
    """An answer of the API server: the object, or None if there is none; ``unread`` says why it is not known."""

    data: Mapping[str, Any] | None
    unread: str = ""


def _seen(status: _Found, priorities: _Found, node_pools: _Found) -> Autoscalers:
    """What the answers together tell."""
    problems = [one.unread for one in (status, priorities, node_pools) if one.unread]
    state, has_status = _understood(status, status_of)
    patterns, has_priorities = _understood(priorities, priorities_of)
    weights = None if node_pools.unread else weights_of((node_pools.data or {}).get("items") or ())
    return Autoscalers(has_status, state, has_priorities, patterns, weights, "; ".join(dict.fromkeys(problems)))


def _understood(found: _Found, read: Callable[[Mapping[str, Any]], Any]) -> tuple[Any, bool | None]:
    if found.unread:
        return None, None
    if found.data is None:
        return None, False
    try:
        return read(found.data), True
    except InputError as error:
        _LOG.debug("%s", error)  # `pools check` says it to people; the order of pools is then not kept
        return None, True


_QUESTIONS: Sequence[tuple[str, Mapping[str, str]]] = (
    (f"{_CONFIG_MAPS}/{STATUS}", {}),
    (f"{_CONFIG_MAPS}/{PRIORITIES}", {}),
    (_NODE_POOLS, {"limit": _MOST_NODE_POOLS}),
)


def _of_failure(error: ApiFailed) -> _Found:
    return _Found(None) if error.status == 404 else _Found(None, str(error))


class AutoscalerReader:
    """What a cluster shows, up to ten seconds old: ``seen``. Await :meth:`follow`."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.seen = UNKNOWN
        self.is_complete = False

    async def follow(self) -> None:
        """Read again and again until cancelled."""
        while True:
            seen = _seen(*[await self._answer(path, query) for path, query in _QUESTIONS])
            if seen.unread and seen.unread != self.seen.unread:
                _LOG.warning(
                    "what adds nodes to the pools is not known, so pods are sent to one pool each: %s", seen.unread
                )
            self.seen, self.is_complete = seen, True
            await asyncio.sleep(_EVERY)

    async def _answer(self, path: str, query: Mapping[str, str]) -> _Found:
        try:
            return _Found(await self._api.get(path, query))
        except ApiFailed as error:
            return _of_failure(error)


def heard(get: Callable[..., Mapping[str, Any]], pod: Mapping[str, Any]) -> AutoscalerWords:
    """What the autoscalers say that this caller may read: about this pod, and about the pools.

    ``get`` reads a path of the API server, with a query, and raises :class:`ApiFailed`.
    """
    words = AutoscalerWords()
    try:
        words.put_status(get(f"{_CONFIG_MAPS}/{STATUS}"))
    except ApiFailed:
        words.put_status(None)  # there is none, or it is for others: the Events about the pod tell less
    try:
        for claim in mappings(get(_CLAIMS).get("items")):
            words.put_claim(claim)
        words.sees_claims = True
    except ApiFailed:
        words.sees_claims = False
    for path, query in (events_of_pod(pod), ("/api/v1/namespaces/default/events", _NODE_POOL_EVENTS)):
        try:
            for event in mappings(get(path, query).get("items")):
                words.put_event(event)
        except ApiFailed:
            words.can_hear = False
    return words
