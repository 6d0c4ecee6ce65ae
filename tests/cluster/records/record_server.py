"""An API server on the loopback that stores records of runs: with selectors, cascading deletion, and faults."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import yaml
from aiohttp import web
from tests.cluster.watching.small_api_server import SmallApiServer, _of_all_namespaces

from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.run_objects import API_VERSION, KINDS
from spotwright.cluster.spot_pools import KIND as POOL
from spotwright.cluster.task_objects import KIND as COUNTER


class RecordServer(SmallApiServer):
    """``refuse`` is called before each write: a number is its status, or an answer; None lets it through."""

    def __init__(self) -> None:
        super().__init__()
        self.served[f"/apis/{API_VERSION}"] = [f"{kind.lower()}s" for kind in (*KINDS, POOL, COUNTER)]
        for kind in (*KINDS, POOL, COUNTER):
            self.objects[f"/apis/{API_VERSION}/{kind.lower()}s"] = {}
        self.refuse: Any = lambda _method, _path: None
        self.hold: Callable[[str, str], Awaitable[None]] | None = None
        """Awaited before each write."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self.forbidden = False  # lists are refused
        self.is_blind = False  # writes happen, and nobody hears of it

    def _remember(self, collection: str, kind: str, data: dict[str, Any]) -> None:
        """Watches of all namespaces hear of it too."""
        super()._remember(_of_all_namespaces(collection), kind, data)

    def kept(self, kind: str) -> list[dict[str, Any]]:
        """All objects of a kind."""
        return [
            found
            for collection, known in self.objects.items()
            if collection.endswith(f"/{kind.lower()}s")
            for found in known.values()
        ]

    def delete(self, collection: str, name: str) -> None:
        """Delete an object, and the objects that it owns, as the cluster does."""
        uid = self.objects[collection][name]["metadata"]["uid"]
        super().delete(collection, name)
        for where, known in list(self.objects.items()):
            for found in list(known.values()):
                if any(each["uid"] == uid for each in found["metadata"].get("ownerReferences", ())):
                    self.delete(where, found["metadata"]["name"])

    def take_away(self, kind: str, name: str) -> None:
        """Delete an object by its kind and name."""
        for collection, known in list(self.objects.items()):
            if collection.endswith(f"/{kind.lower()}s") and name in known:
                self.delete(collection, name)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        is_write = request.method in ("POST", "PATCH", "PUT", "DELETE")
        if is_write and self.hold is not None:
            await self.hold(request.method, request.path)
        status = self.refuse(request.method, request.path) if is_write else None
        if isinstance(status, web.Response):
            return status
        if status is not None:
            return web.json_response({"kind": "Status", "message": "refused on command"}, status=status)
        if not is_write and self.forbidden and request.path.endswith("/spotruns"):
            return web.json_response({"kind": "Status", "message": "forbidden on command"}, status=403)
        is_list = request.path in self.objects and "/namespaces/" not in request.path
        if not is_write and is_list and request.query.get("watch") != "true":
            everywhere = self.kept(request.path.rpartition("/")[2].removesuffix("s"))
            listed = {"kind": "List", "metadata": {"resourceVersion": str(self.version)}, "items": everywhere}
            return self._selected(request, web.json_response(listed))
        answer = await super()._handle(request)
        if is_write and self.is_blind:
            return web.json_response({"kind": "Status", "message": "nobody heard"}, status=500)
        if request.method == "GET" and isinstance(answer, web.Response) and "labelSelector" in request.query:
            return self._selected(request, answer)
        return answer

    def _selected(self, request: web.Request, answer: web.Response) -> web.Response:
        assert isinstance(answer.body, bytes)
        found = json.loads(answer.body)
        if "items" not in found:
            return answer
        selector = parse_qs(request.query_string).get("labelSelector", ["x!=x"])[0]
        key, is_not, value = selector.replace("!=", "=").split("=")[0], "!=" in selector, selector.split("=")[-1]
        values = {value}
        if " in (" in selector:
            key, _, listed = selector.removesuffix(")").partition(" in (")
            values = set(listed.split(","))

        def is_chosen(each: dict[str, Any]) -> bool:
            return ((each["metadata"].get("labels") or {}).get(key) in values) is not is_not

        return web.json_response({**found, "items": [each for each in found["items"] if is_chosen(each)]})


@contextmanager
def recording_server(folder: Path, made: RecordServer | None = None) -> Iterator[tuple[RecordServer, Path]]:
    """A server in a thread, and the kubeconfig of its administrator, while the block runs."""
    server = made or RecordServer()
    loop, ready, over = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def serve() -> None:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", server._handle)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        server.loop = loop
        ready.set()
        await over.wait()
        await runner.cleanup()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(30)
        path = folder / "kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here"}}],
            "clusters": [{"name": "here", "cluster": {"server": server.url}}],
            "users": [{"name": "here", "user": {}}],
        }
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        yield server, path
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()


@contextmanager
def login(kubeconfig: Path) -> Iterator[Kubernetes]:
    """A login to it."""
    kubernetes = Kubernetes(None, str(kubeconfig))
    try:
        yield kubernetes
    finally:
        kubernetes.close()
