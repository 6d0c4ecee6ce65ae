"""A server with a Job whose pods wait, and a leader that moves them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
from aiohttp import web
from tests.cluster.admissions import note_admission
from tests.cluster.folder_records import FolderRecords
from tests.cluster.left_out_pools import ToldPools
from tests.cluster.watching.small_api_server import SmallApiServer, serving
from tests.cluster.watching.watched_objects import SPOT, job, node, pod

from spotwright import config as configuration
from spotwright.cluster.api_client import Api
from spotwright.cluster.recording import watch_and_keep_logs
from spotwright.cluster.run_store import RunStore
from spotwright.cluster.unavailable_pools import Tally
from spotwright.engine.state import AttemptState, RunState
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import StateFolder

PODS, JOBS, NODES, NAMESPACES = "/api/v1/pods", "/apis/batch/v1/jobs", "/api/v1/nodes", "/api/v1/namespaces"
CONFIG: dict[str, Any] = {
    "pools": {
        "gpu-spot": {"capacity": "spot", "provider": "aks", "price": "1/h", "node": {"cpu": 2}},
        "gpu": {"capacity": "on-demand", "provider": "aks", "price": "3/h", "node": {"cpu": 2}},
    },
    "policy": {"default": {"spot": "prefer", "pending_timeout": "0.1s"}},
}
IGNORES = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}


class Bed:
    """A server with a Job in a namespace that is watched, and a leader that can be started again."""

    def __init__(self, server: SmallApiServer, folder: Path) -> None:
        self.server, self.folder, self.config = server, folder, CONFIG
        self.asked: list[tuple[str, dict[str, Any]]] = []  # deeds: what and the body
        self.answers: list[int] = []  # statuses that the next deeds get
        self.tally, self.told = Tally(), ToldPools()
        self.train = job(podFailurePolicy=IGNORES)
        server.served = {"/apis/batch/v1": ["jobs"]}
        server.objects |= {PODS: {}, "/api/v1/events": {}}
        server.put(NAMESPACES, "team-a", metadata={"labels": {"spotwright.dev/enabled": "true"}})
        self.put(NODES, node("n1", **SPOT))
        self.put(JOBS, self.train)

    def put(self, collection: str, made: dict[str, Any]) -> None:
        self.server.put(collection, made["metadata"]["name"], uid=made["metadata"]["uid"], **made)

    def pod(self, name: str, *, reason: str = "Unschedulable", **more: Any) -> None:
        """A pod admitted for the spot pool; without a node, the scheduler found none."""
        made = pod(name, self.train, **{"annotations": {"spotwright.dev/rung": "gpu-spot"}, **more})
        if "node" not in more:
            condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": "0/1 nodes"}
            made["status"]["conditions"] = [condition]
        note_admission(self.server, made)
        self.put(PODS, made)
        base = f"/api/v1/namespaces/team-a/pods/{name}"
        self.server.pages |= {
            f"{base}/eviction": self._deed("evict", name),
            f"{base}/status": self._deed("fail", name),
            base: self._deed("delete", name),
        }

    def _deed(self, what: str, name: str) -> Callable[[web.Request], Coroutine[Any, Any, web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            self.asked.append((what, await request.json()))
            status = self.answers.pop(0) if self.answers else 201
            if status < 400 and what != "fail":
                self.server.delete(PODS, name)
            return web.json_response({"kind": "Status", "message": "as told"}, status=status)

        return answer

    @asynccontextmanager
    async def leader(self, order_limit: float = 900.0) -> AsyncIterator[None]:
        state = StateFolder.open(self.folder)
        async with httpx2.AsyncClient(base_url=self.server.url, timeout=60) as client:
            store = RunStore(FolderRecords(state), configuration.from_mapping(self.config))
            client_of = lambda: httpx2.AsyncClient(base_url=self.server.url)  # noqa: E731  # of logs, which nobody keeps here
            task = asyncio.create_task(
                watch_and_keep_logs(
                    Api(client),
                    store,
                    client_of,
                    tally=self.tally,
                    order_limit=order_limit,
                    pools=self.told,  # type: ignore[arg-type]
                )
            )
            try:
                yield
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    def run(self) -> RunState | None:
        folders = StateFolder.open(self.folder).runs()
        return RunReader(folders[0], lambda _: False).state if folders else None

    def attempts(self) -> list[AttemptState]:
        run = self.run()
        return [attempt for task in run.tasks.values() for attempt in task.attempts] if run is not None else []

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not holds():  # noqa: ASYNC110  # another process would have to tell
                await asyncio.sleep(0.02)


def on_a_bed(folder: Path, scenario: Callable[[Bed], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with serving() as server:
            await scenario(Bed(server, folder))

    asyncio.run(run())
