"""The HTTPS server from which people read the runs of a cluster; it writes nothing, and has a port of its own.

| request | answer |
|---|---|
| GET /v1/runs?namespace=&limit=&before= | the lines of runs, newest first, where the next page begins, and pools left out |
| GET /v1/find?name=&namespace= | the run of that name, with its folder |
| GET /v1/runs/RUN/events?after=&wait= | the stored events after a number; waits for new ones up to so many seconds |
| GET /v1/runs/RUN/plans/VERSION | one version of the plan as it is stored |
| GET /v1/runs/RUN/log?task=&attempt=&environment=&offset= | bytes of a log from an offset on |

A caller gets the facts as they are stored and computes the views itself, so a run looks as it would beside its state folder.
What a person may not read is not there for that person: it is in no list, and a run by name is not found. Errors are
``{"error": KIND, "message": SENTENCE}``.

The port is not the webhook's, because this one asks for client certificates, and API servers come to the webhook without one that
we know.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from spotwright.cluster.moving.pool_pauses import LEFT_OUT_FILE, read_pauses
from spotwright.cluster.reading.access import Access, Caller, Refused
from spotwright.cluster.reading.controller import LOG_AT_ONCE
from spotwright.cluster.reading.run_index import IndexedRun, RunIndex
from spotwright.errors import InputError, SpotwrightError, UnknownRun
from spotwright.records.run_source import RunFiles

__all__ = ["PORT", "ReadingServer", "accept_certificates", "serving_context"]

PORT = 9444
"""The port, beside the webhook's 9443."""

_EVENTS_AT_ONCE = 5000
_LONGEST_WAIT = 30.0  # seconds; a port-forward without a byte may be cut by what lies between
_LOOK = 0.2  # seconds between two looks at a journal somebody waits for
_PAGE = 200
_LOG = logging.getLogger(__name__)

T = TypeVar("T")


class ReadingServer:
    """Serves the runs of a state folder to whom Kubernetes lets read their pods. ``threads`` read files."""

    def __init__(self, index: RunIndex, access: Access, *, threads: int = 4) -> None:
        self._index, self._access = index, access
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
        runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, host, port, ssl_context=context).start()
        return runner

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

        return handle

    async def _runs(self, request: web.Request, caller: Caller) -> web.Response:
        namespace, before = request.query.get("namespace", ""), request.query.get("before", "")
        limit = min(max(1, int(request.query.get("limit", _PAGE))), _PAGE)
        runs = await self._in_thread(self._index.runs)
        readable = await self._readable(caller, runs, namespace)
        wanted = [run for run in runs if run.namespace in readable and namespace in {"", run.namespace}]
        begin = next((number + 1 for number, run in enumerate(wanted) if _mark(run) == before), 0) if before else 0
        page = wanted[begin : begin + limit]
        lines, problems = await self._in_thread(self._lines, page)
        following = _mark(page[-1]) if begin + limit < len(wanted) else ""
        left_out = await self._in_thread(self._left_out)
        return web.json_response({"runs": lines, "problems": problems, "next": following, "left_out": left_out})

    def _left_out(self) -> list[dict[str, Any]]:
        """The pools that new attempts pass over now. Their names are no secret: every namespace may use them."""
        pauses, now = read_pauses(self._index.state.path / LEFT_OUT_FILE), self._index.now()
        return [
            {"pool": pool, "until": pause.until, "times": pause.times, "since": pause.since}
            for pool, pause in pauses.items()
            if now < pause.until
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

    async def _readable(self, caller: Caller, runs: list[IndexedRun], namespace: str) -> set[str]:
        """The namespaces that the caller may read; all of them or the one that was asked for."""
        if not namespace:
            return await self._access.readable(caller, (run.namespace for run in runs))
        if not await self._access.may_read(caller, namespace):
            raise Refused(403, _forbidden(caller, "pods", namespace))
        return {namespace}

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
        files = RunFiles(run.folder, lambda _: False)
        data = await self._in_thread(files.read_log, task, attempt, environment, offset, LOG_AT_ONCE)
        return _compressed(web.Response(body=data, content_type="application/octet-stream"))

    async def _run(self, request: web.Request, caller: Caller) -> IndexedRun:
        """The run of the path; one that the caller may not read is not found. Raises :class:`UnknownRun`."""
        name = request.match_info["run"]
        for run in await self._in_thread(self._index.runs):
            if run.folder.name == name and await self._access.may_read(caller, run.namespace):
                return run
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
