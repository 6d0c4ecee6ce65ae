"""How long an orchestrator's attempt has waited in vain for a node: row 7 of the table, on a cluster.

``pending_timeout`` counts only the time without a node on its way. The clock stops while an autoscaler has ordered a node for
the attempt; if the autoscaler reports that none of the attempt's pools can provide one, the wait ends at once.
"""

from __future__ import annotations

from spotwright.engine.state import AttemptState, TaskState
from spotwright.model.policy import BUILT_IN

__all__ = [
    "CANNOT_GROW",
    "NEVER_COMES",
    "NODE_ORDERED",
    "NO_NODE",
    "NO_SCALE_UP",
    "ORDERS_UNKNOWN",
    "in_vain_at",
    "is_ruled_out",
    "never_came",
    "ordered_for",
    "told",
    "waited_in_vain",
]


NO_NODE = "Unschedulable"
"""The attempt waits for a node, and none is known to be on its way. kube-scheduler's reason."""

NODE_ORDERED = "NodeOrdered"
"""An autoscaler has ordered a node for the attempt."""

CANNOT_GROW = "CannotGrow"
"""None of the attempt's pools can provide a node now: the cloud has no capacity."""

NO_SCALE_UP = "NoScaleUp"
"""The attempt's pools cannot add a node for it now: they are full, or the report is about this attempt only."""


NEVER_COMES = "NodeNeverComes"
"""Nodes ordered for the attempt have not come within an autoscaler's provisioning time."""

ORDERS_UNKNOWN = "OrdersUnknown"
"""As :data:`NO_NODE`, but without permission to read whether a node is on its way."""

_RULED_OUT = (CANNOT_GROW, NO_SCALE_UP, NEVER_COMES)

_BLIND = 960.0
"""Seconds: if orders are unknown, the default exceeds the 15 minutes after which an autoscaler gives up an order."""


def in_vain_at(task: TaskState, attempt: AttemptState) -> float | None:
    """The time from which an attempt has waited long enough; ``None`` if it does not wait, or not in vain.

    An attempt open to all rungs waits in vain only if its autoscaler does not try the next pool itself.
    """
    if not attempt.is_live or attempt.bound_at is not None or attempt.waits_since is None:
        return None
    if attempt.is_open and not never_came(attempt):
        return None
    since = max(attempt.waits_since, attempt.rung_at)
    if is_ruled_out(attempt):
        return since
    if _kind(attempt) not in (NO_NODE, ORDERS_UNKNOWN):
        return None
    policy = task.plan.policy
    timeout = policy.pending_timeout
    if _kind(attempt) == ORDERS_UNKNOWN and policy.sources.get("pending_timeout") == BUILT_IN.source:
        timeout = max(timeout, _BLIND)
    return since + max(0.0, timeout - attempt.waited)


def is_ruled_out(attempt: AttemptState) -> bool:
    """Whether none of the attempt's pools provides a node now, by an autoscaler's report or by orders that never came."""
    return _kind(attempt) in _RULED_OUT


def never_came(attempt: AttemptState) -> bool:
    """Whether nodes ordered for the attempt have not come within an autoscaler's provisioning time."""
    return _kind(attempt) == NEVER_COMES


def waited_in_vain(attempt: AttemptState, now: float) -> float:
    """The seconds for which an attempt has waited until ``now`` without a node on its way."""
    if attempt.waits_since is None or _kind(attempt) not in (NO_NODE, ORDERS_UNKNOWN, *_RULED_OUT):
        return attempt.waited
    return attempt.waited + max(0.0, now - max(attempt.waits_since, attempt.rung_at))


def ordered_for(attempt: AttemptState, now: float) -> float:
    """The seconds until ``now`` with a node on its way for an attempt."""
    if attempt.waits_since is None or _kind(attempt) != NODE_ORDERED:
        return attempt.ordered
    return attempt.ordered + max(0.0, now - max(attempt.waits_since, attempt.rung_at))


def told(attempt: AttemptState) -> str:
    """Why an attempt waits, for people: Kubernetes' reason, or a clause for an autoscaler's."""
    kind, _, words = attempt.waits.partition(": ")
    return words if words and kind in (NODE_ORDERED, ORDERS_UNKNOWN, *_RULED_OUT) else attempt.waits


def _kind(attempt: AttemptState) -> str:
    return attempt.waits.partition(":")[0]
