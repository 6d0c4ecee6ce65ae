"""On the test bed: the leader of a set stays on on-demand, and neither its rung nor its errors take the workers off spot."""

from __future__ import annotations

from functools import partial

import pytest
from tests.cluster.conftest import Require
from tests.cluster.live.controllers import Controller
from tests.cluster.live.gangs.a_gang import ALONE, CRDS, STARTS, charged, created, is_done, recorded, rung, why
from tests.cluster.live.kube import Kube, Object, pod_spec

from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import BudgetUse

pytestmark = pytest.mark.cluster

ENDED = 180.0  # seconds until the set has restarted, and until it has completed
OWN_RETRIES = 13  # of the workers: each of two runs of their Job has a first try and six own retries
LATE = "decided before the end of an earlier attempt was recorded"
LEAD = 'if [ "$SPOTWRIGHT_ATTEMPT" = 1 ]; then sleep 2; exit 1; fi'
WORK = """\
if [ "$SPOTWRIGHT_ATTEMPT" != 1 ]; then exit 0; fi
trap 'exit 143' TERM
while :; do sleep 0.2; done
"""


def led(kube: Kube, namespace: str) -> Object:
    """A JobSet that restarts once after an error: a leader, which fails once, and two workers."""
    template = {"spec": pod_spec(kube.container(WORK))}
    crowd = {"completions": 2, "parallelism": 2, "template": template}
    workers = {"name": "workers", "template": {"spec": crowd}}
    alone = {"backoffLimit": 0, "template": {"spec": pod_spec(kube.container(LEAD))}}
    leader = {"name": "leader", "template": {"spec": alone}}
    meta = {"name": "gang", "namespace": namespace}
    spec = {"failurePolicy": {"maxRestarts": 1}, "replicatedJobs": [leader, workers]}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta, "spec": spec}


@pytest.mark.usefixtures("saves")
def test_an_error_of_a_leader_on_on_demand_restarts_the_workers_on_spot(
    kube: Kube, leader: Controller, namespace: str, require: Require
) -> None:
    require(CRDS["JobSet"])
    kube.apply(led(kube, namespace))
    for restart in range(2):
        pods = kube.wait(partial(created, kube, namespace, restart, pods=3), "all pods are made", STARTS + ENDED)
        rungs = sorted(
            (each["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"], rung(each)) for each in pods
        )
        assert rungs == [("leader", "system"), ("workers", "spot"), ("workers", "spot")]
    said = {why(each) for each in pods}
    assert said in (
        {retry, f"retry 1 of {OWN_RETRIES}{ALONE}"} for retry in ("retry 1 of 1", f"first attempt; {LATE}")
    ), said
    kube.wait(lambda: is_done(kube, "JobSet", namespace), "it has completed", ENDED)
    run = recorded(kube, leader)
    assert charged(run) == [Cause.FAILED, Cause.SUCCEEDED]
    assert {task.spent for task in run.tasks.values()} == {BudgetUse(errors=1)}
