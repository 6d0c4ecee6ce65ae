"""On the test bed: what waits in vain is moved to another rung, kind by kind, and no lost node holds up a successor."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from testbed.settings import Settings
from tests.cluster.conftest import Measured
from tests.cluster.live.controllers import Controller, configuration, controller
from tests.cluster.live.kube import Kube, Object, has_condition, job, pod_spec

from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import BudgetUse

pytestmark = pytest.mark.cluster

PENDING = 5.0  # seconds of pending_timeout
MOVED = 180.0  # seconds until a moved workload has ended, on a busy machine
EMPTY: Object = {"capacity": "spot", "provider": "aks", "price": "0.50/h", "node": {"cpu": 2, "memory": "4Gi"}}


@pytest.fixture(scope="module")
def leader(kube: Kube, bed: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    """A controller whose first pool, the cheapest, has no nodes."""
    config = configuration(f"{PENDING:g}s", empty=EMPTY)
    with controller(kube, bed, tmp_path_factory.mktemp("controller"), config) as made:
        yield made


def check_moved(leader: Controller, name: str) -> None:
    """The first attempt waited in vain, a later one ran on another rung, and nothing was charged."""
    run = leader.run(name)
    assert run is not None
    assert all(task.spent == BudgetUse() for task in run.tasks.values()), "something was charged"
    causes = [attempt.cause for attempt in leader.attempts(name)]
    assert Cause.UNSCHEDULABLE in causes, causes


def test_a_job_that_waits_in_vain_runs_on_the_next_rung(
    kube: Kube, leader: Controller, namespace: str, measured: Measured
) -> None:
    leader.enable(namespace)
    began = time.monotonic()
    kube.apply(without_limit(job("work", namespace, pod_spec(kube.container("true")))))
    kube.wait(lambda: has_condition(kube.get("job", "work", namespace), "Complete"), "the Job is Complete", MOVED)
    measured("Job: from creation on an empty pool to its end on the next rung", time.monotonic() - began)
    kube.wait(lambda: getattr(leader.run("work"), "finished_at", None), "its end is recorded", 60)
    check_moved(leader, "work")


def without_limit(made: Object) -> Object:
    """A Job whose retries are the policy's."""
    del made["spec"]["backoffLimit"]
    return made
