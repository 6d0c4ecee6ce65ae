"""A person's login to Kubernetes, from a thread: requests, connections to a port of a pod, and the same login for the controller.

The API server forwards connections, as for ``kubectl port-forward``.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

import httpx2
from httpx2.websockets import AsyncWebSocketSession, HTTPXWSException, WebSocketUpgradeError
from lightkube.config.client_adapter import user_cert
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ConfigError as WrongConfiguration

from spotwright.cluster.api_client import Api, ApiFailed, LoginFailed, connect, find_cluster, object_path
from spotwright.errors import InputError, SpotwrightError

__all__ = ["ForwardRefused", "Kubernetes", "PortForward"]


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
        self._path = f"{object_path('v1', 'Pod', pod, namespace)}/portforward"
        self._pod = f"pod {pod} in namespace {namespace}"

    async def open(self) -> socket.socket:
        """The socket. Closing it ends the connection, and the end of the connection closes it, as a cut connection does.

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
        """Open the WebSocket and carry bytes in both directions, until either end closes."""
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
            except* Exception as errors:  # login errors too, or a caller would wait forever for the connection
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
                return  # an error on the pod's side ends the stream


async def _upwards(session: AsyncWebSocketSession, far: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(HTTPXWSException, httpx2.HTTPError, OSError):
        while data := await loop.sock_recv(far, _PIECE):
            await session.send_bytes(bytes([_DATA]) + data)


def _first(error: BaseException) -> Any:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


T = TypeVar("T")


class Kubernetes:
    """The cluster of a context, with its login. Close it when done."""

    def __init__(self, context: str | None = None, kubeconfig: str | None = None) -> None:
        """Raises :class:`InputError` for an unknown context or a kubeconfig that cannot be read."""
        self._config: SingleConfig = find_cluster(context, kubeconfig=kubeconfig)
        self.context = self._config.context_name or "this cluster"
        self.namespace = self._config.namespace
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="requests to Kubernetes", daemon=True)
        self._thread.start()
        try:
            self.client: httpx2.AsyncClient = self.call(self._connect())
        except BaseException:
            self._stop()
            raise
        self.api = Api(self.client)

    async def _connect(self) -> httpx2.AsyncClient:
        return connect(self._config)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the loop, and wait for its result."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def close(self) -> None:
        """End every request and connection."""
        self.call(self.api.close())
        self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
            self._loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        self._loop.close()

    def get(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Read an object or a list. Raises :class:`ApiFailed`, and :class:`InputError` for a rejected login."""
        try:
            return self.call(self.api.get(path, params))
        except LoginFailed as error:
            raise InputError(f"context {self.context}: {error}") from error
        except ApiFailed as error:
            if error.status == 401:
                raise self.expired() from error
            raise

    def expired(self) -> InputError:
        """The error of a login that the cluster no longer accepts."""
        return InputError(
            f"context {self.context}: the cluster does not accept the login, which may have expired: log in again "
            "(kubectl get pods says how), then repeat the command"
        )

    # The same login for the controller

    def authorization(self, *, again: bool = False) -> str:
        """The header with the token of the login; empty for a certificate. ``again``: another token, if possible."""
        auth = self.client.auth  # the same object, so that a command is not asked twice for a token
        if auth is None or isinstance(auth, httpx2.BasicAuth):
            return ""
        flow = auth.sync_auth_flow(httpx2.Request("GET", self._config.cluster.server))
        try:
            request = next(flow)
            if again:
                request = flow.send(httpx2.Response(401))
        except StopIteration:
            return ""  # no other token
        except WrongConfiguration as error:
            raise InputError(f"context {self.context}: cannot log in: {error}") from error
        finally:
            flow.close()
        return str(request.headers.get("Authorization", ""))

    @property
    def has_certificate(self) -> bool:
        """Whether the login is a client certificate."""
        user = self._config.user
        return user is not None and bool(user.client_cert or user.client_cert_data)

    def present_certificate(self, context: ssl.SSLContext) -> None:
        """Let a TLS context present the login's certificate, if it has one."""
        user = self._config.user
        certificate = None if user is None else user_cert(user, self._config.abs_file)
        if certificate is not None:
            context.load_cert_chain(*certificate)
