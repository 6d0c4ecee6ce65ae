"""The cluster that a command names, from a thread that waits for it: commands of the command line are plain functions.

Requests and port-forwards share one event loop in one thread, which ends with the command.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

import httpx2
from lightkube.config.client_adapter import user_cert
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ConfigError as WrongConfiguration

from spotwright.cluster.api.connection import connect, find_cluster
from spotwright.cluster.api.requests import Api, ApiFailed, LoginFailed
from spotwright.errors import InputError

__all__ = ["Kubernetes"]

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
        self._api = Api(self.client)

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
        self.call(self._api.close())
        self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
            self._loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        self._loop.close()

    def get(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Read an object or a list. Raises :class:`ApiFailed`, and :class:`InputError` for a login that is not accepted."""
        try:
            return self.call(self._api.get(path, params))
        except LoginFailed as error:
            raise InputError(f"context {self.context}: {error}") from error
        except ApiFailed as error:
            if error.status == 401:
                raise self.expired() from error
            raise

    def expired(self) -> InputError:
        """The error of a login that the cluster does not accept any more."""
        return InputError(
            f"context {self.context}: the cluster does not accept the login, which may have expired: log in again "
            "(kubectl get pods tells how), then repeat the command"
        )

    # The same login for the controller

    def authorization(self, *, again: bool = False) -> str:
        """The header with the token of the login, or nothing for one with a certificate. ``again``: a new one, if there is."""
        auth = self.client.auth  # the same object, so that a command is not asked twice for a token
        if auth is None or isinstance(auth, httpx2.BasicAuth):
            return ""
        flow = auth.sync_auth_flow(httpx2.Request("GET", self._config.cluster.server))
        try:
            request = next(flow)
            if again:
                request = flow.send(httpx2.Response(401))
        except StopIteration:
            return ""  # there is no other one
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
        """Let a TLS context show the certificate of the login, if it has one."""
        user = self._config.user
        certificate = None if user is None else user_cert(user, self._config.abs_file)
        if certificate is not None:
            context.load_cert_chain(*certificate)
