"""The port through which rehearsals remove nodes of a local run at moments of their own choice, beside what pools simulate."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from spotwright.engine.events import Event
from spotwright.local.processes.protocol import StartOrder
from spotwright.supply.node_fit import AttemptKey

__all__ = ["InterruptionSource", "NodeRemoval"]


class NodeRemoval(NamedTuple):
    """The provider takes the node of this attempt after ``notice`` seconds; zero: at once.

    With ``drain`` the provider takes nothing: Kubernetes moves the attempts off the node, as ``kubectl drain`` does.
    """

    key: AttemptKey
    notice: float
    why: str
    drain: bool = False


class InterruptionSource(Protocol):
    """Hears what attempts do, and decides whose node is removed. Moments are those of the world's clock.

    A source that is woken from outside must also wake the world's selector.
    """

    def starting(self, key: AttemptKey, order: StartOrder) -> StartOrder:
        """An attempt is about to start with this order. Returns the order to start it with."""

    def started(self, key: AttemptKey, shim: int) -> None:
        """The attempt runs under the shim of this pid."""

    def reported(self, key: AttemptKey, progress: float) -> None:
        """The attempt reported its progress."""

    def ended(self, key: AttemptKey) -> None:
        """No process of the attempt is alive any more."""

    def next_moment(self) -> float | None:
        """When :meth:`due` or :meth:`requests` has something new without another event; ``None``: never."""

    def requests(self, now: float) -> list[Event]:
        """Requests to the run, as facts: a cancel, a stop."""

    def due(self, now: float) -> list[NodeRemoval]:
        """The nodes to remove now."""

    def performed(self) -> None:
        """The removals that were due are done: notices are written, attempts without notice are being killed."""
