"""Logs take no more of the disk than their namespace may have, and never the last part of it, which journals need."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from spotwright.cluster import log_file
from spotwright.cluster.api_client import Api
from spotwright.cluster.log_file import POSITION, LogFile, saved_states
from spotwright.cluster.log_keeper import DEFAULT_LIMIT, LogKeeper
from spotwright.cluster.log_volume import LogVolume, _notes
from spotwright.records.state_folder import RunFolder, StateFolder

KILO = 1024


def a_log(state: StateFolder, run: str, number: int, size: int, *, is_complete: bool = True, task: str = "a/b") -> Path:
    """A log of an attempt, which was last written ``number`` seconds after the begin of time."""
    path = RunFolder(state.path / "runs" / run).log(task, number)
    path.parent.mkdir(parents=True)
    path.write_bytes(os.urandom(size))
    if not is_complete:
        path.with_name(POSITION).write_text("{}")
        os.utime(path.with_name(POSITION), (number, number))
    os.utime(path, (number, number))
    return path


def enforce(state: StateFolder, limit: int) -> dict[str, str]:
    """Let a keeper look once; what it told of each run."""
    told: dict[str, str] = {}

    async def scenario() -> None:
        async with httpx2.AsyncClient(base_url="http://127.0.0.1:1") as client:
            place = LogVolume(state, DEFAULT_LIMIT)
            await LogKeeper(Api(client), place, namespace_limit=limit, on_dropped=told.__setitem__).drop_too_much()

    asyncio.run(scenario())
    return told


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    return StateFolder.open(tmp_path / "state")


def test_of_too_many_logs_the_oldest_are_dropped_and_say_so(state: StateFolder) -> None:
    logs = [a_log(state, "team-a.train-1234", number, 100 * KILO) for number in range(1, 6)]
    told = enforce(state, 350 * KILO)
    assert [log.stat().st_size > 90 * KILO for log in logs] == [False, False, True, True, True]
    assert (
        logs[0].read_text().startswith("[spotwright: this log of 100Ki was dropped: the logs of namespace team-a had")
    )
    assert list(told) == ["team-a.train-1234"]
    assert "a/b attempt 1 (100Ki), a/b attempt 2 (100Ki)" in told["team-a.train-1234"]
    assert enforce(state, 350 * KILO) == {}, "what is dropped is dropped once"


def test_a_namespace_never_costs_another_one_its_logs(state: StateFolder) -> None:
    theirs = a_log(state, "team-b.old-1234", 1, 200 * KILO)
    mine = [a_log(state, "team-a.new-1234", number, 200 * KILO) for number in range(10, 20)]
    enforce(state, 300 * KILO)
    assert theirs.stat().st_size == 200 * KILO
    assert sum(log.stat().st_size for log in mine) < 300 * KILO


def test_many_short_logs_count_as_well(state: StateFolder) -> None:
    logs = [a_log(state, "team-a.many-1234", number, 100) for number in range(1, 101)]
    enforce(state, 200 * KILO)
    assert sum(log.stat().st_blocks * 512 for log in logs) <= 200 * KILO
    assert [log.stat().st_size > 0 for log in logs[-40:]] == [True] * 40


def test_what_is_followed_is_dropped_last(state: StateFolder) -> None:
    old = a_log(state, "team-a.old-1234", 1, 100 * KILO, is_complete=False)
    new = a_log(state, "team-a.new-1234", 9, 100 * KILO)
    enforce(state, 150 * KILO)
    assert (old.stat().st_size, new.stat().st_size < KILO) == (100 * KILO, True)
    enforce(state, 50 * KILO)
    assert old.read_text().startswith("[spotwright: this log")
    assert LogFile(old, 1).is_complete


def test_runs_of_one_machine_are_not_counted(state: StateFolder) -> None:
    local = a_log(state, "a-local-run", 1, 100 * KILO)
    assert enforce(state, KILO) == {}
    assert local.stat().st_size == 100 * KILO


def a_disk(free: int, total: int = 10 << 30) -> Callable[[Any], Any]:
    return lambda _: SimpleNamespace(f_bavail=free // KILO, f_frsize=KILO, f_blocks=total // KILO)


def test_logs_leave_room_for_journals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LogFile(tmp_path / "run" / "log.txt", 10_000)
    file.append(b"before\n", {})
    monkeypatch.setattr(os, "statvfs", a_disk(log_file.RESERVE + 3))
    with pytest.raises(OSError, match="logs leave the last 256Mi of the disk to journals") as raised:
        file.append(b"after\n", {})
    assert raised.value.errno == errno.ENOSPC
    assert file.path.read_bytes() == b"before\n"
    monkeypatch.setattr(os, "statvfs", a_disk(log_file.RESERVE + 4 * KILO))
    file.append(b"after\n", {})
    file.finish()
    assert file.path.read_bytes() == b"before\nafter\n"


def test_of_a_small_disk_a_tenth_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", a_disk(100 * KILO, total=1000 * KILO))
    file = LogFile(tmp_path / "log.txt", 10_000)
    with pytest.raises(OSError, match="100Ki"):
        file.append(b"x", {})


def test_where_the_disk_is_nearly_full_each_namespace_has_its_share(
    state: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = [a_log(state, "team-a.large-1234", number, 300 * KILO) for number in range(1, 5)]
    small = a_log(state, "team-b.small-1234", 1, 100 * KILO)
    monkeypatch.setattr(os, "statvfs", a_disk(0, total=1000 * KILO))
    told = enforce(state, 1 << 30)
    assert list(told) == ["team-a.large-1234"]
    assert sum(log.stat().st_size for log in large) < 700 * KILO
    assert small.stat().st_size == 100 * KILO


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b'{"before": null, "after": {"notes": {"uid": "\xff"}}}',
        b"[]",
        b"{}",
        b'{"before": {}}',
        b'{"after": {"sizes": {"x": 1}, "dropped": 0, "notes": {}}}',
        b'{"after": {"sizes": {"0": -5}, "dropped": 0, "notes": {}}}',
        b'{"after": {"sizes": {"0": 5}, "dropped": 0, "notes": {"position": 7}}}',
        b'{"after": {"sizes": {"0": 5}, "dropped": 0, "notes": {"uid": "u", "restart": "x"}}}',
        b"[" * 100_000,
    ],
    ids=range(11),
)
def test_a_damaged_position_ends_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "log.txt").write_bytes(b"old\n")
    (tmp_path / POSITION).write_bytes(content)
    assert _notes(tmp_path / POSITION) is None
    file = LogFile(tmp_path / "log.txt", 1000)
    file.open()
    file.append(b"new\n", {})
    file.finish()
    assert file.path.read_bytes().endswith(b"new\n")
    assert isinstance(saved_states(content), dict)
