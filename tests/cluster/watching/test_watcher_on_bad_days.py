"""Bad days of a watcher: a full disk, a label that comes and goes, a namespace that is deleted, clocks that differ."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.folder_records import FolderRecords
from tests.cluster.watching.days import JOBS, LABELS, NAMESPACES, NODES, PODS, Day, day
from tests.cluster.watching.watched_cluster import CONFIG
from tests.cluster.watching.watched_objects import SPOT, at, done, job, node, pod

from spotwright import config as configuration
from spotwright.cluster import run_store, watcher, workload_recorder
from spotwright.cluster.mirror import Change, ChangeKind
from spotwright.cluster.run_store import RunStore
from spotwright.cluster.watch_streams import Stream
from spotwright.engine.events import RunStatus
from spotwright.errors import StateError
from spotwright.model.attempts import Cause
from spotwright.records.journal import Journal
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import StateFolder


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload_recorder, "_RETRY", 0.05)
    monkeypatch.setattr(watcher, "_CLOSES", 0.2)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bool]]:
    """A disk that refuses writes while it is full."""
    state = {"full": False}
    real = Journal._transaction

    @contextlib.contextmanager
    def transaction(journal: Journal) -> Iterator[None]:
        if state["full"]:
            raise sqlite3.OperationalError("database or disk is full")
        with real(journal):
            yield

    monkeypatch.setattr(Journal, "_transaction", transaction)
    yield state
    state["full"] = False


def test_what_happens_while_the_disk_is_full_is_written_when_it_has_room(
    tmp_path: Path, disk: dict[str, bool], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def test(day: Day) -> None:
        old, new = await day.start_with_a_running_job("old"), job("new", uid="uid-new")
        disk["full"] = True
        day.put(PODS, pod("one", old, node="n1", phase="Failed", exit_code=3))
        day.put(PODS, pod("two", old, made=20, node="n1", phase="Running"))
        day.put(JOBS, new)
        day.put(PODS, pod("three", new, made=21, node="n1", phase="Succeeded", exit_code=0))
        await day.until(lambda: "store" in day.watcher.problems, "the problem")
        day.server.delete(PODS, "one")  # Kubernetes forgets it; the watcher has seen how it ended
        day.server.bookmark(PODS)
        await day.until(lambda: len(day.watcher._recorder._unwritten) == 2, "both workloads wait")
        disk["full"] = False
        await day.until(lambda: day.cause("new") is Cause.SUCCEEDED, "the second run")
        await day.until(lambda: "store" not in day.watcher.problems, "the end of the problem")
        attempts = day.runs()["old"].tasks["old"].attempts
        assert [attempt.cause for attempt in attempts] == [Cause.FAILED, None]

    day(tmp_path / "state", test)
    said = [record.message for record in caplog.records]
    assert sum("keeping events in memory until they can be written" in each for each in said) == 1
    assert sum("can be written again" in each for each in said) == 1


def test_a_run_whose_journal_was_made_in_part_is_recorded_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Journal.create

    def partly(path: Path) -> Journal:
        path.write_bytes(b"SQLite format 3\0".ljust(4096, b"\0"))
        raise StateError(f"{path}: database or disk is full")

    async def test(day: Day) -> None:
        monkeypatch.setattr(Journal, "create", partly)
        train = job("train", uid="uid-train")
        day.put(JOBS, train)
        day.put(PODS, pod("one", train, node="n1", phase="Succeeded", exit_code=0))
        await day.start()
        await day.until(lambda: "store" in day.watcher.problems, "the problem")
        monkeypatch.setattr(Journal, "create", real)
        await day.until(lambda: day.cause("train") is Cause.SUCCEEDED, "the end")

    day(tmp_path / "state", test)


def test_runs_that_cannot_be_written_when_the_watcher_starts_are_taken_up_later(
    tmp_path: Path, disk: dict[str, bool]
) -> None:
    async def test(day: Day) -> None:
        train = await day.start_with_a_running_job("train")
        await day.stop()
        disk["full"] = True
        day.put(PODS, pod("one", train, node="n1", phase="Succeeded", exit_code=0))
        await day.start()
        await day.until(lambda: "store" in day.watcher.problems, "the problem")
        disk["full"] = False
        await day.until(lambda: day.cause("train") is Cause.SUCCEEDED, "the end")
        assert len(day.runs()["train"].tasks["train"].attempts) == 1

    day(tmp_path / "state", test)


def test_a_namespace_that_loses_its_label_ends_no_attempt(tmp_path: Path) -> None:
    async def test(day: Day) -> None:
        train = await day.start_with_a_running_job("train")
        day.unlabel()
        await day.until(lambda: day.runs()["train"].notes, "the note")
        day.server.expire()  # the streams list again, and the pods are not theirs any more
        await day.server.cut()
        day.label()
        day.put(PODS, pod("one", train, node="n1", phase="Succeeded", exit_code=0))
        await day.until(lambda: day.cause("train") is Cause.SUCCEEDED, "the end")
        state = day.runs()["train"]
        assert len(state.tasks["train"].attempts) == 1
        assert "lost the label" in state.notes[0]

    day(tmp_path / "state", test)


def test_a_list_from_before_a_namespace_came_back_says_nothing_of_its_pods(tmp_path: Path) -> None:
    async def test(day: Day) -> None:
        train = await day.start_with_a_running_job("train")
        day.unlabel()
        await day.until(lambda: day.runs()["train"].notes, "the note")
        day.put(PODS, pod("one", train, node="n1", phase="Succeeded", exit_code=0))
        queue, streams = day.watcher._streams._queue, dict(day.watcher._streams._tasks)
        namespace = {"kind": "Namespace", "metadata": {"name": "a", "labels": LABELS}}
        await queue.put((Stream("Namespace"), Change(ChangeKind.PUT, namespace), streams[Stream("Namespace")]))
        for kind in ("Job", "Pod"):
            await queue.put((Stream(kind), Change(ChangeKind.SYNCED, {}), streams[Stream(kind)]))
        await day.until(lambda: day.cause("train") is not None, "the end")
        assert day.cause("train") is Cause.SUCCEEDED

    day(tmp_path / "state", test)


def test_a_namespace_that_is_deleted_under_way_ends_its_runs(tmp_path: Path) -> None:
    async def test(day: Day) -> None:
        train, idle = job("train", uid="uid-train"), job("idle", uid="uid-idle")
        for each, name in ((train, "one"), (idle, "two")):
            day.put(JOBS, each)
            day.put(PODS, pod(name, each, node="n1", phase="Running"))
        await day.start()
        await day.until(lambda: day.is_recorded("train") and day.is_recorded("idle"), "the attempts")
        day.label(deletionTimestamp=at(60))
        day.server.delete(PODS, "one")
        day.server.delete(JOBS, "train")
        day.server.delete(NAMESPACES, "a")  # of the other Job nothing comes any more
        ended = RunStatus.CANCELLED
        await day.until(lambda: {run.status for run in day.runs().values()} == {ended}, "the ends")
        assert all(day.cause(name) is not None for name in ("train", "idle"))

    day(tmp_path / "state", test)


def test_a_job_that_fails_because_its_namespace_is_deleted_is_cancelled(tmp_path: Path) -> None:
    async def test(day: Day) -> None:
        train = await day.start_with_a_running_job("train")
        day.label(deletionTimestamp=at(60))
        day.put(PODS, pod("one", train, node="n1", phase="Failed", exit_code=137))
        failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
        day.put(JOBS, {**train, "status": {"conditions": [failed]}})
        day.server.delete(PODS, "one")
        day.server.delete(JOBS, "train")
        day.server.delete(NAMESPACES, "a")
        await day.until(lambda: {run.status for run in day.runs().values()} == {RunStatus.CANCELLED}, "the end")

    day(tmp_path / "state", test)


def test_a_watcher_ends_also_where_a_change_comes_in_the_same_moment(tmp_path: Path) -> None:
    async def test(day: Day) -> None:
        await day.start()
        streams = day.watcher._streams
        await day.until(lambda: streams._queue.empty() and not streams.waiting, "all streams are complete")
        assert day.task is not None
        change = (Stream("Event"), Change(ChangeKind.DELETED, {"metadata": {"name": "one", "namespace": "a"}}), None)
        day.watcher._closing["b"] = time.monotonic() + 60  # it waits for a moment as well as for a change
        await streams._queue.put(change)
        await day.until(streams._queue.empty, "it waits again")
        await asyncio.sleep(0.1)
        await streams._queue.put(change)
        day.task.cancel()
        await asyncio.wait({day.task}, timeout=30)
        assert day.task.cancelled()

    day(tmp_path / "state", test)


def test_ends_are_recorded_while_changes_come_without_a_pause(tmp_path: Path) -> None:
    async def test(day: Day) -> None:
        train = await day.start_with_a_running_job("train")
        day.put(PODS, pod("one", train, node="n1", phase="Running", deletionTimestamp=at(30)))
        day.server.delete(PODS, "one")
        changes = 0
        while day.cause("train") is None:
            day.put(NODES, node("n1", **SPOT, heartbeat=str(changes)))
            changes += 1
            await asyncio.sleep(0)
        assert day.cause("train") is Cause.DISRUPTED

    day(tmp_path / "state", test)


def test_a_watcher_that_starts_reads_no_run_that_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    class Counting(RunReader):
        def __init__(self, folder: Any, is_alive: Any) -> None:
            read.append(folder.name)
            super().__init__(folder, is_alive)

    async def test(day: Day) -> None:
        for name in ("ended-1", "ended-2", "running"):
            made = job(name, uid=f"{name}-uid-long", status=done() if name != "running" else None)
            day.put(JOBS, made)
            phase: dict[str, Any] = (
                {"phase": "Running"} if name == "running" else {"phase": "Succeeded", "exit_code": 0}
            )
            day.put(PODS, pod(f"pod-{name}", made, node="n1", **phase))
        await day.start()
        await day.until(
            lambda: day.cause("ended-1") and day.cause("ended-2") and day.is_recorded("running"), "all runs"
        )
        await day.until(lambda: day.runs()["ended-1"].finished_at and day.runs()["ended-2"].finished_at, "the ends")
        await day.stop()
        monkeypatch.setattr(run_store, "RunReader", Counting)
        store = RunStore(FolderRecords(StateFolder.open(day.folder)), configuration.from_mapping(CONFIG))
        assert list(store.open_unfinished(0.0)) == []
        assert [name for name in read if "ended" in name] == []
        assert (len(read), store.is_over("ended-1-uid-long"), store.is_over("running-uid-long")) == (1, True, False)
        store.close()

    day(tmp_path / "state", test)


def test_times_of_a_node_whose_clock_is_minutes_behind_never_go_backwards(tmp_path: Path) -> None:
    async def test(day: Day) -> None:
        train = job("train", uid="uid-train")
        day.put(JOBS, train)
        day.put(PODS, pod("one", train, made=600, node="n1", phase="Failed", exit_code=3, ended=30))
        await day.start()
        await day.until(lambda: day.cause("train") is Cause.FAILED, "the end")
        (attempt,) = day.runs()["train"].tasks["train"].attempts
        assert attempt.bound_at is not None
        assert attempt.ended_at is not None
        assert attempt.placed_at <= attempt.bound_at <= attempt.ended_at

    day(tmp_path / "state", test)
