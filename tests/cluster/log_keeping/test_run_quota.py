"""Runs of one namespace do not fill the disk: where it is nearly full, the oldest that have ended are deleted."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from spotwright.cluster.disk_room import RunQuota
from tests.cluster.folder_records import FolderRecords
from tests.cluster.watching.small_api_server import SmallApiServer, serving

from spotwright.cluster.api_client import Api, EventWriter
from spotwright.cluster.recording import without_pools
from spotwright.cluster.run_store import RunStore, this_process
from spotwright.engine.events import RunFinished, RunStatus
from spotwright.records.state_folder import StateFolder

EVENTS = "/api/v1/namespaces/{}/events"


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    return StateFolder.open(tmp_path / "state")


def a_run(store: RunStore, namespace: str, number: int, *, is_over: bool = True) -> Path:
    """The folder of a Job's run that was last written ``number`` seconds after the begin of time."""
    meta = {"namespace": namespace, "name": f"job-{number}", "uid": f"{number:08d}-{namespace}"}
    run = store.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta}, (), (), float(number))
    if is_over:
        run.add(RunFinished(float(number), status=RunStatus.SUCCEEDED))
    run.commit()
    store.finish(run) if is_over else store.release(run)
    for file in (run.folder.path, *run.folder.path.iterdir()):
        os.utime(file, (number, number))
    return run.folder.path


def a_disk(folder: Path, room: int, files: int = 0) -> Callable[[Any], Any]:
    """A disk of 2 MB that has so many bytes free beside the runs that are there, or one with so many files."""

    def status(_path: Any) -> Any:
        used = sum(each.stat().st_blocks * 512 for each in folder.rglob("*"))
        there = sum(1 for _ in folder.rglob("*"))
        free = (room - used) if room else 2_000_000
        return SimpleNamespace(
            f_bavail=free, f_frsize=1, f_blocks=2_000_000, f_files=files, f_favail=files - there if files else 0
        )

    return status


def look(state: StateFolder) -> SmallApiServer:
    async def scenario() -> SmallApiServer:
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
            await RunQuota(state, EventWriter(Api(client))).look()
            return server

    return asyncio.run(scenario())


@pytest.fixture
def runs(state: StateFolder) -> dict[str, Path]:
    """A busy namespace with many runs, the oldest of which goes on, and a quiet one with an older run."""
    store = RunStore(FolderRecords(state), lambda _: without_pools(), this_process())
    found = {"quiet": a_run(store, "team-b", 1), "running": a_run(store, "team-a", 2, is_over=False)}
    found |= {str(number): a_run(store, "team-a", number) for number in range(3, 13)}
    store.close()
    return found


def test_the_oldest_ended_runs_of_whoever_has_most_go_first(
    state: StateFolder, runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    used = sum(file.stat().st_blocks * 512 for file in state.path.rglob("*"))
    monkeypatch.setattr(os, "statvfs", a_disk(state.path, used + 200_000 - 100_000))  # 100 kB too little
    server = look(state)
    gone = [name for name, folder in runs.items() if not folder.exists()]
    assert gone == [str(number) for number in range(3, 3 + len(gone))]
    assert 1 <= len(gone) <= 6
    [event] = server.objects[EVENTS.format("team-a")].values()
    assert event["reason"] == "RunsDeleted"
    assert f"{len(gone)} of them were" in event["message"] or len(gone) == 1
    assert EVENTS.format("team-b") not in server.objects
    assert not look(state).objects, "there is room again"


def test_a_disk_without_files_left_is_full_too(
    state: StateFolder, runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = sum(1 for _ in state.path.rglob("*"))
    monkeypatch.setattr(os, "statvfs", a_disk(state.path, 0, files=there))
    look(state)
    assert not runs["3"].exists()
    assert runs["12"].exists()


def test_with_room_nothing_is_deleted(state: StateFolder, runs: dict[str, Path]) -> None:
    assert not look(state).objects
    assert all(folder.exists() for folder in runs.values())


def test_runs_that_go_on_cost_nobody_else_a_run(
    state: StateFolder, runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing of the largest namespace may go, the others keep theirs."""
    (runs["running"] / "large").write_bytes(os.urandom(1_500_000))
    monkeypatch.setattr(os, "statvfs", a_disk(state.path, 1))
    look(state)
    assert runs["running"].exists()
    assert runs["quiet"].exists()
    assert not any(runs[str(number)].exists() for number in range(3, 13))
