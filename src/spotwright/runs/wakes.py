"""What wakes a sleeping engine from outside: Ctrl-C, SIGTERM, and another process that wants something of the run.

Signals arrive through a wake-up socket in the engine's own selector, so that nothing polls. The first SIGINT or SIGTERM asks
for a clean stop; a second one no longer waits for grace periods. SIGUSR1 says that a request stands in the journal.
"""

from __future__ import annotations

import selectors
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

from spotwright.engine.events import Event
from spotwright.engine.loop import Clock
from spotwright.records.journal import Journal

__all__ = ["REQUEST_SIGNAL", "Wakes"]

REQUEST_SIGNAL = signal.SIGUSR1
"""Sent to an engine after a request was written to its journal."""

_STOPS = (signal.SIGINT, signal.SIGTERM)


class Wakes:
    """Signals as facts. A context manager: the handlers of before are put back at its end.

    Outside the main thread, where Python allows no handlers, only requests are looked at when something else wakes the engine.
    """

    def __init__(self, selector: selectors.BaseSelector, journal: Journal, clock: Clock) -> None:
        self._journal, self._clock = journal, clock
        self._receive, self._send = socket.socketpair()
        self._receive.setblocking(False)
        self._send.setblocking(False)
        selector.register(self._receive, selectors.EVENT_READ)
        self._before: dict[int, Any] = {}
        self._before_fd = -1
        self.hurry: Callable[[], None] = lambda: None
        self.stops = 0

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before_fd = signal.set_wakeup_fd(self._send.fileno(), warn_on_full_buffer=False)
            for number in (*_STOPS, REQUEST_SIGNAL):
                self._before[number] = signal.signal(number, _ignore)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before:
            signal.set_wakeup_fd(self._before_fd)
            for number, handler in self._before.items():
                signal.signal(number, handler)
        self._receive.close()
        self._send.close()

    def facts(self) -> list[Event]:
        """What has been asked for since the last call."""
        try:
            numbers = self._receive.recv(4096)
        except BlockingIOError:
            return []
        facts = []
        for number in numbers:
            if number in _STOPS:
                facts += self._stop(number)
            elif number == REQUEST_SIGNAL:
                facts += [Event(kind, self._clock()) for kind in self._journal.take_requests()]
        return facts

    def _stop(self, number: int) -> list[Event]:
        self.stops += 1
        if self.stops > 1:
            self.hurry()
            return []
        why = "stopped by the user" if number == signal.SIGINT else "stopped by SIGTERM"
        return [Event("stop", self._clock(), data={"why": why})]


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the wake-up socket has been written to already."""
