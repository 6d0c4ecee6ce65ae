"""If a run is no longer recorded, the logs of its pods are still stored until the pods end, and then everything is closed."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx2
import pytest
from aiohttp import web
from tests.cluster.folder_records import FolderRecords, FolderRuns
from tests.cluster.log_keeping.keepers import WHOLE, Endpoint
from tests.cluster.log_keeping.stores import keys, read_whole
from tests.cluster.moving.mover_bed import CONFIG, NAMESPACES, Bed
from tests.cluster.watching.small_api_server import serving
from tests.cluster.watching.watched_objects import pod

from spotwright import config as configuration
from spotwright.cluster import log_keeper
from spotwright.cluster.api_client import Api
from spotwright.cluster.log_keeper import DEFAULT_LIMIT
from spotwright.cluster.log_parts import END
from spotwright.cluster.log_place import LogName
from spotwright.cluster.log_store import LogStore
from spotwright.cluster.recording import watch_and_keep_logs
from spotwright.cluster.run_store import RunStore
from spotwright.records.state_folder import StateFolder

PODS = "/api/v1/namespaces/team-a/pods"


@pytest.mark.parametrize("why", ["its recording is cut", "its namespace is left"])
def test_its_logs_end_with_their_pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    monkeypatch.setattr(log_keeper, "_UNTOLD", 0.02)
    url, state = f"file://{tmp_path}/store", StateFolder.open(tmp_path / "state")

    async def scenario() -> None:
        async with serving() as server, httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
            bed = Bed(server, tmp_path / "state")
            Endpoint(server, "one", pods=PODS)
            bed.pod("one", node="n1")
            store = RunStore(FolderRecords(state), configuration.from_mapping(CONFIG))
            place = LogStore(url, DEFAULT_LIMIT, FolderRuns(state))
            task = asyncio.create_task(
                watch_and_keep_logs(Api(client), store, lambda: httpx2.AsyncClient(base_url=server.url), place=place)
            )
            try:
                await bed.until(lambda: place._open)
                (log,) = place._open
                assert isinstance(log, LogName)
                if why == "its recording is cut":
                    assert store.cut_largest("team-a", "it is too large", time.time())
                else:
                    server.put(NAMESPACES, "team-a", metadata={"labels": {}})
                    await bed.until(lambda: not store.runs)
                ended = pod("one", bed.train, node="n1", phase="Succeeded", exit_code=0)

                async def answer(_request: web.Request) -> web.Response:
                    return web.json_response(ended)

                server.pages[f"{PODS}/one"] = answer
                await bed.until(lambda: not place._open)
                assert await read_whole(url, log) == WHOLE
                assert [each for each in await keys(url) if each.endswith(f"/{END}")]
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())
