"""Taints, tolerations, node selectors and node affinity, and the rules by which the Kubernetes scheduler matches them.

They are pure values, so that local runs, simulations and placement decide with the same code whether a node admits work. A
condition that cannot be decided before the work runs counts as met: one on a node's name, with a placeholder, or on a label
with an unknown value. Source: the Kubernetes documentation, "Taints and Tolerations" and "Assigning Pods to Nodes".
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = [
    "HOSTNAME",
    "Constraints",
    "Expression",
    "Preference",
    "Taint",
    "Term",
    "Toleration",
    "contradiction",
    "is_placeholder",
]

HOSTNAME = "kubernetes.io/hostname"
"""The label with a node's name, which pools do not determine."""

_SIGN = re.compile(r"[$<@{%\[_]")  # every placeholder has one, few other values do
_PLACEHOLDER = re.compile(r"[$<@]|\{\{|\{%|%\{|%[A-Za-z_]\w*%|\[\[|\A__\w*__\Z")


def is_placeholder(value: object) -> bool:
    """Whether a value is a placeholder that Argo, Katib, Helm, Kustomize, envsubst or a script fills in before the work runs.

    Their marks (``{{``, ``$``, ``<``, ``@``, ``%NAME%``, ``__NAME__``) do not occur in labels and quantities.
    """
    return isinstance(value, str) and _SIGN.search(value) is not None and _PLACEHOLDER.search(value) is not None


class Taint(NamedTuple):
    """A taint of a node: it repels pods that do not tolerate it."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"  # NoSchedule | PreferNoSchedule | NoExecute

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"

    @property
    def with_equals(self) -> str:
        """The taint for tools that require the equals sign, even with an empty value."""
        return f"{self.key}={self.value}:{self.effect}"

    @property
    def fields(self) -> dict[str, str]:
        """The taint in the fields of Kubernetes."""
        return {"key": self.key, **({"value": self.value} if self.value else {}), "effect": self.effect}

    @property
    def toleration_fields(self) -> dict[str, str]:
        """The toleration of exactly this taint, in the fields of Kubernetes."""
        how = {"operator": "Equal", "value": self.value} if self.value else {"operator": "Exists"}
        return {"key": self.key, **how, "effect": self.effect}


class Toleration(NamedTuple):
    """A toleration of a pod: it admits the pod to tainted nodes. An empty key with ``Exists`` tolerates every taint."""

    key: str = ""
    operator: str = "Equal"  # Equal | Exists
    value: str = ""
    effect: str = ""  # empty: every effect
    seconds: int | None = None  # for NoExecute: seconds for which the pod may stay

    def tolerates(self, taint: Taint) -> bool:
        """True if the toleration matches the taint, by the scheduler's rules."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return bool(self.key) and self.value == taint.value


class Expression(NamedTuple):
    """One condition on a node label: ``key operator values``."""

    key: str
    operator: str  # In | NotIn | Exists | DoesNotExist | Gt | Lt
    values: tuple[str, ...] = ()

    @property
    def is_undecided(self) -> bool:
        """Whether only the run decides the condition: a placeholder, or one node by its name."""
        return self.key == HOSTNAME or any(map(is_placeholder, (self.key, *self.values)))

    def matches(self, labels: Mapping[str, str], unknown: Container[str] = ()) -> bool:
        """True if a node with these labels satisfies the condition, or may do so by a label that is ``unknown``."""
        if self.is_undecided or self.key in unknown:
            return True
        present = self.key in labels
        if self.operator == "In":
            return present and labels[self.key] in self.values
        if self.operator == "NotIn":
            return not present or labels[self.key] not in self.values
        if self.operator == "Exists":
            return present
        if self.operator == "DoesNotExist":
            return not present
        return present and self._compares(labels[self.key])

    @property
    def bound(self) -> int | None:
        """The number of ``Gt`` or ``Lt``; ``None`` if invalid, and then the condition never holds."""
        try:
            return int(self.values[0])
        except (ValueError, IndexError):
            return None

    def _compares(self, label: str) -> bool:
        right = self.bound
        try:
            left = int(label)
        except ValueError:
            return False  # Kubernetes: a label or bound that is not an integer never matches Gt or Lt
        return right is not None and (left > right if self.operator == "Gt" else left < right)


def contradiction(expressions: Iterable[Expression]) -> tuple[Expression, Expression] | None:
    """Return two conditions on one label that no node meets together, or ``None``.

    A condition that cannot hold by itself (``In`` without values) contradicts no other.
    """
    by_key: dict[str, list[Expression]] = {}
    for one in expressions:
        by_key.setdefault(one.key, []).append(one)
    return next((pair for group in by_key.values() if len(group) > 1 and (pair := _apart(group))), None)


def _apart(group: list[Expression]) -> tuple[Expression, Expression] | None:
    """Two conditions of a group on one key that exclude each other."""
    first = next((one for one in group if one.operator == "In" and one.values), None)
    if first is not None:
        left = list(first.values)
        for other in group:
            left = [value for value in left if other.matches({other.key: value})]
            if not left:
                return first, other
        return None
    absent = next((one for one in group if one.operator == "DoesNotExist"), None)
    present = next((one for one in group if one.operator in ("Exists", "Gt", "Lt")), None)
    if absent is not None and present is not None:
        return present, absent
    above = max((one for one in group if one.operator == "Gt" and one.bound is not None), key=_bound, default=None)
    below = min((one for one in group if one.operator == "Lt" and one.bound is not None), key=_bound, default=None)
    return (above, below) if above and below and _bound(below) - _bound(above) < 2 else None


def _bound(one: Expression) -> int:
    return one.bound or 0


class Term(NamedTuple):
    """Conditions that must all hold. As in Kubernetes, a term without conditions matches no node."""

    expressions: tuple[Expression, ...] = ()
    fields: tuple[Expression, ...] = ()  # matchFields: the node's name, which pools do not determine

    def matches(self, labels: Mapping[str, str], unknown: Container[str] = ()) -> bool:
        """True if a node with these labels satisfies every condition, or may do so by labels that are ``unknown``."""
        if not self.expressions and not self.fields:
            return False
        return all(one.matches(labels, unknown) for one in self.expressions)


class Preference(NamedTuple):
    """A preferred (soft) term with its weight, 1 to 100."""

    weight: int
    term: Term


@dataclass(frozen=True, slots=True)
class Constraints:
    """The work's own constraints on its node: node selector, node affinity and tolerations.

    ``required`` holds alternatives: one term must match, as Kubernetes ORs node selector terms. If empty, every node matches.
    ``pairs`` are the pairs of the node selector, as conditions.
    """

    tolerations: tuple[Toleration, ...] = ()
    selector: Mapping[str, str] = field(default_factory=dict)
    required: tuple[Term, ...] = ()
    preferred: tuple[Preference, ...] = ()
    pairs: tuple[Expression, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Cache the pairs, which are compared with every pool."""
        pairs = tuple(Expression(key, "In", (value,)) for key, value in self.selector.items())
        object.__setattr__(self, "pairs", pairs)

    def tolerates(self, taint: Taint) -> bool:
        """True if a toleration matches the taint."""
        return any(t.tolerates(taint) for t in self.tolerations)

    @property
    def undecided(self) -> Iterator[Expression]:
        """Its requirements that only the run decides: conditions with placeholders, and on a node's name."""
        for one in (*self.pairs, *(one for term in self.required for one in (*term.expressions, *term.fields))):
            if one.is_undecided or one.key == "metadata.name":
                yield one

    def refusal(self, labels: Mapping[str, str], taints: tuple[Taint, ...], unknown: Container[str] = ()) -> str:
        """The first reason, in the scheduler's order, not to use a node with these labels and taints, or empty.

        ``unknown``: labels of the node with an unknown value. ``PreferNoSchedule`` taints are never a reason.
        """
        for one in self.pairs:
            if not one.matches(labels, unknown):
                return f"its node selector asks for {one.key}={one.values[0]}"
        if self.required and not any(term.matches(labels, unknown) for term in self.required):
            return "its required node affinity does not match"
        for taint in taints:
            if taint.effect != "PreferNoSchedule" and not self.tolerates(taint):
                return f"it does not tolerate the taint {taint}"
        return ""
