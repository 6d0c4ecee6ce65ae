"""The engine's client of the simulated nodes' metadata servers: it boots and ends them and knows their addresses.

Only spot nodes of a pool with a provider have one. The listening sockets are made here, so that the addresses are known at once
and early connections wait. The serving process (:mod:`spotwright.local.imds_server`) is started with the first such node
and ends with its engine.
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

from spotwright.clouds import providers
from spotwright.errors import StateError
from spotwright.model.pools import Pool

__all__ = ["MetadataServers", "has_metadata_server"]


_LOOPBACK = "127.0.0.1"
_BACKLOG = 128
_MAX_MESSAGE = 1 << 14  # bytes
_TIMEOUT = 5.0  # seconds for the process to read a message, or to end


def has_metadata_server(pool: Pool) -> bool:
    """Whether nodes of the pool have a metadata server: true for spot nodes of a cloud whose notices are read there."""
    return pool.is_spot and bool(providers.of(pool).metadata_service)


class MetadataServers:
    """The metadata servers of a run. ``marks`` are added to their process's environment; ``scale`` is the run's time scale."""

    def __init__(self, selector: selectors.BaseSelector, marks: Mapping[str, str], *, scale: float) -> None:
        self._selector, self._marks, self._scale = selector, marks, scale
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._environments: dict[str, dict[str, str]] = {}  # by node
        self._approved: list[str] = []

    def boot(self, node: str, pool: Pool) -> None:
        """Start the servers of a booting node; do nothing if the pool's nodes have none."""
        if not has_metadata_server(pool):
            return
        with _listener() as metadata, _listener() as agent:
            self._environments[node] = {
                "SPOTWRIGHT_NOTICE_URL": f"http://{_LOOPBACK}:{agent.getsockname()[1]}/notice",
                "SPOTWRIGHT_METADATA_URL": f"http://{_LOOPBACK}:{metadata.getsockname()[1]}",
            }
            order = {
                "what": "boot", "node": node, "pool": pool.name, "service": providers.of(pool).metadata_service,
                "notice": pool.notice / self._scale, "scale": self._scale,
            }  # fmt: skip
            self._send(order, metadata.fileno(), agent.fileno())

    def environment(self, node: str) -> dict[str, str]:
        """Variables with the addresses of the node's agent and metadata server; empty if it has none."""
        return self._environments.get(node, {})

    def notice(self, node: str, seconds: float) -> None:
        """Announce that the provider reclaims a node in ``seconds``, a duration, so that wall-clock changes do not matter."""
        if node in self._environments:
            self._send({"what": "notice", "node": node, "seconds": seconds})

    def gone(self, node: str) -> None:
        """Stop the servers of a node that is gone."""
        if self._environments.pop(node, None) is not None:
            self._send({"what": "gone", "node": node})

    def approved(self) -> list[str]:
        """The nodes that approved events release early, since the last call."""
        nodes, self._approved = self._approved, []
        return nodes

    def close(self) -> None:
        """End the process and wait for it."""
        self._end()
        self._environments.clear()

    def _end(self) -> None:
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None
        if self._process is not None:
            try:
                self._process.wait(_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _send(self, order: Mapping[str, object], *descriptors: int) -> None:
        """Send an order. Reading the socket shows whether the process was killed; then its nodes lack servers."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
            socket.send_fds(self._connected(), [json.dumps(order).encode()], list(descriptors))

    def _connected(self) -> socket.socket:
        if self._socket is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = _execute(theirs.fileno(), self._marks)
            ours.settimeout(_TIMEOUT)
            self._socket = ours
            self._selector.register(ours, selectors.EVENT_READ, self._read)
        return self._socket

    def _read(self) -> None:
        if self._socket is None:
            return
        try:
            data = self._socket.recv(_MAX_MESSAGE, socket.MSG_DONTWAIT)
        except (BlockingIOError, TimeoutError):
            return
        except ConnectionResetError:
            data = b""
        if data:
            self._approved.append(json.loads(data)["approved"])
        else:
            self._end()  # killed: attempts on its nodes still get notice files, and the next node starts another process


def _listener() -> socket.socket:
    listener = socket.socket()
    try:
        listener.bind((_LOOPBACK, 0))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise StateError(f"a node's metadata server cannot get a port on {_LOOPBACK} ({error.strerror})") from error
    return listener


def _execute(descriptor: int, marks: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "spotwright.local.imds_server", str(descriptor)],
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C must reach the engine only
            env={**os.environ, **marks},
        )
    except OSError as error:
        raise StateError(f"the nodes' metadata servers cannot be started ({error.strerror})") from error
