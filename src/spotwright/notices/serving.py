"""A small HTTP server in one thread: questions that wait for their answer, and clients that cannot hold it up.

Every attempt on a node keeps a question open until there is a notice. A thread for each of them would cost more than the answer,
and the library's server lets a client that sends a byte a minute keep one for ever. Here a selector serves all of them: a
request has so much room and so much time, an answer has so much time to leave, and there are so many connections at most.

Spoken is HTTP/1.1 (RFC 9112) with one request on a connection.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from spotwright.notices.asking import http_text

__all__ = ["Handler", "Later", "Loop", "Request", "Response"]

_HEAD, _BODY = 1 << 13, 1 << 16  # bytes of a request
_PATIENCE = 10.0  # seconds for a request to come, and for an answer to go

_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed"}


class Request(NamedTuple):
    """One request. Names of headers are lower-case; ``query`` has the last value of each name."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


class Response(NamedTuple):
    """What is answered."""

    status: int
    body: bytes
    kind: str = "application/json"
    headers: Mapping[str, str] = {}


class Later(NamedTuple):
    """An answer that is not there yet.

    ``answer`` is asked whenever the loop is woken, and at ``until`` (of the monotonic clock) a last time, with ``True``: then it
    has to answer. ``gone`` is called once the client has been answered or has gone.
    """

    until: float
    answer: Callable[[bool], Response | None]
    gone: Callable[[], None]


Handler = Callable[[Request], "Response | Later"]


@dataclass(slots=True, eq=False)
class _Connection:
    socket: socket.socket
    peer: str
    handler: Handler
    deadline: float
    held: bytearray = field(default_factory=bytearray)
    later: Later | None = None
    outgoing: memoryview | None = None


class Loop:
    """Listening sockets and their connections. Everything but :meth:`wake` belongs to the thread that runs it.

    ``most`` connections are held at once, and ``most_of_one`` from one address. More are closed unanswered: whoever asks tries
    again.
    """

    def __init__(self, *, most: int = 256, most_of_one: int = 64) -> None:
        self._most, self._most_of_one = most, most_of_one
        self._selector = selectors.DefaultSelector()
        self._connections: set[_Connection] = set()
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._woken = False
        self.watch(self._waker, self._on_wake)

    def listen(self, listener: socket.socket, handler: Handler) -> None:
        """Serve a socket that is bound and listens. It is closed with the loop."""
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener, handler))

    def unlisten(self, listener: socket.socket) -> None:
        """Close a socket; what is being answered is answered to the end."""
        self._selector.unregister(listener)
        listener.close()

    def watch(self, descriptor: int | socket.socket, callback: Callable[[], None]) -> None:
        """Call ``callback`` when there is something to read."""
        self._selector.register(descriptor, selectors.EVENT_READ, callback)

    def wake(self) -> None:
        """Look at the answers that are not there yet. From any thread, or a signal handler."""
        with contextlib.suppress(BlockingIOError, ValueError):  # it will wake anyway; it is closed
            os.eventfd_write(self._waker, 1)

    def turn(self, timeout: float | None = None) -> None:
        """Wait until something happens, at most ``timeout`` seconds, and do what there is to do."""
        deadlines = [connection.deadline for connection in self._connections]
        left = [max(0.0, deadline - time.monotonic()) for deadline in deadlines]
        if timeout is not None:
            left.append(timeout)
        for key, _ in self._selector.select(min(left, default=None)):
            key.data()
        now = time.monotonic()
        for connection in list(self._connections):
            self._look(connection, now)
        self._woken = False

    def close(self) -> None:
        """Close everything at once."""
        for connection in list(self._connections):
            self._drop(connection)
        for key in list((self._selector.get_map() or {}).values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        os.close(self._waker)

    # -- what happens

    def _on_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._waker)
        self._woken = True

    def _accept(self, listener: socket.socket, handler: Handler) -> None:
        if listener.fileno() < 0:
            return  # closed by what was called for an event of the same moment
        with contextlib.suppress(BlockingIOError, ConnectionError):
            accepted, address = listener.accept()
            peer = str(address[0])
            of_one = sum(connection.peer == peer for connection in self._connections)
            if len(self._connections) >= self._most or of_one >= self._most_of_one:
                accepted.close()
                return
            accepted.setblocking(False)
            connection = _Connection(accepted, peer, handler, time.monotonic() + _PATIENCE)
            self._connections.add(connection)
            self._selector.register(accepted, selectors.EVENT_READ, lambda: self._read(connection))

    def _look(self, connection: _Connection, now: float) -> None:
        """What time, or a change, does to a connection."""
        over = now >= connection.deadline
        if connection.later is None:
            if over:
                self._drop(connection)
        elif over or self._woken:
            response = connection.later.answer(over)
            if response is not None:
                self._answer(connection, response)

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(1 << 14)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or connection.later is not None:  # it has gone, or speaks while it should listen
            self._drop(connection)
            return
        connection.held += data
        request = _request(connection.held)
        if isinstance(request, Response):
            self._answer(connection, request)
        elif request is not None:
            answer = connection.handler(request)
            if isinstance(answer, Later):
                connection.later, connection.deadline = answer, answer.until
            else:
                self._answer(connection, answer)

    def _answer(self, connection: _Connection, response: Response) -> None:
        self._release(connection)
        connection.outgoing = memoryview(_written(response))
        connection.deadline = time.monotonic() + _PATIENCE
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
            self._connections.discard(connection)
            self._selector.unregister(connection.socket)
            connection.socket.close()
            self._release(connection)

    def _release(self, connection: _Connection) -> None:
        later, connection.later = connection.later, None
        if later is not None:
            later.gone()


def _request(held: bytearray) -> Request | Response | None:
    """The request in what has come; ``None``: more has to come; a response: what is wrong with it."""
    end = held.find(b"\r\n\r\n")
    if end < 0 or end > _HEAD:
        return _wrong("the request is too long") if len(held) > _HEAD else None
    first, *lines = bytes(held[:end]).decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        return _wrong("this is no HTTP request")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not (length.isascii() and length.isdecimal()) or int(length) > _BODY:
        return _wrong("the request has too long a body, or one of unknown length")
    body = bytes(held[end + 4 :])
    if len(body) < int(length):
        return None
    try:
        target = urlsplit(words[1])
        query = dict(parse_qsl(target.query, max_num_fields=20))
    except ValueError:
        return _wrong("this is no address")
    return Request(words[0], unquote(target.path), query, headers, body[: int(length)])


def _wrong(text: str) -> Response:
    return Response(400, f'{{"problem": "{text}"}}'.encode())


def _written(response: Response) -> bytes:
    lines = [
        f"HTTP/1.1 {response.status} {_REASONS.get(response.status, 'Unavailable')}",
        f"Date: {http_text(time.time())}",
        f"Content-Type: {response.kind}",
        f"Content-Length: {len(response.body)}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in response.headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + response.body
