"""The vocabulary of enforcement: who keeps a value of the policy on a kind, and through which field of the object.

A policy has the same fields for every kind, but no kind can keep all of them. So each kind has a fact for each field, and
``explain`` prints it beside the value: a value without an enforcer is no promise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from spotwright.manifests.yamltext.documents import Path
from spotwright.model.policy import FIELDS

__all__ = ["ROWS", "Anchor", "Enforced", "Enforcer", "Fact", "in_object", "nothing"]


class Enforcer(StrEnum):
    """Who keeps a value of the policy while the work runs."""

    OBJECT = "object"  # a field of the placed object, which Kubernetes or the kind's controller reads
    KIND = "kind"  # Kubernetes or the kind's controller, without a field
    CONTROLLER = "controller"  # only a Spotwright controller in the cluster; nothing where none runs
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Fact:
    """Who enforces one field of the policy on one kind.

    ``field``: where the value is written, as ``anchor:path`` (``job:backoffLimit``); the anchor is a part of the object.
    ``name``: the field's name for people, if it is not the path. ``note``: what the enforcer does with the value, as far as it
    is not what the policy says. ``absent``: the fact that holds where the object does not have the field. ``is_reported``: the
    kind's module has a finding of its own about it.
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

    ``is_silent``: nothing has to be reported, because the kind's module does it, or because the value is about spot capacity
    and the work stays on on-demand.
    """

    by: Enforcer
    field: str
    text: str
    is_silent: bool = False


ROWS: tuple[str, ...] = ("spot: require", "spot: prefer", "spot: never", *(name for name in FIELDS if name != "spot"))
"""The rows of a table of facts: every field of the policy; ``spot`` by its value, because each value is kept in another way.

A table may have the row ``errors.retries: 0`` too, for kinds that retry no error.
"""


def in_object(field: str, note: str = "", *, name: str = "", absent: Fact | None = None) -> Fact:
    """The fact that a field of the object keeps the value."""
    return Fact(Enforcer.OBJECT, field, name, note, absent)


def nothing(note: str = "", *, is_reported: bool = False) -> Fact:
    """The fact that nothing keeps the value."""
    return Fact(Enforcer.NOTHING, note=note, is_reported=is_reported)
