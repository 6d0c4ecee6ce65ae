"""The HTTPS server from which people read the runs of a cluster; it writes nothing, and has a port of its own.

| request | answer |
|---|---|
| GET /v1/runs?namespace=&limit=&before= | the lines of runs, newest first, their namespaces, the next page, pools left out |
| GET /v1/find?name=&namespace= | the run of that name, with its folder |
| GET /v1/runs/RUN/events?after=&wait= | the stored events after a number; waits for new ones up to so many seconds |
| GET /v1/runs/RUN/plans/VERSION | one version of the plan as it is stored |
| GET /v1/runs/RUN/log?task=&attempt=&environment=&offset=&at_most= | bytes of a log from an offset on |

A caller gets the facts as they are stored and computes the views itself, so a run looks as it would beside its state folder. A
person may read what Kubernetes lets the same person read of the same namespaces. A namespace that was deleted and made again is
another one, whoever owns it now: what ran in the one before is for those who may read all namespaces. What a person may not read
is not there for that person: it is in no list, and a run by name is not found.

Errors are ``{"error": KIND, "message": SENTENCE}``.

The port is not the webhook's, because this one asks for client certificates, and API servers come to the webhook without one that
we know.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import astuple, dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from aiohttp import web

from spotwright.cluster.api_client import Api, ApiFailed
from spotwright.cluster.limited_server import serve
from spotwright.cluster.log_parts import Objects, StoredLogs
from spotwright.cluster.log_place import LogName, PlaceAway
from spotwright.cluster.run_api_client import CONFIG_MAP, LOG_AT_ONCE
from spotwright.cluster.run_names import NamedRun, find_run, object_of
from spotwright.cluster.run_objects import RUN, records_path
from spotwright.cluster.unavailable_pools import Findings, FindingsFile, PoolsLeftOut
from spotwright.cluster.watched import WATCHED_FILE, Watched, read_watched, text_of, watched_of
from spotwright.engine.ports import Holder, Liveness
from spotwright.errors import InputError, SpotwrightError, UnknownRun
from spotwright.kube.object_fields import uid_of
from spotwright.records.journal import Journal, JournalRow, JournalStamp, decoded, journal_stamp
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import RunFolder, StateFolder
from spotwright.records.stored_plan import RunFiles
from spotwright.views.run_json import summary

__all__ = [
    "PORT",
    "Access",
    "Caller",
    "IndexedRun",
    "Place",
    "ReadingServer",
    "Refused",
    "Rows",
    "RunIndex",
    "accept_certificates",
    "client_authority",
    "is_alive",
    "publish_authority",
    "serving_context",
    "start_reading",
]


_KEPT = 10.0  # seconds that an answer of the API server is kept; its own webhooks keep theirs for 10 s to 5 min
_KEPT_UID = 1.0  # seconds: a name may have another owner within a few
_MOST = 2000  # answers that are kept at once
_AT_ONCE = 16  # reviews that wait for the API server at the same time
_LOGIN = "log in again (for example with kubectl get pods), then repeat the command"

K = TypeVar("K")
V = TypeVar("V")


class Refused(Exception):
    """The caller may not read this. ``status`` is 401 or 403, or 503 if nobody can say; the text is one sentence for people."""

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
    """Answers by question, for a few seconds. The same question is asked once, however many wait for it."""

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


class Place(NamedTuple):
    """Where a workload ran. ``uid`` is that of the namespace; empty where it is not known."""

    namespace: str
    uid: str


class Access:
    """Decides by the API server. ``api`` may create token reviews and subject access reviews, and list served namespaces."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._callers = _Kept[str, Caller | None]()  # by the digest of the token
        self._rights = _Kept[tuple[Caller, str, str], bool]()
        self._watched = _Kept[str, dict[str, Any] | None]()  # by the controller's namespace
        self._recorded = _Kept[tuple[str, str], bool]()  # runs in the API, by namespace and name
        self._uids = _Kept[str, str](_KEPT_UID)  # of namespaces, by name
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def caller(self, authorization: str, certificate: Mapping[str, Any] | None) -> Caller:
        """Who asks. ``certificate`` is the one that the handshake has checked, as :meth:`ssl.SSLSocket.getpeercert` gives it.

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

    async def may_read(self, caller: Caller, namespace: str, *, logs: bool = False) -> bool:
        """Whether the caller may get pods, or their logs, in a namespace; in all of them for an empty one."""
        subresource = "log" if logs else ""
        review = self._rights.get(
            (caller, namespace, subresource), lambda: self._review_access(caller, namespace, subresource)
        )
        return await self._asked(review)

    async def may_see(self, caller: Caller, place: Place) -> bool:
        """Whether the caller may read what ran at a place."""
        return place in await self.readable(caller, [place])

    async def readable(self, caller: Caller, places: Iterable[Place]) -> set[Place]:
        """Those of the places whose pods the caller may get, in namespaces that are still the same."""
        wanted = sorted(set(places))
        if await self.may_read(caller, ""):
            return set(wanted)
        allowed = await asyncio.gather(*(self._is_readable(caller, each) for each in wanted))
        return {each for each, may in zip(wanted, allowed, strict=True) if may}

    async def _is_readable(self, caller: Caller, place: Place) -> bool:
        if not place.uid or not await self.may_read(caller, place.namespace):
            return False
        return place.uid == await self._asked(self._uids.get(place.namespace, lambda: self._uid(place.namespace)))

    async def _uid(self, namespace: str) -> str:
        """The UID of the namespace that has a name now; empty if none has it, or if it is not served any more.

        It is listed, because the rights are to list and watch the served namespaces by their names.
        """
        async with self._gate:
            try:
                found = await self._api.get("/api/v1/namespaces", {"fieldSelector": f"metadata.name={namespace}"})
            except ApiFailed as error:
                if error.status == HTTPStatus.FORBIDDEN:
                    return ""
                raise
        return next((uid_of(each) for each in found.get("items") or ()), "")

    async def watched(self, home: str) -> Watched:
        """What the replica that records has said it watches."""
        path = f"/api/v1/namespaces/{home}/configmaps/{CONFIG_MAP}"
        found = await self._asked(self._watched.get(home, lambda: self._api.get_or_none(path)))
        text = str(((found or {}).get("data") or {}).get(_WATCHED, ""))
        return watched_of(text, path) if text else Watched()

    async def place_of(self, namespace: str) -> Place:
        """The namespace that has this name now; without a UID if there is none that is served."""
        return Place(namespace, await self._asked(self._uids.get(namespace, lambda: self._uid(namespace))))

    async def is_recorded(self, namespace: str, run: str) -> bool:
        """Whether a run of this name is recorded in the API."""
        return await self._asked(self._recorded.get((namespace, run), lambda: self._has_record(namespace, run)))

    async def _has_record(self, namespace: str, run: str) -> bool:
        async with self._gate:
            try:
                await self._api.get(records_path(RUN, namespace, run))
            except ApiFailed as error:
                if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN):
                    return False
                raise
        return True

    async def _asked(self, answer: Awaitable[V]) -> V:
        try:
            return await answer
        except ApiFailed as error:
            raise Refused(503, f"the controller cannot ask the API server who may read what: {error}") from error

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

    async def _review_access(self, caller: Caller, namespace: str, subresource: str) -> bool:
        attributes = {"verb": "get", "version": "v1", "resource": "pods"}
        attributes |= {"namespace": namespace} if namespace else {}
        attributes |= {"subresource": subresource} if subresource else {}
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

    Reading it needs the Role ``extension-apiserver-authentication-reader`` in ``kube-system``, as every server that trusts what
    the API server trusts: https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/. Empty where the API
    server takes no certificates. Raises :class:`ApiFailed`.
    """
    found = await api.get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")
    return str((found.get("data") or {}).get("client-ca-file", ""))


def _of_certificate(certificate: Mapping[str, Any]) -> Caller | None:
    """The user of a certificate, as the API server reads it: every user with a certificate is in system:authenticated."""
    fields = [(name, value) for part in certificate.get("subject", ()) for name, value in part]
    user = next((value for name, value in fields if name == "commonName"), "")
    groups = tuple(value for name, value in fields if name == "organizationName")
    return Caller(user, (*groups, "system:authenticated")) if user else None


@dataclass(frozen=True, slots=True)
class IndexedRun(NamedRun):
    """A run of a state folder and the object that it records."""

    folder: RunFolder = field(kw_only=True)
    made_at: int = field(kw_only=True)

    @property
    def place(self) -> Place:
        """Where it ran."""
        return Place(self.namespace, self.namespace_uid)


@dataclass(frozen=True, slots=True)
class Rows:
    """Stored events after a sequence number. ``more``: there are further ones already."""

    is_driven: bool
    rows: Sequence[JournalRow]
    more: bool


class RunIndex:
    """The runs of a state folder, for several threads at once. ``is_alive`` tells whether the holder of a lease lives.

    ``findings`` are what the replica that records has found of pools, by default in the folder.

    ``now`` is the clock by which runs are recorded: the API server's, from which this machine's may differ.
    """

    def __init__(
        self,
        state: StateFolder,
        is_alive: Liveness,
        now: Callable[[], float] = time.time,
        findings: Callable[[], Findings] | None = None,
    ) -> None:
        self.state, self._is_alive, self.now = state, is_alive, now
        self.findings = findings or FindingsFile(state).read
        self._known: dict[tuple[str, int], IndexedRun] = {}
        self._lines: dict[str, tuple[JournalStamp, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def runs(self) -> list[IndexedRun]:
        """The runs of workloads, newest first. A run whose first event is not written yet, or cannot be read, is left out."""
        known: dict[tuple[str, int], IndexedRun] = {}
        for folder in self.state.runs():
            try:
                key = (folder.name, folder.made_at())
                run = self._known.get(key) or _read_first(folder, key[1])
            except (SpotwrightError, OSError):
                continue
            if run is not None:
                known[key] = run
        with self._lock:
            self._known = known
            self._lines = {name: line for name, line in self._lines.items() if any(name == key[0] for key in known)}
        return sorted(known.values(), key=lambda run: (run.made_at, run.folder.name), reverse=True)

    def find(self, text: str, readable: Collection[Place], namespace: str = "") -> IndexedRun:
        """The newest run of this name, or the only one that begins with it; ``last`` for the newest of all.

        ``readable`` are the places that the caller may read, ``namespace`` the one that was asked for. Raises
        :class:`UnknownRun`.
        """
        wanted = [run for run in self.runs() if run.place in readable and namespace in {"", run.namespace}]
        return find_run(text, wanted, namespace)

    def line(self, run: IndexedRun) -> dict[str, Any]:
        """The run in one line, as :func:`~spotwright.views.run_json.summary` makes it. Raises :class:`StateError`."""
        stamp = journal_stamp(run.folder.journal)
        kept = self._lines.get(run.folder.name)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        reader = RunReader(run.folder, self._is_alive)
        made = summary(reader.state, run.folder.name, self.now() if reader.is_driven else None)
        if stamp is not None and not reader.is_driven:
            with self._lock:
                self._lines[run.folder.name] = (stamp, made)
        return made

    def rows(self, run: IndexedRun, after: int, at_most: int) -> Rows:
        """At most so many stored events after a sequence number. Raises :class:`StateError`."""
        with closing(Journal.read(run.folder.journal)) as journal:
            lease = journal.lease()  # before the events: once nobody holds it, the journal is complete
            is_driven = lease is not None and lease.is_held(time.time(), self._is_alive)
            found = list(journal.rows(after, at_most=at_most + 1))
        return Rows(is_driven, found[:at_most], len(found) > at_most)


def _read_first(folder: RunFolder, made_at: int) -> IndexedRun | None:
    """The object of a run, from its first event; None for a run of another body, or one that has only begun."""
    with closing(Journal.read(folder.journal)) as journal, closing(journal.rows(at_most=1)) as rows:
        first = next((event for _, event in decoded(rows, str(folder.journal), str)), None)
    known = object_of(folder.name, first)
    return None if known is None else IndexedRun(*astuple(known), folder=folder, made_at=made_at)


PORT = 9444
"""The port, beside the webhook's 9443."""

_EVENTS_AT_ONCE = 5000
_LONGEST_WAIT = 30.0  # seconds; a port-forward without a byte may be cut by what lies between
_LOOK = 0.2  # seconds between two looks at a journal somebody waits for
_PAGE = 200
_WATCHED = "watched.json"  # the key of what is watched in the ConfigMap of readers
_LOG = logging.getLogger(__name__)

T = TypeVar("T")


class ReadingServer:
    """Serves the runs of a state folder to whom Kubernetes lets read their pods. ``threads`` read files.

    ``logs`` are those of an object store. A log that it does not have is read from the state folder. ``home`` is the controller's
    namespace, where each replica has a state folder of its own.
    """

    def __init__(
        self, index: RunIndex, access: Access, *, threads: int = 4, logs: StoredLogs | None = None, home: str = ""
    ) -> None:
        self._index, self._access, self._logs, self._home = index, access, logs, home
        self._pauses = PoolsLeftOut(index.findings)
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="reading")

    def routes(self) -> list[web.RouteDef]:
        """The routes, for an application that has others beside them or none."""
        return [
            web.get("/v1/runs", self._answering(self._runs)),
            web.get("/v1/find", self._answering(self._find)),
            web.get("/v1/runs/{run}/events", self._answering(self._events)),
            web.get("/v1/runs/{run}/plans/{version}", self._answering(self._plan)),
            web.get("/v1/runs/{run}/log", self._answering(self._read_log)),
        ]

    def application(self) -> web.Application:
        """An application with these routes alone, and ``/healthz``."""
        app = web.Application()
        app.add_routes([*self.routes(), web.get("/healthz", _healthz)])
        app.on_cleanup.append(self._close)
        return app

    async def start(self, context: ssl.SSLContext, *, host: str | None = None, port: int = PORT) -> web.AppRunner:
        """Listen; ``await runner.cleanup()`` ends it. ``host``: by default all addresses."""
        return await serve(self.application(), host=host, port=port, context=context)

    async def _close(self, _app: web.Application) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    # Answers

    def _answering(
        self, answer: Callable[[web.Request, Caller], Awaitable[web.StreamResponse]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """A handler that finds out who asks, and answers errors as one sentence."""

        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                transport = request.transport
                certificate = transport.get_extra_info("peercert") if transport is not None else None
                caller = await self._access.caller(request.headers.get("Authorization", ""), certificate)
                return await answer(request, caller)
            except Refused as error:
                return _error(error.status, "refused", str(error))
            except UnknownRun as error:
                return _error(404, "unknown", str(error))
            except (InputError, ValueError) as error:
                return _error(400, "input", str(error))
            except SpotwrightError as error:
                return _error(500, "state", str(error))
            except PlaceAway as error:
                return _error(503, "state", f"the log cannot be read now: {error}")

        return handle

    async def _runs(self, request: web.Request, caller: Caller) -> web.Response:
        namespace, before = request.query.get("namespace", ""), request.query.get("before", "")
        limit = min(max(1, int(request.query.get("limit", _PAGE))), _PAGE)
        runs = await self._in_thread(self._index.runs)
        readable = await self._readable(caller, runs, namespace)
        wanted = [run for run in runs if run.place in readable and namespace in {"", run.namespace}]
        begin = next((number + 1 for number, run in enumerate(wanted) if _mark(run) == before), 0) if before else 0
        page = wanted[begin : begin + limit]
        lines, problems = await self._in_thread(self._lines, page)
        following = _mark(page[-1]) if begin + limit < len(wanted) else ""
        left_out = await self._in_thread(self._left_out, {place.namespace for place in readable})
        return web.json_response(
            {
                "runs": lines,
                "namespaces": {run.folder.name: run.namespace for run in page},
                "problems": problems,
                "next": following,
                "left_out": left_out,
                "watched": await self._watched(namespace),
            }
        )

    def _left_out(self, readable: Collection[str]) -> list[dict[str, Any]]:
        """The pools that new attempts pass over now: for all, and in the namespaces that the caller may read.

        ``pool`` is a name that one of these namespaces has for it, and empty where others alone have found the pause.
        """
        return [
            {
                "pool": one.pool,
                "namespace": one.namespace,
                "key": one.key,
                "until": one.pause.until,
                "times": one.pause.times,
                "since": one.pause.since,
            }
            for one in self._pauses.all(self._index.now(), readable)
        ]

    def _lines(self, runs: list[IndexedRun]) -> tuple[list[dict[str, Any]], list[str]]:
        lines, problems = [], []
        for run in runs:
            try:
                lines.append(self._index.line(run))
            except SpotwrightError as error:  # a damaged run hides no other
                problems.append(f"run {run.folder.name} is left out: {error}")
        return lines, problems

    async def _find(self, request: web.Request, caller: Caller) -> web.Response:
        namespace, name = request.query.get("namespace", ""), request.query.get("name", "")
        runs = await self._in_thread(self._index.runs)
        readable = await self._readable(caller, runs, namespace)
        run = await self._in_thread(self._index.find, name, readable, namespace)
        return web.json_response({"run": run.folder.name, "folder": str(run.folder.path)})

    async def _readable(self, caller: Caller, runs: list[IndexedRun], namespace: str) -> set[Place]:
        """The places that the caller may read; all of them or those of the namespace that was asked for."""
        if namespace and not await self._access.may_read(caller, namespace):
            raise Refused(403, _forbidden(caller, "pods", namespace))
        return await self._access.readable(caller, (run.place for run in runs if namespace in {"", run.namespace}))

    async def _watched(self, namespace: str) -> dict[str, Any]:
        """What the controller records: the kinds, and whether it does so in a namespace that the caller may read."""
        path = self._index.state.path / WATCHED_FILE
        watched = await self._in_thread(read_watched, path)
        if not watched.kinds and self._home:  # another replica records
            watched = await self._access.watched(self._home)
        return {"kinds": dict(watched.kinds), "is_served": namespace in watched.namespaces if namespace else None}

    async def _events(self, request: web.Request, caller: Caller) -> web.Response:
        run, made_at = await self._run(request, caller), request.query.get("made_at", "")
        after = int(request.query.get("after", 0))
        if made_at and made_at != str(run.made_at):  # another run has the name now: the caller begins anew
            return web.json_response(
                {"made_at": run.made_at, "now": self._index.now(), "driven": True, "plans": 0, "events": []}
            )
        wait = float(request.query.get("wait", 0))
        ends = time.monotonic() + (min(wait, _LONGEST_WAIT) if wait > 0 else 0.0)  # no number is not greater
        while True:
            found = await self._in_thread(self._index.rows, run, after, _EVENTS_AT_ONCE)
            if found.rows or not found.is_driven or time.monotonic() >= ends:
                break
            await asyncio.sleep(min(_LOOK, max(0.0, ends - time.monotonic())))
        plans = await self._in_thread(run.folder.plan_count)
        answer = {"made_at": run.made_at, "now": self._index.now(), "driven": found.is_driven, "plans": plans}
        return _compressed(web.json_response({**answer, "events": found.rows, "more": found.more}))

    async def _plan(self, request: web.Request, caller: Caller) -> web.Response:
        run, version = await self._run(request, caller), int(request.match_info["version"])
        if not 1 <= version <= await self._in_thread(run.folder.plan_count):
            raise UnknownRun(f"run {run.folder.name} has no version {version} of its plan")
        place, text = await self._in_thread(run.folder.plan_text, version)
        return _compressed(web.json_response({"place": place, "text": text}))

    async def _read_log(self, request: web.Request, caller: Caller) -> web.Response:
        run = await self._run(request, caller)
        if not await self._access.may_read(caller, run.namespace, logs=True):
            raise Refused(403, _forbidden(caller, "pods/log", run.namespace))
        query = request.query
        task, environment = query.get("task", ""), query.get("environment", "")
        attempt, offset = int(query.get("attempt", 0)), max(0, int(query.get("offset", 0)))
        if "/" in environment or environment.startswith("."):
            raise InputError(f"{environment!r} is no name of a log")
        at_most = min(max(0, int(query.get("at_most", LOG_AT_ONCE))), LOG_AT_ONCE)
        data = None
        if self._logs is not None and not environment:
            data = await self._logs.read(LogName.of(run.folder, task, attempt), offset, at_most)
        if data is None:
            files = RunFiles(run.folder, lambda _: False)
            data = await self._in_thread(files.read_log, task, attempt, environment, offset, at_most)
        return _compressed(web.Response(body=data, content_type="application/octet-stream"))

    async def _run(self, request: web.Request, caller: Caller) -> IndexedRun:
        """The run of the path; one that the caller may not read is not found. Raises :class:`UnknownRun`."""
        name = request.match_info["run"]
        for run in await self._in_thread(self._index.runs):
            if run.folder.name == name and await self._access.may_see(caller, run.place):
                return run
        namespace, dot, _ = name.partition(".")  # the name of a run begins with it
        if dot and await self._access.may_read(caller, namespace):
            place = await self._access.place_of(namespace)
            if await self._access.may_see(caller, place) and await self._access.is_recorded(namespace, name):
                return IndexedRun(name, *place, "", "", "", folder=self._index.state.run(name), made_at=0)
        raise UnknownRun(f"the controller has no run {name!r} that you may read")

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)


async def _healthz(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


def serving_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """A TLS context for files of a certificate and its key. Raises :class:`OSError` and :class:`ssl.SSLError`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return context


def accept_certificates(context: ssl.SSLContext, client_authority: str) -> None:
    """Let a server's TLS context ask for client certificates that this authority has signed (PEM text; empty: ask for none).

    Without one callers need a token.

    An authority that is taken out later counts until the context is made anew. Raises :class:`ssl.SSLError`.
    """
    if client_authority:
        context.load_verify_locations(cadata=client_authority)
        context.verify_mode = ssl.CERT_OPTIONAL


def _mark(run: IndexedRun) -> str:
    return f"{run.made_at}.{run.folder.name}"


def _forbidden(caller: Caller, resource: str, namespace: str) -> str:
    what = "logs" if resource.endswith("log") else "runs"
    return f"{caller.user} may not read {what} in namespace {namespace}: ask for a Role there that allows to get {resource}"


def _error(status: int, kind: str, message: str) -> web.Response:
    return web.json_response({"error": kind, "message": message}, status=status)


def _compressed(response: web.Response) -> web.Response:
    response.enable_compression()
    return response


_START_TIME = 19  # the field's number after the name of the program, from 0; see proc(5)


def is_alive(holder: Holder) -> bool:
    """Whether a process lives: a number may belong to another process by now, so its start and the boot are compared too."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        fields = (
            Path(f"/proc/{holder['pid']}/stat").read_text(encoding="utf-8", errors="replace").rsplit(")", 1)[1].split()
        )
    except (OSError, KeyError, IndexError):
        return False
    return holder.get("boot_id") == boot and str(holder.get("starttime")) == fields[_START_TIME] and fields[0] != "Z"


async def start_reading(
    state: StateFolder,
    api: Api,
    context: ssl.SSLContext,
    *,
    host: str | None,
    port: int,
    findings: Callable[[], Findings] | None = None,
    logs: str = "",
    home: str = "",
) -> web.AppRunner:
    """Serve the runs of a state folder; ``await runner.cleanup()`` ends it.

    ``logs`` is the address of the store that has the logs; empty: the state folder has them.
    ``context`` has the serving certificate. Client certificates are accepted where the API server publishes their authority and
    we may read it, else tokens alone. Raises :class:`OSError` where the port cannot be listened on.
    """
    try:
        accept_certificates(context, await client_authority(api))
    except (ApiFailed, ssl.SSLError) as error:
        _LOG.warning("people are read by their tokens alone, not by client certificates: %s", error)
    stored = StoredLogs(Objects(logs)) if logs else None
    server = ReadingServer(RunIndex(state, is_alive, api.now, findings), Access(api), logs=stored, home=home)
    return await server.start(context, host=host, port=port)


async def publish_watched(api: Api, namespace: str, watched: Watched) -> None:
    """Write what is watched where other replicas find it. Raises :class:`ApiFailed`."""
    path = f"/api/v1/namespaces/{namespace}/configmaps/{CONFIG_MAP}"
    found = await api.get_or_none(path)
    if found is not None:
        await api.send("PUT", path, {**found, "data": {**(found.get("data") or {}), _WATCHED: text_of(watched)}})


async def publish_authority(
    api: Api, namespace: str, authority: str, unite: Callable[[str, str], str] = lambda own, _: own
) -> None:
    """Write the authority (PEM text) into the ConfigMap from which readers take it. Raises :class:`ApiFailed`.

    ``unite`` makes one text of it and what is there.
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
