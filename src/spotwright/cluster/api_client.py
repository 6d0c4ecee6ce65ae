"""Finds the cluster, logs in, and sends requests to its API server, with retries.

It retries all requests after 429, and reads after 5xx and lost connections. It also sends Events about objects, which ``kubectl
describe`` shows.

lightkube reads the configuration (a service account inside a pod, or the context of a kubeconfig), checks the server's
certificate and sends tokens. It does not know the version ``client.authentication.k8s.io/v1``, whose answer differs from
``v1beta1`` only in its name, so such commands are called as ``v1beta1``. A command that insists on ``v1`` gets its request in
``KUBERNETES_EXEC_INFO``, as from kubectl. Messages never contain tokens.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import random
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import msgspec
import yaml
from lightkube.config.client_adapter import AsyncClient, ConnectionParams
from lightkube.config.kubeconfig import DEFAULT_KUBECONFIG, KubeConfig, SingleConfig
from lightkube.config.models import NameValue, UserExec
from lightkube.core.exceptions import ConfigError as WrongConfiguration

from spotwright.cluster.bounded_json import MOST_MEMORY, ListPage, TooManyValues, decode, read_as, read_object
from spotwright.errors import InputError, SpotwrightError
from spotwright.kinds.kind import Reads, kind_in
from spotwright.kube.object_fields import metadata, uid_of

__all__ = [
    "FORBIDDEN",
    "TOO_LARGE",
    "Api",
    "ApiFailed",
    "EventWriter",
    "LoginFailed",
    "StreamSilent",
    "about_namespace",
    "connect",
    "find_cluster",
    "namespace_uid",
    "object_path",
    "wait_before",
]


FORBIDDEN = (401, 403)
"""The HTTP statuses of missing permissions."""

_T = TypeVar("_T")
_CONNECT = 10.0  # seconds to reach the server
_ANSWER = 60.0  # seconds without a byte of an answer; the API server gives up after 60 itself
_V1, _V1BETA1 = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"


def find_cluster(context: str | None = None, *, kubeconfig: str | None = None) -> SingleConfig:
    """The cluster of a context of the kubeconfig; without a context the pod's own cluster, else the current context.

    ``kubeconfig`` is a path; the default is ``$KUBECONFIG``, then ``~/.kube/config``. Raises :class:`InputError` that names the
    file, never its content.
    """
    if context is None and kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        try:
            return _login(KubeConfig.from_service_account().get())
        except (WrongConfiguration, KeyError, OSError):
            pass  # no service account: try a kubeconfig
    path = kubeconfig or os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or DEFAULT_KUBECONFIG
    where = Path(path).expanduser()
    if not where.is_file():
        raise InputError(f"{where}: kubeconfig not found; set KUBECONFIG, or run inside a pod with a service account")
    try:
        return _login(KubeConfig.from_file(where).get(context))
    except WrongConfiguration as error:
        raise InputError(f"{where}: {error}") from error
    except (
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        OSError,
        yaml.YAMLError,
    ) as error:  # the error may quote a secret
        raise InputError(f"{where}: not a readable kubeconfig ({type(error).__name__})") from None


def connect(cluster: SingleConfig, *, many_streams: bool = False) -> httpx2.AsyncClient:
    """A client with the cluster's address, certificates and authentication. Raises :class:`InputError` for wrong ones.

    ``many_streams``: the client may open any number of connections, instead of the library's 100.
    """
    parameters = ConnectionParams(timeout=httpx2.Timeout(_ANSWER, connect=_CONNECT))
    try:
        if many_streams:
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
            return httpx2.AsyncClient(**parameters.httpx_params(cluster), limits=limits)
        return AsyncClient(cluster, parameters)
    except (WrongConfiguration, OSError, ValueError) as error:
        raise InputError(
            f"context {cluster.context_name}: cannot log in to {cluster.cluster.server}: {error}"
        ) from error


def _login(cluster: SingleConfig | None) -> SingleConfig:
    if cluster is None:
        raise WrongConfiguration("no current context is set")
    if cluster.user is not None and cluster.user.exec is not None and cluster.user.exec.apiVersion == _V1:
        cluster.user.exec = _as_v1beta1(cluster.user.exec)
    return cluster


def _as_v1beta1(command: UserExec) -> UserExec:
    request = {"apiVersion": _V1, "kind": "ExecCredential", "spec": {"interactive": False}}
    variables = [*(command.env or ()), NameValue("KUBERNETES_EXEC_INFO", json.dumps(request))]
    return UserExec(_V1BETA1, command.command, variables, command.args, command.installHint)


_FIRST_WAIT, _LONGEST_WAIT = 0.2, 30.0
_OBEYED = 120.0  # seconds: a longer Retry-After counts as an outage
_TRIES = 6
_AGAIN = frozenset((429, 500, 502, 503, 504))


TOO_LARGE = 413
"""The status of an answer that is too large to read."""


class ApiFailed(SpotwrightError):
    """The API server refused a request, or could not be reached. ``status`` is the HTTP status, 0 without an answer."""

    def __init__(self, message: str, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status == 0 or self.status in _AGAIN


class LoginFailed(ApiFailed):
    """Logging in failed (a command of the kubeconfig, or a token file), so no request was sent."""

    @property
    def may_pass(self) -> bool:
        """Never: not within seconds, and an interactive command would ask again and again."""
        return False


class StreamSilent(ApiFailed):
    """A stream was silent for longer than it may be: no news, or a dead connection."""


_CORE = (
    "ConfigMap",
    "Event",
    "Namespace",
    "Node",
    "PersistentVolumeClaim",
    "Pod",
)  # kinds of Kubernetes' core that Spotwright reads
_OWN = {"spotwright.dev": ("SpotCounter",)}  # kinds of the controller's own objects, by their group
_VERSION = re.compile(r"v[0-9]{1,2}(?:(?:alpha|beta)[0-9]{1,2})?")
_LABEL = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
)  # kubernetes, apimachinery, pkg/util/validation: dns1123LabelFmt
_LONGEST_LABEL, _LONGEST_NAME = 63, 253  # characters of a namespace, and of a name with parts of any length


def object_path(api_version: str, kind: str, name: str | None = None, namespace: str = "") -> str:
    """The path of an object, or of all objects of its kind if ``name`` is None; cluster-wide without a ``namespace``.

    Every path with a part taken from an object is built here, so that the author of an owner's, a template's or a node's name
    cannot choose the request made with our rights: names must be DNS names, and kinds must be ones that Spotwright reads, in
    their own groups. Anything else raises :class:`ApiFailed` with the status 404.
    """
    group, _, version = api_version.rpartition("/")
    is_named = name is None or (len(name) <= _LONGEST_NAME and all(_LABEL.fullmatch(each) for each in name.split(".")))
    is_placed = not namespace or (len(namespace) <= _LONGEST_LABEL and _LABEL.fullmatch(namespace))
    is_ours = kind in _OWN.get(group, ())
    is_read = is_ours or (kind in _CORE if not group else kind_in(group, kind).reads is not Reads.NOTHING)
    if not is_read or not _VERSION.fullmatch(version):
        raise ApiFailed(f"{kind[:80]!r} of {api_version[:80]!r}: Spotwright does not read this kind", 404)
    if not (is_named and is_placed):
        raise ApiFailed(f"{kind} {(name or '')[:80]!r} in namespace {namespace[:80]!r}: not a possible name", 404)
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    where = f"/namespaces/{namespace}" if namespace else ""
    return f"{base}{where}/{kind.lower()}s{'' if name is None else f'/{name}'}"


class Api:
    """Requests to one API server. Paths begin with ``/api`` or ``/apis``; answers are plain dictionaries."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client
        self._offset = 0.0

    def now(self) -> float:
        """The server's clock, in Unix seconds, to the precision of ``Date`` (whole seconds)."""
        return time.time() + self._offset

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def get(
        self, path: str, params: Mapping[str, str] | None = None, *, at_most: int | None = None
    ) -> dict[str, Any]:
        """Read an object or a list. Raises :class:`ApiFailed`, for transient errors only after several tries.

        An answer with more bytes than ``at_most`` is not read to its end: the error has the status :data:`TOO_LARGE`.
        """
        return await self._send_again("GET", path, params, None, decode, at_most)

    async def get_page(
        self, path: str, params: Mapping[str, str] | None = None, *, at_most: int | None = None
    ) -> ListPage:
        """Read a page of a list, whose objects stay text. Raises as :meth:`get`."""
        return await self._send_again("GET", path, params, None, _page, at_most)

    async def get_or_none(
        self, path: str, *, at_most: int | None = None, memory: int = MOST_MEMORY
    ) -> dict[str, Any] | None:
        """Read an object that may not exist. Raises :class:`ApiFailed` for any error except 404.

        An object with more bytes than ``at_most``, or one that would take more than ``memory`` bytes here, is not read: the
        status is :data:`TOO_LARGE`.
        """
        try:
            return await self._send_again("GET", path, None, None, partial(read_object, most=memory), at_most)
        except ApiFailed as error:
            if error.status == 404:
                return None
            raise

    async def send(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Write. Only 429 is retried: after any other failure the write may have happened. Raises :class:`ApiFailed`."""
        return await self._send_again(method, path, None, body, decode)

    async def _send_again(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: object,
        read: Callable[[bytes], _T],
        at_most: int | None = None,
    ) -> _T:
        for attempt in range(1, _TRIES + 1):
            try:
                return await self._send(method, path, params, body, read, at_most)
            except ApiFailed as error:
                is_safe = error.status == 429 or (method == "GET" and error.may_pass)
                if attempt == _TRIES or not is_safe:
                    raise
                await asyncio.sleep(wait_before(attempt, error.retry_after))
        raise AssertionError("the last try returns or raises")

    async def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: object,
        read: Callable[[bytes], _T],
        at_most: int | None,
    ) -> _T:
        content = None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"Content-Type": _content_type(method, body)}
        try:
            request = self._client.build_request(method, path, params=params, content=content, headers=headers)
            response = await self._client.send(request, stream=True)
            try:
                body_read = await _received(response, at_most)
            finally:
                await response.aclose()
        except WrongConfiguration as error:
            raise LoginFailed(f"{path}: cannot log in: {error}") from error
        except httpx2.HTTPError as error:
            raise _unreachable(path, error) from error
        self._note_time(response)
        if response.status_code >= 400:
            raise _refused(path, response.status_code, body_read or b"", response.headers)
        if body_read is None:
            raise ApiFailed(f"{path}: the answer is larger than {at_most} bytes", TOO_LARGE)
        try:
            return read(body_read)
        except TooManyValues as error:
            raise ApiFailed(f"{path}: refused to read it: {error}", TOO_LARGE) from error
        except (msgspec.DecodeError, RecursionError) as error:
            raise ApiFailed(f"{path}: the answer is not a JSON object") from error

    @asynccontextmanager
    async def lines(
        self, path: str, params: Mapping[str, str], *, silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a stream and yield its lines. Raises :class:`StreamSilent` after ``silence`` seconds without a byte."""
        async with self._stream(path, params, silence) as response:
            yield _lines(response)

    @asynccontextmanager
    async def chunks(
        self, path: str, params: Mapping[str, str], *, silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a stream and yield its bytes as they come. Raises as :meth:`lines`."""
        async with self._stream(path, params, silence) as response:
            yield response.aiter_bytes()

    @asynccontextmanager
    async def _stream(self, path: str, params: Mapping[str, str], silence: float) -> AsyncIterator[httpx2.Response]:
        timeout = httpx2.Timeout(silence, connect=10.0)
        headers = {"Accept-Encoding": "identity"}  # a compressed stream would come in blocks, late
        try:
            async with self._client.stream("GET", path, params=params, timeout=timeout, headers=headers) as response:
                self._note_time(response)
                if response.status_code >= 400:
                    raise _refused(path, response.status_code, await response.aread(), response.headers)
                yield response
        except WrongConfiguration as error:
            raise LoginFailed(f"{path}: cannot log in: {error}") from error
        except httpx2.ReadTimeout as error:
            raise StreamSilent(f"{path}: no data for {silence:g} s") from error
        except httpx2.HTTPError as error:
            raise _unreachable(path, error) from error

    def _note_time(self, response: httpx2.Response) -> None:
        try:
            at = parsedate_to_datetime(response.headers.get("date", "")).timestamp()
        except (TypeError, ValueError):
            return
        offset = at - time.time()
        if abs(offset - self._offset) > 1.0:  # Date has whole seconds: smaller differences are rounding
            self._offset = offset + 0.5


async def _received(response: httpx2.Response, at_most: int | None) -> bytes | None:
    """The bytes of an answer; None for more than ``at_most``."""
    if at_most is None:
        return await response.aread()
    parts, size = [], 0
    async for part in response.aiter_bytes():
        parts.append(part)
        size += len(part)
        if size > at_most:
            return None
    return b"".join(parts)


async def _lines(response: httpx2.Response) -> AsyncIterator[bytes]:
    """The lines of a stream. A line is put together once: that of a large object has megabytes."""
    parts: list[bytes] = []
    async for part in response.aiter_bytes():
        *ended, rest = part.split(b"\n")
        for end in ended:
            parts.append(end)
            line = b"".join(parts)
            parts.clear()
            if line:
                yield line
        parts.append(rest)
    if line := b"".join(parts):
        yield line


def _page(content: bytes) -> ListPage:
    return read_as(ListPage, content)


def wait_before(attempt: int, retry_after: float | None) -> float:
    """Seconds until the next try after the ``attempt``-th consecutive failure: the server's value, else doubled each time."""
    if retry_after is not None:
        return min(retry_after, _OBEYED)
    longest = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(attempt - 1, 10))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311  # spreads the clients, no secret


def _content_type(method: str, body: object) -> str:
    """The content type of a body: a list is a JSON patch (RFC 6902), any other patch is a merge patch (RFC 7386)."""
    if method != "PATCH":
        return "application/json"
    return "application/json-patch+json" if isinstance(body, list) else "application/merge-patch+json"


def _unreachable(path: str, error: Exception) -> ApiFailed:
    return ApiFailed(f"{path}: the API server does not answer ({type(error).__name__}: {error})")


def _refused(path: str, status: int, content: bytes, headers: Mapping[str, str]) -> ApiFailed:
    try:
        message = str(msgspec.json.decode(content, type=dict[str, Any]).get("message", ""))
    except msgspec.DecodeError:
        message = ""
    return ApiFailed(f"{path}: the API server answers {status} {message}".rstrip(), status, _seconds(headers))


def _seconds(headers: Mapping[str, str]) -> float | None:
    """The header Retry-After in seconds; it may be a number or a date."""
    text = headers.get("retry-after", "")
    if text.isdecimal():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


_LOG = logging.getLogger(__name__)
_LONGEST = (
    1024  # bytes of a message; the API server refuses longer ones (Kubernetes, pkg/apis/core/validation/events.go)
)
_COMPONENT = "spotwright"


def about_namespace(name: str) -> dict[str, Any]:
    """A namespace as the object of an Event in it."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "namespace": name}}


async def namespace_uid(api: Api, name: str) -> str:
    """The UID of the namespace that currently has a name; empty if none does. Raises :class:`ApiFailed`.

    It uses a list request, because the recorder may list and watch the served namespaces by name.
    """
    found = await api.get("/api/v1/namespaces", {"fieldSelector": f"metadata.name={name}"})
    return next((uid_of(each) for each in found.get("items") or ()), "")


class EventWriter:
    """Writes Events. A failure is only logged, because Events are informational."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def write(self, about: Mapping[str, Any], reason: str, message: str, *, is_warning: bool) -> None:
        """Write one Event. ``reason`` is a word in CamelCase, ``message`` a sentence for people."""
        meta = metadata(about)
        namespace = str(meta.get("namespace", "")) or "default"
        said = "/".join((uid_of(about), str(meta.get("resourceVersion", "")), reason, message))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"spotwright.{hashlib.sha256(said.encode()).hexdigest()[:16]}",
                "namespace": namespace,
            },
            "involvedObject": {
                "apiVersion": str(about.get("apiVersion", "v1")),
                "kind": str(about.get("kind", "")),
                "name": str(meta.get("name", "")),
                "namespace": namespace,
                "uid": uid_of(about),
                "resourceVersion": str(meta.get("resourceVersion", "")),
            },
            "reason": reason,
            "message": message.encode()[:_LONGEST].decode(errors="ignore"),
            "type": "Warning" if is_warning else "Normal",
            "source": {"component": _COMPONENT, "host": socket.gethostname()},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._api.send("POST", object_path("v1", "Event", namespace=namespace), event)
        except ApiFailed as error:
            if error.status != 409:  # another replica was faster
                _LOG.warning("cannot write an Event about %s %s: %s", about.get("kind"), meta.get("name"), error)
