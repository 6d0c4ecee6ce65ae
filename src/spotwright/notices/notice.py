"""What a notice is, whoever gave it, and what a source of notices promises.

A source answers one question, "does this node go, as far as you know now?", and says plainly when it cannot be asked. Between
"no notice" and "I do not know" lies the difference between going on and being careful, so the second is an error.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

from spotwright.errors import SpotwrightError

__all__ = ["KINDS", "SHORTEST", "Notice", "Polling", "Source", "SourceError"]

KINDS = ("interruption", "disruption", "rebalance")
"""What a notice can be about: the provider takes the node; our side removes it; the provider thinks that it might take it."""

SHORTEST = 30.0
"""Seconds until the end where nothing says when it is: the notice of Azure and Google, the shortest there is."""

_SAME = 2.0
"""Two moments this near each other, in seconds, are one: providers say whole seconds."""


class SourceError(SpotwrightError):
    """A source cannot be asked, or answers what no such source would say. One line, which names the source."""


@dataclass(frozen=True, slots=True)
class Notice:
    """This node goes.

    ``ends_at`` is when, in Unix seconds of this machine's clock; infinite where nobody knows (a rebalance recommendation).
    ``kind`` is one of :data:`KINDS`. ``source`` names who said it
    (``azure``, ``gcp``, ``aws``, ``kubernetes``, ``file``); through a node agent it is the agent's source. ``certain`` is false
    where it may yet stay (a rebalance recommendation). ``reason`` is one sentence for people.
    """

    ends_at: float
    kind: str
    source: str
    certain: bool
    reason: str

    def same_as(self, other: Notice | None) -> bool:
        """Whether the other one says the same, up to the second that providers round to."""
        if other is None or (self.ends_at != other.ends_at and abs(self.ends_at - other.ends_at) >= _SAME):
            return False
        mine = (self.kind, self.source, self.certain, self.reason)
        return mine == (other.kind, other.source, other.certain, other.reason)


class Source(Protocol):
    """Whoever can say that this node goes."""

    @property
    def name(self) -> str:
        """Who it is, in one word."""

    def wait(self, timeout: float) -> Notice | None:
        """The state as it is now; ``None``: no notice, or it was withdrawn.

        Blocks until something else is to be said than by the call before, at most ``timeout`` seconds; the first call, and 0,
        ask once. Raises :class:`SourceError` when the source cannot be asked.
        """


class Polling(ABC):
    """A source that has to be asked again and again. Subclasses say how in :meth:`ask`, and how often in ``interval``."""

    name: str
    interval: float
    """Seconds between two questions: what the provider's documentation recommends."""

    _said: Notice | None = None
    _asked = False

    @abstractmethod
    def ask(self, patience: float) -> Notice | None:
        """Ask once, and wait for the answer for at most ``patience`` seconds. Raises :class:`SourceError`."""

    def wait(self, timeout: float) -> Notice | None:
        """See :meth:`Source.wait`."""
        deadline = time.monotonic() + timeout
        while True:
            asked = time.monotonic()
            notice = self.ask(max(deadline - asked, self.interval))
            if notice is not None and notice.same_as(self._said):
                notice = self._said
            left = deadline - time.monotonic()
            if notice != self._said or not self._asked or left <= 0:
                self._said, self._asked = notice, True
                return notice
            time.sleep(max(0.0, min(left, asked + self.interval - time.monotonic())))
