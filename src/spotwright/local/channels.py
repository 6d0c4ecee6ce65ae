"""The engine's end of a socket to a fork server or a shim: frames that never block the engine's loop.

What cannot be sent yet waits in a buffer, so that an input of many megabytes never holds anybody up. No message ever lies on
a disk, because inputs can hold secrets.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections import deque
from collections.abc import Mapping
from typing import Any

from spotwright.local.frames import pack, unpack

__all__ = ["Channel"]


class Channel:
    """One end of a connected stream socket. A message can carry a descriptor away."""

    def __init__(self, end: socket.socket) -> None:
        end.settimeout(0)
        self._socket = end
        self._incoming = bytearray()
        self._outgoing: deque[tuple[memoryview, int | None]] = deque()

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
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            return [], True
        except ConnectionResetError:
            data = b""
        self._incoming += data
        messages: list[dict[str, Any]] = []
        while (message := unpack(self._incoming)) is not None:
            messages.append(message)
        return messages, bool(data)

    def finish(self) -> None:
        """Say that nothing more will come; the other side's answer to that is still read."""
        with contextlib.suppress(OSError):  # it has gone before
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Let go of it, and of every descriptor that has not gone."""
        self._socket.close()
        for _, descriptor in self._outgoing:
            if descriptor is not None:
                os.close(descriptor)
        self._outgoing.clear()
