"""A replica that answers reviews knows each run's records in the API, in whatever order it receives them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.cluster.reading.recorded import looks_at_train
from tests.cluster.records.following import following
from tests.cluster.records.loops import SECONDS, in_a_loop, until
from tests.cluster.records.record_server import RecordServer, login, recording_server
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import job, pod

from spotwright.cluster.api_run_records import ApiRecords
from spotwright.engine.events import RunStatus
from spotwright.engine.state import RunState


def attempts(state: RunState) -> list[tuple[int, Any, Any]]:
    return [(each.number, each.node, each.cause) for task in state.tasks.values() for each in task.attempts]


@in_a_loop
async def test_what_is_recorded_is_known_soon_and_an_ended_run_counts_as_over(tmp_path: Path) -> None:
    with recording_server(tmp_path) as (server, kubeconfig), login(kubeconfig) as kubernetes:
        async with following(kubeconfig) as histories:
            await until(lambda: histories.is_complete)
            assert histories.of(job()).tasks == {}
            cluster = Cluster(tmp_path / "unused", ApiRecords(kubernetes))
            *steps, last = looks_at_train(cluster)
            for step in steps:
                await asyncio.to_thread(step)
                (run,) = cluster.store.runs.values()
                wanted = attempts(run.state)
                await until(lambda wanted=wanted: attempts(histories.of(job())) == wanted)  # type: ignore[misc]
            await asyncio.to_thread(last)
            await until(lambda: histories.of(job()).status is not RunStatus.RUNNING)
            assert server.kept("SpotRun")


@in_a_loop
async def test_a_replica_that_starts_late_or_loses_its_streams_knows_the_same(tmp_path: Path) -> None:
    with recording_server(tmp_path) as (server, kubeconfig), login(kubeconfig) as kubernetes:
        cluster = Cluster(tmp_path / "unused", ApiRecords(kubernetes))
        first, second, _, _ = looks_at_train(cluster)
        first()
        async with following(kubeconfig) as histories:
            await until(lambda: histories.is_complete)
            (run,) = cluster.store.runs.values()
            assert attempts(histories.of(job())) == attempts(run.state)
            server.expire()
            asyncio.run_coroutine_threadsafe(server.cut(), server_loop(server)).result(SECONDS)
            await asyncio.to_thread(second)
            await until(lambda: attempts(histories.of(job())) == attempts(run.state))


@in_a_loop
async def test_what_a_replica_has_folded_of_a_process_that_wrote_late_is_taken_back(tmp_path: Path) -> None:
    with recording_server(tmp_path) as (_, kubeconfig), login(kubeconfig) as kubernetes:
        records = lambda: ApiRecords(kubernetes)  # noqa: E731
        root = job()
        frozen = Cluster(tmp_path / "unused", records())
        await asyncio.to_thread(frozen.look, root, pod("one", root, node="n1", phase="Running"))
        async with following(kubeconfig) as histories:
            await until(lambda: attempts(histories.of(root)) == [(1, "n1", None)])
            other = await asyncio.to_thread(Cluster, tmp_path / "unused", records())
            await asyncio.to_thread(frozen.look, root, pod("one", root, node="n1", phase="Failed", exit_code=1))
            assert (await asyncio.to_thread(lambda: attempts(histories.of(root)))) == [(1, "n1", None)]
            assert other.store.runs


@in_a_loop
async def test_where_the_kinds_are_not_installed_nothing_is_recorded_and_reviews_go_on(tmp_path: Path) -> None:
    with recording_server(tmp_path) as (server, kubeconfig):
        for collection in [each for each in server.objects if "spotwright.dev" in each]:
            del server.objects[collection]
        async with following(kubeconfig) as histories:
            await until(lambda: histories.is_complete)
            assert "404" in histories.problem or "not found" in histories.problem
            assert histories.of(job()).tasks == {}


def server_loop(server: RecordServer) -> asyncio.AbstractEventLoop:
    assert server.loop is not None
    return server.loop
