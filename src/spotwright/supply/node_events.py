"""The events of a supply: nodes boot, get a notice and go; attempts are bound and evicted."""

from __future__ import annotations

from typing import NamedTuple

from spotwright.frozen import Frozen

__all__ = [
    "AttemptKey",
    "Bound",
    "Evicted",
    "NodeBooting",
    "NodeGone",
    "NodeReady",
    "Noticed",
    "SigtermDue",
    "SupplyEvent",
]


class AttemptKey(NamedTuple):
    """The key of an attempt. Several runs may share a supply, so it contains the run."""

    run: str
    task: str  # the task's path in its run
    number: int  # of the attempt, from one


class NodeBooting(Frozen):
    """A node was requested and is billed from now on, for an attempt of ``run``; empty: for ``min_nodes``."""

    node: str
    pool: str
    run: str = ""


class NodeReady(Frozen):
    """A node accepts attempts."""

    node: str
    pool: str


class Bound(Frozen):
    """An attempt has its node."""

    key: AttemptKey
    node: str
    pool: str


class Noticed(Frozen):
    """The provider announces when it takes a node (``goes_at``); ``keys`` are the attempts on it."""

    node: str
    pool: str
    keys: tuple[AttemptKey, ...]
    goes_at: float
    why: str


class SigtermDue(Frozen):
    """An attempt gets SIGTERM, because the provider will take its node soon."""

    key: AttemptKey


class Evicted(Frozen):
    """A drain evicts an attempt from its node: SIGTERM now, SIGKILL at ``ends_by`` (the end of its grace period).

    The node stays until it is empty. ``why`` becomes ``Signals.moved``.
    """

    key: AttemptKey
    node: str
    ends_by: float
    why: str


class NodeGone(Frozen):
    """A node is gone. ``keys`` are the attempts on it at that moment; empty for a node that was given back."""

    node: str
    pool: str
    keys: tuple[AttemptKey, ...]
    why: str


SupplyEvent = NodeBooting | NodeReady | Bound | Noticed | SigtermDue | Evicted | NodeGone
