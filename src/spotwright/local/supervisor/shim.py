"""The shim: the parent process of attempts, one after another, which outlives the engine and ends all that an attempt started.

The fork server forks a shim; the shim talks to the engine over its own socket, in the frames of :mod:`.frames`. It sends
``{"pid", "starttime"}`` once, when the private folders of its first attempt are ready. It receives orders, one at a time, and
``{"end": signal, "key"}``: SIGTERM is forwarded to the attempt, and :data:`KILL` means that its node is gone. It sends
``{"ended": key, "record"}`` when no process of the attempt is left (see :mod:`.attempt_supervisor`). Then it takes the next
order, because a fork with all its copied pages costs as much as a small task. A shim ends after an attempt that may have changed
the shim's state, and after the end of the engine: the attempt under way is completed, and no other follows. ``{"idle": true}``
says that no order came for a while; if the engine has none either, it closes the socket, so that a run that waits for hours
keeps no idle processes in memory.

A later engine, which did not start this shim, sends the same two signals to the process itself; the shim ends after that too.

Runs in the fork server's interpreter, so it uses only the standard library.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from typing import Any

from . import kernel, process_identity
from .attempt_supervisor import KILL, AttemptSupervisor
from .frames import pack, unpack
from .mounting.private_folders import PrivateFolders

__all__ = ["Shim"]

_FENCED = 3  # exit status of a shim whose attempt another process had claimed
_IDLE_SECONDS = 30.0  # without an order, before the shim reports that it is idle
_END_SIGNALS = frozenset({signal.SIGTERM, KILL})
_AWAITED = _END_SIGNALS | {signal.SIGCHLD, signal.SIGIO}


class Shim:
    """Runs attempts for the engine. ``engine`` is the descriptor of the shim's end of the socket.

    ``private`` are the settings for the private folders of the first attempt, as far as they are known before its order.
    """

    def __init__(self, engine: int, private: dict[str, Any] | None = None) -> None:
        self._engine, self._private = engine, private
        self._buffer = bytearray()
        self._key = ""  # of the attempt under way
        self._is_identified = False  # the engine knows this process
        self._is_last = False  # no attempt follows the one under way
        self._private_folders = PrivateFolders()

    def serve(self) -> int:
        """Run attempts until the engine is gone. Returns the exit status."""
        os.setsid()
        kernel.become_subreaper()
        signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
        # incoming data raises a signal, so that the shim waits for signals only
        fcntl.fcntl(self._engine, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(self._engine, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        try:
            return self._run_attempts()
        finally:
            self._private_folders.remove()

    def _run_attempts(self) -> int:
        self._private_folders.prepare(self._private)
        while (order := self._next_order()) is not None:
            self._key = order["key"]
            self._private_folders.prepare(order["private"])
            self._identify()
            supervisor = AttemptSupervisor(order, self._next_signal, self._private_folders)
            record = supervisor.run()
            if record is None:
                return _FENCED
            if self._is_last or not supervisor.shim_is_reusable or signal.sigpending() & _END_SIGNALS:
                break  # a pending signal was for this attempt and must not reach the next one
            self._send({"ended": self._key, "record": record})
            self._private_folders.clean()  # after the message, because large files take a while
        return 0

    def _identify(self) -> None:
        """Report this process, once."""
        if not self._is_identified:
            own = process_identity.mine()
            self._send({"pid": own.pid, "starttime": own.starttime})
            self._is_identified = True

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(
            BrokenPipeError, ConnectionResetError
        ):  # the engine is gone, which the next read shows
            os.write(self._engine, pack(message))

    def _next_order(self) -> dict[str, Any] | None:
        """Wait for an order; ``None`` once the shim must end."""
        while True:
            self._read()
            if self._is_last:
                return None
            while (message := unpack(self._buffer)) is not None:
                if "end" not in message:  # an end order that came too late: its attempt has ended
                    return message
            self._identify()
            received = signal.sigtimedwait(_AWAITED, _IDLE_SECONDS)
            if received is None:
                self._send({"idle": True})
                received = signal.sigwaitinfo(_AWAITED)
            if received.si_signo in _END_SIGNALS:
                return None

    def _next_signal(self, until: float | None) -> int | None:
        """The next signal, or end order, for the attempt under way; ``None`` once ``until`` has passed."""
        while True:
            while (message := unpack(self._buffer)) is not None:
                if message.get("key") == self._key and "end" in message:
                    return int(message["end"])
            if until is None:
                number = signal.sigwaitinfo(_AWAITED).si_signo
            elif (received := signal.sigtimedwait(_AWAITED, max(0.0, until - time.monotonic()))) is None:
                return None
            else:
                number = received.si_signo
            if number != signal.SIGIO:
                self._is_last = self._is_last or number != signal.SIGCHLD
                return number
            self._read()

    def _read(self) -> None:
        """Read all available data into the buffer; at end of file, no attempt follows."""
        with contextlib.suppress(BlockingIOError):
            while not self._is_last:
                data = self._read_once()
                self._buffer += data
                self._is_last = not data

    def _read_once(self) -> bytes:
        try:
            return os.read(self._engine, 1 << 16)
        except ConnectionResetError:  # the engine ended without reading our last message
            return b""
