"""The HTTPS server from which people read the store's whole logs and archived runs, on its own port.

| request | answer | who |
|---|---|---|
| ``GET /v1/runs/RUN/log?task=&attempt=&offset=&at_most=`` | bytes of a log from an offset on | may get ``pods/log`` |
| ``GET /v1/archives?namespace=`` | the names and sizes of the archives of a namespace | may list the records there |
| ``GET /v1/archive?key=&offset=&at_most=`` | bytes of an archive from an offset on | may list the records there |
| ``DELETE /v1/archive?key=`` | the archive is deleted, its logs follow within the hour | may delete SpotRuns there, and repairs |

People read everything else about a run directly from the Kubernetes API. Only the controller has the store's credentials, so it
answers callers with the same rights in the run's namespace.

A recreated namespace is a different one: the former namespace's runs are unreadable.

Errors are ``{"error": KIND, "message": SENTENCE}``.

The port is separate from the webhook's, because it requests client certificates, and API servers call the webhook without one
of this CA.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Generic, TypeVar

from aiohttp import web

from spotwright.cluster.api_client import Api, ApiFailed, namespace_uid
from spotwright.cluster.limited_server import serve
from spotwright.cluster.log_client import CONFIG_MAP, LOG_AT_ONCE
from spotwright.cluster.log_parts import Objects, StoredLogs
from spotwright.cluster.log_place import LogName, PlaceAway
from spotwright.cluster.run_archives import Archive, archive_of, archives_in
from spotwright.cluster.run_names import named_run
from spotwright.cluster.run_objects import API_VERSION, KINDS, RUN, records_path
from spotwright.cluster.watched import WATCHED_KEY, Watched, text_of
from spotwright.errors import SpotwrightError, UnknownRun
from spotwright.records.state_folder import RunFolder

__all__ = [
    "PORT",
    "Access",
    "Caller",
    "LogServer",
    "Refused",
    "accept_certificates",
    "client_authority",
    "publish_authority",
    "publish_watched",
    "start_log_server",
]


_KEPT = 10.0  # seconds for which an API server's answer is cached; its own webhook caches take 10 s to 5 min
_KEPT_UID = 1.0  # seconds: a name may soon have another owner
_MOST = 2000  # cached answers
_AT_ONCE = 16  # concurrent reviews at the API server
_LOGS = ("get", "", "v1", "pods", "log")
_GROUP, _, _VERSION = API_VERSION.partition("/")
_RECORDS = tuple(("list", _GROUP, _VERSION, f"{kind.lower()}s", "") for kind in KINDS)
_DELETES = ("delete", _GROUP, _VERSION, f"{RUN.lower()}s", "")
_LOGIN = "log in again (for example with kubectl get pods), then repeat the command"

_Right = tuple[str, str, str, str, str]  # a verb, and the group, version, name and subresource of the resource
K = TypeVar("K")
V = TypeVar("V")


class Refused(Exception):
    """The caller may not read this.

    ``status`` is 401 or 403, or 503 if the rights are unknown; the text is a sentence for people.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Caller:
    """A user as the API server knows it."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass
class _Kept(Generic[K, V]):
    """Caches answers by question, for a few seconds. Concurrent equal questions share one request."""

    seconds: float = _KEPT
    _answers: dict[K, tuple[float, asyncio.Future[V]]] = field(default_factory=dict)

    async def get(self, question: K, ask: Callable[[], Coroutine[Any, Any, V]]) -> V:
        now = time.monotonic()
        kept = self._answers.get(question)
        if kept is None or now >= kept[0] or (kept[1].done() and (kept[1].cancelled() or kept[1].exception())):
            if len(self._answers) >= _MOST:
                self._answers.clear()
            kept = (now + self.seconds, asyncio.ensure_future(ask()))
            self._answers[question] = kept
        return await asyncio.shield(kept[1])


class Access:
    """Decides by the API server. ``api`` may create token reviews and subject access reviews, and list served namespaces."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._callers = _Kept[str, Caller | None]()  # by the digest of the token
        self._rights = _Kept[tuple[Caller, str, _Right], bool]()
        self._recorded = _Kept[tuple[str, str], str | None]()  # runs in the API, by namespace and name
        self._uids = _Kept[str, str](_KEPT_UID)  # of namespaces, by name
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def caller(self, authorization: str, certificate: Mapping[str, Any] | None) -> Caller:
        """The caller. ``certificate`` is the checked one, as :meth:`ssl.SSLSocket.getpeercert` returns it.

        Raises :class:`Refused`.
        """
        caller = _of_certificate(certificate or {})
        if caller is None:
            caller = await self._of_token(authorization)
        return caller

    async def _of_token(self, authorization: str) -> Caller:
        scheme, _, token = authorization.strip().partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Refused(401, f"the request has neither a token nor a client certificate of this cluster: {_LOGIN}")
        digest = hashlib.sha256(token.strip().encode()).hexdigest()
        caller = await self._asked(self._callers.get(digest, lambda: self._review_token(token.strip())))
        if caller is None:
            raise Refused(401, f"the cluster does not accept the token, which may have expired: {_LOGIN}")
        return caller

    async def may(self, caller: Caller, namespace: str, *rights: _Right) -> bool:
        """Whether the caller has these rights in a namespace."""
        for one in rights:
            asking = self._rights.get((caller, namespace, one), partial(self._review_access, caller, namespace, one))
            if not await self._asked(asking):
                return False
        return True

    async def is_there(self, namespace: str, run: str) -> bool:
        """Whether a run of this name is recorded in a namespace, and ran in this namespace."""
        uid = await self._asked(self._recorded.get((namespace, run), lambda: self._recorded_in(namespace, run)))
        if uid is None:
            return False
        return uid in ("", now) if (now := await self.uid(namespace)) else False

    async def uid(self, namespace: str) -> str:
        """The UID of the namespace that currently has a name; empty if none has it, or if it is no longer served."""
        return await self._asked(self._uids.get(namespace, lambda: self._uid(namespace)))

    async def _uid(self, namespace: str) -> str:
        async with self._gate:
            try:
                return await namespace_uid(self._api, namespace)
            except ApiFailed as error:
                if error.status == HTTPStatus.FORBIDDEN:
                    return ""
                raise

    async def _recorded_in(self, namespace: str, run: str) -> str | None:
        """The UID of the namespace in which a run was recorded; empty if unknown, None if the run does not exist."""
        async with self._gate:
            try:
                found = await self._api.get(records_path(RUN, namespace, run))
            except ApiFailed as error:
                if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN):
                    return None
                raise
        known = named_run(found)
        return None if known is None else known.namespace_uid

    async def _asked(self, answer: Awaitable[V]) -> V:
        try:
            return await answer
        except ApiFailed as error:
            raise Refused(503, f"the controller cannot check permissions with the API server: {error}") from error

    async def _review_token(self, token: str) -> Caller | None:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        async with self._gate:
            answer = await self._api.send("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body)
        status = answer.get("status") or {}
        user = status.get("user") or {}
        if not status.get("authenticated") or not user.get("username"):
            return None
        extra = tuple((key, tuple(values or ())) for key, values in sorted((user.get("extra") or {}).items()))
        return Caller(str(user["username"]), tuple(user.get("groups") or ()), str(user.get("uid", "")), extra)

    async def _review_access(self, caller: Caller, namespace: str, right: _Right) -> bool:
        asked = zip(("verb", "group", "version", "resource", "subresource"), right, strict=True)
        attributes = {"namespace": namespace, **{name: value for name, value in asked if value}}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": caller.user,
                "groups": list(caller.groups),
                "uid": caller.uid,
                "extra": {key: list(values) for key, values in caller.extra},
                "resourceAttributes": attributes,
            },
        }
        async with self._gate:
            answer = await self._api.send("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        status = answer.get("status") or {}
        return bool(status.get("allowed")) and not status.get("denied")


async def client_authority(api: Api) -> str:
    """The authority of client certificates, as PEM text, from the ConfigMap in which the API server publishes it.

    Reading it needs the Role ``extension-apiserver-authentication-reader`` in ``kube-system``, like every extension API server:
    https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/. Empty if the API server does not accept
    certificates. Raises :class:`ApiFailed`.
    """
    found = await api.get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")
    return str((found.get("data") or {}).get("client-ca-file", ""))


def _of_certificate(certificate: Mapping[str, Any]) -> Caller | None:
    """The user of a certificate, as the API server reads it: every user with a certificate is in system:authenticated."""
    fields = [(name, value) for part in certificate.get("subject", ()) for name, value in part]
    user = next((value for name, value in fields if name == "commonName"), "")
    groups = tuple(value for name, value in fields if name == "organizationName")
    return Caller(user, (*groups, "system:authenticated")) if user else None


_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")  # cannot lead to another path of the API server
_NAMESPACE = re.compile(r"[a-z0-9][-a-z0-9]{0,62}")
PORT = 9444
"""The port, beside the webhook's 9443."""

_LOG = logging.getLogger(__name__)


_Answer = Callable[[web.Request, Caller], Awaitable[web.StreamResponse]]


class LogServer:
    """Serves the log store behind ``objects`` to callers whom Kubernetes allows to read the same; None: no store.

    ``repair_group`` is the group that may delete archives; empty: no one may.
    """

    def __init__(self, access: Access, objects: Objects | None, repair_group: str = "") -> None:
        self._access, self._objects, self._repair_group = access, objects, repair_group
        self._logs = None if objects is None else StoredLogs(objects)

    def application(self) -> web.Application:
        """The routes, and ``/healthz``."""
        app = web.Application()
        answers: Sequence[tuple[str, str, _Answer]] = (
            ("GET", "/v1/runs/{run}/log", self._read),
            ("GET", "/v1/archives", self._list),
            ("GET", "/v1/archive", self._read_archive),
            ("DELETE", "/v1/archive", self._delete),
        )
        app.add_routes([web.route(method, path, partial(self._answer, answer)) for method, path, answer in answers])
        app.add_routes([web.get("/healthz", _healthz)])
        return app

    async def _answer(self, answer: _Answer, request: web.Request) -> web.StreamResponse:
        """Identify the caller, and answer errors as one sentence."""
        try:
            transport = request.transport
            certificate = transport.get_extra_info("peercert") if transport is not None else None
            caller = await self._access.caller(request.headers.get("Authorization", ""), certificate)
            return await answer(request, caller)
        except Refused as error:
            return _error(error.status, "refused", str(error))
        except UnknownRun as error:
            return _error(404, "unknown", str(error))
        except ValueError as error:
            return _error(400, "input", str(error))
        except SpotwrightError as error:
            return _error(500, "state", str(error))
        except PlaceAway as error:
            return _error(503, "state", f"the store cannot be read: {error}")

    async def _read(self, request: web.Request, caller: Caller) -> web.Response:
        run, query = request.match_info["run"], request.query
        if not _RUN.fullmatch(run):
            raise UnknownRun(f"{run[:100]!r} cannot be the name of a run")
        attempt, (offset, at_most) = int(query.get("attempt", 0)), _part_of(query)
        namespace, dot, _ = run.partition(".")  # the name of a run begins with it
        if dot and not await self._access.may(caller, namespace, _LOGS):
            raise Refused(
                403,
                f"{caller.user} may not read logs in namespace {namespace}: ask for a Role there that allows to get pods/log",
            )
        if not dot or not (await self._access.is_there(namespace, run) or await self._is_archived(namespace, run)):
            raise UnknownRun(f"no run {run!r} is recorded in a namespace that the controller serves")
        data = None
        if self._logs is not None:
            name = LogName.of(RunFolder(Path(run)), query.get("task", ""), attempt)
            data = await self._logs.read(name, offset, at_most)
        response = web.Response(body=data or b"", content_type="application/octet-stream")
        response.enable_compression()
        return response

    async def _is_archived(self, namespace: str, run: str) -> bool:
        uid = await self._access.uid(namespace)
        if not uid or self._objects is None:
            return False
        return bool([each async for each in archives_in(self._objects, namespace, uid, run)])

    async def _list(self, request: web.Request, caller: Caller) -> web.Response:
        namespace = request.query.get("namespace", "")
        uid = await self._require_reader(caller, namespace)
        found = [] if self._objects is None else [each async for each in archives_in(self._objects, namespace, uid)]
        response = web.json_response({"archives": [{"key": each.key, "size": each.size} for each in found]})
        response.enable_compression()
        return response

    async def _require_reader(self, caller: Caller, namespace: str) -> str:
        """The UID of a namespace whose records the caller may list. Raises :class:`Refused` and :class:`UnknownRun`."""
        if not _NAMESPACE.fullmatch(namespace):
            raise UnknownRun(f"{namespace[:100]!r} cannot be the name of a namespace")
        if not await self._access.may(caller, namespace, *_RECORDS):
            raise Refused(
                403, f"{caller.user} may not list records of runs in namespace {namespace}; the role view allows it"
            )
        uid = await self._access.uid(namespace)
        if not uid:
            raise UnknownRun(f"namespace {namespace} does not exist, or the controller does not serve it")
        return uid

    async def _asked_for(self, request: web.Request, caller: Caller) -> Archive:
        """The archive that a request names. Raises as :meth:`_require_reader`."""
        found = archive_of(request.query.get("key", ""))
        if found is None or await self._require_reader(caller, found.namespace) != found.namespace_uid:
            raise UnknownRun("no archive has this name")
        return found

    async def _read_archive(self, request: web.Request, caller: Caller) -> web.Response:
        archive, (offset, at_most) = await self._asked_for(request, caller), _part_of(request.query)
        data = None if self._objects is None else await self._objects.get(archive.key, offset, offset + at_most)
        if data is None:
            raise UnknownRun(f"run {archive.run} is no longer archived")
        return web.Response(body=data, content_type="application/octet-stream")

    async def _delete(self, request: web.Request, caller: Caller) -> web.Response:
        archive = await self._asked_for(request, caller)
        may = self._repair_group in caller.groups and await self._access.may(caller, archive.namespace, _DELETES)
        if not may or not self._repair_group:
            who = (
                f"the group {self._repair_group}"
                if self._repair_group
                else "records.repairGroup of the chart, which is empty,"
            )
            raise Refused(
                403,
                f"{caller.user} may not delete archives in namespace {archive.namespace}: only a member of {who} who also has "
                "the right to delete SpotRuns there may",
            )
        if self._objects is not None:
            await self._objects.delete([archive.key])
        _LOG.info("%s: deleting the archive of run %s in namespace %s", archive.run, archive.namespace, caller.user)
        return web.Response()


def _part_of(query: Mapping[str, str]) -> tuple[int, int]:
    """The requested offset and maximum number of bytes."""
    return max(0, int(query.get("offset", 0))), min(max(0, int(query.get("at_most", LOG_AT_ONCE))), LOG_AT_ONCE)


async def _healthz(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


def accept_certificates(context: ssl.SSLContext, client_authority: str) -> None:
    """Let a server's TLS context request client certificates signed by this authority (PEM text; empty: request none).

    Callers without one need a token. A removed authority counts until the context is recreated. Raises :class:`ssl.SSLError`.
    """
    if client_authority:
        context.load_verify_locations(cadata=client_authority)
        context.verify_mode = ssl.CERT_OPTIONAL


def _error(status: int, kind: str, message: str) -> web.Response:
    return web.json_response({"error": kind, "message": message}, status=status)


async def start_log_server(
    api: Api, context: ssl.SSLContext, *, host: str | None, port: int, logs: str, repair_group: str = ""
) -> web.AppRunner:
    """Serve the log store with this address; ``await runner.cleanup()`` ends it. Empty: no store.

    ``context`` has the serving certificate. Client certificates are accepted if the API server publishes their CA and we may
    read it, otherwise only tokens. ``host``: None for all addresses. Raises :class:`OSError` if the port cannot be opened.
    """
    try:
        accept_certificates(context, await client_authority(api))
    except (ApiFailed, ssl.SSLError) as error:
        _LOG.warning("people are identified only by their tokens, not by client certificates: %s", error)
    server = LogServer(Access(api), Objects(logs) if logs else None, repair_group)
    return await serve(server.application(), host=host, port=port, context=context)


async def publish_watched(api: Api, namespace: str, watched: Watched) -> None:
    """Publish the watched scope to readers. Raises :class:`ApiFailed`."""
    path = f"/api/v1/namespaces/{namespace}/configmaps/{CONFIG_MAP}"
    found = await api.get_or_none(path)
    if found is not None:
        await api.send("PUT", path, {**found, "data": {**(found.get("data") or {}), WATCHED_KEY: text_of(watched)}})


async def publish_authority(
    api: Api, namespace: str, authority: str, unite: Callable[[str, str], str] = lambda own, _: own
) -> None:
    """Write the CA (PEM text) into the ConfigMap for readers. Raises :class:`ApiFailed`.

    ``unite`` joins it with the stored text.
    """
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    found = await api.get_or_none(f"{path}/{CONFIG_MAP}")
    authority = unite(authority, str(((found or {}).get("data") or {}).get("ca.crt", "")))
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_MAP}, "data": {"ca.crt": authority}}
    if found is None:
        await api.send("POST", path, body)
    elif (found.get("data") or {}).get("ca.crt") != authority:
        await api.send(
            "PUT", f"{path}/{CONFIG_MAP}", {**found, "data": {**(found.get("data") or {}), "ca.crt": authority}}
        )
