"""A tenant's pods that lie about themselves: the watcher relies on the reviews' notes, and others are not affected."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.cluster.admissions import note_admission
from tests.cluster.moving.mover_bed import CONFIG, JOBS, NAMESPACES, PODS, Bed, on_a_bed
from tests.cluster.watching.watched_objects import job, pod

from spotwright import config as configuration
from spotwright.cluster import descheduler
from spotwright.cluster.unavailable_pools import PoolsLeftOut
from spotwright.model.attempts import Cause

WAITS = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
FORGED = {
    "spotwright.dev/rung": "gpu-spot,gpu,system",
    "spotwright.dev/attempt": "7",
    "spotwright.dev/why": "because I say so",
    "spotwright.dev/admission": "a token of nobody",
}
POOLS = configuration.from_mapping(CONFIG).pools


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descheduler, "_PAUSE", 0.02)
    monkeypatch.setattr(descheduler, "_LOOK_AGAIN", 0.1)


TASKS = "/apis/spotwright.dev/v1alpha1/namespaces/team-a/spotcounters"


def a_waiting_pod(name: str, owner: dict[str, Any], **annotations: str) -> dict[str, Any]:
    made = pod(name, owner, annotations=annotations)
    made["status"]["conditions"] = [WAITS]
    return made


def left_out(bed: Bed, namespace: str) -> list[str]:
    return list(PoolsLeftOut(bed.told.read).of(namespace, POOLS, now=0.0))


def test_a_forged_rung_pauses_no_pool_and_moves_nothing(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        bed.put(PODS, a_waiting_pod("forged", bed.train, **FORGED))
        async with bed.leader():
            await bed.until(lambda: [a for a in bed.attempts() if a.waits])
            await asyncio.sleep(0.5)  # five times pending_timeout
        [attempt] = bed.attempts()
        assert (attempt.pools, attempt.why, attempt.taken_back) == (("gpu-spot",), "", None)
        assert (bed.asked, bed.told.all) == ([], [])

    on_a_bed(tmp_path, scenario)


def test_a_pod_that_calls_itself_refused_is_recorded_as_the_attempt_that_it_is(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        hidden = {"spotwright.dev/refused": "true", **FORGED}
        bed.put(PODS, pod("hidden", bed.train, node="n1", phase="Succeeded", exit_code=0, annotations=hidden))
        async with bed.leader():
            await bed.until(lambda: [a for a in bed.attempts() if a.cause])
        [attempt] = bed.attempts()
        run = bed.run()
        assert run is not None
        assert (attempt.pool, attempt.cause, attempt.bound_at is not None) == ("gpu-spot", Cause.SUCCEEDED, True)
        assert not any("was refused" in note for note in run.notes)

    on_a_bed(tmp_path, scenario)


def test_a_token_counts_for_the_first_pod_that_has_it_and_only_in_its_own_workload(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        first = a_waiting_pod("first", bed.train, **{"spotwright.dev/rung": "gpu"})
        note_admission(bed.server, first)
        token = first["metadata"]["annotations"]["spotwright.dev/admission"]
        other = job("other", uid="other-uid")
        bed.put(JOBS, other)
        bed.put(PODS, first)
        async with bed.leader():
            await bed.until(bed.attempts)
            bed.put(PODS, a_waiting_pod("later", bed.train, **{"spotwright.dev/admission": token}))
            await bed.until(lambda: len(bed.attempts()) == 2)
        assert [attempt.pools for attempt in bed.attempts()] == [("gpu",), ("gpu-spot",)]

    on_a_bed(tmp_path, scenario)


def test_nothing_of_a_pod_is_recorded_before_its_record_was_read(tmp_path: Path) -> None:
    """A refused pod would count as an attempt, and one that was recorded before would count as ended."""

    async def scenario(bed: Bed) -> None:
        refused = a_waiting_pod("refused", bed.train, **{"spotwright.dev/refused": "true"})
        note_admission(bed.server, refused)
        bed.put(PODS, refused)
        bed.pod("one", node="n1", phase="Running")
        read = asyncio.Event()

        async def late(request: web.Request) -> web.Response:
            await read.wait()
            return web.json_response(bed.server.objects[TASKS][request.path.rpartition("/")[2]])

        paths = [f"{TASKS}/{name}" for name in bed.server.objects[TASKS]]
        bed.server.pages |= dict.fromkeys(paths, late)
        for _ in range(2):  # the second leader has a journal
            read.clear()
            async with bed.leader():
                before = [(each.key, each.is_live) for each in bed.attempts()]
                await bed.until(lambda: all(f"GET {path}" in bed.server.asked for path in paths))
                await asyncio.sleep(0.3)
                assert [(each.key, each.is_live) for each in bed.attempts()] == before
                read.set()
                await bed.until(lambda: bed.attempts() and (run := bed.run()) is not None and run.notes)
            bed.server.asked.clear()
            assert [(each.key, each.is_live) for each in bed.attempts()] == [("uid-one/0", True)]

    on_a_bed(tmp_path, scenario)


def test_what_a_pod_says_after_it_was_seen_changes_nothing(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        refused = pod(
            "refused", bed.train, annotations={"spotwright.dev/refused": "true", "spotwright.dev/attempt": "3"}
        )
        note_admission(bed.server, refused)
        bed.put(PODS, refused)
        async with bed.leader():
            await bed.until(lambda: (run := bed.run()) is not None and run.notes)
            bed.put(PODS, {**refused, "metadata": {**refused["metadata"], "annotations": {}}})
            await asyncio.sleep(0.3)
        assert bed.attempts() == []

    on_a_bed(tmp_path, scenario)


def test_a_pause_holds_for_its_namespace_at_once_and_for_all_once_two_have_found_it(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        bed.server.put(NAMESPACES, "team-b", metadata={"labels": {"spotwright.dev/enabled": "true"}})
        bed.pod("one")
        async with bed.leader():
            await bed.until(lambda: bed.told.all)
            assert [left_out(bed, name) for name in ("team-a", "team-b", "team-c")] == [["gpu-spot"], [], []]
            theirs = job("theirs", uid="their-job", podFailurePolicy=bed.train["spec"]["podFailurePolicy"])
            theirs["metadata"]["namespace"] = "team-b"
            bed.put(JOBS, theirs)
            waits = a_waiting_pod("two", theirs, **{"spotwright.dev/rung": "gpu-spot"})
            waits["metadata"]["namespace"] = "team-b"
            note_admission(bed.server, waits)
            bed.put(PODS, waits)
            await bed.until(lambda: len(bed.told.all) == 2)
        assert [left_out(bed, name) for name in ("team-a", "team-b", "team-c")] == [["gpu-spot"]] * 3

    on_a_bed(tmp_path, scenario)
