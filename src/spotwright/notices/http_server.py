"""An HTTP server in one thread: long polls need no threads, and a slow client does not hold up the others.

Every attempt on a node keeps a request open until there is a notice. ``http.server`` blocks in one client, or needs a thread
for each, which a slowly sending client keeps for ever. So a selector serves all connections here: a request has a maximum size
and time, a response a maximum time, and the number of connections is limited. If all places are in use, a newcomer replaces a
connection of the address with the most, so that one pod cannot block the others. Headers, dates and status phrases come from
the standard library.

The protocol is HTTP/1.1 (RFC 9112) with one request per connection.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.parser import Parser
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

__all__ = ["DeferredResponse", "Handler", "HttpServer", "Request", "Response"]


_MAX_HEAD, _MAX_BODY = 1 << 13, 1 << 16  # bytes of a request
_LONGEST_LENGTH = 10  # digits of the header: Python refuses to read thousands
_TIMEOUT = 10.0  # seconds for a request to arrive, and for a response to leave


class Request(NamedTuple):
    """One request. Names of headers are lower-case; ``query`` has the last value of each name."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


class Response(NamedTuple):
    """A response. ``kind`` is its content type."""

    status: int
    body: bytes
    kind: str = "application/json"
    headers: Mapping[str, str] = {}


class DeferredResponse(NamedTuple):
    """The response to a long poll.

    The server calls ``answer(False)`` whenever it is woken, and ``answer(True)`` at ``deadline`` (of the monotonic clock): the
    last call must return a response. It calls ``on_close`` once the client was answered or has disconnected.
    """

    deadline: float
    answer: Callable[[bool], Response | None]
    on_close: Callable[[], None]


Handler = Callable[[Request], "Response | DeferredResponse"]


@dataclass(slots=True, eq=False)
class _Connection:
    socket: socket.socket
    peer: str
    handler: Handler
    deadline: float
    received: bytearray = field(default_factory=bytearray)
    needed: int = 0  # bytes of the whole request, once its head has arrived
    deferred: DeferredResponse | None = None
    outgoing: memoryview | None = None


class HttpServer:
    """Listening sockets and their connections. Every method but :meth:`wake` belongs to the thread that runs the server.

    It holds at most ``max_connections``, and ``max_per_peer`` of one address. It closes further ones of an address without a
    response, and if all places are in use the oldest one of the address with the most. Their clients retry.
    """

    def __init__(self, *, max_connections: int = 256, max_per_peer: int = 64) -> None:
        self._max_connections, self._max_per_peer = max_connections, max_per_peer
        self._selector = selectors.DefaultSelector()
        self._connections: dict[_Connection, None] = {}  # in the order of opening
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._woken = False
        self.add_reader(self._waker, self._on_wake)

    def listen(self, listener: socket.socket, handler: Handler) -> None:
        """Serve a bound, listening socket. The server closes it when it is closed."""
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener, handler))

    def unlisten(self, listener: socket.socket) -> None:
        """Close a listening socket; its open requests are still answered."""
        self._selector.unregister(listener)
        listener.close()

    def add_reader(self, descriptor: int | socket.socket, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever the descriptor is readable."""
        self._selector.register(descriptor, selectors.EVENT_READ, callback)

    def wake(self) -> None:
        """Ask the deferred responses again. Safe in any thread and in a signal handler."""
        with contextlib.suppress(BlockingIOError, ValueError):  # it will wake anyway, or is closed
            os.eventfd_write(self._waker, 1)

    def run_once(self, timeout: float | None = None) -> None:
        """Wait for events, at most ``timeout`` seconds, and handle them."""
        deadlines = [connection.deadline for connection in self._connections]
        waits = [max(0.0, deadline - time.monotonic()) for deadline in deadlines]
        if timeout is not None:
            waits.append(timeout)
        for key, _ in self._selector.select(min(waits, default=None)):
            key.data()
        now = time.monotonic()
        for connection in list(self._connections):
            self._check(connection, now)
        self._woken = False

    def close(self) -> None:
        """Close all sockets at once."""
        for connection in list(self._connections):
            self._drop(connection)
        for key in list((self._selector.get_map() or {}).values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        os.close(self._waker)

    # -- events

    def _on_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._waker)
        self._woken = True

    def _accept(self, listener: socket.socket, handler: Handler) -> None:
        if listener.fileno() < 0:
            return  # closed by another event's callback in this turn
        with contextlib.suppress(BlockingIOError, ConnectionError):
            accepted, address = listener.accept()
            peer = str(address[0])
            if not self._make_room(peer):
                accepted.close()
                return
            accepted.setblocking(False)
            connection = _Connection(accepted, peer, handler, time.monotonic() + _TIMEOUT)
            self._connections[connection] = None
            self._selector.register(accepted, selectors.EVENT_READ, lambda: self._read(connection))

    def _make_room(self, peer: str) -> bool:
        """Whether there is a place for a peer's connection; a peer with more gives up its oldest."""
        held = Counter(connection.peer for connection in self._connections)
        if held[peer] >= self._max_per_peer:
            return False
        if len(self._connections) < self._max_connections:
            return True
        most = max(held, key=held.__getitem__)
        if held[most] <= held[peer] + 1:
            return False
        self._drop(next(connection for connection in self._connections if connection.peer == most))
        return True

    def _check(self, connection: _Connection, now: float) -> None:
        """Answer a deferred response that is ready or due; drop a connection whose time is over."""
        over = now >= connection.deadline
        if connection.deferred is None:
            if over:
                self._drop(connection)
        elif over or self._woken:
            response = connection.deferred.answer(over)
            if response is not None:
                self._answer(connection, response)

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(1 << 14)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or connection.deferred is not None:  # the client has disconnected, or sent data after its request
            self._drop(connection)
            return
        connection.received += data
        if len(connection.received) < connection.needed:
            return
        connection.needed = needed_bytes(connection.received)
        request = parse_request(connection.received)
        if isinstance(request, Response):
            self._answer(connection, request)
        elif request is not None:
            answer = connection.handler(request)
            if isinstance(answer, DeferredResponse):
                connection.deferred, connection.deadline = answer, answer.deadline
            else:
                self._answer(connection, answer)

    def _answer(self, connection: _Connection, response: Response) -> None:
        self._release(connection)
        connection.outgoing = memoryview(_encode(response))
        connection.deadline = time.monotonic() + _TIMEOUT
        self._selector.modify(connection.socket, selectors.EVENT_WRITE, lambda: self._write(connection))
        self._write(connection)

    def _write(self, connection: _Connection) -> None:
        try:
            sent = connection.socket.send(connection.outgoing or b"")
        except BlockingIOError:
            return
        except OSError:
            self._drop(connection)
            return
        connection.outgoing = (connection.outgoing or memoryview(b""))[sent:]
        if not connection.outgoing:
            with contextlib.suppress(OSError):
                connection.socket.shutdown(socket.SHUT_WR)
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        if connection in self._connections:
            del self._connections[connection]
            self._selector.unregister(connection.socket)
            connection.socket.close()
            self._release(connection)

    def _release(self, connection: _Connection) -> None:
        deferred, connection.deferred = connection.deferred, None
        if deferred is not None:
            deferred.on_close()


def needed_bytes(received: bytearray) -> int:
    """The length of the request that has begun; 0 while its head is incomplete or lacks it.

    So the head is parsed once, not with each byte of a slow body.
    """
    end = received.find(b"\r\n\r\n", 0, _MAX_HEAD + 4)
    found = _LENGTH.search(received, 0, end) if end >= 0 else None
    length = int(found[1]) if found else 0
    return end + 4 + length if length <= _MAX_BODY else 0


_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]{0,9}([0-9]{1,9})[ \t]{0,9}(?=\r\n|\Z)", re.IGNORECASE)


def parse_request(received: bytearray) -> Request | Response | None:
    """Read the request in the received bytes: ``None`` if it is incomplete, a response with status 400 if it is wrong."""
    end = received.find(b"\r\n\r\n")
    if end < 0 or end > _MAX_HEAD:
        return _bad_request("the request is too long") if len(received) > _MAX_HEAD else None
    first, _, lines = bytes(received[:end]).decode("latin-1").partition("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        return _bad_request("not an HTTP request")
    headers = {
        name.strip().lower(): value.strip() for name, value in Parser().parsestr(lines, headersonly=True).items()
    }
    length = headers.get("content-length", "0")
    is_number = length.isascii() and length.isdecimal() and len(length) < _LONGEST_LENGTH
    if "transfer-encoding" in headers or not is_number or int(length) > _MAX_BODY:
        return _bad_request("the body of the request is too long, or of unknown length")
    body = bytes(received[end + 4 :])
    if len(body) < int(length):
        return None
    try:
        target = urlsplit(words[1])
        query = dict(parse_qsl(target.query, max_num_fields=20))
    except ValueError:
        return _bad_request("the address is not a URL")
    return Request(words[0], unquote(target.path), query, headers, body[: int(length)])


def _bad_request(problem: str) -> Response:
    return Response(HTTPStatus.BAD_REQUEST, f'{{"problem": "{problem}"}}'.encode())


def _encode(response: Response) -> bytes:
    """The response as HTTP."""
    lines = [
        f"HTTP/1.1 {response.status:d} {HTTPStatus(response.status).phrase}",
        f"Date: {formatdate(usegmt=True)}",
        f"Content-Type: {response.kind}",
        f"Content-Length: {len(response.body)}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in response.headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + response.body
