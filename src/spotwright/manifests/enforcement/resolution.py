"""Resolve the facts of a kind for one placed object: which fields it has, with their values, and which values nothing keeps.

A fact names the field that ``place`` writes. Whether the object has it depends on the policy, the pools and what the user wrote
there before, so the object itself is read after it was placed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from spotwright.manifests.enforcement.facts import Anchor, Enforced, Enforcer, Fact, nothing
from spotwright.model.policy import Policy

__all__ = ["BY_QUOTA", "CONTROLLER_TEXT", "IN_A_QUEUE", "KUBERNETES_GRACE", "NOT_NEEDED", "resolve_fact"]

NOT_NEEDED = "not needed: it stays on on-demand"
CONTROLLER_TEXT = "nothing without the Spotwright controller"
IN_A_QUEUE = Enforced(Enforcer.KIND, "", "Kueue, by the order of its flavors")
"""Who enforces ``spot: prefer`` for work in a queue of Kueue, which ignores preferred affinity."""

BY_QUOTA = Enforced(Enforcer.NOTHING, "", "nothing: Kueue goes on to the next flavor by quota alone", is_silent=True)
"""That nothing keeps ``fall_back_after`` and ``pending_timeout`` in a queue of Kueue; the placement reports it."""

KUBERNETES_GRACE = 30.0
"""Seconds of a pod's grace period where its spec has none. Source: Kubernetes documentation, "Pod Lifecycle"."""

_ABOUT_SPOT = ("interruptions.", "fall_back_after")


def resolve_fact(
    facts: Mapping[str, Fact], field: str, policy: Policy, anchors: Mapping[str, Anchor], *, on_spot: bool
) -> Enforced:
    """Who enforces a field of the policy in one placed object. ``on_spot``: whether the object may run on spot pools."""
    if policy.spot is None:
        return Enforced(Enforcer.NOTHING, "", "nothing")
    if not on_spot and field.startswith(_ABOUT_SPOT):
        return Enforced(Enforcer.NOTHING, "", NOT_NEEDED, is_silent=True)
    fact: Fact | None = _fact(facts, field, policy)
    while fact is not None and fact.by is Enforcer.OBJECT:
        text = _in_force(fact, anchors)
        if text:
            return Enforced(fact.by, fact.path, _with_note(text, fact.note))
        fact = fact.absent
    if field == "grace_period" and policy.grace_period == KUBERNETES_GRACE and fact is None:
        return Enforced(Enforcer.KIND, "", "Kubernetes, by its default")
    return _without_field(fact or nothing())


def _in_force(fact: Fact, anchors: Mapping[str, Anchor]) -> str:
    """The field of a fact with its value in the object; empty if the object does not have it."""
    anchor = anchors.get(fact.field.partition(":")[0])
    if anchor is None:
        return ""
    path = (*anchor.path, *_steps(fact.field))
    value = anchor.read(path)
    if value is None:
        return ""
    is_own = anchor.read_before(path, None) == value
    return f"{fact.label}{f' {value}' if _is_short(value) else ''}{' (yours)' if is_own else ''}"


def _fact(facts: Mapping[str, Fact], field: str, policy: Policy) -> Fact:
    """The fact for a field, or for its value if the table distinguishes values."""
    if field == "spot":
        return facts[f"spot: {policy.spot}"]
    no_retries = f"{field}: {policy.retries}"
    return facts[no_retries] if field == "errors.retries" and no_retries in facts else facts[field]


def _without_field(fact: Fact) -> Enforced:
    text = f"nothing: {fact.note}" if fact.note else "nothing"
    if fact.by is Enforcer.CONTROLLER:
        text = _with_note(CONTROLLER_TEXT, fact.note)
    elif fact.by is Enforcer.KIND:
        text = fact.note
    return Enforced(fact.by, "", text, fact.is_reported)


@cache
def _steps(field: str) -> tuple[str | int, ...]:
    steps = field.partition(":")[2].split(".")
    return tuple(int(step) if step.isdigit() else step for step in steps)


def _with_note(text: str, note: str) -> str:
    return f"{text}, {note}" if note else text


def _is_short(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= _LONGEST)


_LONGEST = 20  # characters of a value that is printed in a column
