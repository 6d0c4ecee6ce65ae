"""A watcher whose streams are complete and silent: tests apply changes to it one by one, as its streams would."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2
from tests.cluster.folder_records import FolderRecords
from tests.cluster.watching.watched_cluster import CONFIG
from tests.cluster.watching.watched_objects import SPOT, node

from spotwright import config as configuration
from spotwright.cluster.api_client import Api
from spotwright.cluster.mirror import Change, ChangeKind
from spotwright.cluster.record_shares import Shares
from spotwright.cluster.run_records import RunRecords
from spotwright.cluster.run_store import RunStore
from spotwright.cluster.unavailable_pools import Tally
from spotwright.cluster.watch_streams import OWNERS, Stream
from spotwright.cluster.watcher import Watcher
from spotwright.records.state_folder import StateFolder

TEAMS = ("team-a", "team-b")


class SilentWatcher:
    """Watches the namespaces :data:`TEAMS` and a node ``n1``."""

    def __init__(
        self,
        folder: Path,
        records: RunRecords | None = None,
        shares: Shares | None = None,
        require: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> None:
        """``records``: where runs are recorded, by default in the folder."""
        self.tally = Tally()
        kept = records or FolderRecords(StateFolder.open(folder))
        self.store = store = RunStore(kept, configuration.from_mapping(CONFIG), require, shares)
        self.watcher = Watcher(Api(httpx2.AsyncClient()), store, **options)
        self.watcher._node_events.since = 0.0  # the policy was there before every Event
        streams, self.recorder = self.watcher._streams, self.watcher._recorder
        streams._kinds = dict.fromkeys(streams._kinds, "watched")
        streams._complete = {Stream(kind) for kind in (*OWNERS, "Pod", "Node", "Namespace", "Event")}
        for team in TEAMS:
            labels = {"spotwright.dev/enabled": "true"}
            self.put("Namespace", {"metadata": {"name": team, "uid": f"uid-{team}", "labels": labels}})
        self.put("Node", node("n1", **SPOT))
        self.watcher._take_up_entered()

    def put(self, kind: str, data: Mapping[str, Any]) -> None:
        self.watcher._apply(Stream(kind), Change(ChangeKind.PUT, data))

    def delete(self, kind: str, data: Mapping[str, Any]) -> None:
        self.watcher._apply(Stream(kind), Change(ChangeKind.DELETED, data))

    def pass_time(self, seconds: float) -> None:
        """Let so many seconds pass for pods that have to settle."""
        view = self.watcher._view
        view.clock += seconds
        for uid in self.recorder._orphans:
            self.recorder._orphans[uid] -= seconds
        self.recorder.settle()

    def close(self) -> None:
        self.watcher._store.close()
