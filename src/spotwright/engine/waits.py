"""How long an attempt that an orchestrator made has waited for a node in vain: row 7 of the table, on a cluster.

``pending_timeout`` counts only the time in which no node was on its way. While an autoscaler has ordered a node for the attempt
the clock stands; if it says that none of the attempt's pools can give a node, the wait ends at once.
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
"""The attempt waits only for a node, and none is known to be on its way. kube-scheduler's reason."""

NODE_ORDERED = "NodeOrdered"
"""An autoscaler has ordered a node for the attempt."""

CANNOT_GROW = "CannotGrow"
"""None of the attempt's pools can give a node now: the cloud has no capacity."""

NO_SCALE_UP = "NoScaleUp"
"""The attempt's pools get no more node for it now: they are full, or it is said of this attempt alone."""


NEVER_COMES = "NodeNeverComes"
"""Nodes were ordered for the attempt for as long as an autoscaler waits for one, and none has come."""

ORDERS_UNKNOWN = "OrdersUnknown"
"""As :data:`NO_NODE`, but it may not be read whether a node is on its way."""

_RULED_OUT = (CANNOT_GROW, NO_SCALE_UP, NEVER_COMES)

_BLIND = 960.0
"""Seconds: where orders are unknown, the default is above the 15 minutes after which an autoscaler gives an order up."""


def in_vain_at(task: TaskState, attempt: AttemptState) -> float | None:
    """The moment from which an attempt has waited for long enough; ``None`` if it does not wait, or not in vain.

    One that is open to all rungs waits in vain only where its autoscaler does not go on to the next pool by itself.
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
    """Whether no pool of the attempt gives a node now, as an autoscaler says, or as its orders show that never come."""
    return _kind(attempt) in _RULED_OUT


def never_came(attempt: AttemptState) -> bool:
    """Whether nodes were ordered for the attempt for as long as an autoscaler waits for one, and none has come."""
    return _kind(attempt) == NEVER_COMES


def waited_in_vain(attempt: AttemptState, now: float) -> float:
    """Seconds for which an attempt has waited until ``now`` while no node was on its way."""
    if attempt.waits_since is None or _kind(attempt) not in (NO_NODE, ORDERS_UNKNOWN, *_RULED_OUT):
        return attempt.waited
    return attempt.waited + max(0.0, now - max(attempt.waits_since, attempt.rung_at))


def ordered_for(attempt: AttemptState, now: float) -> float:
    """Seconds for which a node was on its way for an attempt until ``now``."""
    if attempt.waits_since is None or _kind(attempt) != NODE_ORDERED:
        return attempt.ordered
    return attempt.ordered + max(0.0, now - max(attempt.waits_since, attempt.rung_at))


def told(attempt: AttemptState) -> str:
    """Why an attempt waits, for people: Kubernetes' reason, or a clause where an autoscaler has said it."""
    kind, _, words = attempt.waits.partition(": ")
    return words if words and kind in (NODE_ORDERED, ORDERS_UNKNOWN, *_RULED_OUT) else attempt.waits


def _kind(attempt: AttemptState) -> str:
    return attempt.waits.partition(":")[0]
