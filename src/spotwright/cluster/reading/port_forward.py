"""A connection to a port of a pod through the API server, as a socket: what ``kubectl port-forward`` does, without a local port.

The request is ``GET .../pods/NAME/portforward?ports=PORT`` as a WebSocket with the subprotocol ``v4.channel.k8s.io``. Each
message begins with the number of a channel: 0 for data, 1 for an error as text. The first message of each channel has the port
in two bytes, the lower one first. Read in ``PortForward`` of the official Python client 30.1 (kubernetes/stream/ws_client.py);
the other side is ``staging/src/k8s.io/kubelet/pkg/cri/streaming/portforward/websocket.go`` of Kubernetes. kubectl puts SPDY into
its WebSocket since 1.31 (https://github.com/kubernetes/kubernetes/pull/125528), to have many connections in one; one is enough.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import httpx2
from httpx2.websockets import AsyncWebSocketSession, HTTPXWSException, WebSocketUpgradeError

from spotwright.errors import SpotwrightError

__all__ = ["ForwardRefused", "PortForward"]

_PROTOCOL = "v4.channel.k8s.io"
_DATA = 0
_PIECE = 32 * 1024
_LARGEST = 1024 * 1024  # bytes of a message; a kubelet sends 32 KiB


class ForwardRefused(SpotwrightError):
    """The API server does not connect to the pod. ``status`` is the HTTP status, 0 without an answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class PortForward:
    """Carries bytes between a socket and a port of a pod. ``client`` is logged in to the API server."""

    def __init__(self, client: httpx2.AsyncClient, namespace: str, pod: str, port: int) -> None:
        self._client, self._port = client, port
        self._path = f"/api/v1/namespaces/{namespace}/pods/{pod}/portforward"
        self._pod = f"pod {pod} in namespace {namespace}"

    async def open(self) -> socket.socket:
        """The socket. Closing it ends the connection, and what ends the connection ends the socket, as a cut connection does.

        Raises :class:`ForwardRefused`.
        """
        near, far = socket.socketpair()
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._carry(far, opened), name=f"port-forward to {self._pod}")
        task.add_done_callback(_RUNNING.discard)
        _RUNNING.add(task)
        try:
            await asyncio.shield(opened)
        except BaseException:
            task.cancel()
            near.close()
            raise
        return near

    async def _carry(self, far: socket.socket, opened: asyncio.Future[None]) -> None:
        """Open the WebSocket and carry bytes in both directions, until one of the ends is gone."""
        far.setblocking(False)
        url = str(self._client.base_url.join(self._path))
        with far:
            try:
                async with self._client.websocket(
                    url,
                    subprotocols=[_PROTOCOL],
                    params={"ports": str(self._port)},
                    max_message_size_bytes=_LARGEST,
                    keepalive_ping_interval_seconds=None,
                ) as session:
                    opened.set_result(None)
                    ways = [asyncio.create_task(way(session, far)) for way in (_downwards, _upwards)]
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)
            except* Exception as errors:  # of the login too: who waits for the connection would wait for ever
                if opened.done() and not isinstance(_first(errors), (httpx2.HTTPError, HTTPXWSException, OSError)):
                    raise
                if not opened.done():
                    opened.set_exception(self._refused(_first(errors)))

    def _refused(self, error: BaseException) -> ForwardRefused:
        if isinstance(error, WebSocketUpgradeError):
            status = error.response.status_code
            return ForwardRefused(f"{self._pod}: the API server refuses to connect to it ({status})", status)
        return ForwardRefused(f"{self._pod}: the API server does not connect to it ({type(error).__name__}: {error})")


_RUNNING: set[asyncio.Task[None]] = set()
"""A loop holds its tasks weakly: https://docs.python.org/3/library/asyncio-task.html#asyncio.create_task."""


async def _downwards(session: AsyncWebSocketSession, far: socket.socket) -> None:
    loop, begun = asyncio.get_running_loop(), set[int]()
    with contextlib.suppress(HTTPXWSException, httpx2.HTTPError, OSError):
        while True:
            message = await session.receive_bytes()
            channel, data = message[0], message[1:]
            if channel not in begun:
                begun.add(channel)  # the port, which is known
            elif channel == _DATA:
                await loop.sock_sendall(far, data)
            else:
                return  # an error of the pod's side: nothing comes any more


async def _upwards(session: AsyncWebSocketSession, far: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(HTTPXWSException, httpx2.HTTPError, OSError):
        while data := await loop.sock_recv(far, _PIECE):
            await session.send_bytes(bytes([_DATA]) + data)


def _first(error: BaseException) -> Any:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
