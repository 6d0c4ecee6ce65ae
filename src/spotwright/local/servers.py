"""The engine's end of one fork server: its process, its socket, and what it says when it cannot start.

Everything is non-blocking: what cannot be sent yet waits in a buffer, so that an input of many megabytes never holds up the
loop. No order ever lies on a disk, because inputs can hold secrets.
"""

from __future__ import annotations

import array
import contextlib
import os
import select
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spotwright.errors import StateError
from spotwright.local.frames import pack, unpack

__all__ = ["ForkServer", "tail"]

_BOOT = Path(__file__).with_name("boot.py")
_SHOWN = 2000  # bytes of an error message
_FDS = 64  # pidfds taken with one read
# They would point a built environment's interpreter at somebody else's packages.
_NOT_FOR_BUILT = frozenset({"PYTHONPATH", "PYTHONHOME"})


class ForkServer:
    """A running fork server. ``marks`` are in its environment, so that what is left of it can be found."""

    def __init__(self, python: str, marks: Mapping[str, str]) -> None:
        self.python = python
        self.ready = False  # it has said that it can fork
        self._incoming = bytearray()
        self._outgoing: deque[memoryview] = deque()
        self._descriptors: deque[int] = deque()
        self._output = os.memfd_create("forkserver")
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(0)
        try:
            with theirs:
                self._process = _execute(python, marks, theirs.fileno(), self._output)
        except OSError:  # no such interpreter, no more processes
            self._socket.close()
            os.close(self._output)
            raise

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    @property
    def was_killed(self) -> bool:
        """After :meth:`close`: whether a signal ended it, so that nothing is wrong with its environment."""
        return self._process.returncode < 0

    def fileno(self) -> int:
        """The socket, for the selector: always to be read; also to be written while :attr:`wants_to_send`."""
        return self._socket.fileno()

    @property
    def wants_to_send(self) -> bool:
        """Whether something waits until the socket takes more."""
        return bool(self._outgoing)

    def send(self, message: object) -> None:
        """Send a message, as much of it as goes now; :meth:`flush` sends the rest."""
        self._outgoing.append(memoryview(pack(message)))
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes. A server that has gone is noticed when its socket is read."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self._outgoing:
                sent = self._socket.send(self._outgoing[0])
                if sent == len(self._outgoing[0]):
                    self._outgoing.popleft()
                else:
                    self._outgoing[0] = self._outgoing[0][sent:]

    def receive(self) -> tuple[list[tuple[dict[str, Any], int | None]], bool]:
        """The messages that have come, ``started`` ones with the pidfd of the shim; and whether the server still lives."""
        alive = self._read()
        messages: list[tuple[dict[str, Any], int | None]] = []
        while (message := unpack(self._incoming)) is not None:
            if "ready" in message:
                self.ready = True
            else:
                messages.append((message, self._descriptors.popleft() if "started" in message else None))
        return messages, alive

    def _read(self) -> bool:
        size = array.array("i").itemsize
        try:
            data, ancillary, flags, _ = self._socket.recvmsg(
                1 << 16, socket.CMSG_SPACE(_FDS * size), socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return True
        except ConnectionResetError:
            return False
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._descriptors.extend(array.array("i", content[: len(content) // size * size]))
        if flags & socket.MSG_CTRUNC:
            raise StateError("too many open files: raise the limit (ulimit -n), then resume the run")
        self._incoming += data
        return bool(data)

    def close(self, patience: float = 5.0) -> str:
        """End the server without touching what it has started. Returns the last thing it complained about."""
        self._socket.close()
        if not _has_ended(self._process.pid, patience):
            self._process.kill()
        self._process.wait()
        while self._descriptors:
            os.close(self._descriptors.popleft())
        try:
            return tail(self._output)
        finally:
            os.close(self._output)


def _execute(python: str, marks: Mapping[str, str], descriptor: int, output: int) -> subprocess.Popen[bytes]:
    built = python != sys.executable
    env = {name: value for name, value in os.environ.items() if not (built and name in _NOT_FOR_BUILT)}
    return subprocess.Popen(
        [python, str(_BOOT), "server", str(descriptor)],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # not the terminal: shims outlive us, and would hold a pipe behind us open
        stderr=output,
        start_new_session=True,  # Ctrl-C is for the engine alone
        env={**env, "_KFP_RUNTIME": "true", **marks},
    )


def _has_ended(child: int, patience: float) -> bool:
    """Wait for the end of a child that nobody has waited for, told by the kernel; ``Popen.wait`` would look now and then."""
    pidfd = os.pidfd_open(child)
    try:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        return bool(poller.poll(patience * 1000))
    finally:
        os.close(pidfd)


def tail(descriptor: int) -> str:
    """The end of what was written to a file without a name."""
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, _SHOWN, max(0, size - _SHOWN)).decode(errors="replace").strip()
