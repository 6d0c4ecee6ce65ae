"""On the test bed: a hundred pods of one Job for which spot has too few nodes run as soon as the last node is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from testbed.settings import Settings
from tests.cluster.conftest import Measured
from tests.cluster.live.autoscaling.autoscaled import autoscaled
from tests.cluster.live.autoscaling.machines import aks_groups
from tests.cluster.live.autoscaling.recurring_cases import AKS_CPU, AKS_SPOT, WORK, Situation, aks_config
from tests.cluster.live.autoscaling.requests import Requests
from tests.cluster.live.autoscaling.scenarios import Case, job_of, play
from tests.cluster.live.kube import Kube

pytestmark = pytest.mark.cluster

PODS, SPOT = 100, 20
PROVISION = 900.0  # seconds: a hundred nodes are Ready one after the other


def test_a_hundred_pods_run_within_a_minute_of_the_last_node(
    kube: Kube, api: Requests, bed: Settings, tmp_path: Path, measured: Measured
) -> None:
    case = Case("a hundred pods", aks_config("5s"), [job_of("work", WORK, PODS)], PODS, seconds=240.0, settle=3)
    situation = Situation(case, groups=lambda: aks_groups(SPOT, PODS), boot=8.0)
    with autoscaled(kube, api, tmp_path, situation, provision=PROVISION):
        outcome = play(kube, bed, tmp_path, case, controlled=True)
    assert outcome.seconds is not None, outcome.text()
    measured(f"{PODS} pods, spot for {SPOT}: after the last node", outcome.seconds - outcome.last_node)
    measured(f"{PODS} pods, spot for {SPOT}: all run", outcome.seconds)
    assert outcome.seconds <= outcome.last_node + 60.0, outcome.text()
    assert outcome.running == {AKS_SPOT: SPOT, AKS_CPU: PODS - SPOT}, outcome.text()
    assert outcome.made == {AKS_SPOT: SPOT, AKS_CPU: PODS - SPOT}, outcome.text()
    assert outcome.taken_back == 0, outcome.text()
