"""The shim: the process above the attempts, one after another, which outlives the engine and takes what it has started along.

A shim is forked by the fork server and talks with the engine over a socket of its own, in the frames of :mod:`.frames`. Out
goes ``{"here": pid, "starttime"}`` once. In come orders, one at a time, and ``{"end": signal, "key"}``: SIGTERM is passed on
to the attempt, :data:`KILL` means that its node is gone. Out goes ``{"ended": key, "record"}`` when nothing of the attempt
lives (see :mod:`.attending`); then it takes the next one, because a fork with all that it copies costs as much as a small
task itself. An attempt that may leave something in it ends its shim, and so does the end of the engine: what runs then runs
to its end, and nothing follows. ``{"idle": true}`` says that no order has come for a while; an engine that has none closes its
end then, so that a run that waits for hours keeps no memory for nothing.

The same two signals, sent to the process, come from an engine that has not started it: then it ends after the attempt too.

Runs inside the fork server's interpreter, so it imports nothing outside the standard library.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from typing import Any

from . import identity, kernel
from .attending import KILL, Attended
from .frames import pack, unpack

__all__ = ["Shim"]

_FENCED = 3  # exit status of a shim that may not run the attempt
_IDLE_SECONDS = 30.0  # without an order, until it asks whether it may go
_ENDING = frozenset({signal.SIGTERM, KILL})
_AWAITED = _ENDING | {signal.SIGCHLD, signal.SIGIO}


class Shim:
    """One shim. ``engine`` is the descriptor of its end of the socket."""

    def __init__(self, engine: int) -> None:
        self._engine = engine
        self._buffer = bytearray()
        self._key = ""  # of the attempt under way
        self._is_last = False  # no attempt follows the one under way

    def serve(self) -> int:
        """Attend attempts until the engine has gone. Returns the exit status."""
        os.setsid()
        kernel.become_subreaper()
        signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
        # what comes over the socket is a signal too, so that there is one thing to wait for
        fcntl.fcntl(self._engine, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(self._engine, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        me = identity.mine()
        self._tell({"here": me.pid, "starttime": me.starttime})
        while (order := self._next_order()) is not None:
            self._key = order["key"]
            attended = Attended(order, self._listen)
            record = attended.attend()
            if record is None:
                return _FENCED
            if self._is_last or not attended.left_nothing or signal.sigpending() & _ENDING:
                break  # a signal that is still pending was for this attempt, and must not reach the next one
            self._tell({"ended": self._key, "record": record})
        return 0

    def _tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # nobody wants to know; reading tells so
            os.write(self._engine, pack(message))

    def _next_order(self) -> dict[str, Any] | None:
        """Wait for an order; ``None`` when there is nobody who would watch it."""
        while True:
            self._read()
            if self._is_last:
                return None
            while (message := unpack(self._buffer)) is not None:
                if "end" not in message:  # that one came too late: its attempt has ended
                    return message
            found = signal.sigtimedwait(_AWAITED, _IDLE_SECONDS)
            if found is None:
                self._tell({"idle": True})
                found = signal.sigwaitinfo(_AWAITED)
            if found.si_signo in _ENDING:
                return None

    def _listen(self, until: float | None) -> int | None:
        """The next signal or message that concerns the attempt under way; ``None`` when the moment passes first."""
        while True:
            while (message := unpack(self._buffer)) is not None:
                if message.get("key") == self._key and "end" in message:
                    return int(message["end"])
            if until is None:
                seen = signal.sigwaitinfo(_AWAITED).si_signo
            elif (found := signal.sigtimedwait(_AWAITED, max(0.0, until - time.monotonic()))) is None:
                return None
            else:
                seen = found.si_signo
            if seen != signal.SIGIO:
                self._is_last = self._is_last or seen != signal.SIGCHLD
                return seen
            self._read()

    def _read(self) -> None:
        """Take what has come, up to the end of it."""
        with contextlib.suppress(BlockingIOError):
            while not self._is_last:
                data = self._received()
                self._buffer += data
                self._is_last = not data

    def _received(self) -> bytes:
        try:
            return os.read(self._engine, 1 << 16)
        except ConnectionResetError:  # it went without reading what we had said last
            return b""
