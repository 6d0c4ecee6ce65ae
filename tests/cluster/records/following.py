"""A replica that follows records, as the webhook does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from spotwright.cluster.api_client import Api, connect, find_cluster
from spotwright.cluster.attempt_lookup import NO_PLAN
from spotwright.cluster.recorded_histories import RecordedHistories


@asynccontextmanager
async def following(kubeconfig: Path) -> AsyncIterator[RecordedHistories]:
    api = Api(connect(find_cluster(None, kubeconfig=str(kubeconfig))))
    histories = RecordedHistories(api, NO_PLAN)
    task = asyncio.create_task(histories.follow())
    try:
        yield histories
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await api.close()
