"""The engine's end of the simulated nodes' metadata servers: who has one, and where attempts on the node ask.

Only spot nodes of a pool with a provider have one. The sockets are made here, so that an attempt's address is known at once and
whoever connects early waits; the process that serves them (:mod:`spotwright.local.metadata_process`) is started with the first
such node, and ends with its engine.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys
from collections.abc import Mapping

from spotwright.errors import StateError
from spotwright.model.pools import Pool, Provider

__all__ = ["Metadata", "has_metadata"]

_LOOPBACK = "127.0.0.1"
_BACKLOG = 128
_PACKET = 1 << 14
_PATIENCE = 5.0  # seconds that the process may take to end


def has_metadata(pool: Pool) -> bool:
    """Whether nodes of the pool have a metadata server: spot nodes of a cloud."""
    return pool.is_spot and pool.provider is not Provider.GENERIC


class Metadata:
    """The metadata servers of a run. ``marks`` are in their process's environment; ``scale`` is the run's time scale."""

    def __init__(self, selector: selectors.BaseSelector, marks: Mapping[str, str], *, scale: float) -> None:
        self._selector, self._marks, self._scale = selector, marks, scale
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._told: dict[str, dict[str, str]] = {}
        self._approved: list[str] = []

    def boot(self, node: str, pool: Pool) -> None:
        """A node boots: its servers answer from now on. Nothing, where the pool's nodes have none."""
        if not has_metadata(pool):
            return
        with _listener() as metadata, _listener() as agent:
            self._told[node] = {
                "SPOTWRIGHT_NOTICE_URL": f"http://{_LOOPBACK}:{agent.getsockname()[1]}/notice",
                "SPOTWRIGHT_METADATA_URL": f"http://{_LOOPBACK}:{metadata.getsockname()[1]}",
            }
            order = {
                "what": "boot", "node": node, "pool": pool.name, "provider": pool.provider.value,
                "notice": pool.notice / self._scale, "scale": self._scale,
            }  # fmt: skip
            self._send(order, metadata.fileno(), agent.fileno())

    def environment(self, node: str) -> dict[str, str]:
        """What an attempt on the node is told of its agent and its metadata server; nothing where it has none."""
        return self._told.get(node, {})

    def notice(self, node: str, seconds: float) -> None:
        """The provider takes a node in so many seconds: a clock that was set does not matter then."""
        if node in self._told:
            self._send({"what": "notice", "node": node, "seconds": seconds})

    def gone(self, node: str) -> None:
        """A node is gone, and its servers with it."""
        if self._told.pop(node, None) is not None:
            self._send({"what": "gone", "node": node})

    def approved(self) -> list[str]:
        """The nodes that may go before their time, new since the last call."""
        found, self._approved = self._approved, []
        return found

    def close(self) -> None:
        """End the process. Nothing of it is left afterwards."""
        self._end()
        self._told.clear()

    def _end(self) -> None:
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None
        if self._process is not None:
            try:
                self._process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _send(self, order: Mapping[str, object], *descriptors: int) -> None:
        """Give an order. A process that was killed is noticed when its socket is read; its nodes have no servers then."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
            socket.send_fds(self._connected(), [json.dumps(order).encode()], list(descriptors))

    def _connected(self) -> socket.socket:
        if self._socket is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = _execute(theirs.fileno(), self._marks)
            ours.settimeout(_PATIENCE)
            self._socket = ours
            self._selector.register(ours, selectors.EVENT_READ, self._read)
        return self._socket

    def _read(self) -> None:
        if self._socket is None:
            return
        try:
            data = self._socket.recv(_PACKET, socket.MSG_DONTWAIT)
        except (BlockingIOError, TimeoutError):
            return
        except ConnectionResetError:
            data = b""
        if data:
            self._approved.append(json.loads(data)["approved"])
        else:
            self._end()  # it was killed: its nodes' attempts are told by their files alone; the next node gets another


def _listener() -> socket.socket:
    listener = socket.socket()
    try:
        listener.bind((_LOOPBACK, 0))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise StateError(
            f"no port on {_LOOPBACK} can be had for a node's metadata server ({error.strerror})"
        ) from error
    return listener


def _execute(descriptor: int, marks: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "spotwright.local.metadata_process", str(descriptor)],
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the engine alone
            env={**os.environ, **marks},
        )
    except OSError as error:
        raise StateError(f"the nodes' metadata servers cannot be started ({error.strerror})") from error
