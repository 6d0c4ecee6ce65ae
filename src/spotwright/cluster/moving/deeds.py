"""Does to pods what was decided: evicts one that waits in vain, deletes one whose machine is gone; tries until it is gone.

Both name the pod's UID, so a pod of the same name that was made since is left alone. An eviction names its version too: a pod
that has got a node meanwhile stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from spotwright.cluster.api.requests import Api, ApiFailed

__all__ = ["Deed", "Deeds"]

_LOG = logging.getLogger(__name__)
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0  # seconds between two tries
_DONE = (404,)  # the pod is gone
_CHANGED = 409  # its version or UID is another one: what the watcher sees next decides


@dataclass(slots=True)
class Deed:
    """What is to be done to a pod. ``not_before`` is by the monotonic clock."""

    what: Literal["evict", "delete"]
    namespace: str
    name: str
    uid: str
    version: str
    why: str
    tries: int = 0
    not_before: float = 0.0
    is_done: bool = False


class Deeds:
    """The deeds that are not done yet, by the pod's UID. ``done`` hears of each one that is done."""

    def __init__(self, api: Api, done: Callable[[Literal["evicted", "deleted"]], None] = lambda _: None) -> None:
        self._api, self._done = api, done
        self._open: dict[str, Deed] = {}

    def want(self, deed: Deed) -> None:
        """Let a deed be done; of one that is wanted already the pod's newest version counts."""
        known = self._open.get(deed.uid)
        if known is not None and known.what == deed.what:
            if known.version != deed.version:
                known.version, known.not_before = deed.version, known.not_before if known.is_done else 0.0
        else:
            self._open[deed.uid] = deed

    def forget(self, uid: str) -> None:
        """Want nothing of a pod any more."""
        self._open.pop(uid, None)

    async def do(self, clock: float) -> None:
        """Try what is due."""
        for deed in [each for each in self._open.values() if each.not_before <= clock]:
            await self._try(deed, clock)

    async def _try(self, deed: Deed, clock: float) -> None:
        try:
            await self._api.send(*_request(deed))
        except ApiFailed as error:
            if error.status in _DONE:
                self._open.pop(deed.uid, None)
                return
            deed.tries += 1
            deed.not_before = clock + min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(deed.tries - 1, 10))
            if error.status != _CHANGED:
                _LOG.warning("pod %s/%s: cannot %s it, tried again: %s", deed.namespace, deed.name, deed.what, error)
            return
        deed.not_before = clock + _LONGEST_WAIT  # its object may stay until its controller lets go of it
        if deed.is_done:
            return
        deed.is_done = True
        done: Literal["evicted", "deleted"] = "evicted" if deed.what == "evict" else "deleted"
        self._done(done)
        _LOG.info("pod %s/%s is %s: %s", deed.namespace, deed.name, done, deed.why)


def _request(deed: Deed) -> tuple[str, str, dict[str, Any]]:
    """The method, path and body of the request."""
    path = f"/api/v1/namespaces/{deed.namespace}/pods/{deed.name}"
    if deed.what == "delete":
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        return "DELETE", path, {**options, "preconditions": {"uid": deed.uid}}
    options = {"preconditions": {"uid": deed.uid, "resourceVersion": deed.version}}
    meta = {"name": deed.name, "namespace": deed.namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}
    return "POST", f"{path}/eviction", body
