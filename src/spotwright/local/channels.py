"""The engine's end of a socket to a fork server or a shim: frames that never block the engine's loop.

What cannot be sent yet waits in a buffer, so that an input of many megabytes never holds anybody up. No message ever lies on
a disk, because inputs can hold secrets.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
from collections import deque
from collections.abc import Mapping
from typing import Any

from spotwright.errors import StateError
from spotwright.local.frames import pack, unpack

__all__ = ["Channel"]

_FDS = 64  # descriptors taken with one read


class Channel:
    """One end of a connected stream socket. A message can carry one descriptor, in either direction."""

    def __init__(self, end: socket.socket) -> None:
        end.settimeout(0)
        self._socket = end
        self._incoming = bytearray()
        self._outgoing: deque[tuple[memoryview, int | None]] = deque()
        self._descriptors: deque[int] = deque()

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """A channel and the other end, which the caller gives away and closes. Raises ``OSError``."""
        ours, theirs = socket.socketpair()
        return cls(ours), theirs

    def fileno(self) -> int:
        """The socket, for the selector: always to be read; also to be written while :attr:`wants_to_send`."""
        return self._socket.fileno()

    @property
    def wants_to_send(self) -> bool:
        """Whether something waits until the socket takes more."""
        return bool(self._outgoing)

    def send(self, message: Mapping[str, Any], descriptor: int | None = None) -> None:
        """Send a message, as much of it as goes now; :meth:`flush` sends the rest. The descriptor is closed here once sent."""
        self._outgoing.append((memoryview(pack(message)), descriptor))
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes. Somebody who has gone is noticed when the socket is read."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self._outgoing:
                content, descriptor = self._outgoing[0]
                if descriptor is None:
                    sent = self._socket.send(content)
                else:
                    sent = socket.send_fds(self._socket, [content], [descriptor])
                    os.close(descriptor)
                if sent == len(content):
                    self._outgoing.popleft()
                else:
                    self._outgoing[0] = content[sent:], None

    def receive(self) -> tuple[list[dict[str, Any]], bool]:
        """The messages that have come, and whether the other side still lives. Takes what one read gives."""
        alive = self._read()
        messages: list[dict[str, Any]] = []
        while (message := unpack(self._incoming)) is not None:
            messages.append(message)
        return messages, alive

    def take_descriptor(self) -> int:
        """The next descriptor that came with a message; the caller closes it."""
        return self._descriptors.popleft()

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

    def finish(self) -> None:
        """Say that nothing more will come; the other side's answer to that is still read."""
        with contextlib.suppress(OSError):  # it has gone before
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Let go of it, and of every descriptor that it still holds."""
        self._socket.close()
        while self._descriptors:
            os.close(self._descriptors.popleft())
        for _, descriptor in self._outgoing:
            if descriptor is not None:
                os.close(descriptor)
        self._outgoing.clear()
