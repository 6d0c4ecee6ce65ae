"""Finds why a pod does not start on its node, in the kubelet's words.

A pod's status shows an image that cannot be pulled, and a ConfigMap or Secret missing from a container's environment. A volume
that cannot be mounted and a sandbox that cannot be created are only in events, which the kubelet repeats while it tries
(Kubernetes documentation, "Debug Pods"). :class:`PodStarts` reads the events of pods that have not started for a while; they
are few, so a watch of all events is not needed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from spotwright.checkpoint_file import config_map
from spotwright.cluster.api_client import FORBIDDEN, Api, ApiFailed
from spotwright.cluster.signals import PodWaits, bound_at, event_time, events_of_pod, has_not_started, waits_for
from spotwright.kube.object_fields import mapping, metadata, text, uid_of

__all__ = ["PodStarts", "why_not_started"]


def why_not_started(pod: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> str:
    """Why a pod does not start on its node, in a sentence, or empty.

    The kubelet's messages before newer events are outdated.
    """
    if not has_not_started(pod):
        return ""
    held = waits_for(pod)
    if held.kind:
        return str(held)
    newest = max(events, key=event_time, default=None)
    if newest is None or newest.get("type") != "Warning":
        return ""
    says = f"{text(newest.get('reason'))}: {text(newest.get('message'))}"
    name = text(mapping(config_map()["metadata"]).get("name"))
    if f'configmap "{name}" not found' not in says:
        return says
    namespace = text(mapping(pod.get("metadata")).get("namespace"))
    return f"{says}; create it: spotwright checkpoint-file --config-map | kubectl -n {namespace} apply -f -"


_ROUND = 3.0  # seconds between checks for pods that do not start
_PATIENCE = 10.0  # seconds in which a pod may start before asking why it does not
_AGAIN = 20.0  # seconds until the events of a pod are read again
_AT_ONCE = 10  # pods whose events are read in one round
_REFUSED = 300.0  # seconds until events are requested again in a namespace that refused them
_MOST_EVENTS = "200"  # of one pod: tenants can write more
_LONGEST = 500  # characters of a reason that are kept

_LOG = logging.getLogger(__name__)


class _View(Protocol):
    """Knowledge of pods; :class:`spotwright.cluster.view.ClusterView` has it."""

    clock: float

    @property
    def starting(self) -> Iterable[Mapping[str, Any]]:
        """The pods that have a node and have not started there."""

    def hold_up(self, pod: Mapping[str, Any], waits: PodWaits) -> bool:
        """Note why a pod does not start, if so. Returns whether that changed."""


class PodStarts:
    """Asks why pods do not start on their nodes, and reports it to the view."""

    def __init__(self, api: Api, view: _View) -> None:
        self._api, self._view = api, view
        self._due: dict[str, float] = {}  # pod UID -> when its events are read next, by the API server's clock
        self._refused: dict[str, float] = {}  # namespace -> no requests there until then

    async def run(self, look_at: Callable[[Iterable[str]], None]) -> None:
        """Work until cancelled. ``look_at`` makes the watcher look at pods again, by UID."""
        while True:
            await asyncio.sleep(_ROUND)
            news = [uid_of(pod) for pod in self._waiting() if await self._ask(pod)]
            if news:
                look_at(news)

    def _waiting(self) -> Iterator[Mapping[str, Any]]:
        """The pods whose events are due, up to the limit at once."""
        now = self._api.now()
        there = {uid_of(pod): pod for pod in self._view.starting}
        self._due = {uid: at for uid, at in self._due.items() if uid in there}
        due = []
        for uid, pod in there.items():
            since = bound_at(pod)
            if since is not None and now >= max(since + _PATIENCE, self._due.get(uid, 0.0)) and not waits_for(pod).kind:
                due.append(pod)
        due.sort(key=lambda pod: self._due.get(uid_of(pod), 0.0))
        yield from due[:_AT_ONCE]

    async def _ask(self, pod: Mapping[str, Any]) -> bool:
        namespace, now = str(metadata(pod).get("namespace", "")), self._api.now()
        self._due[uid_of(pod)] = now + _AGAIN
        if now < self._refused.get(namespace, 0.0):
            return False
        try:
            path, query = events_of_pod(pod)
            found = await self._api.get(path, {**query, "limit": _MOST_EVENTS})
        except ApiFailed as error:
            if error.status in FORBIDDEN:
                self._refused[namespace] = now + _REFUSED
                _LOG.warning("cannot tell why pods in namespace %s do not start: %s", namespace, error)
            return False  # it is retried
        kind, _, words = why_not_started(pod, found.get("items") or ())[:_LONGEST].partition(": ")
        return self._view.hold_up(pod, PodWaits(kind, words))
