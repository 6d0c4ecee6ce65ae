"""A restart of a set is charged once, whatever the number of its pods, and for what ended it.

The pods are those of the recorded deaths of a JobSet and a TrainJob; the set is made larger by copies with other indices.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripts.make_recorded_deaths import RecordedMoment, read_deaths
from tests.cluster.admissions import admission_of
from tests.cluster.watching.watched_cluster import Cluster

from spotwright.cluster.observer import PodReconciler
from spotwright.cluster.view import SeenPod
from spotwright.cluster.workloads import templates_of
from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import BudgetUse

MEMBERS = 3
RESTART = "jobset.sigs.k8s.io/restart-attempt"
MOMENTS = {(death.name, moment.workload, moment.moment): moment for death in read_deaths() for moment in death.moments}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "state")
    made.now = 1_900_000_000.0
    yield made
    made.store.close()


class Set:
    """A recorded set with more members; each look shows how some of them ended in a restart."""

    def __init__(self, cluster: Cluster, workload: str) -> None:
        self.cluster, self.workload = cluster, workload

    def end(self, restart: int, *deaths: str, index: int = 0) -> None:
        """Show members of a restart, from ``index`` on, with these deaths one after the other."""
        for number, death in enumerate(deaths):
            moment = MOMENTS[death, self.workload, "lost" if death == "power-cut" else "ended"]
            self._look(moment, restart, index + number)

    def start_again(self, restart: int, index: int) -> None:
        """Show a member whose pod has stayed and has started its container again, as with JobSet's InPlaceRestart."""
        moment = MOMENTS["exit-1", self.workload, "ended"]
        pod: dict[str, Any] = copy.deepcopy(dict(moment.seen.pod))
        pod["status"] |= {"phase": "Running"}
        (main,) = pod["status"]["containerStatuses"]
        main |= {"restartCount": 1, "lastState": main["state"], "state": {"running": {}}}
        self._look(replace(moment, seen=replace(moment.seen, pod=pod)), restart, index)

    def _look(self, moment: RecordedMoment, restart: int, index: int) -> None:
        owners = self._owners(moment)
        pod: dict[str, Any] = copy.deepcopy(dict(moment.seen.pod))
        pod["metadata"]["uid"] = f"pod-{restart}-{index}"
        pod["metadata"]["labels"] |= {RESTART: str(restart)}
        pod["metadata"]["annotations"] |= {"batch.kubernetes.io/job-completion-index": str(index)}
        cluster, node = self.cluster, moment.seen.node
        if node is not None:
            cluster.view.put_node(node)
        cluster.view.clock += 10.0
        run = cluster.store.runs.get("the-set") or cluster.store.create(
            owners[-1], templates_of(owners), (), cluster.now
        )
        seen = SeenPod(pod, owners, is_gone=moment.seen.pod_gone)
        PodReconciler(run, cluster.view, cluster.now, admission=admission_of).record([seen], owners[-1], are_all=False)
        run.commit()

    def _owners(self, moment: RecordedMoment) -> list[dict[str, Any]]:
        """The owners with stable UIDs, a Job of several pods, and no sign that the set is over."""
        owners: list[dict[str, Any]] = [copy.deepcopy(dict(owner)) for owner in moment.seen.owners]
        owners[0]["spec"]["parallelism"] = MEMBERS
        meta = {name: moment.seen.pod["metadata"][name] for name in ("labels", "annotations")}
        (replicated,) = owners[1]["spec"]["replicatedJobs"]
        replicated["template"] = {"spec": {"template": {"metadata": meta}}}  # recordings leave templates out
        for owner in owners[1:]:
            owner["metadata"]["uid"] = "the-job-set"
            owner["status"] = {}
        owners[-1]["metadata"]["uid"] = "the-set"
        return owners

    @property
    def spent(self) -> set[BudgetUse]:
        return {task.spent for task in self.cluster.state().tasks.values()}


@pytest.fixture(params=["jobset", "trainjob"])
def gang(request: pytest.FixtureRequest, cluster: Cluster) -> Set:
    return Set(cluster, request.param)


def test_a_power_cut_that_ends_every_member_is_one_interruption(gang: Set) -> None:
    gang.end(0, "power-cut", "power-cut", "power-cut")
    tasks = gang.cluster.state().tasks
    assert len(tasks) == MEMBERS
    assert {task.last.cause for task in tasks.values()} == {Cause.LOST}
    assert gang.spent == {BudgetUse(interruptions=1)}
    assert {task.last.following.partition(":")[0] for task in tasks.values()} == {"interruption 1 of 3"}


def test_restarts_that_different_members_cause_add_up_for_the_set(gang: Set) -> None:
    for restart in range(3):
        others = ["drain-exit-143"] * MEMBERS
        others[restart] = "power-cut"
        gang.end(restart, *others)
    assert gang.spent == {BudgetUse(interruptions=3)}


def test_the_errors_of_members_whose_peer_was_lost_spend_no_error_budget(gang: Set) -> None:
    gang.end(0, "exit-1", "exit-1")  # they lost their peer, and nobody knows that yet
    assert gang.spent == {BudgetUse(errors=1)}
    gang.end(0, "power-cut", index=2)
    assert gang.spent == {BudgetUse(interruptions=1)}


def test_an_error_that_makes_the_set_restart_is_one_error_and_no_move(gang: Set) -> None:
    gang.end(0, "drain-exit-143", "exit-1", "drain-exit-143")
    assert gang.spent == {BudgetUse(errors=1)}


def test_the_budget_of_a_set_is_spent_after_its_number_of_restarts(gang: Set) -> None:
    for restart in range(4):
        gang.end(restart, *["power-cut"] * MEMBERS)
    gang.cluster.kill()
    tasks = gang.cluster.state().tasks
    assert {task.last.following for task in tasks.values()} == {"interrupted 4 times, interruptions.max is 3"}


def test_a_pod_that_is_replaced_within_a_restart_is_charged_for_itself(gang: Set) -> None:
    gang.end(0, "power-cut")
    for task in gang.cluster.state().tasks.values():
        assert task.spent == BudgetUse(interruptions=1)
    moment = MOMENTS["power-cut", gang.workload, "lost"]
    replaced = copy.deepcopy(dict(moment.seen.pod))
    replaced["metadata"]["name"] = "replaced"
    restart, index = 0, 0
    pod = {**replaced, "metadata": {**replaced["metadata"], "labels": {**replaced["metadata"]["labels"], RESTART: "0"}}}
    run = gang.cluster.store.runs["the-set"]
    owners = gang._owners(moment)
    pod["metadata"]["annotations"] = {
        **pod["metadata"]["annotations"],
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    pod["metadata"]["uid"] = f"pod-{restart}-{index}-again"
    gang.cluster.view.clock += 10.0
    PodReconciler(run, gang.cluster.view, gang.cluster.now, admission=admission_of).record(
        [SeenPod(pod, owners)], owners[-1], are_all=False
    )
    run.commit()
    assert gang.spent == {BudgetUse(interruptions=2)}


def test_pods_that_stay_and_start_again_for_a_lost_peer_are_charged_with_it_once(gang: Set) -> None:
    gang.end(0, "power-cut")
    for index in (1, 2):
        gang.start_again(0, index)
    tasks = gang.cluster.state().tasks
    assert [len(task.attempts) for task in tasks.values()] == [1, 2, 2]
    assert gang.spent == {BudgetUse(interruptions=1)}
