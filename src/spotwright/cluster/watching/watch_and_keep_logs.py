"""Watches a cluster and keeps the log of each attempt that is recorded: the two belong together, and one process does both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx2

from spotwright.cluster.api.requests import Api
from spotwright.cluster.log_keeping.keeper import LogKeeper
from spotwright.cluster.watching.run_store import RunStore, WorkloadRun
from spotwright.cluster.watching.view import SeenPod
from spotwright.cluster.watching.watcher import Watcher
from spotwright.records.state_folder import StateFolder

__all__ = ["watch_and_keep_logs"]


async def watch_and_keep_logs(
    api: Api,
    store: RunStore,
    state: StateFolder,
    open_streams: Callable[[], httpx2.AsyncClient],
    *,
    limit: int,
    namespace: str = "",
) -> None:
    """Watch until cancelled. ``open_streams`` makes a client for many streams at once; every log has one while it is followed.

    ``limit`` is in bytes, for each log; 0 keeps none. ``namespace`` is the only one that is watched; by default it is all that
    are labelled.
    """
    if not limit:
        await Watcher(api, store, namespace).run()
        return
    streams = Api(open_streams())
    keeper = LogKeeper(streams, limit)

    def look(run: WorkloadRun, seen: SeenPod, is_cut_off: bool) -> None:
        keeper.look(run.folder, run.state, seen.pod, is_gone=seen.is_gone, is_cut_off=is_cut_off)

    keeping = asyncio.ensure_future(keeper.run(state))
    try:
        await Watcher(api, store, namespace, look).run()
    finally:
        keeping.cancel()
        await asyncio.wait((keeping,))
        await streams.close()
