"""Pods that ended while no recorder ran: each of them is recorded before the run ends."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.moving.mover_bed import JOBS, Bed, on_a_bed
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import done, job, pod

from spotwright.engine.events import RunStatus
from spotwright.model.attempts import Cause
from spotwright.views.account import account


def test_all_pods_of_a_job_that_is_over_are_recorded_before_its_run_ends(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        bed.put(JOBS, {**bed.train, "status": done()})
        for name in ("one", "two", "three"):
            bed.pod(name, node="n1", phase="Succeeded", exit_code=0)
        async with bed.leader():
            await bed.until(lambda: (run := bed.run()) is not None and run.finished_at is not None)
        assert [attempt.cause for attempt in bed.attempts()] == [Cause.SUCCEEDED] * 3
        run = bed.run()
        assert run is not None
        assert run.status is RunStatus.SUCCEEDED

    on_a_bed(tmp_path, scenario)


def test_an_attempt_that_began_before_those_that_were_recorded_on_its_node_costs_its_time(tmp_path: Path) -> None:
    cluster, train = Cluster(tmp_path), job()
    later, earlier = (
        pod(name, train, node="n1", phase="Succeeded", exit_code=0, made=made)
        for name, made in (("later", 40), ("earlier", 5))
    )
    cluster.look(train, later)
    cluster.look(train, later, earlier)
    costs = account(cluster.state()).attempts_by_start
    assert [each.cost.seconds for each in costs] == [4.5, 4.5]
