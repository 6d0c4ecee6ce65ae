"""A cluster in memory whose objects tests change, and the watcher that records it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cluster.admissions import admission_of
from tests.cluster.folder_records import FolderRecords
from tests.cluster.watching.watched_objects import BEGIN, SPOT, node

from spotwright import config as configuration
from spotwright.cluster.observer import PodReconciler
from spotwright.cluster.run_records import RunRecords
from spotwright.cluster.run_store import RunStore
from spotwright.cluster.view import ClusterView, SeenPod
from spotwright.cluster.workloads import templates_of
from spotwright.engine.events import EngineStarted, Event
from spotwright.engine.state import RunState
from spotwright.records.journal import Journal
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import StateFolder

CONFIG = {
    "pools": {
        "gpu-spot": {"capacity": "spot", "provider": "aks", "price": "1/h", "node": {"cpu": 2}},
        "gpu": {"capacity": "on-demand", "provider": "aks", "price": "3/h", "node": {"cpu": 2}},
    }
}


class Cluster:
    """A watcher's cluster, and its store; :meth:`kill` loses everything that is not in the journal."""

    def __init__(self, folder: Path, records: RunRecords | None = None) -> None:
        """``records``: where runs are recorded, by default in the folder."""
        self.folder = folder
        self.records: RunRecords = records or FolderRecords(StateFolder.open(folder))
        self.view = ClusterView()
        self.view.nodes_are_complete = True
        self.now = BEGIN + 3000.0
        for name, labels in (("n1", SPOT), ("n2", SPOT), ("n3", {"kubernetes.azure.com/agentpool": "gpu"})):
            self.view.put_node(node(name, **labels))
        self.store = self._open()

    def _open(self) -> RunStore:
        store = RunStore(self.records, configuration.from_mapping(CONFIG))
        assert list(store.open_unfinished(self.now)) == []
        return store

    def kill(self) -> None:
        for run in self.store.runs.values():
            run.record.close()
        self.store = self._open()

    def look(
        self, root: dict[str, Any], *pods: dict[str, Any], gone: tuple[str, ...] = (), deleted: bool = False
    ) -> None:
        """Look at a workload as a whole; the API has no pods but these, less those that are ``gone``."""
        owners = () if root["kind"] == "Pod" else (root,)
        seen = [SeenPod(each, owners, is_gone=each["metadata"]["name"] in gone) for each in pods]
        self.look_at(seen, root, deleted=deleted)

    def look_at(self, seen: list[SeenPod], root: dict[str, Any], *, deleted: bool = False) -> None:
        """Look at a workload that has these pods, with separate owners."""
        uid = root["metadata"]["uid"]
        self.view.clock += 10.0
        if self.store.is_over(uid):
            return
        owners = seen[0].owners if seen else (root,)
        run = self.store.runs.get(uid) or self.store.create(
            root, templates_of(owners), (), self.now, f"uid-{root['metadata']['namespace']}"
        )
        recorder = PodReconciler(run, self.view, self.now, admission=admission_of)
        recorder.record(seen, None if deleted else root, are_all=True)
        run.commit()
        if run.is_over:
            self.store.finish(run)

    def state(self) -> RunState:
        return RunReader(self._run_folder(), lambda _: False).state

    def events(self) -> list[Event]:
        journal = Journal.read(self._run_folder().journal)
        try:
            return [event for _, event in journal.events() if not isinstance(event, EngineStarted)]
        finally:
            journal.close()

    def _run_folder(self) -> Any:
        (folder,) = StateFolder.existing(self.folder).runs()
        return folder
