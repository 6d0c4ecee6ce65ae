"""If a set gets no node, one of its pods is recalled, and all of its pods avoid the pool until its pause is over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.cluster.watching.recorded_set import RecordedSet
from tests.cluster.watching.watched_cluster import Cluster

from spotwright.engine.decide import take_back, why_it_stays
from spotwright.engine.events import AttemptRecalled
from spotwright.engine.waits import in_vain_at
from spotwright.scheduling.budgets import FIRST_PAUSE


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[RecordedSet]:
    cluster = Cluster(tmp_path / "state")
    yield RecordedSet(cluster)
    cluster.store.close()


def due(gang: RecordedSet, path: str) -> float:
    """The moment at which a member has waited for ``pending_timeout``."""
    task = gang.run.state.tasks[path]
    at = in_vain_at(task, task.last)
    assert at is not None
    return at


def decide(
    gang: RecordedSet, path: str, now: float, taken: Mapping[str, float] | None = None
) -> AttemptRecalled | None:
    """Take a member back at a moment, if that is decided; no other workload has left a pool out."""
    state = gang.run.state
    task = state.tasks[path]
    decided = take_back(state, task, task.last, {}, taken or {}, now)
    for event in decided:
        gang.run.add(event)
    gang.run.commit()
    return next((event for event in decided if isinstance(event, AttemptRecalled)), None)


def restart_after_waiting(gang: RecordedSet, restart: int, index: int, *, rung: str = "") -> float:
    """A restart with one running worker and one recalled; returns when."""
    gang.begin("workers", restart, 1 - index, rung=rung)
    gang.wait(restart, index, rung=rung)
    path = f"workers-{index}"
    now = due(gang, path)
    assert decide(gang, path, now) is not None
    gang.cluster.now = now
    return now


def test_one_pod_of_a_set_is_enough(gang: RecordedSet) -> None:
    gang.wait(0, 0)
    gang.wait(0, 1)
    now = max(due(gang, "workers-0"), due(gang, "workers-1"))
    first, second = decide(gang, "workers-1", now), decide(gang, "workers-0", now)
    assert first is not None
    assert (tuple(first.pools), list(first.left_out)) == (("gpu",), ["gpu-spot"])
    assert second is None


def test_a_pool_with_nodes_for_some_pods_of_a_set_is_left_out_by_nobody_else(gang: RecordedSet) -> None:
    gang.begin("workers", 0, 0)
    gang.wait(0, 1)
    decided = decide(gang, "workers-1", due(gang, "workers-1"), {"gpu-spot": 0.0})
    assert decided is not None
    assert (tuple(decided.pools), dict(decided.left_out)) == (("gpu",), {})


def test_a_pool_for_which_one_pod_waited_in_vain_is_left_out_by_the_whole_set_until_its_pause_is_over(
    gang: RecordedSet,
) -> None:
    began = restart_after_waiting(gang, 0, 1)
    gang.wait(1, 0, rung="gpu")
    task, state = gang.run.state.tasks["workers-0"], gang.run.state
    assert "left out" in why_it_stays(state, task, task.last, {}, began + FIRST_PAUSE - 1)
    assert why_it_stays(state, task, task.last, {}, began + FIRST_PAUSE) == ""
    decided = decide(gang, "workers-0", due(gang, "workers-0"))
    assert decided is not None
    assert tuple(decided.pools) == ("gpu-spot",)


def test_the_pauses_of_a_set_grow_whichever_of_its_pods_waits(gang: RecordedSet) -> None:
    restart_after_waiting(gang, 0, 1)
    restart_after_waiting(gang, 1, 1, rung="gpu")
    again = restart_after_waiting(gang, 2, 0)
    gang.wait(3, 1, rung="gpu")
    task, state = gang.run.state.tasks["workers-1"], gang.run.state
    assert "left out" in why_it_stays(state, task, task.last, {}, again + 2 * FIRST_PAUSE - 1)
    assert why_it_stays(state, task, task.last, {}, again + 2 * FIRST_PAUSE) == ""


def test_what_waits_in_another_set_of_the_run_leaves_no_pool_out(gang: RecordedSet) -> None:
    restart_after_waiting(gang, 0, 1)
    gang.run.state.tasks["workers-1"].last.gang = "another-set/0"
    gang.wait(1, 0, rung="gpu")
    task, state = gang.run.state.tasks["workers-0"], gang.run.state
    assert why_it_stays(state, task, task.last, {}, gang.cluster.now) == ""
