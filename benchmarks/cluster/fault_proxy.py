"""A proxy in front of a real API server that makes the faults a watch must survive: 410, 429, 5xx, cut and silent streams.

It listens on the loopback without TLS and sends every request on to the server of a kubeconfig, with the kubeconfig's identity.
:attr:`FaultProxy.fault` says what happens to requests from now on; requests that are not watches pass unless the fault says
otherwise. A real API server hardly ever answers so when it is asked to, and never at a given moment.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml
from aiohttp import web

__all__ = ["Fault", "FaultProxy", "Upstream"]


@dataclass(frozen=True)
class Upstream:
    """The API server of a kubeconfig's current context: its address, TLS context and headers."""

    server: str
    tls: ssl.SSLContext
    headers: dict[str, str]

    @classmethod
    def read(cls, kubeconfig: str) -> Upstream:
        """Read a kubeconfig with a bearer token or a client certificate, as test clusters write it."""
        document = yaml.safe_load(Path(kubeconfig).read_text(encoding="utf-8"))
        context = next(c["context"] for c in document["contexts"] if c["name"] == document["current-context"])
        cluster = next(c["cluster"] for c in document["clusters"] if c["name"] == context["cluster"])
        user = next(u["user"] for u in document["users"] if u["name"] == context["user"])
        if "certificate-authority" in cluster:
            tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        else:
            tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        if "client-certificate" in user:
            tls.load_cert_chain(user["client-certificate"], user["client-key"])
        token = user.get("token") or (Path(user["tokenFile"]).read_text().strip() if "tokenFile" in user else "")
        return cls(cluster["server"], tls, {"Authorization": f"Bearer {token}"} if token else {})


@dataclass(frozen=True)
class Fault:
    """What happens to requests. ``status`` answers them; ``gone`` is a 410 inside a watch; ``silent`` holds its bytes back.

    ``lists``: lists get the status too. ``retry_after`` is that header, in seconds. ``times``: how many requests are met.
    """

    status: int = 0
    retry_after: str = ""
    lists: bool = False
    gone: bool = False
    silent: bool = False
    times: int = 1_000_000


class FaultProxy:
    """The proxy. Use it as an asynchronous context manager; ``url`` is then its address."""

    def __init__(self, upstream: Upstream, fault: Fault | None = None) -> None:
        self._upstream = upstream
        self._watches: set[web.StreamResponse] = set()
        self._transports: dict[web.StreamResponse, asyncio.Transport] = {}
        self.fault = fault
        self.requests: list[
            tuple[float, str]
        ] = []  # the time of each request of a watch or list, and what became of it
        self.url = ""

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._upstream.tls, limit=0)
        self._session = aiohttp.ClientSession(connector=connector, headers=self._upstream.headers)
        application = web.Application(client_max_size=2**24)
        application.router.add_route("*", "/{path:.*}", self._forward)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # noqa: SLF001  # aiohttp has no other way
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        await self._runner.cleanup()
        await self._session.close()

    def cut(self) -> None:
        """Reset the connection of every watch that is open, in the middle of whatever it sends."""
        for transport in self._transports.values():
            transport.abort()

    def kubeconfig(self) -> dict[str, Any]:
        """A kubeconfig for clients of this proxy."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxy",
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
            "clusters": [{"name": "proxy", "cluster": {"server": self.url}}],
            "users": [{"name": "proxy", "user": {"token": "none"}}],
        }

    def _met(self, *, watch: bool, listing: bool) -> Fault | None:
        fault = self.fault
        if fault is None or fault.times <= 0 or not (watch or (listing and fault.lists)):
            return None
        self.fault = Fault(**{**fault.__dict__, "times": fault.times - 1})
        return fault

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        watch = request.query.get("watch", "") in ("true", "True", "1")
        listing = request.method == "GET" and not watch
        fault = self._met(watch=watch, listing=listing)
        now = asyncio.get_running_loop().time()
        if fault is not None and fault.status:
            self.requests.append((now, str(fault.status)))
            headers = {"Retry-After": fault.retry_after} if fault.retry_after else {}
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": fault.status, "reason": "Fault",
                      "message": "a fault of the proxy", "metadata": {}}  # fmt: skip
            return web.json_response(status, status=fault.status, headers=headers)
        self.requests.append((now, "watch" if watch else "list"))
        url = f"{self._upstream.server}{request.rel_url.raw_path_qs}"
        headers = {name: request.headers[name] for name in ("Accept", "Content-Type") if name in request.headers}
        body = await request.read()
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.request(request.method, url, headers=headers, data=body, timeout=timeout) as answer:
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            await response.prepare(request)
            if watch:
                await self._stream(request, response, answer, fault)
            else:
                await response.write(await answer.read())
            return response

    async def _stream(
        self, request: web.Request, response: web.StreamResponse, answer: aiohttp.ClientResponse, fault: Fault | None
    ) -> None:
        if fault is not None and fault.gone:
            status = {
                "kind": "Status",
                "code": 410,
                "reason": "Expired",
                "message": "too old resource version",
                "metadata": {},
            }
            await response.write(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
            return
        if request.transport is not None:
            self._transports[response] = request.transport  # type: ignore[assignment]
        try:
            async for piece in answer.content.iter_any():
                while self.fault is not None and self.fault.silent:  # noqa: ASYNC110  # a plain value that tests set
                    await asyncio.sleep(0.05)
                with contextlib.suppress(ConnectionError):
                    await response.write(piece)
        finally:
            self._transports.pop(response, None)
