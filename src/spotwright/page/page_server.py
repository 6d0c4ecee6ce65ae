"""The web process, which checks access, passes questions on to the workers, and serves the files of the page.

| request | answer |
|---|---|
| ``GET /``, ``/runs/...``, ``/pools``, ``/totals`` | the document; its modules read the rest of the address |
| ``GET assets/DIGEST/FILE`` | a file of the page |
| ``GET api/v1/...`` | JSON with ``format``; :mod:`spotwright.page.worker` makes it |
| ``GET api/v1/stream`` | server-sent events, see :mod:`spotwright.page.stream` |
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from socket import socket
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from spotwright.cluster.limited_server import Limits, serve
from spotwright.page.identity import Identity
from spotwright.page.page_files import PageFiles
from spotwright.page.security import FRAME_POLICY, policy, refusal_of, security_headers
from spotwright.page.stream import Followers, event
from spotwright.page.workers import Answer, Workers

__all__ = ["PageServer"]

_PAGES = ("", "pools", "totals", "rehearsals")
_PING = 15.0  # seconds: proxies cut connections that are silent for longer
_RUN_PAGE = re.compile(r"runs/[^/]{1,300}(/[a-z]{0,40})?")
_NUMBER = re.compile(r"[0-9]{1,15}")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_RUN_ASKED: Mapping[str, tuple[str, ...]] = {
    "": ("costs",),
    "tasks": (),
    "timeline": (),
    "graph": ("scope", "first"),
    "attempt": ("task", "n"),
    "account": (),
    "plan": (),
    "nodes": (),
    "history": ("after", "limit", "task", "kind"),
    "log": ("task", "n", "environment", "line", "count"),
    "log/find": ("task", "n", "environment", "q", "from"),
    "artifacts": ("task",),
}
"""The questions about a run, with the parameters of each; the worker's question has the same name, ``head`` for the first."""


_LIMITS = Limits(arrival=30.0, idle=30.0, memory=2**30, body=0, large=2**30)  # no TLS, and its own workers' answers
_LOG = logging.getLogger(__name__)


class _Connection(web.RequestHandler):
    """A connection. A malformed request gets a normal answer and is not logged, because it may contain the token."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """See :meth:`aiohttp.web.RequestHandler.handle_error`."""
        del message
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun")
        if status >= 500:
            _LOG.error("a request of the page failed: %s", type(exc).__name__)
        response = _error(status, "request", "the request cannot be read")
        response.headers.update(security_headers())
        response.force_close()
        return response


class PageServer:
    """The application. ``base``: the path below which it is served, such as ``/spot``; empty for the root."""

    def __init__(
        self,
        workers: Workers,
        identity: Identity,
        files: PageFiles,
        *,
        about: Mapping[str, Any],
        base: str = "",
        host_names: Collection[str] = (),
    ) -> None:
        self._workers, self._identity, self._files = workers, identity, files
        self._about, self._base, self._host_names = dict(about), base.rstrip("/"), frozenset(host_names)
        self._followers = Followers(workers)

    def application(self) -> web.Application:
        """The application for a runner of aiohttp."""
        app = web.Application(middlewares=[self._guard], client_max_size=0)
        app.router.add_get(f"{self._base}/assets/{{digest}}/{{name:.+}}", self._asset)
        api = f"{self._base}/api/v1"
        app.router.add_get(f"{api}/about", self._tell_about)
        app.router.add_get(f"{api}/runs", self._runs)
        app.router.add_get(f"{api}/pools", self._pools)
        app.router.add_get(f"{api}/totals", self._totals)
        app.router.add_get(f"{api}/rehearsals", self._rehearsals)
        app.router.add_get(f"{api}/stream", self._stream)
        app.router.add_get(f"{api}/runs/{{run}}/log/raw", self._raw_log)
        app.router.add_get(f"{api}/runs/{{run}}/artifact", self._raw_artifact)
        for what in _RUN_ASKED:
            app.router.add_get(f"{api}/runs/{{run}}{'/' if what else ''}{what}", partial(self._run, what))
        app.router.add_get(f"{self._base}/{{page:.*}}", self._document)
        if self._base:
            app.router.add_get(self._base, self._to_root)
        app.on_response_prepare.append(_with_headers)
        app.on_shutdown.append(self._close)
        return app

    @asynccontextmanager
    async def serving(self, listening: socket) -> AsyncIterator[None]:
        """Answer at a socket that listens, until the context ends."""
        listening.setblocking(False)
        runner = await serve(self.application(), listening=listening, limits=_LIMITS, connection=_Connection)
        try:
            yield
        finally:
            await runner.cleanup()

    async def _close(self, _app: web.Application) -> None:
        await self._followers.close()
        await self._workers.close()

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Refuse forbidden requests, and answer even after failures."""
        try:
            return await self._allowed(request, handler)
        except web.HTTPNotFound:
            return _error(404, "not-found", "address not found")
        except web.HTTPException as error:
            return _error(error.status, "request", f"the request cannot be answered ({error.reason})")
        except (ConnectionError, asyncio.CancelledError):
            raise  # the client is gone
        except Exception:  # noqa: BLE001  # it must not end the answer without its headers
            _LOG.exception("a request of the page failed")
            return _error(500, "fault", "internal error of the page; see its terminal for details")

    async def _allowed(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        path = request.path.removeprefix(self._base).lstrip("/")
        is_page = not path.startswith(("api/", "assets/"))
        refusal = refusal_of(request.method, request.raw_path, request.headers, self._host_names, is_page=is_page)
        if refusal is not None:
            return _error(*refusal)
        token = request.query.get("token")
        if is_page and token is not None:
            return await self._enter(request, token)
        if not self._identity.is_known(request.cookies):
            if is_page:
                return _locked()
            return _error(401, "token", "open the address that 'spotwright page' printed: it includes a token")
        return await handler(request)

    async def _enter(self, request: web.Request, token: str) -> web.StreamResponse:
        """Exchange a token for a cookie, and redirect the browser to the address without it."""
        peer = request.remote or ""
        delay = self._identity.delay(peer)
        if delay:
            await asyncio.sleep(delay)
        if not self._identity.enter(token, peer):
            return _locked()
        rest = urlencode([(name, value) for name, value in request.query.items() if name != "token"])
        last = request.rel_url.raw_path.rsplit("/", 1)[-1]  # as sent: a header has no line breaks
        response = web.Response(status=303, headers={"Location": f"./{last}{'?' if rest else ''}{rest}"})
        name, value = self._identity.cookie()
        response.set_cookie(name, value, httponly=True, samesite="Strict", path=f"{self._base}/")
        return response

    async def _to_root(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(status=303, headers={"Location": f"{self._base.rsplit('/', 1)[-1]}/"})

    async def _document(self, request: web.Request) -> web.StreamResponse:
        page = request.match_info["page"]
        if page not in _PAGES and not _RUN_PAGE.fullmatch(page):
            return _error(404, "not-found", "address not found")
        document = self._files.document(request.rel_url.raw_path.removeprefix(self._base).count("/") - 1)
        headers = {**security_headers(policy(document.import_map)), "Cache-Control": "no-store"}
        return _compressed(request, "text/html; charset=utf-8", document.html, document.compressed, headers)

    async def _asset(self, request: web.Request) -> web.StreamResponse:
        found = self._files.file(request.match_info["name"])
        if found is None or request.match_info["digest"] != self._files.digest:
            return _error(404, "not-found", "file not found: load the page again")
        headers = {"Cache-Control": "private, max-age=31536000, immutable"}
        return _compressed(request, found.content_type, found.content, found.compressed, headers)

    async def _tell_about(self, _request: web.Request) -> web.StreamResponse:
        return _json_response({"format": "spotwright-page/1", **self._about})

    async def _runs(self, request: web.Request) -> web.StreamResponse:
        names = ("limit", "from", "before", "status", "cause", "namespace", "q", "sort")
        return await self._pass(request, "runs", "", names)

    async def _pools(self, request: web.Request) -> web.StreamResponse:
        return await self._pass(request, "pools", "", ())

    async def _rehearsals(self, request: web.Request) -> web.StreamResponse:
        return await self._pass(request, "rehearsals", "", ("name",))

    async def _totals(self, request: web.Request) -> web.StreamResponse:
        return await self._pass(request, "totals", "", ("since",))

    async def _run(self, what: str, request: web.Request) -> web.StreamResponse:
        return await self._pass(request, what or "head", request.match_info["run"], _RUN_ASKED[what])

    async def _pass(self, request: web.Request, what: str, run: str, names: Collection[str]) -> web.StreamResponse:
        asked = {name: request.query[name] for name in names if name in request.query}
        return _passed_on(request, await self._workers.ask(what, run, **asked))

    async def _raw_log(self, request: web.Request) -> web.StreamResponse:
        """The bytes of a log as a file, in pieces."""
        run, names = request.match_info["run"], ("task", "n", "environment")
        asked = {name: request.query[name] for name in names if name in request.query}
        answer = await self._workers.ask("log/raw", run, **asked, offset=0)
        if answer.status != 200:
            return _passed_on(request, answer)
        headers = {
            **security_headers(),
            "Content-Type": "text/plain; charset=utf-8",
            "Content-Disposition": f'attachment; filename="{_file_name(run, *asked.values())}"',
            "Cache-Control": "no-store",
        }
        if request.method == "HEAD":
            return web.Response(headers=headers)
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        offset = 0
        while answer.status == 200 and answer.body:
            await response.write(answer.body)
            offset += len(answer.body)
            answer = await self._workers.ask("log/raw", run, **asked, offset=offset)
        if answer.status != 200:  # a missing end tells the browser that the file is incomplete
            if request.transport is not None:
                request.transport.close()
            raise ConnectionResetError("cannot continue reading the log")
        await response.write_eof()
        return response

    async def _raw_artifact(self, request: web.Request) -> web.StreamResponse:
        """A file that a task made, for a frame without rights or an image."""
        asked = {name: request.query.get(name, "") for name in ("task", "name")}
        answer = await self._workers.ask("artifact", request.match_info["run"], **asked)
        if answer.status != 200:
            return _passed_on(request, answer)
        content_type, _, content = answer.body.partition(b"\n")
        headers = {**security_headers(FRAME_POLICY), "Cache-Control": "no-store", "Content-Type": content_type.decode()}
        return web.Response(body=content, headers=headers)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        made_at, _, after = (request.headers.get("Last-Event-ID") or request.query.get("after", "")).partition(".")
        run = request.query.get("run", "")
        if not run or not _NUMBER.fullmatch(after or "0"):
            return _error(400, "input", "expected run=RUN and after=MADE_AT.NUMBER")
        headers = {
            **security_headers(),
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
        }
        if request.method == "HEAD":
            return web.Response(headers=headers)
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        await response.write(b"retry: 1000\n\n")
        pieces = self._followers.follow(run, made_at, int(after or 0))
        coming = asyncio.ensure_future(anext(pieces))
        try:
            while True:
                done, _ = await asyncio.wait([coming], timeout=_PING)
                if not done:
                    await response.write(event("ping", {}))
                    continue
                try:
                    await response.write(coming.result())
                except StopAsyncIteration:
                    break
                coming = asyncio.ensure_future(anext(pieces))
        except (ConnectionResetError, asyncio.CancelledError):
            coming.cancel()
            raise
        finally:
            if not coming.done():
                coming.cancel()
                await asyncio.wait([coming])
            await pieces.aclose()  # type: ignore[attr-defined]  # it is an asynchronous generator
        return response


async def _with_headers(_request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Set the headers of every answer, also of aiohttp's own before a handler runs, such as to ``Expect``."""
    for name, value in security_headers().items():
        response.headers.setdefault(name, value)


def _file_name(*parts: str) -> str:
    """A name for a download, of letters, digits and dashes."""
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', '-'.join(parts)).strip('-')[:150] or 'log'}.txt"


def _locked() -> web.Response:
    text = (
        "Open this page with the address that 'spotwright page' printed: it includes a token, which is new at each start. If"
        " the page was stopped, start it again.\n"
    )
    return web.Response(status=401, text=text, headers={"Cache-Control": "no-store"})


def _error(status: int, kind: str, message: str) -> web.Response:
    return _json_response({"error": kind, "message": message}, status)


def _json_response(document: Mapping[str, Any], status: int = 200) -> web.Response:
    return web.json_response(document, status=status, headers={"Cache-Control": "no-store"})


def _passed_on(request: web.Request, answer: Answer) -> web.Response:
    headers = {
        "Cache-Control": "no-store",
        "Content-Type": "application/json; charset=utf-8",
        "Vary": "Accept-Encoding",
    }
    if not answer.is_gzip:
        return web.Response(status=answer.status, body=answer.body, headers=headers)
    if "gzip" not in request.headers.get("Accept-Encoding", ""):  # curl, not a browser
        return web.Response(status=answer.status, body=gzip.decompress(answer.body), headers=headers)
    return web.Response(status=answer.status, body=answer.body, headers={**headers, "Content-Encoding": "gzip"})


def _compressed(
    request: web.Request, content_type: str, plain: bytes, compressed: bytes, headers: Mapping[str, str]
) -> web.Response:
    headers = {**headers, "Content-Type": content_type, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        return web.Response(body=compressed, headers={**headers, "Content-Encoding": "gzip"})
    return web.Response(body=plain, headers=headers)
