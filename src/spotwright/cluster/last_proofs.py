"""Bounds the unreported end of an attempt: its machine lost power, and the kubelet with it.

Kubernetes reports such an end late: after 50 s of silence, with the machine's next boot, or never if the Node object is deleted
first. So the end is a range. It begins with the last proof of life: the last line of the attempt's log, stamped by the node,
the renewal of the node's Lease (every 10 s by default: Kubernetes documentation, "Node Heartbeats"), or the heartbeat in the
node's status (every 5 min). It ends when the absence was first known. The account counts up to the last proof.

A Lease is deleted with its Node object, and is renewed as soon as the machine is back. So it is read once, when a node with
pods becomes silent or its Node object is deleted, instead of being watched.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from spotwright.cluster.api_client import FORBIDDEN, Api, ApiFailed, object_path
from spotwright.kube.object_fields import mapping, seconds

__all__ = ["NODE_LEASES", "End", "NodeLeases", "last_proof"]

NODE_LEASES = "kube-node-lease"
"""The namespace of the Leases of nodes. Source: Kubernetes documentation, "Node Heartbeats"."""

_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NODE_LEASES}/leases"
_LOG = logging.getLogger(__name__)
_ROUNDED = 2.0  # seconds: Kubernetes writes whole ones, and two machines have two clocks
_MOST = 500  # queued nodes: if more fall silent at once, the controller's own network is cut


class End(NamedTuple):
    """When an attempt ended, in Unix seconds: ``at``, or between ``at`` and ``by``.

    ``proof`` names the proof of life ``at``.
    """

    at: float
    by: float | None = None
    proof: str = ""


def last_proof(
    begun: float,
    proofs: Mapping[str, float | None],
    absences: Iterable[float | None],
    now: float,
    *,
    restarted_at: float | None = None,
) -> End:
    """The end of an attempt that began at ``begun`` and whose end was not reported. All times are in Unix seconds.

    ``proofs``: times at which it certainly lived, by kind of proof. ``absences``: times at which it certainly did not, or its
    machine was given up. ``restarted_at``: later proofs belong to the machine's next boot.
    """
    latest = now if restarted_at is None else min(max(restarted_at, begun), now)
    known = {proof: at for proof, at in proofs.items() if at is not None and begun <= at <= latest + _ROUNDED}
    proof = max(known, key=known.__getitem__, default="its start")
    at = min(known.get(proof, begun), latest)
    found = (each for each in absences if each is not None and each >= at - _ROUNDED)
    return End(at, max(at, min((*found, latest))), proof)


class _View(Protocol):
    """Knowledge of nodes; :class:`spotwright.cluster.view.ClusterView` has it."""

    def put_lease(self, node: str, renewed_at: float) -> None:
        """Note when a silent or deleted node last renewed its Lease, in Unix seconds."""


class NodeLeases:
    """Reads the Leases of silent nodes, one after the other, and passes them to the view."""

    def __init__(self, api: Api, view: _View) -> None:
        self._api, self._view = api, view
        self._asked: asyncio.Queue[str] = asyncio.Queue(_MOST)
        self._is_refused = False

    def ask(self, node: str) -> None:
        """Read the Lease of a node soon."""
        if not self._is_refused and not self._asked.full():
            self._asked.put_nowait(node)

    async def run(self) -> None:
        """Work until cancelled. If the Leases may not be read, the log says so once, and other proofs count."""
        while True:
            node = await self._asked.get()
            if self._is_refused:
                continue
            try:
                name = object_path("v1", "Node", node).rpartition("/")[2]  # raises for an invalid name
                lease = await self._api.get_or_none(f"{_LEASES}/{name}")
            except ApiFailed as error:
                if error.status in FORBIDDEN:
                    self._is_refused = True
                    _LOG.warning("only logs show until when lost nodes lived: %s", error)
                else:
                    _LOG.debug("%s", error)
                continue
            renewed_at = _renewed_at(lease)
            if renewed_at is not None:
                self._view.put_lease(node, renewed_at)


def _renewed_at(lease: Mapping[str, Any] | None) -> float | None:
    return seconds(mapping((lease or {}).get("spec")).get("renewTime"))
