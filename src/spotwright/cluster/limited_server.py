"""Listens for the HTTP servers of the controller and the page, without letting a client lock out others or fill the memory.

Every pod of a cluster can open connections to the controller's ports, and aiohttp accepts any number of them, waits an hour for
the first byte, and holds any number of unfinished bodies. Here a connection counts from its acceptance, before TLS. A request
has seconds to arrive. If all places are in use, a new connection replaces an idle client without a request, of the address with
the most connections. Without an idle client, the address with the most connections loses one to an address with fewer, and its
own new connections wait. So an API server, which sends whole requests at once, gets through even if a pod opens as many
connections as it can. Request bodies and unread answers share a memory limit.

One gate serves one port: :func:`serve` makes it, and handlers read bodies through :func:`read_body`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from asyncio import sslproto
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple, cast

from aiohttp import web

__all__ = ["Limits", "hold", "read_body", "serve"]


_LOG = logging.getLogger(__name__)
_RECORD = (
    32 * 1024
)  # bytes that a TLS connection reads at once; asyncio takes 256 KiB for each, and a record has at most 16
sslproto.SSLProtocol.max_size = _RECORD


class Limits(NamedTuple):
    """The limits of one port's clients.

    ``connections`` in all; ``arrival``: seconds for a request to arrive, TLS and headers included; ``idle``: seconds between two
    requests of a connection, or for an answer to be read; ``memory``: bytes of all bodies, of what is read in them, and of all
    answers; ``body``: bytes of one body; ``large``: bytes of an answer after which its connection ends, because the buffers of a
    TLS connection grow with the largest one and never shrink.
    """

    connections: int = 512
    arrival: float = 3.0
    idle: float = 60.0
    memory: int = 64 * 1024 * 1024
    body: int = 64 * 1024
    large: int = 64 * 1024


class _State(Enum):
    NEW = "has sent no request yet"
    ARRIVING = "sends a request"
    BODY = "sends its body"
    ANSWERING = "waits for an answer"
    SENDING = "takes its answer"
    IDLE = "has got an answer"


@dataclass(eq=False, slots=True)
class _Connection:
    address: str
    since: float  # of its state, by the loop's clock
    state: _State = _State.NEW
    task: asyncio.Task[None] | None = None
    transport: asyncio.Transport | None = None
    held: int = 0  # bytes of the body, of what was read in it, and of the answer
    is_large: bool = False  # its answer is large, and its memory is freed at its end
    head: int = 0  # bytes since the last answer, until a handler has the request

    def drop(self) -> None:
        """Close it at once."""
        if self.transport is not None:
            self.transport.abort()
        elif self.task is not None:
            self.task.cancel()


_HEAD = 256 * 1024  # bytes of headers and of data received with them
_YOUNG = 0.25  # seconds for a new connection's request before its place can be given away
_SWEEP = 0.25  # seconds between checks of time limits
_COPIES = 3  # of an answer: plain, encrypted, and the part in the socket's buffer
_GATE: web.AppKey[_Gate] = web.AppKey("gate", cast("type[_Gate]", object))


@dataclass(eq=False, slots=True)
class _Gate:
    """The connections of one port."""

    limits: Limits
    loop: asyncio.AbstractEventLoop
    connections: set[_Connection] = field(default_factory=set)
    held: int = 0
    is_open: bool = True
    on_place: Callable[[], None] = lambda: None  # is called when a connection has ended
    _by_transport: dict[Any, _Connection] = field(default_factory=dict)

    def add(self, address: str) -> _Connection:
        connection = _Connection(address, self.loop.time())
        self.connections.add(connection)
        return connection

    def opened(self, connection: _Connection, transport: asyncio.Transport) -> None:
        connection.transport = transport
        self._by_transport[transport] = connection

    def ended(self, connection: _Connection) -> None:
        if connection in self.connections:
            self.connections.discard(connection)
            self._by_transport.pop(connection.transport, None)
            self.release(connection)
            self.on_place()

    def of(self, request: web.BaseRequest) -> _Connection:
        """The connection of a request. Raises :class:`ConnectionError` if it has ended."""
        found = self._by_transport.get(request.transport)
        if found is None:
            raise ConnectionResetError("the client has gone")
        return found

    def enter(self, connection: _Connection, state: _State) -> None:
        if connection.state is not state:
            connection.state, connection.since = state, self.loop.time()

    def received(self, connection: _Connection, size: int) -> None:
        """Count bytes of a client; too long headers end the connection."""
        if connection.state is _State.IDLE:
            self.enter(connection, _State.ARRIVING)
        connection.head += size
        if connection.head > _HEAD and connection.state in (_State.NEW, _State.ARRIVING):
            connection.drop()

    def hold(self, connection: _Connection, size: int) -> None:
        """Count bytes of a body or an answer; other connections may be dropped for them.

        Raises :class:`web.HTTPServiceUnavailable` without room.
        """
        while self.held + size > self.limits.memory:
            holding = [one for one in self.connections if one.held]
            total = Counter[str]()
            for one in holding:
                total[one.address] += one.held
            waiting = [one for one in holding if one.state is not _State.ANSWERING]
            victim = max(waiting, key=lambda one: (total[one.address], -one.since), default=None)
            if victim is None or victim is connection:  # then an answered one of an address that holds more
                more = [one for one in holding if total[one.address] > total[connection.address] + size]
                victim = max(more, key=lambda one: (total[one.address], -one.since), default=None)
            if victim is None:
                raise web.HTTPServiceUnavailable(text="too many bodies at once")
            self.release(victim)
            victim.drop()
        self.held += size
        connection.held += size

    def release(self, connection: _Connection) -> None:
        self.held -= connection.held
        connection.held = 0

    def make_room(self, address: str) -> bool:
        """Whether there is a place for another connection of an address, possibly by dropping one that waited too long.

        If all are busy, the address with the most connections loses one. An address never replaces one with fewer.
        """
        if len(self.connections) < self.limits.connections:
            return True
        now, held = self.loop.time(), Counter(one.address for one in self.connections)
        others = [one for one in self.connections if held[one.address] >= held[address]]
        waiting = [one for one in others if one.state is not _State.ANSWERING and now - one.since > _YOUNG]
        victim = min(waiting, key=lambda one: (one.state is _State.IDLE, -held[one.address], one.since), default=None)
        if victim is None:
            richer = [one for one in others if held[one.address] > held[address] + 1]
            victim = max(
                richer, key=lambda one: (held[one.address], one.state is not _State.ANSWERING, one.since), default=None
            )
        if victim is None:
            return False
        self._let_go(victim)
        return True

    def sweep(self) -> None:
        """End connections that take too long."""
        now = self.loop.time()
        for one in list(self.connections):
            is_patient = one.state is _State.SENDING or (one.state is _State.IDLE and not one.is_large)
            longest = self.limits.idle if is_patient else self.limits.arrival
            if one.state is not _State.ANSWERING and now - one.since > longest:
                self._let_go(one)

    def _let_go(self, connection: _Connection) -> None:
        connection.drop()
        self.ended(connection)


class _Guard(asyncio.Protocol):
    """Sits between a transport and aiohttp's protocol, and reports events to the gate."""

    def __init__(self, gate: _Gate, connection: _Connection, inner: asyncio.Protocol) -> None:
        self._gate, self._connection, self._inner = gate, connection, inner
        self._is_known = False  # to aiohttp

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._gate.opened(self._connection, cast("asyncio.Transport", transport))
        if not self._gate.is_open:  # opened while the server stopped: aiohttp would never end it
            self._connection.drop()
            return
        self._is_known = True
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._gate.received(self._connection, len(data))
        if self._is_known:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._is_known else None

    def connection_lost(self, exc: Exception | None) -> None:
        self._gate.ended(self._connection)
        if self._is_known:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class _Listener(asyncio.AbstractServer):
    """Accepts connections. Connections without a place wait, without blocking later ones."""

    def __init__(
        self, gate: _Gate, sockets: list[socket.socket], context: ssl.SSLContext | None, make: Callable[[], Any]
    ) -> None:
        self._gate, self.sockets, self._context, self._make = gate, sockets, context, make
        self._is_open = True
        self._handle: asyncio.TimerHandle | None = None
        self._waiting: deque[tuple[socket.socket, str, float]] = deque()  # each with its address, and since when
        gate.on_place = self._later
        self._listen()
        self._sweep()

    def close(self) -> None:
        """Stop accepting connections; open ones continue, ones being opened do not."""
        if self._is_open:
            self._is_open = False
            if self._handle is not None:
                self._handle.cancel()
            for listener in self.sockets:
                self._gate.loop.remove_reader(listener)
                listener.close()
            while self._waiting:
                self._waiting.popleft()[0].close()
            self._gate.is_open = False

    async def wait_closed(self) -> None:
        """Return at once: closing is immediate."""

    def is_serving(self) -> bool:
        """Whether it accepts connections."""
        return self._is_open

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        return self._gate.loop

    async def start_serving(self) -> None:
        """It has begun already."""

    async def serve_forever(self) -> None:
        """Serve until cancelled, and close then, as asyncio's own servers do."""
        try:
            await self._gate.loop.create_future()
        finally:
            self.close()

    def _sweep(self) -> None:
        self._gate.sweep()
        begin = self._gate.loop.time() - self._gate.limits.arrival
        while self._waiting and self._waiting[0][2] < begin:
            self._waiting.popleft()[0].close()
        self._listen()
        self._handle = self._gate.loop.call_later(_SWEEP, self._sweep)

    def _listen(self) -> None:
        for listener in self.sockets if self._is_open else ():
            self._gate.loop.add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(16):  # then others have their turn
            try:
                accepted, (address, *_) = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:
                _LOG.warning("cannot accept connections now: %s", error)
                for each in self.sockets:  # until the next sweep
                    self._gate.loop.remove_reader(each)
                return
            accepted.setblocking(False)
            if self._gate.make_room(str(address)):
                self._begin(accepted, str(address))
            elif len(self._waiting) < _BACKLOG:
                self._waiting.append((accepted, str(address), self._gate.loop.time()))
            else:
                accepted.close()

    def _later(self) -> None:
        """Admit waiting connections once the decision about a freed place is made."""
        if self._waiting:
            self._gate.loop.call_soon(self._admit)

    def _admit(self) -> None:
        """Give freed places to waiting connections, in order."""
        while self._waiting and self._gate.make_room(self._waiting[0][1]):
            accepted, address, _ = self._waiting.popleft()
            self._begin(accepted, address)

    def _begin(self, accepted: socket.socket, address: str) -> None:
        connection = self._gate.add(address)
        connection.task = self._gate.loop.create_task(self._open(accepted, connection))

    async def _open(self, accepted: socket.socket, connection: _Connection) -> None:
        names = () if self._context is None else ("ssl_handshake_timeout", "ssl_shutdown_timeout")
        times = dict.fromkeys(names, self._gate.limits.arrival)
        try:
            await self._gate.loop.connect_accepted_socket(
                lambda: _Guard(self._gate, connection, self._make()), accepted, ssl=self._context, **times
            )
        except (OSError, asyncio.CancelledError):  # not TLS, an unsupported version, or too slow
            self._gate.ended(connection)
            accepted.close()


class _Site(web.BaseSite):
    """A port of a runner behind a gate."""

    def __init__(
        self, runner: web.AppRunner, gate: _Gate, sockets: list[socket.socket], context: Any, make: Callable[[], Any]
    ) -> None:
        super().__init__(runner, ssl_context=context, backlog=_BACKLOG)
        self._gate, self._sockets, self._make = gate, sockets, make

    @property
    def name(self) -> str:
        """The address, for messages of aiohttp."""
        return f"{'https' if self._ssl_context else 'http'}://{self._sockets[0].getsockname()}"

    async def start(self) -> None:
        """Accept connections."""
        await super().start()
        self._server = _Listener(self._gate, self._sockets, self._ssl_context, self._make)


_BACKLOG = 512


async def _bound(loop: asyncio.AbstractEventLoop, host: str | None, port: int) -> list[socket.socket]:
    """Listening sockets for every address of a host, or for all addresses of the machine."""
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            try:
                listener = socket.socket(family, socket.SOCK_STREAM)
            except OSError:  # no IPv6 here
                continue
            sockets.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.setblocking(False)
            listener.bind(address)
            listener.listen(_BACKLOG)
    except OSError:
        for listener in sockets:
            listener.close()
        raise
    if not sockets:
        raise OSError(f"{host}: no address to listen at")
    return sockets


async def serve(
    app: web.Application,
    *,
    host: str | None = None,
    port: int = 0,
    listening: socket.socket | None = None,
    context: ssl.SSLContext | None = None,
    limits: Limits | None = None,
    shutdown_timeout: float = 1.0,
    connection: type[web.RequestHandler] = web.RequestHandler,
) -> web.AppRunner:
    """Serve an application on a port; ``await runner.cleanup()`` ends it. ``host``: by default all addresses.

    ``listening`` is a listening socket, instead of both. ``context`` makes it TLS, ``connection`` speaks HTTP. Raises
    :class:`OSError` if it cannot listen on the port.
    """
    limits, loop = limits or Limits(), asyncio.get_running_loop()
    gate = _Gate(limits, loop)
    app[_GATE] = gate
    app.middlewares.insert(0, _counted)
    runner = web.AppRunner(app, shutdown_timeout=shutdown_timeout)
    await runner.setup()
    settings: dict[str, Any] = {
        "access_log": None,  # an address may have a token
        "keepalive_timeout": limits.idle + limits.arrival,  # the gate ends what is idle
        "lingering_time": limits.arrival,
        "max_headers": 64,
        "auto_decompress": False,  # a few bytes would become megabytes
    }
    make: Callable[[], Any] = partial(connection, cast("web.Server", runner.server), loop=loop, **settings)
    try:
        sockets = await _bound(loop, host, port) if listening is None else [listening]
        await _Site(runner, gate, sockets, context, make).start()
    except OSError:
        await runner.cleanup()
        raise
    return runner


@web.middleware
async def _counted(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    gate = request.app[_GATE]
    try:
        connection = gate.of(request)
    except ConnectionError:
        return web.Response(status=HTTPStatus.BAD_REQUEST)  # the client is gone
    connection.head = 0
    gate.enter(connection, _State.BODY if request.can_read_body else _State.ANSWERING)
    try:
        response = await handler(request)
        gate.enter(connection, _State.SENDING)
        gate.release(connection)
        body = response.body if isinstance(response, web.Response) else None
        size = len(body) if isinstance(body, bytes | bytearray) else 0
        gate.hold(connection, _COPIES * size)
        if size > gate.limits.large:
            connection.is_large = True
            response.force_close()
        with suppress(ConnectionError):
            await response.prepare(request)
            await response.write_eof()  # until it is read, except a few kilobytes
        return response
    finally:
        if not connection.is_large:
            gate.release(connection)
        connection.head = 0  # the body is not part of the next request's head
        gate.enter(connection, _State.IDLE)


def hold(request: web.Request, size: int) -> None:
    """Count the bytes read from a body, until the request is answered.

    Raises :class:`web.HTTPServiceUnavailable` if there is not enough memory, :class:`ConnectionError` if the client is gone.
    """
    gate = request.app[_GATE]
    gate.hold(gate.of(request), size)


async def read_body(request: web.Request) -> bytearray:
    """The body of a request, within the limits of its port.

    Raises :class:`web.HTTPException` for one that is too large or without room, :class:`ConnectionError` and
    :class:`web.RequestPayloadError` for an incomplete one.
    """
    gate = request.app[_GATE]
    connection, limits = gate.of(request), gate.limits
    length = request.content_length or 0
    if length > limits.body:
        raise web.HTTPRequestEntityTooLarge(max_size=limits.body, actual_size=length)
    body = bytearray()
    async for chunk in request.content.iter_any():
        gate.hold(connection, len(chunk))
        if len(body) + len(chunk) > limits.body:
            raise web.HTTPRequestEntityTooLarge(max_size=limits.body, actual_size=len(body) + len(chunk))
        body += chunk
    with suppress(ConnectionError):
        gate.enter(gate.of(request), _State.ANSWERING)
    return body
