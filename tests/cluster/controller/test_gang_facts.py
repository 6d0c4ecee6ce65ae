"""The facts about a pod of a set: its restarts before, each with what ended it, however many pods each of them had."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.controller.findings import finding
from tests.cluster.watching.recorded_set import API, RecordedSet
from tests.cluster.watching.watched_cluster import Cluster

from spotwright.cluster import attempt_lookup as module
from spotwright.cluster.admission_server import AdmissionRequest
from spotwright.cluster.admit_pods import AdmissionContext
from spotwright.cluster.attempt_lookup import NO_PLAN
from spotwright.engine.attempt_history import restarts_before
from spotwright.engine.events import AttemptAdopted, AttemptRecalled
from spotwright.engine.fold import fold
from spotwright.engine.state import RunState
from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import FIRST_PAUSE


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAIT", 0.05)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "state")
    yield made
    made.store.close()


@pytest.fixture
def gang(cluster: Cluster) -> RecordedSet:
    return RecordedSet(cluster)


def facts(gang: RecordedSet, role: str, restart: int, index: int = 0) -> AdmissionContext:
    """The facts when a pod of a restart is reviewed."""

    async def scenario() -> AdmissionContext:
        async with finding(gang.cluster, gang.job(role)) as (finder, server):
            server.put(f"/apis/{API}/namespaces/team-a/jobsets", gang.uid, gang.uid, **gang.object)
            new = gang.pod(role, restart, index)
            new["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
            return await finder.find(AdmissionRequest("review", "CREATE", "team-a", new))

    return asyncio.run(scenario())


def wait_in_vain(gang: RecordedSet, moment: float) -> None:
    """Let a worker wait for spot until it is recalled at a time (Unix seconds)."""
    gang.wait(0)
    why = "no node on gpu-spot for 10m"
    gang.run.add(AttemptRecalled(moment, "workers-0", 1, rung=1, pools=("gpu",), why=why))
    gang.run.commit()


def test_a_restart_that_ended_before_all_its_pods_were_made_counts_once(gang: RecordedSet) -> None:
    gang.end("workers", 0, 0)
    gang.end("workers", 0, 1, exit_code=143)
    gang.end("workers", 1, 0)  # the set restarts before the other worker is made
    gang.end("workers", 2, 0, exit_code=143)
    gang.end("workers", 2, 1)
    for index in range(2):
        known = facts(gang, "workers", 3, index)
        assert [past.cause for past in known.history] == [Cause.FAILED] * 3


def test_an_error_of_a_leader_on_on_demand_leaves_the_workers_on_spot(gang: RecordedSet) -> None:
    gang.end("leader", 0)
    for index in range(2):
        gang.end("workers", 0, index, exit_code=143)
    [past] = facts(gang, "workers", 1).history
    assert (past.cause, past.pools, past.pool) == (Cause.FAILED, ("gpu-spot",), "gpu-spot")
    [past] = facts(gang, "leader", 1).history
    assert (past.cause, past.pools) == (Cause.FAILED, ("gpu",))


def test_the_restarts_of_another_set_of_the_same_run_are_no_history() -> None:
    history = RunState([NO_PLAN])
    for number, (task, gang) in enumerate([("one/node", "a/0"), ("two/node", "b/0"), ("two/node", "b/1")]):
        attempt = len(history.tasks[task].attempts) + 1 if task in history.tasks else 1
        adopted = AttemptAdopted(0.0, task, attempt, key=str(number), template="node", pools=("spot",), gang=gang)
        fold(history, adopted)
    assert [list(members) for members in restarts_before(history, "b/2")] == [["two/node"]] * 2
    assert list(restarts_before(history, "b/0")) == []


def test_a_worker_that_waited_in_vain_moves_the_workers_and_leaves_their_pool_out_for_its_set(
    gang: RecordedSet,
) -> None:
    gang.end("leader", 0, exit_code=143)
    gang.end("workers", 0, 1, exit_code=143)
    wait_in_vain(gang, time.time())
    for index in range(2):
        known = facts(gang, "workers", 1, index)
        [past] = known.history
        assert (past.waited_in_vain, past.then) == (True, ("gpu",))
        assert set(known.without_capacity) == {"gpu-spot"}
    [past] = facts(gang, "leader", 1).history
    assert (past.waited_in_vain, past.pools, past.then) == (True, ("gpu",), ("gpu",))


def test_a_set_tries_a_pool_again_when_its_own_pause_is_over(gang: RecordedSet) -> None:
    wait_in_vain(gang, time.time() - FIRST_PAUSE - 60)  # a wall clock may be set back in the meantime
    assert set(facts(gang, "workers", 1).without_capacity) == set()
