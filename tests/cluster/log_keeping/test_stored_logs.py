"""Logs in an object store: in parts that are never overwritten, read by ranges, within their limits, deleted with their runs."""

from __future__ import annotations

import asyncio
import shutil
from functools import partial
from pathlib import Path

import pytest
from tests.cluster.folder_records import FolderRuns
from tests.cluster.log_keeping.stores import (
    Death,
    FailingStore,
    a_name,
    a_state,
    keys,
    notes,
    read_whole,
    run_async,
    until,
    write_whole,
)

from spotwright.cluster import log_store
from spotwright.cluster.log_parts import Objects, StoredLogs, log_key, name_of_key, require_url
from spotwright.cluster.log_place import LogName, Overtaken
from spotwright.cluster.log_store import LogStore
from spotwright.errors import InputError
from spotwright.model.quantities import format_bytes

LIMIT = 64 << 20
LINES = [f"line {number:05}\n".encode() for number in range(2000)]


def test_a_log_is_read_as_it_was_written_from_any_offset(tmp_path: Path, url: str) -> None:
    texts = [b"".join(LINES[at : at + 7]) for at in range(0, 70, 7)]
    whole = b"".join(texts)

    async def test() -> None:
        await write_whole(LogStore(url, LIMIT, FolderRuns(a_state(tmp_path))), a_name(), *texts)
        assert await read_whole(url, a_name()) == whole
        assert await read_whole(url, a_name(), at_once=64) == whole
        assert await StoredLogs(Objects(url)).size(a_name()) == len(whole)
        logs = StoredLogs(Objects(url))
        for offset in range(0, len(whole) + 3, 41):
            assert await logs.read(a_name(), offset, 40) == whole[offset : offset + 40]
        assert await logs.read(a_name(2), 0, 40) is None
        folder = "team-a/team-a.train-1234"
        parts = [f"{folder}/train/1/{number:08d}" for number in range(1, 11)]
        assert await keys(url) == [f"{folder}/+owner", *parts, f"{folder}/train/1/end"]

    run_async(test())


def test_a_successor_goes_on_behind_the_last_part(tmp_path: Path, url: str) -> None:
    async def test() -> None:
        state = a_state(tmp_path)
        await write_whole(LogStore(url, LIMIT, FolderRuns(state)), a_name(), b"one\n", b"two\n", is_over=False)
        after = LogStore(url, LIMIT, FolderRuns(state))
        ((name, whose),) = await after.unfinished()
        assert (name, whose["uid"], whose["pod"]) == (a_name(), "u1", "train-x")
        log = after.log(name)
        assert await log.open()
        assert log.notes["next"] == 2
        await log.append(b"three\n", notes(3))
        await log.finish()
        await log.close()
        assert await read_whole(url, name) == b"one\ntwo\nthree\n"
        assert await after.unfinished() == []

    run_async(test())


def test_of_two_writers_one_stops_and_nothing_is_overwritten(tmp_path: Path, url: str) -> None:
    async def test() -> None:
        state = a_state(tmp_path)
        stale, successor = (LogStore(url, LIMIT, FolderRuns(state)).log(a_name()) for _ in range(2))
        for log in (stale, successor):
            await log.open()
        await successor.append(b"ours\n", notes(1))
        await successor.finish()
        await stale.append(b"theirs\n", notes(1))
        with pytest.raises(Overtaken, match=r"train/1/00000001: another process writes this log"):
            await stale.finish()
        await stale.close()
        assert await read_whole(url, a_name()) == b"ours\n"

    run_async(test())


def test_a_write_that_was_done_and_not_acknowledged_is_known_by_its_content(
    tmp_path: Path, bucket: str, failing: FailingStore
) -> None:
    async def test() -> None:
        store = LogStore(bucket, LIMIT, FolderRuns(a_state(tmp_path)))
        await write_whole(store, a_name(), b"one\n", is_over=False)
        failing.cut_behind = "/00000002"
        await write_whole(store, a_name(), b"two\n", b"three\n")
        assert not failing.cut_behind
        assert await read_whole(bucket, a_name()) == b"one\ntwo\nthree\n"

    run_async(test())


def test_above_the_limit_head_and_tail_are_kept_and_the_cut_is_named(tmp_path: Path, url: str) -> None:
    async def test() -> None:
        store = LogStore(url, 4096, FolderRuns(a_state(tmp_path)))
        log = store.log(a_name())
        await log.open()
        for at, line in enumerate(LINES[:420]):
            await log.append(line, notes(at))
            if at % 10 == 9:
                task = log.hurry()
                assert task is not None
                await task
            if at == 380:  # a successor knows as well what goes
                await log.close()
                log = store.log(a_name())
                assert await log.open()
                for missing in LINES[int(log.notes["next"]) + 1 : at + 1]:
                    await log.append(missing, notes(at))
        running = await read_whole(url, a_name())
        assert running is not None
        assert running.startswith(b"".join(LINES[:180]))
        assert running.splitlines()[-1].startswith(b"[spotwright: this log is longer than 2Ki; at least its last 1Ki")
        await log.finish()
        await log.close()
        text = await read_whole(url, a_name())
        assert text is not None
        assert text.startswith(running)
        assert text.endswith(b"".join(LINES[330:420]))
        assert len(text) < 4096 + 300
        kept = [line for line in text.splitlines(keepends=True) if line.startswith(b"line")]
        (cut,) = (line for line in text.splitlines() if b"are missing here" in line)
        assert cut == f"[spotwright: {format_bytes(11 * (420 - len(kept)))} are missing here]".encode()
        assert await read_whole(url, a_name(), at_once=100) == text
        assert await StoredLogs(Objects(url)).size(a_name()) == len(text)

    run_async(test())


@pytest.mark.parametrize("limit", [LIMIT, 400])
@pytest.mark.parametrize("is_done", [False, True], ids=["before it", "behind it"])
def test_a_kill_at_any_write_leaves_no_gap_and_no_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, is_done: bool
) -> None:
    """A write was asked for and not done, or done and not acknowledged."""
    pieces = [b"".join(LINES[at : at + at % 3 + 1]) for at in range(14)]
    death = Death(monkeypatch, is_done=is_done)

    async def write_all(folder: Path) -> bytes:
        store = LogStore(f"file://{folder}/store", limit, FolderRuns(a_state(folder)))
        log = store.log(a_name())
        if not await log.is_complete():
            await log.open()
            for number in range(int(log.notes.get("next", 0)), len(pieces)):
                await log.append(pieces[number], notes(number + 1))
                await asyncio.gather(*filter(None, [log.hurry()]))
            await log.finish()
        return await read_whole(store.objects.url, a_name()) or b""

    def write(folder: Path) -> bytes:
        return asyncio.run(write_all(folder))

    whole = write(tmp_path / "whole")
    assert (whole == b"".join(pieces)) == (limit == LIMIT)
    for killed_at in range(1, 200):
        folder = tmp_path / str(killed_at)
        if not death.comes(killed_at, partial(write, folder)):
            assert killed_at > len(pieces)
            return
        assert write(folder) == whole
    raise AssertionError("a log of 14 pieces takes fewer writes")


HOSTILE = [
    "..",
    ".",
    "../../other",
    "a/b",
    "+open",
    "+owner",
    "%2E%2E",
    "a b",
    "\u00fc\n",
    "x" * 300,
    "end",
    "?a#b",
    "\\",
    "~",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_name_leads_out_of_its_folder(tmp_path: Path, url: str, text: str) -> None:
    state = a_state(tmp_path)
    folder = state.run("team-a.train-1234")
    run = text[:60]
    names = [LogName.of(folder, text, 1), a_name(run=f"{run}.train"), a_name(run=run)]

    async def test() -> None:
        store = LogStore(url, LIMIT, FolderRuns(state))
        for number, name in enumerate(names):
            await write_whole(store, name, b"%d\n" % number)
        assert [await read_whole(url, name) for name in names] == [b"0\n", b"1\n", b"2\n"]
        for key in await keys(url):
            found = name_of_key(key)
            assert key.endswith("/+owner") or (found is not None and found[0] in names)
        assert log_key(names[0]).startswith("team-a/team-a.train-1234/")
        assert all(len(log_key(name).split("/")) == 4 for name in names)
        assert len({log_key(name) for name in names}) == 3

    run_async(test())
    store = tmp_path / "store"
    assert {each.name for each in tmp_path.iterdir()} <= {"state", "store"}
    assert not store.exists() or all(store in each.resolve().parents for each in store.rglob("*"))


def test_of_too_many_logs_the_oldest_are_dropped_and_say_so(tmp_path: Path, url: str) -> None:
    async def test() -> None:
        store = LogStore(url, LIMIT, FolderRuns(a_state(tmp_path)))
        noise = bytes(range(256)) * 80
        for number in range(1, 4):
            await write_whole(store, a_name(number), noise)
        sizes = {
            log.name.attempt: log
            for log in (await LogStore(url, LIMIT, FolderRuns(a_state(tmp_path))).kept())["team-a"]
        }
        assert all(20_000 <= log.size < 21_000 and log.is_complete for log in sizes.values())
        await store.drop([sizes[1]], "the logs of namespace team-a had more than 50Ki")
        text, size = await read_whole(url, a_name(1)), format_bytes(sizes[1].size).encode()
        assert text is not None
        assert text.startswith(b"[spotwright: this log of %s was dropped: the logs of namespace team-a had" % size)
        assert await read_whole(url, a_name(2)) == noise
        assert await store.log(a_name(1)).is_complete()
        left = {log.name.attempt: log.size for log in (await store.kept())["team-a"]}
        assert left[1] < 200
        (note,) = [log for log in (await store.kept())["team-a"] if log.name.attempt == 1]
        await store.drop([note], "again")
        assert await read_whole(url, a_name(1)) is None

    run_async(test())


def test_the_logs_of_a_deleted_run_are_deleted_and_nobody_else_s(tmp_path: Path, url: str) -> None:
    async def test() -> None:
        state, other = a_state(tmp_path, "team-a.one-1", "team-a.two-1"), a_state(tmp_path / "other", "team-a.three-1")
        store = LogStore(url, LIMIT, FolderRuns(state))
        await write_whole(store, a_name(run="team-a.one-1"), b"one\n")
        await write_whole(store, a_name(run="team-a.one-1", attempt=2), b"one\n", is_over=False)
        await write_whole(store, a_name(run="team-a.two-1"), b"two\n")
        await write_whole(LogStore(url, LIMIT, FolderRuns(other)), a_name(run="team-a.three-1"), b"three\n")
        shutil.rmtree(state.path / "runs" / "team-a.one-1")
        found = await LogStore(url, LIMIT, FolderRuns(state)).kept()
        assert [log.name.run for log in found["team-a"]] == ["team-a.two-1"]
        assert [key for key in await keys(url) if "one-1" in key] == []
        assert await read_whole(url, a_name(run="team-a.two-1")) == b"two\n"
        assert await read_whole(url, a_name(run="team-a.three-1")) == b"three\n"

    run_async(test())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores are tried again at once."""
    monkeypatch.setattr(log_store, "_FIRST_WAIT", 0.02)
    monkeypatch.setattr(log_store, "_LONGEST_WAIT", 0.05)
    monkeypatch.setattr(log_store, "_PAUSE", 0.01)


FAULTS = {
    "away": ((0, ""), "it does not answer"),
    "full": ((507, "XMinioStorageFull"), "507 Insufficient Storage, XMinioStorageFull"),
    "credentials": (
        (403, "InvalidAccessKeyId"),
        "the credentials do not allow this (403 Forbidden, InvalidAccessKeyId)",
    ),
    "no bucket": ((404, "NoSuchBucket"), "bucket or folder not found (404 Not Found, NoSuchBucket)"),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("fault", "sentence"), FAULTS.values(), ids=FAULTS)
def test_while_the_store_takes_nothing_logs_wait_in_bounded_memory_and_it_is_said_once(
    tmp_path: Path,
    bucket: str,
    failing: FailingStore,
    monkeypatch: pytest.MonkeyPatch,
    fault: tuple[int, str],
    sentence: str,
) -> None:
    monkeypatch.setattr(log_store, "_MOST", 40_000)
    said: list[str] = []

    async def test() -> None:
        store = LogStore(bucket, 1 << 20, FolderRuns(a_state(tmp_path)), said.append)
        names = [a_name(number) for number in range(1, 6)]
        logs = [store.log(name) for name in names]
        for log in logs:
            await log.append(b"first\n", notes())
        await until(lambda: store.waiting == 0)
        failing.fault = fault
        for at, line in enumerate(LINES):
            for log in logs:
                await log.append(line, notes(at))
            if at % 100 == 0:
                await asyncio.sleep(0.05)
                assert store.waiting <= 40_000 + len(line)
        await until(lambda: bool(said))
        (text,) = said
        assert sentence in text
        assert bucket in text
        assert "hidden-value" not in text
        assert "AKIDSECRET" not in text
        failing.fault = None
        for log in logs:
            await log.finish()
            await log.close()
        assert store.waiting == 0
        for name in names:
            written = await read_whole(bucket, name)
            assert written is not None
            gaps = [
                line for line in written.splitlines() if b"are missing here: they arrived while the log store" in line
            ]
            lines = [line for line in written.splitlines(keepends=True) if line.startswith(b"line")]
            assert written.startswith(b"first\n")
            assert written.endswith(LINES[-1])
            assert len(gaps) >= 1
            left_out = sum(int(gap.split(b"(")[1].split(b" ")[0].replace(b",", b"")) for gap in gaps)
            assert left_out + len(lines) == len(LINES)
            assert lines == sorted(lines)

    run_async(test())


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nope://bucket", "is not an object store address"),
        ("s3://", "is not an object store address"),
        ("bucket/folder", "is not an object store address"),
        ("file:///", "is not an object store address"),
        ("https://storage.example.com/logs", "is not an object store address"),
        ("s3://id:secret@bucket/logs", "credentials come from the environment"),
        ("abfss://c:secret@a.dfs.core.windows.net/logs", "credentials come from the environment"),
        ("az://container/logs?sig=secret", "credentials come from the environment"),
    ],
)
def test_an_address_that_is_none_or_has_a_secret_is_refused_without_it(url: str, words: str) -> None:
    with pytest.raises(InputError) as raised:
        require_url(url)
    assert words in str(raised.value)
    assert "secret" not in str(raised.value)


def test_addresses_of_all_clouds_are_accepted() -> None:
    urls = ["s3://b/f/", "gs://b", "abfss://c@a.dfs.core.windows.net/f", "az://c/f", "file:///var/logs"]
    assert [require_url(url) for url in urls] == [url.rstrip("/") for url in urls]
