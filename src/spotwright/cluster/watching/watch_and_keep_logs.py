"""Watches a cluster, keeps the log of each attempt that is recorded, and moves what waits in vain: one process does all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx2

from spotwright.cluster.api.requests import Api
from spotwright.cluster.log_keeping.keeper import LogKeeper
from spotwright.cluster.moving.mover import Mover
from spotwright.cluster.moving.pool_pauses import PoolPauses
from spotwright.cluster.moving.tally import Tally
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
    tally: Tally | None = None,
) -> None:
    """Watch until cancelled. ``open_streams`` makes a client for many streams at once; every log has one while it is followed.

    ``limit`` is in bytes, for each log; 0 keeps none. ``namespace`` is the only one that is watched; by default it is all that
    are labelled. ``tally`` counts what is moved and what waits.
    """
    tally = tally or Tally()
    pauses = PoolPauses(state)
    pauses.begin(state, api.now())
    mover = Mover(api, pauses, tally=tally)
    tally.begin()
    streams = Api(open_streams())
    keeper = LogKeeper(streams, limit)

    def look(run: WorkloadRun, seen: SeenPod, is_cut_off: bool) -> None:
        mover.recorded(seen.pod, is_gone=seen.is_gone)
        if limit:
            keeper.look(run.folder, run.state, seen.pod, is_gone=seen.is_gone, is_cut_off=is_cut_off)

    watcher = Watcher(api, store, namespace, look, mover.decide)
    parts = [watcher.run(), mover.run(watcher.look_at), *([keeper.run(state)] if limit else [])]
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        tally.end()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await streams.close()
