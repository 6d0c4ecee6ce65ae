"""A recorder's handling of runs that ended long ago: it archives them in the log store, and deletes their records."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.reading.served import Served

from spotwright.cluster.api_client import Api, EventWriter, connect, find_cluster
from spotwright.cluster.log_parts import Objects
from spotwright.cluster.log_store import LogStore
from spotwright.cluster.record_shares import Shares
from spotwright.cluster.retention import RecordedLogRuns, Retention
from spotwright.cluster.run_archives import Archive, Archiver, archives_in
from spotwright.cluster.run_objects import RUN

OWNER = "the-release"
LONG_AGO = "2020-01-01T00:00:00Z"


@dataclass
class Keeping:
    """The deleter of records and the keeper of logs, as one recorder has them, until the block of :func:`keeping` ends."""

    api: Api
    store: LogStore
    retention: Retention
    troubles: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)


@asynccontextmanager
async def keeping(
    served: Served, logs: str = "", shares: Shares | None = None, owner: str = OWNER
) -> AsyncIterator[Keeping]:
    """A recorder's parts, with the recorder's rights."""
    api = Api(connect(find_cluster(kubeconfig=str(served.kubeconfig("controller", token="t")))))
    troubles, outcomes = list[str](), Counter[str]()
    store = LogStore(logs or served.logs, 64 << 20, RecordedLogRuns(api, owner), troubles.append)
    retention = Retention(api, EventWriter(api), served.kubernetes.served, shares, outcomes=outcomes)
    retention.archiver, retention.on_archived = Archiver(api, store.objects, owner), store.archived
    try:
        yield Keeping(api, store, retention, troubles, outcomes)
    finally:
        await api.close()


def let_time_pass(served: Served, is_old: Callable[[str], bool] = lambda _: True) -> None:
    """Let the wanted runs have ended long ago."""
    for found in served.kubernetes.records.kept(RUN):
        if found["status"].get("finishedAt") and is_old(found["metadata"]["name"]):
            found["status"]["finishedAt"] = LONG_AGO


def archive(served: Served, owner: str = OWNER) -> None:
    """Archive all ended runs, and delete their records."""

    async def work() -> None:
        async with keeping(served, owner=owner) as parts:
            await parts.retention.look()

    let_time_pass(served)
    asyncio.run(work())
    assert served.kubernetes.records.kept(RUN) == []


def archives(url: str) -> list[Archive]:
    """All archives in a store."""

    async def work() -> list[Archive]:
        return [each async for each in archives_in(Objects(url))]

    return asyncio.run(work())


def recorded_names(served: Served) -> set[str]:
    return {str(each["metadata"]["name"]) for each in served.kubernetes.records.kept(RUN)}


def told(served: Served) -> list[dict[str, Any]]:
    """The Events that were written."""
    return [each for each in served.kubernetes.objects.values() if each.get("kind") == "Event"]
