"""Of a Job's many pods without a node, only as many are recalled at once as the Job's own backoff is worth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.admissions import admission_of
from tests.cluster.folder_records import FolderRecords
from tests.cluster.watching.watched_objects import BEGIN, job, pod

from spotwright import config as configuration
from spotwright.cluster.descheduler import backoff_of_job, worth_moving_at
from spotwright.cluster.observer import PodReconciler
from spotwright.cluster.run_store import RunStore, WorkloadRun
from spotwright.cluster.view import ClusterView, SeenPod
from spotwright.cluster.workloads import templates_of
from spotwright.engine.decide import take_back
from spotwright.engine.waits import in_vain_at
from spotwright.records.state_folder import StateFolder

POOLS = {
    "gpu-spot": {"capacity": "spot", "provider": "aks", "node": {"cpu": 2}},
    "gpu": {"capacity": "on-demand", "provider": "aks", "node": {"cpu": 2}},
}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
WORKFLOW: dict[str, Any] = {"kind": "Workflow", "metadata": {"name": "wf", "uid": "wf"}, "spec": {}}
JOB_SET: dict[str, Any] = {"kind": "JobSet", "metadata": {"name": "set", "uid": "set"}, "spec": {}}


class Waiting:
    """Pods of one Job that wait on the spot pool since the begin."""

    def __init__(self, folder: Path, count: int, timeout: str, **spec: Any) -> None:
        policy = {"default": {"spot": "prefer", "pending_timeout": timeout}}
        config = configuration.from_mapping({"pools": POOLS, "policy": policy})
        self.store = RunStore(FolderRecords(StateFolder.open(folder)), config)
        assert list(self.store.open_unfinished(BEGIN)) == []
        self.owner = job(completions=count, parallelism=count, completionMode="Indexed", **spec)
        self.view = ClusterView()
        self.run: WorkloadRun = self.store.create(self.owner, templates_of([self.owner]), (), BEGIN)
        self.pods = [self.pod(index) for index in range(count)]
        self.look(BEGIN + 1.0, *self.pods)

    def pod(self, index: int, **more: Any) -> dict[str, Any]:
        marks = {"spotwright.dev/rung": "gpu-spot", "batch.kubernetes.io/job-completion-index": str(index)}
        made = pod(f"p{index}", self.owner, made=0, annotations=marks, **more)
        if "phase" not in more:
            made["status"]["conditions"] = [UNSCHEDULABLE]
        return made

    def look(self, now: float, *pods: Mapping[str, Any]) -> None:
        PodReconciler(self.run, self.view, now, admission=admission_of).record(
            [SeenPod(each, (self.owner,)) for each in pods], self.owner, are_all=False
        )
        self.run.commit()

    def take_back_what_is_worth_it(self, seconds: float) -> int:
        """The descheduler's decisions at a time after the start, pod by pod; returns the number of recalled pods."""
        state, now, count = self.run.state, BEGIN + seconds, 0
        for task in list(state.tasks.values()):
            due = in_vain_at(task, task.last)
            if due is None or task.last.taken_back is not None:
                continue
            if max(due, worth_moving_at(state, task, task.last, (self.owner,), now)) > now:
                continue
            for event in take_back(state, task, task.last, {}, {}, now):
                self.run.add(event)
                count += 1
        self.run.commit()
        return count


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.mark.parametrize(
    ("timeout", "at_once"),
    [("10s", 4), ("40s", 4), ("150s", 4), ("161s", 5), ("5m", 5), ("10m", 6), ("20m", 6)],
)
def test_how_many_of_six_pods_are_taken_back_at_once(folder: Path, timeout: str, at_once: int) -> None:
    waiting = Waiting(folder, 6, timeout)
    moment = waiting.run.state.tasks["train-0"].plan.policy.pending_timeout + 1.0
    assert waiting.take_back_what_is_worth_it(moment - 2.0) == 0
    assert waiting.take_back_what_is_worth_it(moment) == at_once
    assert waiting.take_back_what_is_worth_it(moment) == 0


def test_the_rest_moves_once_it_has_waited_as_long_as_it_costs(folder: Path) -> None:
    waiting = Waiting(folder, 6, "30s")
    taken = {seconds: waiting.take_back_what_is_worth_it(seconds) for seconds in (31, 159, 162, 319, 322)}
    assert taken == {31: 4, 159: 0, 162: 1, 319: 0, 322: 1}


def test_no_pod_is_held_for_longer_than_the_longest_backoff(folder: Path) -> None:
    waiting = Waiting(folder, 12, "1s")
    for seconds in range(1, 800):
        waiting.take_back_what_is_worth_it(seconds)
        if seconds == 601:
            break
    left = [task for task in waiting.run.state.tasks.values() if task.last.taken_back is None]
    assert left == []


def test_a_pod_that_succeeds_begins_the_backoff_anew(folder: Path) -> None:
    waiting = Waiting(folder, 6, "30s")
    assert waiting.take_back_what_is_worth_it(31) == 4
    state, owners = waiting.run.state, (waiting.owner,)
    task = state.tasks["train-5"]
    assert backoff_of_job(state, task, owners) == 160.0
    ended = waiting.pod(4, node="n1", phase="Succeeded", exit_code=0, ended=33)
    waiting.look(BEGIN + 35.0, ended)
    assert backoff_of_job(state, task, owners) == 10.0


def test_a_pod_that_failed_by_itself_counts_as_well(folder: Path) -> None:
    waiting = Waiting(folder, 6, "30s")
    waiting.look(BEGIN + 20.0, waiting.pod(0, node="n1", phase="Failed", exit_code=3, ended=15))
    state = waiting.run.state
    assert backoff_of_job(state, state.tasks["train-5"], (waiting.owner,)) == 20.0
    assert waiting.take_back_what_is_worth_it(31) == 3


def test_a_pod_that_is_being_evicted_counts_once(folder: Path) -> None:
    waiting = Waiting(folder, 1, "30s")
    state = waiting.run.state
    (task,) = state.tasks.values()
    assert backoff_of_job(state, task, (waiting.owner,)) == 10.0
    assert waiting.take_back_what_is_worth_it(31) == 1
    assert backoff_of_job(state, task, (waiting.owner,)) == 10.0


def test_a_job_with_a_limit_for_each_index_waits_for_each_index_alone(folder: Path) -> None:
    waiting = Waiting(folder, 6, "30s", backoffLimitPerIndex=3)
    assert waiting.take_back_what_is_worth_it(31) == 6


@pytest.mark.parametrize("owners", [(WORKFLOW,), (job(), JOB_SET), ()])
def test_what_makes_its_pods_again_at_once_has_no_backoff(folder: Path, owners: tuple[Any, ...]) -> None:
    waiting = Waiting(folder, 6, "30s")
    waiting.take_back_what_is_worth_it(31)
    state = waiting.run.state
    task = state.tasks["train-5"]
    assert backoff_of_job(state, task, owners) == 0.0
    assert worth_moving_at(state, task, task.last, owners, BEGIN + 31.0) == BEGIN + 31.0
