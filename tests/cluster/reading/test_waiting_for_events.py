"""A reader that waits for events gets an answer in the end, whatever it asks for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import job, pod

from spotwright.cluster.run_api import Access, Caller, ReadingServer, RunIndex
from spotwright.records.state_folder import StateFolder


class Everyone(Access):
    """Lets everyone read everything."""

    def __init__(self) -> None:
        """There is no API server to ask."""

    async def caller(self, _authorization: str, _certificate: object) -> Caller:
        return Caller("anna")

    async def may_read(self, _caller: Caller, _namespace: str, *, logs: bool = False) -> bool:
        return not logs


@pytest.mark.parametrize("wait", ["nan", "-1", "-inf", "0.05"])
def test_a_wait_that_is_no_number_of_seconds_is_no_wait_for_ever(tmp_path: Path, wait: str) -> None:
    cluster = Cluster(tmp_path / "state")
    cluster.look(job(), pod("one", job(), node="n1", phase="Running"))
    state = StateFolder.existing(tmp_path / "state")

    async def scenario() -> int:
        app = web.Application()
        app.add_routes(ReadingServer(RunIndex(state, lambda _: True), Everyone()).routes())
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            where = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/runs/{state.runs()[0].name}/events"
            query = {"after": "1000", "wait": wait}
            async with asyncio.timeout(20), ClientSession() as session, session.get(where, params=query) as response:
                answer = await response.json()
        finally:
            await runner.cleanup()
        assert (answer["driven"], answer["events"]) == (True, [])
        return response.status

    assert asyncio.run(scenario()) == 200
    cluster.store.close()
