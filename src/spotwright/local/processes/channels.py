"""The engine's end of a socket to a fork server or a shim, with non-blocking frames.

Data that the socket does not take yet waits in a buffer, so that an input of many megabytes blocks nothing. Messages are never
written to a disk, because inputs can hold secrets.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections import deque
from collections.abc import Mapping
from typing import Any

from spotwright.local.supervisor.frames import pack, unpack

__all__ = ["Channel"]


class Channel:
    """One end of a connected stream socket. A message can transfer a file descriptor."""

    def __init__(self, end: socket.socket) -> None:
        end.settimeout(0)
        self._socket = end
        self._incoming = bytearray()
        self._outgoing: deque[tuple[memoryview, int | None]] = deque()

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """A channel and its other end, which the caller transfers and closes. Raises ``OSError``."""
        ours, theirs = socket.socketpair()
        return cls(ours), theirs

    def fileno(self) -> int:
        """The socket's descriptor, for the selector: always for reading, and for writing while :attr:`wants_to_send`."""
        return self._socket.fileno()

    @property
    def wants_to_send(self) -> bool:
        """Whether data waits until the socket takes more."""
        return bool(self._outgoing)

    def send(self, message: Mapping[str, Any], descriptor: int | None = None) -> None:
        """Send as much of a message as the socket takes; :meth:`flush` sends the rest. Closes the descriptor once it is sent."""
        self._outgoing.append((memoryview(pack(message)), descriptor))
        self.flush()

    def flush(self) -> None:
        """Send as much as the socket takes. Reading the socket shows whether the other side has ended."""
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
        """The messages of one read, and whether the other side is still alive."""
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
        """Send end-of-file; messages of the other side can still be received."""
        with contextlib.suppress(OSError):  # the other side has ended
            self._socket.shutdown(socket.SHUT_WR)

    def await_end(self, timeout: float) -> None:
        """Wait, up to ``timeout`` seconds, until the other side has closed its end. What it still sends is dropped."""
        poller = select.poll()
        poller.register(self, select.POLLIN)
        while poller.poll(timeout * 1000) and self.receive()[1]:
            pass

    def close(self) -> None:
        """Close the socket and every descriptor that was not sent."""
        self._socket.close()
        for _, descriptor in self._outgoing:
            if descriptor is not None:
                os.close(descriptor)
        self._outgoing.clear()
