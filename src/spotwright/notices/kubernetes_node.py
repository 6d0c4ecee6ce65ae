"""Read notices from the conditions and taints of a Kubernetes node.

This module has no cluster client. A function returns the node in the API's form (``kubectl get node NAME -o json``), or a file
has it and is replaced when the node changes. The names of conditions and taints, with their sources, are in
:mod:`spotwright.clouds.node_signs`. AKS' messages ("Preempt Scheduled: Mon, 19 Sep 2016 18:29:47 GMT. ...", and a
recommendation to leave under the same condition) have the format that karpenter-provider-azure reads
(pkg/controllers/interruption).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from spotwright.clouds import node_signs
from spotwright.kube.object_fields import mapping, mappings
from spotwright.notices.http_client import parse_http_date
from spotwright.notices.notice import SHORTEST, Notice, PollingSource, SourceError

__all__ = ["KubernetesSource", "node_in_file"]

_AWS_NOTICE = 120.0
_GRACE = 30.0  # seconds a drained pod has by default: terminationGracePeriodSeconds
_MAX_SIZE = 1 << 20  # bytes of a node that are read
_LONG_AGO = 600.0  # an event this many seconds overdue is doubtful
_ADVICE = "SpotRebalanceRecommendation"
_AKS_SPOT = ("kubernetes.azure.com/scalesetpriority", "spot")
_REBALANCE_TAINT = "aws-node-termination-handler/rebalance-recommendation"


class KubernetesSource(PollingSource):
    """Calls ``node`` for the node once a second. The function may raise :class:`SourceError`, or return ``None``: no node yet."""

    name = "kubernetes"
    interval = 1.0

    def __init__(self, node: Callable[[], Mapping[str, Any] | None]) -> None:
        self._node = node
        self._first: dict[str, float] = {}  # when each sign was first seen, by the monotonic clock

    def poll(self, timeout: float) -> Notice | None:  # noqa: ARG002  # the function has its own
        """Read the node once."""
        node = self._node()
        signs = list(_signs(node)) if node is not None else []
        now, wall = time.monotonic(), time.time()
        self._first = {text: self._first.get(text, now) for _, _, _, text in signs}
        notices = [
            Notice(wall + left - (now - self._first[text]) * counts, kind, self.name, certain=certain, reason=text)
            for kind, certain, (left, counts), text in signs
        ]
        return min(notices, key=_urgency, default=None)


_TimeLeft = tuple[float, bool]
"""Seconds until the end; true if they count from the first sight of the sign, false if from now."""

_Sign = tuple[str, bool, _TimeLeft, str]
"""Kind, certainty, time left, and the sentence for people."""


def _urgency(notice: Notice) -> tuple[bool, int, float]:
    return (not notice.certain, ("interruption", "disruption", "rebalance").index(notice.kind), notice.ends_at)


def _signs(node: Mapping[str, Any]) -> Iterator[_Sign]:
    """All signs on a node that it is going away."""
    labels = mapping(mapping(node.get("metadata")).get("labels"))
    is_aks_spot = labels.get(_AKS_SPOT[0]) == _AKS_SPOT[1]
    for condition in mappings(mapping(node.get("status")).get("conditions")):
        yield from _condition(condition)
    for taint in mappings(mapping(node.get("spec")).get("taints")):
        key = taint.get("key")
        if isinstance(key, str):
            yield from _taint(key, is_aks_spot=is_aks_spot)
    if mapping(node.get("metadata")).get("deletionTimestamp"):
        yield "disruption", True, (_GRACE, True), "the node is being deleted"


def _condition(condition: Mapping[str, Any]) -> Iterator[_Sign]:
    kind, message = condition.get("type"), condition.get("message")
    text = " ".join(message.split()) if isinstance(message, str) else ""
    if kind == "Ready" and condition.get("status") == "False" and "node is shutting down" in text:
        yield "interruption", True, (SHORTEST, True), "the node is shutting down"
    if condition.get("status") != "True":
        return
    if not isinstance(kind, str):
        return
    if kind in node_signs.TAKEN_CONDITIONS:
        yield _vm_event(text, otherwise="Preempt")
    elif kind == node_signs.VM_EVENT_CONDITION and text.startswith(node_signs.TAKEN_VM_EVENTS):
        yield _vm_event(text, otherwise=text.split(" ", 1)[0])


def _vm_event(text: str, otherwise: str) -> _Sign:
    """A sign from AKS' message about an event of Azure: its kind, its state, and its time if given."""
    if text.startswith(_ADVICE):
        return (
            "rebalance",
            False,
            (float("inf"), False),
            "Azure recommends leaving this node: it may be preempted soon",
        )
    event, _, rest = text.partition(" ")
    is_known = event in node_signs.TAKEN_VM_EVENTS
    reason = f"AKS reports that Azure is reclaiming this node ({event if is_known else otherwise})"
    if is_known and rest.startswith("Started"):
        return "interruption", True, (0.0, True), f"{reason}, already in progress"
    moment = parse_http_date(rest.removeprefix("Scheduled:").strip().split(" GMT", 1)[0] + " GMT")
    if not is_known or not rest.startswith("Scheduled") or moment is None:
        return "interruption", False, (SHORTEST, True), reason
    left = moment - time.time()
    return "interruption", left > -_LONG_AGO, (left, False), reason


def _taint(key: str, *, is_aks_spot: bool) -> Iterator[_Sign]:
    if key in node_signs.TAKEN_TAINTS:
        seconds = _AWS_NOTICE if key.startswith("aws-") else SHORTEST
        yield "interruption", True, (seconds, True), f"the provider is reclaiming this node (taint {key})"
    elif key == _REBALANCE_TAINT:
        text = "EC2 recommends leaving this node: its interruption risk has risen"
        yield "rebalance", False, (float("inf"), False), text
    elif key in node_signs.REMOVED_TAINTS:
        yield "disruption", True, (_GRACE, True), f"this node is being removed (taint {key})"
    elif key in node_signs.AUTO_DRAIN_TAINTS:
        kind = "interruption" if is_aks_spot else "disruption"
        yield kind, True, (SHORTEST, True), f"AKS drains this node (taint {key})"
    elif key in node_signs.GONE_TAINTS:
        yield "interruption", True, (0.0, True), f"this node's machine is gone (taint {key})"


def node_in_file(path: str | os.PathLike[str]) -> Callable[[], Mapping[str, Any] | None]:
    """Return a reader of a node in a file that a cluster watcher replaces whole; no file: no node yet."""
    file_path = Path(path)

    def read() -> Mapping[str, Any] | None:
        try:
            with file_path.open("rb") as file:
                node = json.loads(file.read(_MAX_SIZE))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SourceError(f"kubernetes: {file_path} cannot be read ({error.strerror})") from error
        except (ValueError, RecursionError) as error:
            raise SourceError(
                f"kubernetes: {file_path} not valid JSON; write the node to another file, then rename that"
            ) from error
        if not isinstance(node, dict) or node.get("kind") != "Node":
            raise SourceError(f"kubernetes: {file_path} not a node (kind: Node)")
        return node

    return read
