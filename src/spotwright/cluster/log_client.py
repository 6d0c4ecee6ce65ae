"""Reads logs and archived runs of a cluster from its controller: through a port-forward to its pod, or directly at its address.

The controller is found by its pod's label, its CA in a ConfigMap beside it. In both cases TLS is end to end, and the
certificate is checked, because the request carries the caller's login. A request with a lost connection is repeated: a read
continues at its offset, and a repeated deletion is harmless. Commands are synchronous, so a thread waits for the answers.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlencode, urlsplit

from spotwright.cluster.api_client import FORBIDDEN, ApiFailed, object_path
from spotwright.cluster.kubernetes_login import ForwardRefused, Kubernetes, PortForward
from spotwright.cluster.run_archives import Archive, archive_of
from spotwright.errors import InputError, SpotwrightError, StateError, UnknownRun

__all__ = [
    "AUTHORITY_VARIABLE",
    "CONFIG_MAP",
    "LOG_AT_ONCE",
    "NAMESPACE",
    "POD_LABEL",
    "PORT_NAME",
    "TRIES",
    "Controller",
    "ControllerGone",
    "Login",
    "NotAllowed",
    "delete_archive",
    "find_controller",
    "list_archives",
    "read_archive",
    "read_log",
    "reading_name",
]


LOG_AT_ONCE = 1024 * 1024
"""Bytes of a log in one answer; a shorter answer reaches the current end."""

TRIES = 8
"""The number of tries of a request whose connection is lost."""

_SILENT = 60.0  # seconds without a byte of an answer
_FIRST_TRIES = 4  # of a controller that has not answered before: 1.4 s
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 8.0  # 30 s in all until a connection counts as lost
_FAULTS = (OSError, http.client.HTTPException, EOFError, zlib.error)


class Login(Protocol):
    """The login of the caller."""

    @property
    def has_certificate(self) -> bool:
        """Whether it is a client certificate."""

    def authorization(self, *, again: bool = False) -> str:
        """The header with a token, or empty; ``again``: with another token."""

    def expired(self) -> InputError:
        """The error of a login that is no longer accepted."""


class ControllerGone(SpotwrightError):
    """The connection to the controller was lost for good."""


class NotAllowed(InputError):
    """The caller may not do this."""


class Controller:
    """One controller. ``dial`` connects to it; ``name`` is its certificate's, ``place`` describes it in messages."""

    def __init__(
        self, dial: Callable[[], socket.socket], context: ssl.SSLContext, name: str, place: str, login: Login
    ) -> None:
        self._dial, self._context, self._name, self.place, self._login = dial, context, name, place, login
        self._connection: http.client.HTTPConnection | None = None
        self._authorization = login.authorization()
        self._has_answered = False
        self.tries = TRIES  # of a request whose connection was lost

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, path: str, params: Mapping[str, object] | None = None, method: str = "GET") -> bytes:
        """The content of an answer. Raises :class:`SpotwrightError` with the controller's message."""
        target = f"{path}?{urlencode(params)}" if params else path
        status, content = self._ask_again(method, target)
        if status == 401:
            another = self._login.authorization(again=True)
            if another not in {"", self._authorization}:
                self._authorization = another
                status, content = self._ask_again(method, target)
        if status != 200:
            raise self._error(status, content)
        return content

    def _ask_again(self, method: str, target: str) -> tuple[int, bytes]:
        pause = _FIRST_PAUSE
        for number in range(1, TRIES + 1):
            try:
                return self._ask(method, target)
            except ssl.SSLCertVerificationError as error:
                self.close()
                raise InputError(
                    f"{self.place}: certificate mismatch ({error.verify_message}); the request was"
                    f" not sent. Name the file with its authority in {AUTHORITY_VARIABLE}"
                ) from error
            except _FAULTS as error:
                self.close()
                if number >= (self.tries if self._has_answered else _FIRST_TRIES):
                    raise self._gone(error) from error
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE, 2 * pause)
        raise AssertionError("the last try returns or raises")

    def _ask(self, method: str, target: str) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = _Connection(self._dial, self._context, self._name)
        headers = {"Accept-Encoding": "gzip"} | ({"Authorization": self._authorization} if self._authorization else {})
        self._connection.request(method, target, headers=headers)
        answer = self._connection.getresponse()
        content = answer.read()
        self._has_answered = True
        if answer.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        if answer.status in {502, 504}:
            raise http.client.HTTPException(f"status {answer.status}")  # from a proxy; the controller sends none
        return answer.status, content

    def _gone(self, error: Exception) -> ControllerGone:
        """The error of a lost or unanswered connection."""
        if self._has_answered:
            return ControllerGone(
                f"{self.place}: lost the connection and could not reconnect ({_named(error)}); repeat the command once the"
                " controller runs"
            )
        text = f"{self.place}: does not answer ({_named(error)}); check that it runs"
        if self._login.has_certificate:  # a server that refuses it may close the connection silently
            text += ", and whether your client certificate is of this cluster and has not expired"
        return ControllerGone(text)

    def _error(self, status: int, content: bytes) -> SpotwrightError:
        try:
            answer = json.loads(content)
            kind, message = str(answer["error"]), str(answer["message"])
        except (ValueError, KeyError, TypeError):
            return InputError(f"{self.place}: is not a controller of Spotwright (HTTP {status})")
        if status == 401 and self._authorization:
            return self._login.expired()
        if kind == "unknown":
            return UnknownRun(message)
        if kind == "refused":
            return NotAllowed(message)
        return StateError(message) if kind == "state" else InputError(message)


class _Connection(http.client.HTTPConnection):
    """HTTP over TLS over a connected socket."""

    def __init__(self, dial: Callable[[], socket.socket], context: ssl.SSLContext, name: str) -> None:
        super().__init__(name)
        self._dial, self._context, self._name = dial, context, name

    def connect(self) -> None:
        """Connect, and check the certificate before anything is sent."""
        plain = self._dial()
        plain.settimeout(_SILENT)
        try:
            self.sock = self._context.wrap_socket(plain, server_hostname=self._name)
        except BaseException:
            plain.close()
            raise


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


NAMESPACE = "spotwright"
"""The default namespace of the controller."""

POD_LABEL = "app.kubernetes.io/name=spotwright,app.kubernetes.io/component=recorder"
"""The labels of the recorder's pods, which serve logs."""

CONFIG_MAP = "spotwright-reading"
"""The ConfigMap with the authority of the controller's certificate, in ``ca.crt``."""

PORT_NAME = "reading"
"""The name of the port in the controller's pod, if it is not :data:`_PORT`."""

AUTHORITY_VARIABLE = "SPOTWRIGHT_CONTROLLER_CA"
"""The environment variable with the CA file, for a controller named by its URL."""

_PORT = 9444
_CONNECT = 10.0  # seconds


def reading_name(namespace: str) -> str:
    """The name that readers expect in the certificate of a recorder in this namespace."""
    return f"spotwright-recorder.{namespace}.svc"


def find_controller(kubernetes: Kubernetes, named: str = "") -> Controller:
    """The controller of a cluster. ``named``: an ``https`` URL, or the namespace of its pod; by default ``spotwright``.

    Raises :class:`InputError` with what to do.
    """
    if "://" in named:
        return _at_address(kubernetes, named)
    namespace = named or NAMESPACE
    context = _context(kubernetes, _authority(kubernetes, namespace))
    pod, port = _pod(kubernetes, namespace)

    def dial() -> socket.socket:
        nonlocal pod, port
        try:
            return _forward(kubernetes, namespace, pod, port)
        except ForwardRefused as error:
            if error.status in FORBIDDEN:
                raise _not_allowed(kubernetes, namespace, "create pods/portforward") from error
            pod, port = _pod(kubernetes, namespace)  # it may have a new pod
            try:
                return _forward(kubernetes, namespace, pod, port)
            except ForwardRefused as second:
                raise ConnectionError(str(second)) from second

    place = f"the controller of context {kubernetes.context}"
    return Controller(dial, context, reading_name(namespace), place, kubernetes)


def _forward(kubernetes: Kubernetes, namespace: str, pod: str, port: int) -> socket.socket:
    async def opened() -> socket.socket:
        return await PortForward(kubernetes.client, namespace, pod, port).open()

    return kubernetes.call(opened())


def _at_address(kubernetes: Kubernetes, url: str) -> Controller:
    """The controller at a URL; its certificate is checked against the file of the environment, else as for any site."""
    parts = urlsplit(url)
    try:
        host, port = parts.hostname or "", parts.port or 443
    except ValueError as error:
        raise InputError(f"--controller {url}: {error}") from error
    if parts.scheme != "https" or not host or parts.path not in {"", "/"}:
        raise InputError(f"--controller {url}: expected https://HOST:PORT, because your login is sent there")
    authority = os.environ.get(AUTHORITY_VARIABLE, "")
    try:
        text = Path(authority).read_text(encoding="ascii") if authority else ""
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{AUTHORITY_VARIABLE}={authority}: cannot be read ({error})") from error

    def dial() -> socket.socket:
        return socket.create_connection((host, port), timeout=_CONNECT)

    return Controller(dial, _context(kubernetes, text), host, f"the controller at {url}", kubernetes)


def _context(kubernetes: Kubernetes, authority: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=authority or None)
    except ssl.SSLError as error:
        raise InputError(f"the CA of the controller's certificate is not a certificate ({error.reason})") from error
    kubernetes.present_certificate(context)
    return context


def _authority(kubernetes: Kubernetes, namespace: str) -> str:
    found = _read(kubernetes, namespace, "ConfigMap", CONFIG_MAP, f"get configmaps/{CONFIG_MAP}")
    authority = str((found.get("data") or {}).get("ca.crt", ""))
    if not authority:
        raise InputError(f"ConfigMap {CONFIG_MAP} in namespace {namespace} has no ca.crt: restart the controller")
    return authority


def _pod(kubernetes: Kubernetes, namespace: str) -> tuple[str, int]:
    """The name and port of a ready pod of the controller."""
    items = _read(kubernetes, namespace, "Pod", None, "list pods", {"labelSelector": POD_LABEL}).get("items") or ()
    for pod in items:
        if _is_ready(pod):
            return str(pod["metadata"]["name"]), _port_of(pod)
    if items:
        raise InputError(
            f"no controller is ready in namespace {namespace} of context {kubernetes.context}: "
            f"kubectl -n {namespace} describe pod {items[0]['metadata']['name']} says why"
        )
    raise _not_found(kubernetes, namespace)


def _read(
    kubernetes: Kubernetes,
    namespace: str,
    kind: str,
    name: str | None,
    right: str,
    params: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    try:
        return kubernetes.get(object_path("v1", kind, name, namespace), params)
    except ApiFailed as error:
        if error.status == 403:
            raise _not_allowed(kubernetes, namespace, right) from error
        if error.status == 404:
            raise _not_found(kubernetes, namespace) from error
        raise InputError(f"context {kubernetes.context}: {error}") from error


def _not_found(kubernetes: Kubernetes, namespace: str) -> InputError:
    return InputError(
        f"no Spotwright controller in namespace {namespace} (context {kubernetes.context}): "
        "install it, or name its namespace or URL with --controller"
    )


def _not_allowed(kubernetes: Kubernetes, namespace: str, right: str) -> InputError:
    return InputError(
        f"context {kubernetes.context}: you may not {right} in namespace {namespace}, where the controller is: "
        "ask for the Role spotwright-reader there, or name the controller's URL with --controller"
    )


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    is_ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    return is_ready and not pod["metadata"].get("deletionTimestamp")


def _port_of(pod: Mapping[str, Any]) -> int:
    ports = [port for container in pod["spec"]["containers"] for port in container.get("ports") or ()]
    return next((int(port["containerPort"]) for port in ports if port.get("name") == PORT_NAME), _PORT)


def read_log(controller: Controller, run: str, task: str, attempt: int, offset: int, at_most: int = -1) -> bytes:
    """Bytes of a log from an offset, at most ``at_most``; -1: all. Raises :class:`SpotwrightError`."""
    data = bytearray()
    while True:
        wanted = LOG_AT_ONCE if at_most < 0 else min(LOG_AT_ONCE, at_most - len(data))
        query = {"task": task, "attempt": attempt, "offset": offset + len(data), "at_most": wanted}
        part = controller.ask(f"/v1/runs/{quote(run)}/log", query)
        data += part[:wanted]
        if len(part) < wanted or len(data) == at_most:
            return bytes(data)


def list_archives(controller: Controller, namespace: str) -> list[Archive]:
    """The archived runs of a namespace, newest first. Raises :class:`SpotwrightError`."""
    found = json.loads(controller.ask("/v1/archives", {"namespace": namespace}))["archives"]
    known = [archive_of(str(each["key"]), int(each["size"])) for each in found]
    return sorted((each for each in known if each is not None), key=lambda each: (-each.ended_at, each.key))


def read_archive(controller: Controller, archive: Archive, at_most: int = -1) -> bytes:
    """An archive, or its first bytes. Raises :class:`SpotwrightError`."""
    data, wanted = bytearray(), archive.size if at_most < 0 else min(at_most, archive.size)
    while len(data) < wanted:
        query = {"key": archive.key, "offset": len(data), "at_most": min(LOG_AT_ONCE, wanted - len(data))}
        part = controller.ask("/v1/archive", query)
        if not part:
            raise StateError(f"the archive of run {archive.run} ends early")
        data += part
    return bytes(data)


def delete_archive(controller: Controller, archive: Archive) -> None:
    """Delete an archive. Raises :class:`SpotwrightError`."""
    controller.ask("/v1/archive", {"key": archive.key}, "DELETE")
