"""Who else may take nodes, beside what the pools simulate: a port for rehearsals, which choose the moment themselves."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from spotwright.engine.events import Event
from spotwright.local.orders import StartOrder
from spotwright.supply.happenings import Key

__all__ = ["Take", "Taker"]


class Take(NamedTuple):
    """The node of this attempt goes after so many seconds of notice; none: at once."""

    key: Key
    notice: float
    why: str


class Taker(Protocol):
    """Told what attempts do, asked whose node goes. Moments are those of the world's clock.

    Whatever wakes a taker from outside must also wake the world's selector.
    """

    def starting(self, key: Key, order: StartOrder) -> StartOrder:
        """An attempt is about to start with this order; the answer is the order it starts with."""

    def started(self, key: Key, shim: int) -> None:
        """Its shim, the process of this pid, runs."""

    def reported(self, key: Key, progress: float) -> None:
        """It reported its progress."""

    def ended(self, key: Key) -> None:
        """Nothing of it lives any more."""

    def next_moment(self) -> float | None:
        """When :meth:`due` or :meth:`asks` has something to say by itself."""

    def asks(self, now: float) -> list[Event]:
        """What it asks of the run, as facts: a cancel, a stop."""

    def due(self, now: float) -> list[Take]:
        """The nodes that it takes now."""

    def taken(self) -> None:
        """What was due has been done: notices are written, those without one are being killed."""
