"""On the test bed: pods pinned to one pool, because the autoscaler keeps no order, follow the autoscaler's status."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from testbed.settings import Settings
from tests.cluster.conftest import Measured
from tests.cluster.live.autoscaling.autoscaled import LIMIT, TIMES, autoscaled
from tests.cluster.live.autoscaling.machines import Fault, aks_groups
from tests.cluster.live.autoscaling.recurring_cases import AKS_CPU, AKS_SPOT, WORK, Situation, aks_config
from tests.cluster.live.autoscaling.requests import Requests
from tests.cluster.live.autoscaling.scenarios import Case, Outcome, Play, job_of, play
from tests.cluster.live.kube import Kube

pytestmark = pytest.mark.cluster

JOB_BACKOFF = 10.0  # seconds for which the Job controller waits after one failed pod
POD_GC = 20.0  # seconds between the rounds in which pods without a node are taken away for good
BINDS = 15.0  # seconds after a node has come in which the controller leaves the pods that wait to the scheduler
SLACK = 8.0  # seconds for the scheduler, the controller's look, and a busy machine


def pinned(name: str, pods: int = 1, pending_timeout: str = "10m") -> Situation:
    """Work on spot and on-demand pools whose autoscaler follows no order."""
    config = aks_config(pending_timeout)
    return Situation(Case(name, config, [job_of("work", WORK, pods)], pods, settle=3), expander="least-waste")


def played(kube: Kube, api: Requests, bed: Settings, folder: Path, situation: Situation) -> Outcome:
    """The result with the controller."""
    with autoscaled(kube, api, folder, situation):
        return play(kube, bed, folder, situation.case, controlled=True, options=LIMIT)


def test_nobody_is_evicted_while_a_node_is_ordered_however_slowly_it_boots(
    kube: Kube, api: Requests, bed: Settings, tmp_path: Path
) -> None:
    outcome = played(kube, api, bed, tmp_path, replace(pinned("slow boot", pending_timeout="5s"), boot=12.0))
    assert outcome.taken_back == 0, outcome.text()
    assert outcome.running == {AKS_SPOT: 1}, outcome.text()
    assert outcome.made == {AKS_SPOT: 1}, outcome.text()


def test_a_node_that_another_pod_ordered_is_waited_for_as_well(
    kube: Kube, api: Requests, bed: Settings, tmp_path: Path
) -> None:
    """The autoscaler does not mention a pod that fits on a node on its way; only its status shows that one is coming."""
    situation = replace(pinned("two pods on one node", pending_timeout="5s"), boot=12.0)
    small = {"cpu": "1", "memory": "1Gi"}
    case = replace(situation.case, manifests=[job_of("first", small)], pods=2)

    def send_another(playing: Play) -> None:
        kube.apply({**job_of("second", small), "metadata": {"name": "second", "namespace": playing.namespace}})

    with autoscaled(kube, api, tmp_path, situation):
        outcome = play(kube, bed, tmp_path, case, controlled=True, options=LIMIT, deeds=[(4.0, send_another)])
    assert outcome.taken_back == 0, outcome.text()
    assert outcome.running == {AKS_SPOT: 2}, outcome.text()
    assert outcome.made == {AKS_SPOT: 1}, outcome.text()


@pytest.mark.parametrize("mode", ["error", "stockout"])
def test_a_pool_that_is_ruled_out_is_left_within_one_scan_whatever_pending_timeout_is(
    kube: Kube, api: Requests, bed: Settings, tmp_path: Path, measured: Measured, mode: str
) -> None:
    situation = replace(pinned(f"no spot ({mode})"), faults={AKS_SPOT: Fault(mode)})
    outcome = played(kube, api, bed, tmp_path, situation)
    measured(f"pinned to a pool without capacity ({mode})", outcome.seconds or -1.0)
    assert outcome.running == {AKS_CPU: 1}, outcome.text()
    assert outcome.taken_back == 1, outcome.text()
    assert outcome.seconds is not None
    assert outcome.seconds < 4 * TIMES.scan + JOB_BACKOFF + POD_GC + SLACK, outcome.text()


def test_from_the_last_rung_nobody_is_evicted_while_its_node_comes(
    kube: Kube, api: Requests, bed: Settings, tmp_path: Path
) -> None:
    situation = pinned("no spot, and on-demand boots slowly", pending_timeout="5s")
    situation = replace(situation, boot=12.0, faults={AKS_SPOT: Fault("error")})
    outcome = played(kube, api, bed, tmp_path, situation)
    assert outcome.running == {AKS_CPU: 1}, outcome.text()
    assert outcome.taken_back == 1, outcome.text()
    assert outcome.made == {AKS_CPU: 1}, outcome.text()


def test_of_a_few_pods_those_for_whom_a_node_comes_stay_and_the_others_go_together(
    kube: Kube, api: Requests, bed: Settings, tmp_path: Path, measured: Measured
) -> None:
    situation = replace(pinned("four pods, two on spot", 4), groups=lambda: aks_groups(2), boot=6.0)
    situation = replace(situation, case=replace(situation.case, seconds=150.0))
    outcome = played(kube, api, bed, tmp_path, situation)
    measured("pinned: four pods, two on spot", outcome.seconds or -1.0)
    assert outcome.running == {AKS_SPOT: 2, AKS_CPU: 2}, outcome.text()
    assert outcome.taken_back == 2, outcome.text()
    assert outcome.made == {AKS_SPOT: 2, AKS_CPU: 2}, outcome.text()
    assert outcome.seconds is not None
    limit = BINDS + 2 * JOB_BACKOFF + POD_GC + 4 * TIMES.scan + 2 * situation.boot + SLACK
    assert outcome.seconds < limit, outcome.text()


def test_pods_whose_job_would_wait_for_minutes_after_a_move_are_not_sent_to_one_pool(
    kube: Kube, api: Requests, bed: Settings, tmp_path: Path
) -> None:
    """Six pods that are evicted together are made again after 320 s, so the order of the pools is given up for them."""
    situation = replace(pinned("six pods, two on spot", 6), groups=lambda: aks_groups(2), boot=6.0)
    outcome = played(kube, api, bed, tmp_path, situation)
    assert outcome.taken_back == 0, outcome.text()
    assert sum(outcome.running.values()) == sum(outcome.made.values()) == 6, outcome.text()
    assert outcome.seconds is not None
    assert outcome.seconds < 4 * TIMES.scan + situation.boot + SLACK, outcome.text()


def test_a_pod_that_nobody_could_move_is_never_sent_to_one_pool(
    kube: Kube, api: Requests, bed: Settings, tmp_path: Path
) -> None:
    situation = pinned("a Job that counts evictions", pending_timeout="5s")
    config = situation.case.config.replace(" timeout: 1h,", "")  # without it, nothing else would bound its restarts
    situation = replace(situation, case=replace(situation.case, config=config), groups=lambda: aks_groups(spot_max=0))
    outcome = played(kube, api, bed, tmp_path, situation)
    assert outcome.running == {AKS_CPU: 1}, outcome.text()
    assert outcome.taken_back == 0, outcome.text()
