"""An ended run is archived before it is deleted, as long as its namespace has space; and archives have limits."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Collection, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.checkpoint.s3_server import s3_server
from tests.cluster.folder_records import FolderRuns
from tests.cluster.log_keeping.stores import BUCKET, FailingStore
from tests.cluster.reading.archiving import archive, archives, keeping, let_time_pass, recorded_names, told
from tests.cluster.reading.served import Served, serving, spotwright

from spotwright.cluster import log_store
from spotwright.cluster.log_keeper import LogKeeper
from spotwright.cluster.log_place import KeptLog, LogName, logs_to_drop
from spotwright.cluster.record_shares import Shares
from spotwright.cluster.run_archives import Archive, archive_of, objects_in, run_in
from spotwright.errors import StateError
from spotwright.records.state_folder import StateFolder

TRAIN = "team-a.train-job-uid"
NAMES = {TRAIN, "team-a.iris-uid-iris", "team-b.serve-uid-serv"}


@pytest.fixture
def served(certificates: Path, recorded: Path) -> Iterator[Served]:
    """A controller whose runs have ended long ago."""
    with serving(certificates, recorded) as served:
        let_time_pass(served)
        yield served


@pytest.fixture
def owner(recorded: Path) -> str:
    """Who has written the logs of these runs."""
    return FolderRuns(StateFolder.existing(recorded)).owner


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[FailingStore]:
    """S3 that fails on demand; the environment leads there."""
    with s3_server(BUCKET) as url, FailingStore(url).running() as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
        yield store


def do(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def logs_of(served: Served, namespace: str) -> list[Path]:
    return [*Path(served.logs.removeprefix("file://")).glob(f"{namespace}/*/*/*/0*")]


def test_a_store_that_is_away_keeps_records_until_it_takes_their_archives(
    served: Served, store: FailingStore, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"s3://{BUCKET}/away"

    async def work() -> None:
        async with keeping(served, url) as parts:
            store.fault = (403, "InvalidAccessKeyId")
            assert await parts.retention._looked() == 60.0, "it is tried again soon"
            assert recorded_names(served) == NAMES
            assert (parts.outcomes["failed"], parts.outcomes["lost"]) == (3, 0)
            (trouble,) = parts.troubles
            assert "the credentials do not allow this (403 Forbidden" in trouble
            assert "Ended runs stay in the API until they can be archived" in trouble
            assert (
                "cannot archive ended runs of namespace team-a, so they stay: s3://logs/away: the credentials"
                in caplog.text
            )
            assert len({each for each in store.asked if each.startswith("PUT")}) == 1, "no more are tried in vain"
            store.fault = None
            assert await parts.retention._looked() == 300.0
            assert recorded_names(served) == set()
            assert parts.outcomes["archived"] == 3

    do(work())
    assert {each.run for each in archives(url)} == NAMES
    assert told(served) == []


def test_a_namespace_without_room_loses_what_cannot_be_archived_and_hears_so(
    served: Served, store: FailingStore
) -> None:
    async def work() -> None:
        size = max(each["status"]["bytes"] for each in served.kubernetes.records.kept("SpotRun"))
        async with keeping(served, f"s3://{BUCKET}/full", Shares(size, 10 * size)) as parts:
            store.fault = (507, "InsufficientStorage")
            await parts.retention.look()
            left = sorted(name.partition(".")[0] for name in recorded_names(served))
            assert left == ["team-a", "team-b"], "the other namespace has room"
            assert (parts.outcomes["lost"], parts.outcomes["failed"]) == (1, 2)

    do(work())
    (event,) = told(served)
    assert (event["reason"], event["metadata"]["namespace"]) == ("RunsNotArchived", "team-a")
    assert event["message"].startswith(
        "1 ended runs were deleted and not archived: the records of its namespace use more"
    )
    assert "it could not be archived: s3://logs/full: the store answers 507" in event["message"]


def test_what_a_killed_recorder_has_archived_and_not_deleted_is_archived_once(served: Served) -> None:
    before = spotwright("show", TRAIN, "--json", *served.options("admin"))

    async def work() -> None:
        for status in (500, None):
            served.kubernetes.records.refuse = lambda method, _path, status=status: (
                status if method == "DELETE" else None
            )
            async with keeping(served) as parts:
                await parts.retention._looked()
                await parts.store.kept()

    do(work())
    assert recorded_names(served) == set()
    assert sorted(each.run for each in archives(served.logs)) == sorted(NAMES)
    assert spotwright("show", TRAIN, "--json", *served.options("admin")).out == before.out
    assert logs_of(served, "team-a")


def test_an_answer_that_was_lost_is_no_archive_that_is_missing(served: Served, store: FailingStore) -> None:
    """The store has written and not answered: the library writes again, and finds it there."""
    (run,) = (each for each in served.kubernetes.records.kept("SpotRun") if each["metadata"]["name"] == TRAIN)

    async def work() -> None:
        async with keeping(served, f"s3://{BUCKET}/cut") as parts:
            assert parts.retention.archiver is not None
            (made,), _ = await parts.retention.archiver.archive("team-a", [TRAIN])
            store.cut_behind = made.key.rpartition("/")[2].replace("+", "%2B")
            await parts.store.objects.delete([made.key])
            assert await parts.retention.archiver.archive("team-a", [TRAIN]) == ([made], {})
            data = await parts.store.objects.get(made.key)
            assert run_in(data or b"", TRAIN) == run
            assert [each["kind"] for each in objects_in(data or b"", TRAIN)] == ["SpotRun", *["SpotAttempt"] * 3]

    do(work())


def test_logs_of_a_run_that_is_archived_while_all_logs_are_listed_stay(served: Served, owner: str) -> None:
    async def work() -> None:
        async with keeping(served, owner=owner) as parts:
            existing = parts.store._runs.existing

            async def archived_meanwhile(runs: Collection[str]) -> Collection[str]:
                await parts.retention.look()
                return await existing(runs)

            parts.store._runs.existing = archived_meanwhile  # type: ignore[method-assign]
            await parts.store.kept()

    do(work())
    assert recorded_names(served) == set()
    assert "step 1" in spotwright("logs", TRAIN, "train", "1", *served.options("admin")).out


def test_archived_runs_count_with_their_logs_and_go_whole_the_oldest_first(served: Served, owner: str) -> None:
    archive(served, owner)
    least = log_store._LEAST_ARCHIVED

    async def work() -> None:
        async with keeping(served, owner=owner) as parts:
            kept = await parts.store.kept()
            assert {name: sorted(log.name.run for log in logs) for name, logs in kept.items()} == {
                name: sorted(run for run in NAMES if run.startswith(name)) for name in ("team-a", "team-b")
            }
            assert {log.size >= least for logs in kept.values() for log in logs} == {True}
            said: list[tuple[str, str]] = []
            keeper = LogKeeper(parts.api, parts.store, least, lambda run, text: said.append((run, text)))
            await keeper.drop_too_much()
            ((run, text),) = said
            assert run.startswith("team-a.")
            assert "the archive of the run and all its logs" in text
            parts.store._list_at = 0.0
            assert sum(map(len, (await parts.store.kept()).values())) == 2

    do(work())
    assert len(archives(served.logs)) == 2


def test_what_is_archived_goes_before_logs_of_runs_that_are_recorded() -> None:
    old = KeptLog(1.0, 100, LogName("team-a.x", "train", 1), is_complete=True)
    archived = KeptLog(9.0, 100, LogName("team-a.y", "", 0), is_complete=True)
    assert logs_to_drop([old, archived], 150) == [archived]


def test_archives_go_with_their_namespace_and_those_of_another_release_stay(served: Served, owner: str) -> None:
    archive(served, owner)

    async def work(who: str) -> None:
        async with keeping(served, owner=who) as parts:
            await parts.store.kept()

    served.kubernetes.objects["/api/v1/namespaces/team-a"] = {"metadata": {"name": "team-a", "uid": "another"}}
    do(work("another-release"))
    assert {each.run for each in archives(served.logs)} == NAMES
    do(work(owner))
    assert {each.namespace for each in archives(served.logs)} == {"team-b"}
    assert logs_of(served, "team-a") == []


def test_archives_of_a_namespace_that_cannot_be_read_stay(served: Served, owner: str) -> None:
    archive(served, owner)
    served.kubernetes.served = ("team-b",)

    async def work() -> None:
        async with keeping(served, owner=owner) as parts:
            await parts.store.kept()

    do(work())
    assert {each.run for each in archives(served.logs)} == NAMES
    assert logs_of(served, "team-a")


WORDS = st.text(min_size=1, max_size=20)


@given(WORDS, WORDS, WORDS, WORDS, WORDS, st.integers(0, 9_999_999_999))
def test_a_name_leads_to_one_archive(namespace: str, where: str, run: str, uid: str, owner: str, ended: int) -> None:
    made = Archive(run, namespace, where, "", "", "", "", uid, ended, owner, frozenset({"0a", "ff"}), 7)
    assert archive_of(made.key, 7) == made
    assert made.key.count("/") == 4
    assert not {".", ".."} & set(made.key.split("/"))


@pytest.mark.parametrize("text", [b"", b"{}", b'{"items":1}', b'{"items":[1]}', b'{"items":[', b"[" * 100_000, b"\xff"])
@pytest.mark.parametrize("is_cut", [False, True])
def test_what_is_no_archive_is_said(text: bytes, is_cut: bool) -> None:
    packed = gzip.compress(text)
    for data in (text, packed[: len(packed) // 2] if is_cut else packed):
        for read in (objects_in, run_in):
            with pytest.raises(StateError, match="the archive of run r cannot be read"):
                read(data, "r")
