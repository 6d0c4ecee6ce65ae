"""The lookup of a pod's history, as a review waits for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

import httpx2
from tests.cluster.folder_records import FolderHistories
from tests.cluster.watching.small_api_server import SmallApiServer, serving
from tests.cluster.watching.watched_cluster import Cluster

from spotwright.cluster import attempt_lookup
from spotwright.cluster.api_client import Api
from spotwright.cluster.attempt_lookup import AttemptHistoryReader, Lookups
from spotwright.cluster.attempt_numbers import Numbers
from spotwright.records.state_folder import StateFolder

JOBS = "/apis/batch/v1/namespaces/team-a/jobs"
TASKS = "/apis/spotwright.dev/v1alpha1/namespaces/team-a/spotcounters"


@asynccontextmanager
async def finding(
    cluster: Cluster, *roots: dict[str, Any]
) -> AsyncIterator[tuple[AttemptHistoryReader, SmallApiServer]]:
    """A finder on the state folder of a watcher, and an API server that has these Jobs."""
    with mock.patch.object(attempt_lookup, "_NOTED", 60.0):  # answers come as late as a busy machine makes them
        async with _finding(cluster, *roots) as found:
            yield found


@asynccontextmanager
async def _finding(
    cluster: Cluster, *roots: dict[str, Any]
) -> AsyncIterator[tuple[AttemptHistoryReader, SmallApiServer]]:
    async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
        for root in roots:
            meta = root["metadata"]
            server.put(JOBS, meta["name"], meta["uid"], **{**root, "apiVersion": "batch/v1"})
        api = Api(client)
        clock = [0.0]
        numbers = Numbers(api, lambda: clock[0])
        finder = AttemptHistoryReader(api, Lookups(api), FolderHistories(StateFolder.open(cluster.folder)).of, numbers)
        server.clock = clock
        server.numbers = numbers
        confirming = asyncio.create_task(numbers.run())
        try:
            yield finder, server
        finally:
            confirming.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await confirming
            finder.close()
            await numbers.close()
