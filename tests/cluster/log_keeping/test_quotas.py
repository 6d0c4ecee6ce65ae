"""Logs take no more than their namespace may have, and leave the last part of a volume free."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from tests.cluster.folder_records import FolderRuns
from tests.cluster.log_keeping.stores import a_name, a_state, read_whole, write_whole

from spotwright.cluster.api_client import Api
from spotwright.cluster.log_keeper import DEFAULT_LIMIT, LogKeeper
from spotwright.cluster.log_parts import Objects
from spotwright.cluster.log_place import LogName, PlaceAway
from spotwright.cluster.log_store import LogStore
from spotwright.records.state_folder import StateFolder

KILO = 1024
A, B = "team-a.train-1234", "team-b.train-1234"


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    return a_state(tmp_path, A, B)


def a_store(state: StateFolder) -> LogStore:
    return LogStore(f"file://{state.path.parent}/store", DEFAULT_LIMIT, FolderRuns(state))


def some_logs(state: StateFolder, run: str, *sizes: int, is_over: bool = True) -> list[LogName]:
    """Logs of attempts of these sizes, the first one the oldest by far."""
    names = [a_name(number, run, f"task-{len(sizes)}-{is_over}") for number in range(1, len(sizes) + 1)]

    async def write() -> None:
        for number, (name, size) in enumerate(zip(names, sizes, strict=True), 1):
            await write_whole(a_store(state), name, os.urandom(size), is_over=is_over)
            folder = state.path.parent / "store" / name.namespace / run / name.task / str(name.attempt)
            for path in folder.iterdir():
                os.utime(path, (number, number))

    asyncio.run(write())
    return names


def left(state: StateFolder, names: list[LogName]) -> list[int]:
    """The bytes that readers find of each log."""

    async def read() -> list[int]:
        url = a_store(state).objects.url
        return [len(await read_whole(url, name) or b"") for name in names]

    return asyncio.run(read())


def enforce(state: StateFolder, limit: int) -> dict[str, str]:
    """Let a keeper look once; return its reports of each run."""
    told: dict[str, str] = {}

    async def scenario() -> None:
        async with httpx2.AsyncClient(base_url="http://127.0.0.1:1") as client:
            place = a_store(state)
            await LogKeeper(Api(client), place, namespace_limit=limit, on_dropped=told.__setitem__).drop_too_much()

    asyncio.run(scenario())
    return told


def test_of_too_many_logs_the_oldest_are_dropped_and_said(state: StateFolder) -> None:
    logs = some_logs(state, A, *[100 * KILO] * 5)
    told = enforce(state, 350 * KILO)
    assert [size > 90 * KILO for size in left(state, logs)] == [False, False, True, True, True]
    assert list(told) == [A]
    assert "task-5-True attempt 1 (100" in told[A]
    assert "task-5-True attempt 2 (100" in told[A]
    assert enforce(state, 350 * KILO) == {}, "what is dropped is dropped once"


def test_a_namespace_never_costs_another_one_its_logs(state: StateFolder) -> None:
    theirs, mine = some_logs(state, B, 200 * KILO), some_logs(state, A, *[200 * KILO] * 5)
    enforce(state, 300 * KILO)
    assert left(state, theirs) == [200 * KILO]
    assert sum(left(state, mine)) < 300 * KILO


def test_what_is_followed_is_dropped_last(state: StateFolder) -> None:
    old = some_logs(state, A, 100 * KILO, is_over=False)
    new = some_logs(state, A, 1, 100 * KILO)[1:]
    enforce(state, 150 * KILO)
    assert (left(state, old), left(state, new)[0] < KILO) == ([100 * KILO], True)
    enforce(state, 50 * KILO)
    assert left(state, old)[0] < KILO


def a_disk(free: int, total: int) -> Callable[[Any], Any]:
    return lambda _: SimpleNamespace(f_bavail=free // KILO, f_frsize=KILO, f_blocks=total // KILO)


def test_on_a_volume_that_is_nearly_full_each_namespace_has_its_share(
    state: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, small = some_logs(state, A, *[300 * KILO] * 4), some_logs(state, B, 100 * KILO)
    monkeypatch.setattr(os, "statvfs", a_disk(60 * KILO, total=1500 * KILO))
    told = enforce(state, 1 << 30)
    assert list(told) == [A]
    assert sum(left(state, large)) < 700 * KILO
    assert left(state, small) == [100 * KILO]


def test_a_volume_without_room_for_a_note_loses_the_log_all_the_same(
    state: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = some_logs(state, A, 300 * KILO, 300 * KILO)

    async def full(_objects: Objects, _key: str, _data: bytes) -> bool:
        raise PlaceAway("No space left on device")

    monkeypatch.setattr(Objects, "put_new", full)
    enforce(state, 400 * KILO)
    assert left(state, logs) == [0, 300 * KILO]
