"""Reads what a cluster shows of its autoscalers: for the webhook every ten seconds, for ``explain`` about one pod.

What cannot be read is unknown, and what is not there is no autoscaler. The watcher has streams of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from spotwright.clouds.cluster_autoscaler import PRIORITIES, STATUS
from spotwright.clouds.pool_order import UNKNOWN, Autoscalers
from spotwright.cluster.api_client import Api, ApiFailed
from spotwright.cluster.autoscaler_words import SCALER, AutoscalerWords, is_word
from spotwright.cluster.signals import events_of_pod
from spotwright.errors import InputError
from spotwright.kube.object_fields import mappings, metadata
from spotwright.pools.autoscaler_config_maps import NAMESPACE, priorities_of, status_of, weights_of

__all__ = ["AutoscalerReader", "hear_of_pod", "hear_of_pools"]


_CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_NODE_POOLS = "/apis/karpenter.sh/v1/nodepools"

_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
_NODE_POOL_EVENTS = {"fieldSelector": "involvedObject.kind=NodePool"}

_LOG = logging.getLogger(__name__)
_EVERY = 10.0  # seconds: an autoscaler's own scan
_ANSWERS = 10.0  # seconds: reviews wait for the first answers, and objects whose conversion hangs must not hold them up
_MOST_NODE_POOLS = _MOST_EVENTS = "500"


class _Found(NamedTuple):
    """An answer of the API server: the object, or None if there is none; ``unread`` says why it is not known."""

    data: Mapping[str, Any] | None
    unread: str = ""


def _seen(found: Sequence[_Found], speaks: bool, now: float) -> Autoscalers:
    """What the answers to :data:`_QUESTIONS` together tell. ``speaks``: a cluster autoscaler is heard in Events."""
    status, priorities, node_pools = found
    unread = "; ".join(dict.fromkeys(one.unread for one in (status, priorities, node_pools) if one.unread))
    state, has_status = _understood(status, status_of)
    if state is not None and not state.is_kept(now):
        state = None
    if has_status is False and speaks:
        has_status, unread = None, "a cluster autoscaler speaks in Events, and has no status in kube-system"
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
        _LOG.debug("%s", error)  # `pools check` says it to people; the order of pools is then not kept
        return None, True


_QUESTIONS: Sequence[tuple[str, Mapping[str, str]]] = (
    (f"{_CONFIG_MAPS}/{STATUS}", {}),
    (f"{_CONFIG_MAPS}/{PRIORITIES}", {}),
    (_NODE_POOLS, {"limit": _MOST_NODE_POOLS}),
)


class AutoscalerReader:
    """What a cluster shows, up to ten seconds old: ``seen``. Await :meth:`follow`.

    Events are read of ``namespaces`` alone; none: of all.
    """

    def __init__(self, api: Api, namespaces: Sequence[str] = ()) -> None:
        self._api, self._namespaces = api, namespaces
        self.seen = UNKNOWN
        self.is_complete = False

    async def follow(self) -> None:
        """Read again and again until cancelled."""
        while True:
            found = [await self._answer(path, query) for path, query in _QUESTIONS]
            speaks = found[0].data is None and not found[0].unread and await self._speaks()
            now = self._api.now()
            seen = await asyncio.to_thread(_seen, found, speaks, now)  # of 200 groups it takes a third of a second
            if seen.unread and seen.unread != self.seen.unread:
                _LOG.warning("what adds nodes to the pools is not known: %s", seen.unread)
            self.seen, self.is_complete = seen, True
            await asyncio.sleep(_EVERY)

    async def _speaks(self) -> bool:
        """Whether a cluster autoscaler writes Events.

        Whoever works in a namespace may write any Event there, and the answer counts for all: it takes two namespaces, or the
        only one that is served.
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


def hear_of_pools(get: Get) -> AutoscalerWords:
    """What the autoscalers say of pools, as far as this caller may read it."""
    words = AutoscalerWords()
    with contextlib.suppress(ApiFailed):  # there is no status, or it is for others: the Events about a pod tell less
        words.put_status(get(f"{_CONFIG_MAPS}/{STATUS}"))
    with contextlib.suppress(ApiFailed):
        for claim in mappings(get(_CLAIMS).get("items")):
            words.put_claim(claim)
        words.sees_claims = True
    with contextlib.suppress(ApiFailed):
        _hear(words, get("/api/v1/namespaces/default/events", _NODE_POOL_EVENTS))
    return words


def hear_of_pod(words: AutoscalerWords, get: Get, pod: Mapping[str, Any]) -> None:
    """Add what they say of one pod."""
    try:
        _hear(words, get(*events_of_pod(pod)))
    except ApiFailed:
        words.can_hear = False


def _hear(words: AutoscalerWords, listed: Mapping[str, Any]) -> None:
    for event in mappings(listed.get("items")):
        if is_word(event, (str(metadata(event).get("namespace", "")),)):
            words.put_event(event)
