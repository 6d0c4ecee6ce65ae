"""A notice, the interface of a source of notices, and a thread that watches one for training code.

A source answers one question: is this node known to go away? It fails if it is unreachable. "No notice" means continue,
"unknown" means be careful, so the second is an error, never ``None``.
"""

from __future__ import annotations

import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from spotwright.errors import SpotwrightError

__all__ = ["KINDS", "SHORTEST", "Notice", "NoticeWatch", "PollingSource", "Source", "SourceError"]


KINDS = ("interruption", "disruption", "rebalance")
"""Kinds of notices: the provider reclaims the node; the cluster removes it; the provider warns that it may reclaim the node."""

SHORTEST = 30.0
"""Assumed seconds to the end if a notice has no time: the shortest notice, Azure's and Google's."""

_SAME = 2.0
"""Times closer than this many seconds count as equal: providers round to whole seconds."""


class SourceError(SpotwrightError):
    """A source is unreachable or its answer malformed. One line, which names the source."""


@dataclass(frozen=True, slots=True)
class Notice:
    """This node is going away.

    ``ends_at`` is the end in Unix seconds of this machine's clock; infinite if unknown (a rebalance recommendation). ``kind``
    is one of :data:`KINDS`. ``source`` names the origin (``azure``, ``gcp``, ``aws``, ``kubernetes``, ``file``), even through a
    node agent. ``certain`` is false if the node may stay (a rebalance recommendation). ``reason`` is one sentence for people.
    ``id`` is the source's own name for this notice, empty if it gives none.
    """

    ends_at: float
    kind: str
    source: str
    certain: bool
    reason: str
    id: str = ""

    def same_as(self, other: Notice | None) -> bool:
        """True if both notices are equal up to the providers' rounding."""
        if other is None or (self.ends_at != other.ends_at and abs(self.ends_at - other.ends_at) >= _SAME):
            return False
        mine = (self.kind, self.source, self.certain, self.reason)
        return mine == (other.kind, other.source, other.certain, other.reason)


class Source(Protocol):
    """A source of notices of this node."""

    @property
    def name(self) -> str:
        """Name of the source, one word."""

    def wait(self, timeout: float) -> Notice | None:
        """Return the present notice; ``None``: none, or withdrawn.

        Blocks until the answer differs from the previous call's, at most ``timeout`` seconds. The first call, and a timeout of
        0, ask once and return. Raises :class:`SourceError` if the source is unreachable.
        """


class PollingSource(ABC):
    """A source that must be polled. Subclasses implement :meth:`poll` and set ``interval``."""

    name: str
    interval: float
    """Seconds between two polls, as the provider's documentation recommends."""

    _last: Notice | None = None
    _answered = False

    @abstractmethod
    def poll(self, timeout: float) -> Notice | None:
        """Ask once, and wait for the answer for at most ``timeout`` seconds. Raises :class:`SourceError`."""

    def wait(self, timeout: float) -> Notice | None:
        """See :meth:`Source.wait`."""
        deadline = time.monotonic() + timeout
        while True:
            polled = time.monotonic()
            notice = self.poll(max(deadline - polled, self.interval))
            if notice is not None and notice.same_as(self._last):
                notice = self._last
            left = deadline - time.monotonic()
            if notice != self._last or not self._answered or left <= 0:
                self._last, self._answered = notice, True
                return notice
            time.sleep(max(0.0, min(left, polled + self.interval - time.monotonic())))


_WAIT = 10.0
"""Seconds of one call of :meth:`Source.wait`, and so the longest time until a stopped thread ends."""

_SHORTEST_TURN = 0.2
"""The least seconds between two calls: a source that answers at once instead of waiting must not busy a processor."""

_RETRY, _LONGEST_RETRY = 0.25, 5.0
"""Seconds until a failed source is retried; each failure in a row doubles them, up to the second number."""


class NoticeWatch:
    """Calls ``on_change`` for each change that ``source`` reports: with the notice, or ``None`` after its withdrawal.

    The callback runs in the watching thread, so it should be short and safe in a thread. An error in it is only printed.
    """

    def __init__(self, source: Source, on_change: Callable[[Notice | None], None]) -> None:
        self._source, self._on_change = source, on_change
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.current: Notice | None = None
        """The present notice."""
        self.problem = ""
        """Why the last call of the source failed; empty if it answered."""
        self.answered = False
        """True after the source has answered once."""

    def start(self) -> None:
        """Start watching, in a daemon thread. Further calls do nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="spotwright-notice", daemon=True)
            self._thread.start()

    def stop(self, timeout: float = 0.0) -> None:
        """Stop calling back; wait up to ``timeout`` seconds for the end of a running call."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        pause = _RETRY
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                notice = self._source.wait(_WAIT)
            except SourceError as error:
                self.problem = str(error)
                self._stopped.wait(pause)
                pause = min(2 * pause, _LONGEST_RETRY)
                continue
            self.problem, self.answered, pause = "", True, _RETRY
            self._update(notice)
            self._stopped.wait(max(0.0, began + _SHORTEST_TURN - time.monotonic()))

    def _update(self, notice: Notice | None) -> None:
        if notice == self.current or self._stopped.is_set():
            return
        self.current = notice
        try:
            self._on_change(notice)
        except Exception:  # noqa: BLE001  # an error of the user's code: the next notice must still arrive
            sys.excepthook(*sys.exc_info())
