"""Two workloads of one name whose UIDs begin with the same digits have two runs, and neither stops the recorder."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.cluster.controller.findings import finding
from tests.cluster.watching.silent_watcher import SilentWatcher
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import done, job, node, pod

from spotwright.cluster.admission_server import AdmissionRequest
from spotwright.cluster.run_records import run_name
from spotwright.cluster.run_store import RunStore
from spotwright.engine.events import RunStatus
from spotwright.model.attempts import Cause

FIRST, SECOND = "0a1b2c3d-0000-4000-8000-000000000001", "0a1b2c3d-0000-4000-8000-000000000002"


def request(owner: dict[str, Any], review: str) -> AdmissionRequest:
    """A review of a pod that has no name yet."""
    new = pod("", owner)
    new["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
    return AdmissionRequest(review, "CREATE", "team-a", new)


def failed(uid: str, exit_code: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A Job called train with a pod that has failed."""
    owner = job("train", uid=uid)
    return owner, pod(f"train-{uid[-1]}", owner, uid=f"pod-{uid[-1]}", node="n1", phase="Failed", exit_code=exit_code)


def causes(store: RunStore, uid: str) -> list[Cause | None]:
    return [attempt.cause for _, attempt in store.runs[uid].attempts.values()]


def test_both_are_recorded_while_the_first_goes_on(tmp_path: Path) -> None:
    made = SilentWatcher(tmp_path)
    made.put("Node", node("n1"))
    try:
        for uid, exit_code in ((FIRST, 3), (SECOND, 5)):
            for kind, data in zip(("Job", "Pod"), failed(uid, exit_code), strict=True):
                made.put(kind, data)
        store = made.watcher._store
        assert {uid: run.folder.name for uid, run in store.runs.items()} == {
            FIRST: "team-a.train-0a1b2c3d",
            SECOND: f"team-a.train-{SECOND}",
        }
        assert [len(causes(store, uid)) for uid in (FIRST, SECOND)] == [1, 1]
        made.put("Job", job("train", uid=FIRST, status=done()))
        assert store.is_over(FIRST)
        assert store.runs[SECOND].state.status is RunStatus.RUNNING
    finally:
        made.close()


def test_the_second_is_recorded_after_the_first_has_ended_and_after_a_restart(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "state")
    cluster.look(*failed(FIRST, 3))
    cluster.look(job("train", uid=FIRST, status=done()))
    cluster.look(*failed(SECOND, 5))
    assert causes(cluster.store, SECOND) == [Cause.FAILED]
    cluster.store.close()
    again = Cluster(tmp_path / "state")
    try:
        assert not list(again.store.open_unfinished(again.now))
        assert list(again.store.runs) == [SECOND]
        assert again.store.has_ended(job("train", uid=FIRST))
        assert not again.store.has_ended(job("train", uid=SECOND.replace("2", "7", 1)))
    finally:
        again.store.close()


def test_a_review_of_the_second_reads_nothing_of_the_first(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "state")
    cluster.look(*failed(FIRST, 3))
    owners = job("train", uid=FIRST), job("train", uid=SECOND)

    async def numbers(begin: str) -> list[int | None]:
        found: list[int | None] = []
        for owner in owners:
            async with finding(cluster, owner) as (finder, _):
                found.append((await finder.find(request(owner, f"{begin}-{len(found)}"))).number)
        return found

    try:
        assert asyncio.run(numbers("before")) == [2, 1]
        cluster.look(*failed(SECOND, 5))
        assert asyncio.run(numbers("after")) == [2, 2]  # each on a server of its own, which has given out no number yet
    finally:
        cluster.store.close()


def test_names_of_runs_stay_what_they_were_and_short_enough_for_the_state_folder() -> None:
    long = {"metadata": {"namespace": "n" * 63, "name": "m" * 253, "uid": FIRST}}
    assert run_name(job("train", uid=FIRST)) == "team-a.train-0a1b2c3d"
    assert run_name(long) == f"{'n' * 63}.{'m' * 26}-0a1b2c3d"
    assert run_name(long, 36).endswith(FIRST)
    assert len(run_name(long, 36)) <= 100
