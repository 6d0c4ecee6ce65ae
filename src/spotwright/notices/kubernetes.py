"""A node of Kubernetes as a source: what its conditions and taints say, as somebody else reads them from the cluster.

There is no client of a cluster here: a node is handed over as the API writes it (``kubectl get node NAME -o json``), by a
function, or in a file that is written again when the node changes. The names of conditions and taints, with their sources, are
those of :mod:`spotwright.clouds.signs`; the form of AKS' messages ("Preempt Scheduled: Mon, 19 Sep 2016 18:29:47 GMT. ...", and
an advice to leave under the same condition) is that which karpenter-provider-azure reads (pkg/controllers/interruption).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from spotwright.clouds import signs
from spotwright.notices.asking import http_date
from spotwright.notices.notice import SHORTEST, Notice, Polling, SourceError

__all__ = ["KubernetesSource", "node_in_file"]

_AWS_NOTICE = 120.0
_GRACE = 30.0  # seconds a pod has by default when its node is drained: terminationGracePeriodSeconds
_MOST = 1 << 20  # bytes of a node that are read
_LONG_AGO = 600.0
_ADVICE = "SpotRebalanceRecommendation"
_AKS_SPOT = ("kubernetes.azure.com/scalesetpriority", "spot")
_REBALANCE_TAINT = "aws-node-termination-handler/rebalance-recommendation"


class KubernetesSource(Polling):
    """Asks ``node`` for the node once a second. It may raise :class:`SourceError`, and give ``None`` while there is none."""

    name = "kubernetes"
    interval = 1.0

    def __init__(self, node: Callable[[], Mapping[str, Any] | None]) -> None:
        self._node = node
        self._first: dict[str, float] = {}  # when each sign was first seen, by the clock that is never set

    def ask(self, patience: float) -> Notice | None:  # noqa: ARG002  # whoever hands the node over has his own
        """Look at the node once."""
        node = self._node()
        signs_now = list(_signs(node)) if node is not None else []
        now, wall = time.monotonic(), time.time()
        self._first = {text: self._first.get(text, now) for _, _, _, text in signs_now}
        notices = [
            Notice(wall + left - (now - self._first[text]) * counts, kind, self.name, certain=certain, reason=text)
            for kind, certain, (left, counts), text in signs_now
        ]
        return min(notices, key=_urgency, default=None)


_Left = tuple[float, bool]
"""Seconds until the end, and whether they count from when the sign was first seen (otherwise from now)."""

_Sign = tuple[str, bool, _Left, str]
"""Kind, certainty, time, and the sentence for people."""


def _urgency(notice: Notice) -> tuple[bool, int, float]:
    return (not notice.certain, ("interruption", "disruption", "rebalance").index(notice.kind), notice.ends_at)


def _signs(node: Mapping[str, Any]) -> Iterator[_Sign]:
    """Everything on a node that says it goes."""
    labels = _mapping(_mapping(node.get("metadata")).get("labels"))
    is_aks_spot = labels.get(_AKS_SPOT[0]) == _AKS_SPOT[1]
    for condition in _mappings(_mapping(node.get("status")).get("conditions")):
        yield from _condition(condition)
    for taint in _mappings(_mapping(node.get("spec")).get("taints")):
        key = taint.get("key")
        if isinstance(key, str):
            yield from _taint(key, is_aks_spot=is_aks_spot)
    if _mapping(node.get("metadata")).get("deletionTimestamp"):
        yield "disruption", True, (_GRACE, True), "the node is being deleted"


def _condition(condition: Mapping[str, Any]) -> Iterator[_Sign]:
    kind, message = condition.get("type"), condition.get("message")
    text = " ".join(message.split()) if isinstance(message, str) else ""
    if kind == "Ready" and condition.get("status") == "False" and "node is shutting down" in text:
        yield "interruption", True, (SHORTEST, True), "the node is shutting down"
    if condition.get("status") != "True":
        return
    if kind in signs.TAKEN_CONDITIONS:
        yield _vm_event(text, otherwise="Preempt")
    elif kind == signs.VM_EVENT_CONDITION and text.startswith(signs.TAKEN_VM_EVENTS):
        yield _vm_event(text, otherwise=text.split(" ", 1)[0])


def _vm_event(text: str, otherwise: str) -> _Sign:
    """AKS' message about an event of Azure: its kind, its state, and perhaps when it comes."""
    if text.startswith(_ADVICE):
        return "rebalance", False, (float("inf"), False), "Azure advises to leave this node: it may be preempted soon"
    event, _, rest = text.partition(" ")
    known = event in signs.TAKEN_VM_EVENTS
    reason = f"AKS says that Azure takes this node ({event if known else otherwise})"
    if known and rest.startswith("Started"):
        return "interruption", True, (0.0, True), f"{reason}, and it has begun"
    moment = http_date(rest.removeprefix("Scheduled:").strip().split(" GMT", 1)[0] + " GMT")
    if not known or not rest.startswith("Scheduled") or moment is None:
        return "interruption", False, (SHORTEST, True), reason
    left = moment - time.time()
    return "interruption", left > -_LONG_AGO, (left, False), reason


def _taint(key: str, *, is_aks_spot: bool) -> Iterator[_Sign]:
    if key in signs.TAKEN_TAINTS:
        seconds = _AWS_NOTICE if key.startswith("aws-") else SHORTEST
        yield "interruption", True, (seconds, True), f"the provider takes this node (taint {key})"
    elif key == _REBALANCE_TAINT:
        text = "EC2 recommends to leave this node: the risk that it is interrupted has risen"
        yield "rebalance", False, (float("inf"), False), text
    elif key in signs.REMOVED_TAINTS:
        yield "disruption", True, (_GRACE, True), f"this node is being removed (taint {key})"
    elif key in signs.AUTO_DRAIN_TAINTS:
        kind = "interruption" if is_aks_spot else "disruption"
        yield kind, True, (SHORTEST, True), f"AKS drains this node (taint {key})"
    elif key in signs.GONE_TAINTS:
        yield "interruption", True, (0.0, True), f"this node's machine is gone (taint {key})"


def _mapping(given: Any) -> Mapping[str, Any]:
    return given if isinstance(given, Mapping) else {}


def _mappings(given: Any) -> list[Mapping[str, Any]]:
    return [item for item in given if isinstance(item, Mapping)] if isinstance(given, list) else []


def node_in_file(path: str | os.PathLike[str]) -> Callable[[], Mapping[str, Any] | None]:
    """A node as whoever watches the cluster writes it to a file: replaced as a whole, absent while there is none."""
    place = Path(path)

    def read() -> Mapping[str, Any] | None:
        try:
            with place.open("rb") as file:
                node = json.loads(file.read(_MOST))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SourceError(f"kubernetes: {place} cannot be read ({error.strerror})") from error
        except (ValueError, RecursionError) as error:
            raise SourceError(
                f"kubernetes: {place} holds no JSON; write the node whole, then rename it there"
            ) from error
        if not isinstance(node, dict) or node.get("kind") != "Node":
            raise SourceError(f"kubernetes: {place} holds no node (kind: Node)")
        return node

    return read
