"""A keeper of logs beside a small API server, with its logs in a folder or another store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
from aiohttp import web
from tests.cluster.folder_records import FolderRuns
from tests.cluster.log_keeping.container_log import BILLION, START, Line, answer
from tests.cluster.log_keeping.stores import keys, read_whole
from tests.cluster.watching.small_api_server import SmallApiServer, serving

from spotwright.cluster.api_client import Api
from spotwright.cluster.log_keeper import DEFAULT_LIMIT, LogKeeper, SeenAttempt
from spotwright.cluster.log_parts import END, log_key
from spotwright.cluster.log_place import LogName, LogPlace
from spotwright.cluster.log_store import LogStore
from spotwright.records.state_folder import StateFolder

PODS = "/api/v1/namespaces/a/pods"
LINES = [Line(START + number * BILLION // 4, f"line {number}\n".encode()) for number in range(40)]
WHOLE = b"".join(line.text for line in LINES)
RUNNING: dict[str, Any] = {"running": {"startedAt": "2026-05-28T20:26:40Z"}}
ENDED: dict[str, Any] = {"terminated": {"exitCode": 0}}


def pod(server: SmallApiServer, state: dict[str, Any], name: str = "train", **more: Any) -> dict[str, Any]:
    phase = "Running" if "running" in state else "Succeeded"
    statuses = [{"name": "main", "restartCount": 0, "state": state}, *more.get("beside", ())]
    containers = [{"name": each["name"], "env": more.get("env", [])} for each in statuses]
    spec = {"restartPolicy": "Never", "containers": containers}
    return server.put(PODS, name, spec=spec, status={"phase": phase, "containerStatuses": statuses})


class Endpoint:
    """The log endpoint of a pod: ``shown`` lines so far; each answer is cut after as many bytes as the next of ``cuts`` says."""

    def __init__(
        self, server: SmallApiServer, name: str = "train", lines: list[Line] | None = None, pods: str = PODS
    ) -> None:
        self.lines, self.shown, self.cuts = lines or LINES, len(lines or LINES), list[int]()
        self.asked: list[str] = []
        server.pages[f"{pods}/{name}/log"] = self.answer

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.query.get("container", ""))
        data = answer(self.lines[: self.shown], request.query.get("sinceTime", ""))
        response = web.StreamResponse()
        await response.prepare(request)
        cut = self.cuts.pop(0) if self.cuts else None
        await response.write(data[:cut] or b"")
        if cut is not None and request.transport is not None:
            request.transport.close()
        await until(lambda: not request.query.get("follow") or self.shown == len(self.lines))
        return response


class Body:
    """Where the logs of a test lie: in a folder beside the state folder, or with ``url`` in another store."""

    def __init__(self, state: StateFolder, url: str = "") -> None:
        self.state, self.url = state, url or f"file://{state.path.parent}/store"
        state.run("run").path.mkdir(exist_ok=True)

    def place(self) -> LogPlace:
        """The place as a new process finds it."""
        return LogStore(self.url, DEFAULT_LIMIT, FolderRuns(self.state))

    async def read(self, name: LogName) -> bytes:
        """A log as readers find it."""
        return await read_whole(self.url, name) or b""

    async def is_complete(self, name: LogName) -> bool:
        """Whether a log has its end."""
        return f"{log_key(name)}/{END}" in await keys(self.url)


def keeping(test: Callable[[SmallApiServer, Callable[[], LogKeeper]], Awaitable[None]], body: Body) -> None:
    """Run a test with a server and a way to start keepers."""

    async def run() -> None:
        tasks: list[asyncio.Task[None]] = []
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:

            def start() -> LogKeeper:
                for task in tasks:
                    task.cancel()
                keeper = LogKeeper(Api(client), body.place())
                tasks.append(asyncio.create_task(keeper.run()))
                return keeper

            try:
                await asyncio.wait_for(test(server, start), 60)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())


def seen(pod: dict[str, Any], *, is_lost: bool = False, is_noticed: bool = False) -> SeenAttempt:
    return SeenAttempt(f"{pod['metadata']['uid']}/0", log_of(pod), pod, 0, is_lost, is_noticed)


def log_of(pod: dict[str, Any]) -> LogName:
    return LogName("run", pod["metadata"]["name"], 1)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # files give no events
        await asyncio.sleep(0.01)


async def until_complete(body: Body, name: LogName) -> bytes:
    while not await body.is_complete(name):  # noqa: ASYNC110  # as above
        await asyncio.sleep(0.01)
    return await body.read(name)


async def until_kept(body: Body, name: LogName, text: bytes) -> None:
    while text not in await body.read(name):  # noqa: ASYNC110  # as above
        await asyncio.sleep(0.01)
