"""Runs a node agent until SIGTERM: one thread reads the source of notices, another serves them to clients."""

from __future__ import annotations

import contextlib
import errno
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from spotwright.agent.approval import Approval
from spotwright.agent.http_server import HttpServer
from spotwright.agent.relay import NoticeRelay
from spotwright.errors import InputError
from spotwright.notices import Notice, Source

__all__ = ["Address", "bind", "serve"]

_BACKLOG = 128


@dataclass(frozen=True, slots=True)
class Address:
    """Address to listen at. Port 0 stands for any free port."""

    host: str
    port: int

    @classmethod
    def read(cls, text: str) -> Address:
        """Read ``HOST:PORT``, or ``:PORT`` for every address. Raises :class:`ValueError` for anything else.

        Brackets around an IPv6 address are optional: ``$(HOST_IP):8788`` in a manifest has none.
        """
        host, colon, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not colon or not (port.isascii() and port.isdecimal()) or int(port) > 65535 or not _is_host(bare):
            raise ValueError(f"{text!r}: expected HOST:PORT, such as 127.0.0.1:8788")
        return cls(bare or "0.0.0.0", int(port))  # noqa: S104  # no host means every address, as in other servers

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _is_host(text: str) -> bool:
    if ":" not in text:
        return text.isprintable() and " " not in text
    try:
        socket.inet_pton(socket.AF_INET6, text)
    except OSError:
        return False
    return True


def bind(address: Address) -> socket.socket:
    """Open a listening socket. Raises :class:`InputError` if the address cannot be used."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise InputError(
                f"{address} is in use: does a node agent run here already? Name another address with --listen HOST:PORT"
            ) from error
        raise InputError(
            f"{address}: cannot listen there ({error.strerror or error}); name another with --listen"
        ) from error
    return listener


def serve(
    source: Source,
    listener: socket.socket,
    log: Callable[[str], None],
    *,
    approve: Callable[[], bool] | None = None,
    leases: Path | None = None,
    tell: Callable[[Notice | None], None] = lambda _: None,
) -> None:
    """Run an agent until SIGTERM or SIGINT.

    ``log`` gets lines for people. ``approve`` is called when the present notice may be approved; ``leases`` is a folder whose
    files stand for running work. ``tell`` is called with each change of the notice.
    """
    server = HttpServer()
    relay = NoticeRelay(source, server, log, tell)
    approval = Approval(relay.board, approve, log, leases) if approve is not None else None
    server.listen(listener, relay.board.handle)
    with _stop_signals(server) as stopped, contextlib.closing(server):
        log(f"listening at http://{_address_of(listener)}/notice; the source is {source.name}")
        while not stopped():
            next_check = approval.check() if approval is not None else None
            server.run_once(next_check if next_check is not None else 1.0)
            relay.log_problem()
    relay.stop()


def _address_of(listener: socket.socket) -> Address:
    host, port = listener.getsockname()[:2]
    return Address(host, port)


@contextlib.contextmanager
def _stop_signals(server: HttpServer) -> Iterator[Callable[[], bool]]:
    """Handle SIGTERM and SIGINT in the block; gives a function that returns True after one of them has come."""
    received: list[int] = []

    def on_signal(number: int, _: FrameType | None) -> Any:
        received.append(number)
        server.wake()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
