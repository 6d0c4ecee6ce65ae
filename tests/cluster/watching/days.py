"""A day of a watcher: a server whose answers fail as a test says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx2
from tests.cluster.folder_records import FolderRecords
from tests.cluster.watching.small_api_server import SmallApiServer, serving
from tests.cluster.watching.watched_cluster import CONFIG
from tests.cluster.watching.watched_objects import SPOT, job, node, pod

from spotwright import config as configuration
from spotwright.cluster.api_client import Api
from spotwright.cluster.run_store import RunStore
from spotwright.cluster.watcher import Watcher
from spotwright.engine.state import RunState
from spotwright.model.attempts import Cause
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import StateFolder

PODS, JOBS, NODES, NAMESPACES = "/api/v1/pods", "/apis/batch/v1/jobs", "/api/v1/nodes", "/api/v1/namespaces"

LABELS = {"spotwright.dev/enabled": "true"}


class Day:
    """A server with a namespace ``a``, and a watcher of all namespaces with the label, or of those that are listed."""

    def __init__(self, server: SmallApiServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.task: asyncio.Task[None] | None = None
        self.clients: list[httpx2.AsyncClient] = []
        server.served = {"/apis/batch/v1": ["jobs"]}
        server.objects |= {PODS: {}, JOBS: {}, "/api/v1/events": {}}
        self.put(NODES, node("n1", **SPOT))
        self.label()

    def put(self, collection: str, made: dict[str, Any]) -> None:
        """Add or change an object in the namespace ``a``."""
        meta = made["metadata"]
        made = {**made, "metadata": {**meta, "namespace": "a"}}
        self.server.put(collection, meta["name"], uid=meta.get("uid", ""), **made)

    def label(self, **metadata: Any) -> None:
        """Let the namespace ``a`` be served."""
        self.put(NAMESPACES, {"kind": "Namespace", "metadata": {"name": "a", "labels": LABELS, **metadata}})

    def unlabel(self) -> None:
        """Take the label off the namespace ``a``."""
        self.put(NAMESPACES, {"kind": "Namespace", "metadata": {"name": "a"}})

    async def start(self, *namespaces: str) -> None:
        self.clients.append(httpx2.AsyncClient(base_url=self.server.url, timeout=60))
        store = RunStore(FolderRecords(StateFolder.open(self.folder)), configuration.from_mapping(CONFIG))
        self.watcher = Watcher(Api(self.clients[-1]), store, namespaces)
        self.task = asyncio.create_task(self.watcher.run())

    async def start_with_a_running_job(self, name: str, *namespaces: str) -> dict[str, Any]:
        """Start once there is a Job whose only pod, ``one``, runs, and wait for its attempt. Returns the Job."""
        made = job(name, uid=f"uid-{name}")
        self.put(JOBS, made)
        self.put(PODS, pod("one", made, node="n1", phase="Running"))
        await self.start(*namespaces)
        await self.until(lambda: self.is_recorded(name), "the attempt")
        return made

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task
        for client in self.clients:
            await client.aclose()

    def runs(self) -> dict[str, RunState]:
        folders = StateFolder.open(self.folder).runs()
        states = [RunReader(folder, lambda _: False).state for folder in folders]
        return {str(each.meta.arguments["name"]): each for each in states if each.events}

    async def until(self, holds: Callable[[], object], what: str = "") -> None:
        """Wait for a condition, and fail with the watcher if that has ended."""
        while not holds():
            assert self.task is None or not self.task.done(), f"the watcher has ended before {what}: {self.task}"
            await asyncio.sleep(0.02)

    def cause(self, name: str) -> Cause | None:
        run = self.runs().get(name)
        return next(iter(run.tasks.values())).last.cause if run is not None and run.tasks else None

    def is_recorded(self, name: str) -> bool:
        run = self.runs().get(name)
        return run is not None and bool(run.tasks)


def day(folder: Path, test: Callable[[Day], Coroutine[Any, Any, None]]) -> None:
    async def within() -> None:
        async with serving() as server, asyncio.timeout(60):
            made = Day(server, folder)
            try:
                await test(made)
            finally:
                await made.stop()

    asyncio.run(within())
