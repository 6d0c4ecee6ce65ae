"""Turn signals to an engine on this machine into facts of its run: Ctrl-C, SIGTERM, and requests of other processes.

Signals arrive through a wake-up socket in the engine's own selector, so nothing polls. The first SIGINT or SIGTERM asks for a
clean stop; the second one ends attempts without waiting for their grace periods. SIGUSR1 says that the journal holds a request.
"""

from __future__ import annotations

import selectors
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

from spotwright.engine.events import CancelRequested, EngineDetached, Event, StopRequested
from spotwright.engine.ports import Clock, Requests
from spotwright.runs.bodies import REQUEST_SIGNAL

__all__ = ["EngineSignals", "surviving_requests"]

_REQUESTS: Mapping[str, Callable[[float], Event]] = {
    "cancel": CancelRequested,
    "detach": lambda at: EngineDetached(at, why="it was asked to leave the run to another engine"),
}
_STOPS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def surviving_requests() -> Iterator[None]:
    """Keep SIGUSR1 from ending this process: a request may come before the engine waits for requests, or after its end."""
    if REQUEST_SIGNAL is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(REQUEST_SIGNAL, _ignore)
    try:
        yield
    finally:
        signal.signal(REQUEST_SIGNAL, before)


class EngineSignals:
    """Signals as facts. A context manager: it restores the earlier handlers at its end.

    Requests that came before count. Outside the main thread Python allows no handlers, so no signal reaches the engine there.
    """

    def __init__(self, selector: selectors.BaseSelector, requests: Requests, clock: Clock) -> None:
        self._requests, self._clock = requests, clock
        self._receive, self._send = socket.socketpair()
        self._receive.setblocking(False)
        self._send.setblocking(False)
        selector.register(self._receive, selectors.EVENT_READ)
        self._before: dict[int, Any] = {}
        self._before_fd = -1
        self.kill: Callable[[], None] = lambda: None  # called at a second stop
        self._stops = 0

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before_fd = signal.set_wakeup_fd(self._send.fileno(), warn_on_full_buffer=False)
            for number in (*_STOPS, *([REQUEST_SIGNAL] if REQUEST_SIGNAL else [])):
                self._before[number] = signal.signal(number, _ignore)
            if REQUEST_SIGNAL:
                self._send.send(bytes([REQUEST_SIGNAL]))  # look at once for requests that came before
        return self

    def __exit__(self, *_: object) -> None:
        if self._before:
            signal.set_wakeup_fd(self._before_fd)
            for number, handler in self._before.items():
                signal.signal(number, handler)
        self._receive.close()
        self._send.close()

    def facts(self) -> list[Event]:
        """The stops and requests since the last call."""
        try:
            numbers = self._receive.recv(4096)
        except BlockingIOError:
            return []
        facts: list[Event] = []
        for number in numbers:
            if number in _STOPS:
                facts += self._stop(number)
            elif number == REQUEST_SIGNAL:
                facts += [_REQUESTS[kind](self._clock()) for kind in self._requests.take_requests()]
        return facts

    def _stop(self, number: int) -> list[Event]:
        self._stops += 1
        if self._stops > 1:
            self.kill()
            return []
        why = "stopped by the user" if number == signal.SIGINT else "stopped by SIGTERM"
        return [StopRequested(self._clock(), why=why)]


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: Python has written the number of the signal to the wake-up socket."""
