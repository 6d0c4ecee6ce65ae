"""Taints, tolerations, node selectors and node affinity, and the rules by which the Kubernetes scheduler matches them.

They are pure values, so that the local world, the simulation and the patches of manifests decide with the same code whether a
node admits a piece of work. Source: the Kubernetes documentation, "Taints and Tolerations" and "Assigning Pods to Nodes".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Constraints", "Expression", "Preference", "Taint", "Term", "Toleration"]


class Taint(NamedTuple):
    """A taint of a node: it repels pods that do not tolerate it."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"  # NoSchedule | PreferNoSchedule | NoExecute

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"

    @property
    def with_equals(self) -> str:
        """The taint as tools write it that ask for the equals sign, also where the value is empty."""
        return f"{self.key}={self.value}:{self.effect}"

    @property
    def fields(self) -> dict[str, str]:
        """The taint in the fields of Kubernetes."""
        return {"key": self.key, **({"value": self.value} if self.value else {}), "effect": self.effect}

    @property
    def toleration_fields(self) -> dict[str, str]:
        """The toleration of this taint and no other, in the fields of Kubernetes."""
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

    def matches(self, labels: Mapping[str, str]) -> bool:
        """True if a node with these labels satisfies the condition."""
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

    def _compares(self, label: str) -> bool:
        try:
            left, right = int(label), int(self.values[0])
        except (ValueError, IndexError):
            return False  # Kubernetes: a label or bound that is no integer never matches Gt or Lt
        return left > right if self.operator == "Gt" else left < right


class Term(NamedTuple):
    """Conditions that must all hold. As in Kubernetes, a term without conditions matches no node."""

    expressions: tuple[Expression, ...] = ()
    fields: tuple[Expression, ...] = ()  # matchFields: metadata.name only

    def matches(self, labels: Mapping[str, str], name: str = "") -> bool:
        """True if a node with these labels and this name satisfies every condition."""
        if not self.expressions and not self.fields:
            return False
        names = {"metadata.name": name}
        return all(e.matches(labels) for e in self.expressions) and all(f.matches(names) for f in self.fields)


class Preference(NamedTuple):
    """A preferred (soft) term with its weight, 1 to 100."""

    weight: int
    term: Term


@dataclass(frozen=True, slots=True)
class Constraints:
    """The work's own constraints on its node: node selector, node affinity and tolerations.

    ``required`` holds alternatives: one term must match, as Kubernetes ORs node selector terms. If empty, every node matches.
    """

    tolerations: tuple[Toleration, ...] = ()
    selector: Mapping[str, str] = field(default_factory=dict)
    required: tuple[Term, ...] = ()
    preferred: tuple[Preference, ...] = ()

    def tolerates(self, taint: Taint) -> bool:
        """True if a toleration matches the taint."""
        return any(t.tolerates(taint) for t in self.tolerations)

    def refusal(self, labels: Mapping[str, str], taints: tuple[Taint, ...], name: str = "") -> str:
        """The first reason, in the scheduler's order, not to use a node with these labels and taints; empty if there is none.

        ``PreferNoSchedule`` taints are never a reason.
        """
        for key, value in self.selector.items():
            if labels.get(key) != value:
                return f"its node selector asks for {key}={value}"
        if self.required and not any(term.matches(labels, name) for term in self.required):
            return "its required node affinity does not match"
        for taint in taints:
            if taint.effect != "PreferNoSchedule" and not self.tolerates(taint):
                return f"it does not tolerate the taint {taint}"
        return ""
