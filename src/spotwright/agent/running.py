"""A node agent from its start to SIGTERM: one thread asks the provider, one answers whoever asks here."""

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
from spotwright.errors import InputError
from spotwright.notices import Source
from spotwright.notices.serving import Loop
from spotwright.notices.telling import Teller

__all__ = ["Address", "bound", "serve"]

_BACKLOG = 128


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. Port 0 is any that is free."""

    host: str
    port: int

    @classmethod
    def read(cls, text: str) -> Address:
        """``HOST:PORT``, or ``:PORT`` for every address. Raises :class:`ValueError` for anything else.

        An address of IPv6 may stand in brackets, and need not: ``$(HOST_IP):8788`` of a manifest has none.
        """
        host, colon, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not colon or not (port.isascii() and port.isdecimal()) or int(port) > 65535 or not _is_host(bare):
            raise ValueError(f"{text!r}: expected HOST:PORT, such as 127.0.0.1:8788")
        return cls(bare or "0.0.0.0", int(port))  # noqa: S104  # no host is every address, as everywhere

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


def bound(address: Address) -> socket.socket:
    """A listening socket. Raises :class:`InputError` where the address cannot be had."""
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
    say: Callable[[str], None],
    *,
    approve: Callable[[], bool] | None = None,
    leases: Path | None = None,
) -> None:
    """Run an agent until SIGTERM or SIGINT. ``approve`` is called when the present notice may be approved."""
    loop = Loop()
    teller = Teller(source, loop, say)
    approval = Approval(teller.board, approve, say, leases) if approve is not None else None
    loop.listen(listener, teller.board.handle)
    with _told_to_stop(loop) as stopped, contextlib.closing(loop):
        say(f"listening at http://{_where(listener)}/notice; the source is {source.name}")
        while not stopped():
            soon = approval.look() if approval is not None else None
            loop.turn(soon if soon is not None else 1.0)
            teller.report()
    teller.stop()


def _where(listener: socket.socket) -> Address:
    host, port = listener.getsockname()[:2]
    return Address(host, port)


@contextlib.contextmanager
def _told_to_stop(loop: Loop) -> Iterator[Callable[[], bool]]:
    told: list[int] = []

    def on_signal(number: int, _: FrameType | None) -> Any:
        told.append(number)
        loop.wake()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: bool(told)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
