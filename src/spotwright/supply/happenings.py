"""What a supply tells its world: nodes that come and go, and attempts that are put on them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Bound", "Drained", "Happening", "Key", "NodeBooting", "NodeGone", "NodeReady", "Noticed"]

Key = tuple[str, int]
"""An attempt: the task's path and the attempt's number."""


@dataclass(frozen=True, slots=True)
class NodeBooting:
    """A node was asked for and is billed from now on."""

    node: str
    pool: str


@dataclass(frozen=True, slots=True)
class NodeReady:
    """A node takes work."""

    node: str
    pool: str


@dataclass(frozen=True, slots=True)
class Bound:
    """An attempt has its node."""

    key: Key
    node: str
    pool: str


@dataclass(frozen=True, slots=True)
class Noticed:
    """The provider says when a node goes; ``keys`` are the attempts on it."""

    node: str
    pool: str
    keys: tuple[Key, ...]
    goes_at: float
    why: str


@dataclass(frozen=True, slots=True)
class Drained:
    """An attempt gets SIGTERM, because its node is about to go."""

    key: Key


@dataclass(frozen=True, slots=True)
class NodeGone:
    """A node is gone. ``keys`` are the attempts that were on it to the end; empty when it was given back."""

    node: str
    pool: str
    keys: tuple[Key, ...]
    why: str


Happening = NodeBooting | NodeReady | Bound | Noticed | Drained | NodeGone
