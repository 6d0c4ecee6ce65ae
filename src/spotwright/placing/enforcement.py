"""Who enforces each value of the policy on a kind, and through which field of the object.

A policy has the same fields for every kind, but no kind enforces all of them. So each kind has a fact for each field, and
``explain`` prints it beside the value: without an enforcer a value is not a promise. The table has a row for each mechanism of
retries. A placed object has the fields of its kind with their values; values without effect are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from spotwright.model.policy import Policy
from spotwright.placing.documents import Path

__all__ = [
    "BACKOFFS",
    "BY_CONTROLLER",
    "BY_QUOTA",
    "CONTROLLER_TEXT",
    "IN_A_QUEUE",
    "IN_A_REVERSED_QUEUE",
    "KUBERNETES_GRACE",
    "NODES_ONLY",
    "NOT_NEEDED",
    "PODS_ONLY",
    "POD_FACTS",
    "Anchor",
    "Enforced",
    "Enforcer",
    "Fact",
    "Mechanism",
    "in_object",
    "nothing",
    "resolve_fact",
    "waits",
]


class Enforcer(StrEnum):
    """Who enforces a value of the policy while the work runs."""

    OBJECT = "object"  # a field of the placed object, which Kubernetes or the kind's controller reads
    KIND = "kind"  # Kubernetes or the kind's controller, without a field
    CONTROLLER = "controller"  # only a Spotwright controller in the cluster, if one runs
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Fact:
    """Who enforces one field of the policy on one kind.

    ``field``: where the value is written, as ``anchor:path`` (``job:backoffLimit``); the anchor is a part of the object.
    ``name``: the field's name for people, if it is not the path. ``note``: how the enforcer deviates from the policy.
    ``absent``: the fact that holds where the object does not have the field. ``is_reported``: the kind's module has its own
    finding about it.
    """

    by: Enforcer
    field: str = ""
    name: str = ""
    note: str = ""
    absent: Fact | None = None
    is_reported: bool = False

    @property
    def label(self) -> str:
        """The field's name for people."""
        return self.name or self.path

    @property
    def path(self) -> str:
        """The path of the field inside its part of the object."""
        return self.field.partition(":")[2]


@dataclass(frozen=True, slots=True)
class Anchor:
    """A part of an object: its path, and how to read the object after and before the placement."""

    path: Path
    read: Callable[[Path], Any]
    read_before: Callable[[Path, Any], Any]


@dataclass(frozen=True, slots=True)
class Enforced:
    """Who enforces a value in one placed object. ``field`` is empty unless the object has it; ``text`` is for people.

    ``is_silent``: it needs no report, because the kind's module reports it, or because the value concerns spot capacity
    and the work stays on on-demand.
    """

    by: Enforcer
    field: str
    text: str
    is_silent: bool = False


def in_object(field: str, note: str = "", *, name: str = "", absent: Fact | None = None) -> Fact:
    """The fact that a field of the object keeps the value."""
    return Fact(Enforcer.OBJECT, field, name, note, absent)


def nothing(note: str = "", *, is_reported: bool = False) -> Fact:
    """The fact that the value has no effect."""
    return Fact(Enforcer.NOTHING, note=note, is_reported=is_reported)


@dataclass(frozen=True, slots=True, eq=False)
class Mechanism:
    """A kind's way of retrying an attempt, with the enforcer of each field of the policy.

    ``title`` is its heading on the page of a kind; empty for the only or the usual one. ``facts`` has every field
    of the policy, ``spot`` by its value, and ``errors.retries: 0`` for kinds that retry no error. ``is_of_another``: another
    object decides, such as a TrainJob's runtime.
    """

    title: str
    facts: Mapping[str, Fact]
    is_of_another: bool = False


NOT_NEEDED = "not needed: it stays on on-demand"
CONTROLLER_TEXT = "nothing without the Spotwright controller"
IN_A_QUEUE = Enforced(Enforcer.KIND, "", "Kueue, by the order of its flavors")
"""Who enforces ``spot: prefer`` for work in a queue of Kueue, which ignores preferred affinity."""

IN_A_REVERSED_QUEUE = Enforced(Enforcer.NOTHING, "", "nothing: its queue has on-demand before spot", is_silent=True)
"""That ``spot: prefer`` has no effect in a queue whose flavors have another order; the placement reports it."""

BY_QUOTA = Enforced(Enforcer.NOTHING, "", "nothing: Kueue goes on to the next flavor by quota alone", is_silent=True)
"""That ``fall_back_after`` and ``pending_timeout`` have no effect in a queue of Kueue; the placement reports it."""

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
    if field == "grace_period" and not on_spot:  # only spot nodes give notice
        return Enforced(Enforcer.NOTHING, "", NOT_NEEDED, is_silent=True)
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


_REQUIRED = "pod:affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "pod:affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
BACKOFFS: tuple[str, ...] = tuple(
    f"{kind}.{part}" for kind in ("interruptions", "errors") for part in ("backoff", "factor", "max_backoff")
)
BY_CONTROLLER = Fact(Enforcer.CONTROLLER)
"""Only the Spotwright controller enforces the value."""


def required(note: str = "", absent: Fact | None = None) -> Fact:
    return in_object(_REQUIRED, note, name="required node affinity", absent=absent)


POD_FACTS: Mapping[str, Fact] = {
    "spot: require": required(),
    "spot: never": required(),
    "spot: prefer": in_object(
        _PREFERRED, "best effort", name="preferred node affinity", absent=required("for both kinds of capacity")
    ),
    "ladder": required("these pools, in any order"),
    "interruptions.max": nothing(),
    "errors.retries": nothing(),
    **dict.fromkeys(BACKOFFS, nothing()),
    "fall_back_after": nothing(),
    "pending_timeout": nothing(),
    "deadline": nothing("only spotwright run keeps it"),
    "expected_duration": nothing("only spotwright run reads it, for a deadline"),
    "grace_period": in_object("pod:terminationGracePeriodSeconds"),
    "timeout": nothing(),
    "checkpoint": in_object("pod:containers.0.env", "for code that reads it", name="SPOTWRIGHT_CHECKPOINT"),
    "image_pull_secrets": in_object("pod:imagePullSecrets"),
}
"""The fields of a pod, which every kind has; kinds whose pods alone are placed enforce no other."""


def waits(note: str) -> Mapping[str, Fact]:
    """The backoff rows of a kind with a backoff that is not the policy's."""
    return dict.fromkeys(BACKOFFS, nothing(note))


PODS_ONLY = Mechanism(
    "only the pods are placed",
    {
        **POD_FACTS,
        **waits("the kind's own retries decide"),
        "interruptions.max": nothing("the kind's own retries decide"),
        "errors.retries": nothing("the kind's own retries decide"),
    },
)
"""The mechanism of unknown kinds."""

NODES_ONLY = Mechanism(
    "",
    {
        **dict.fromkeys(POD_FACTS, nothing("only the nodes of its pods are placed", is_reported=True)),
        **{row: fact for row, fact in POD_FACTS.items() if row.startswith("spot: ") or row == "ladder"},
    },
)
"""The mechanism of kinds that only place the nodes of their pods."""
