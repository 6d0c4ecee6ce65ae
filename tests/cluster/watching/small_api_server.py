"""A small API server on the loopback: list, watch, write with versions, and the faults of a real one on command."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiohttp import web
from tests.cluster.json_patches import apply_patch

Page = Callable[[web.Request], Awaitable[web.StreamResponse]]
"""Answers the requests for one path."""


class SmallApiServer:
    """Holds objects by path of their collection and name. Every change has the next version."""

    def __init__(self) -> None:
        self.version = 10
        self.objects: dict[str, dict[str, dict[str, Any]]] = {}
        self.history: list[tuple[int, str, str, dict[str, Any]]] = []  # version, collection, kind, object
        self.oldest = 0  # watches from before this version get 410
        self.answers: list[web.Response] = []  # the next answers, whatever is asked
        self.asked: list[str] = []  # method and path with query, of every request
        self.served: dict[str, list[str]] = {}  # resources by the path of their group and version
        self.pages: dict[str, Page] = {}  # by path: what answers itself, such as a pod's log
        self.page = 500
        self.url = ""
        self._changed = asyncio.Event()
        self._streams: set[web.StreamResponse] = set()

    def put(self, collection: str, name: str, uid: str = "", **more: Any) -> dict[str, Any]:
        """Add or change an object."""
        self.version += 1
        known = self.objects.setdefault(collection, {})
        kind = "MODIFIED" if name in known else "ADDED"
        metadata = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(self.version)}
        namespace = collection.partition("/namespaces/")[2].partition("/")[0] or "a"
        known[name] = {**more, "metadata": {"namespace": namespace, **more.get("metadata", {}), **metadata}}
        self._remember(collection, kind, known[name])
        return known[name]

    def delete(self, collection: str, name: str) -> None:
        """Delete an object at once."""
        self.version += 1
        self._remember(collection, "DELETED", self.objects[collection].pop(name))

    def bookmark(self, collection: str) -> None:
        """Tell watchers how far they are."""
        self.version += 1
        self._remember(collection, "BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})

    def expire(self) -> None:
        """Forget the history: watches from any version so far get 410."""
        self.oldest = self.version + 1
        self.version += 1

    async def cut(self, last_bytes: bytes = b"") -> None:
        """Break every stream, after these bytes."""
        for stream in list(self._streams):
            with contextlib.suppress(ConnectionError):
                if last_bytes:
                    await stream.write(last_bytes)
            transport = stream._req.transport if stream._req is not None else None
            if transport is not None:
                transport.close()

    def _remember(self, collection: str, kind: str, data: dict[str, Any]) -> None:
        self.history.append((self.version, collection, kind, json.loads(json.dumps(data))))
        self._changed.set()
        self._changed = asyncio.Event()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path_qs}")
        if self.answers:
            return self.answers.pop(0)
        if request.path in self.pages:
            return await self.pages[request.path](request)
        if request.query.get("watch") == "true":
            return await self._watch(request)
        if known := self._known_resources(request.path):
            return web.json_response(known)
        collection, _, name = request.path.rpartition("/")
        if request.method in ("POST", "PUT"):
            return self._write(request, await request.json())
        if request.method == "PATCH":
            return self._patch(collection, name, await request.json())
        if name in self.objects.get(collection, ()):
            found = self.objects[collection][name]
            if request.method == "DELETE":
                self.delete(collection, name)
            return web.json_response(found)
        collections = {request.path, _of_all_namespaces(request.path)}
        if not collections & self.objects.keys() and name not in ("configmaps", "events"):
            return web.json_response({"kind": "Status", "message": "not found"}, status=404)
        items = sorted(
            (
                each
                for collection in collections
                for each in self.objects.get(collection, {}).values()
                if _is_asked_for(request, each)
            ),
            key=lambda each: str(each["metadata"]["name"]),
        )
        start = int(request.query.get("continue") or 0)
        end = start + min(self.page, int(request.query.get("limit") or self.page))
        more = str(end) if end < len(items) else ""
        metadata = {"resourceVersion": str(self.version), "continue": more}
        return web.json_response(
            {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items[start:end]}
        )

    def _known_resources(self, path: str) -> dict[str, Any]:
        """The discovery document of a version, or of a group; empty for another path."""
        if path in self.served:
            return {"resources": [{"name": name} for name in self.served[path]]}
        versions = [base.rpartition("/")[2] for base in self.served if base.startswith(f"{path}/v")]
        return {"kind": "APIGroup", "versions": [{"version": each} for each in versions]} if versions else {}

    def _write(self, request: web.Request, body: dict[str, Any]) -> web.Response:
        """Create an object that is not there, or replace one whose version the writer knows; anything else is a conflict."""
        collection, _, name = request.path.rpartition("/")
        if request.method == "POST":
            collection, name = request.path, str(body["metadata"].get("name") or f"made-{self.version}")
        known = self.objects.get(collection, {}).get(name)
        is_in_order = known is None
        if request.method == "PUT":
            is_in_order = known is not None and known["metadata"]["resourceVersion"] == body["metadata"].get(
                "resourceVersion"
            )
        if not is_in_order:
            return web.json_response({"kind": "Status", "message": "conflict"}, status=409)
        return web.json_response(self.put(collection, name, **body), status=201 if request.method == "POST" else 200)

    def _patch(self, collection: str, name: str, operations: list[dict[str, Any]]) -> web.Response:
        """Apply a JSON patch; 422 where a test of it fails, as the API server answers."""
        known = self.objects.get(collection, {}).get(name)
        if known is None:
            return web.json_response({"kind": "Status", "message": "not found"}, status=404)
        try:
            patched = apply_patch(known, operations)
        except AssertionError:
            return web.json_response({"kind": "Status", "message": "a test of the patch fails"}, status=422)
        return web.json_response(self.put(collection, name, **patched))

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        if since < self.oldest:
            return web.json_response({"kind": "Status", "message": "too old", "code": 410}, status=410)
        response = web.StreamResponse()
        await response.prepare(request)
        self._streams.add(response)
        try:
            while True:
                changed = self._changed
                for version, collection, kind, data in list(self.history):
                    if version <= since or collection not in (request.path, _of_all_namespaces(request.path)):
                        continue
                    since = version
                    if kind == "BOOKMARK" or _is_asked_for(request, data):
                        await response.write(json.dumps({"type": kind, "object": data}).encode() + b"\n")
                await changed.wait()
        finally:
            self._streams.discard(response)


def _of_all_namespaces(path: str) -> str:
    """The collection of all namespaces that a collection of one namespace is a part of."""
    before, slash, rest = path.partition("/namespaces/")
    return f"{before}/{rest.partition('/')[2]}" if slash and "/" in rest else path


def _is_asked_for(request: web.Request, data: dict[str, Any]) -> bool:
    """Whether an object is of the namespace and has the name that a request names."""
    _, slash, rest = request.path.partition("/namespaces/")
    _, is_named, name = request.query.get("fieldSelector", "").partition("metadata.name=")
    meta = data["metadata"]
    is_there = not slash or meta.get("namespace") == rest.partition("/")[0]
    return is_there and (not is_named or meta["name"] == name)


@contextlib.asynccontextmanager
async def serving(kind: type[Any] = SmallApiServer) -> AsyncIterator[Any]:
    """A server while the block runs."""
    server = kind()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server._handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()
