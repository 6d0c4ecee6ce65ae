"""On the test bed: pods without a node move to another rung, kind by kind, and lost nodes do not delay successors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed.settings import Settings
from tests.cluster.conftest import Measured
from tests.cluster.live.controllers import Controller, configuration, controller
from tests.cluster.live.idle_autoscaler import idle_autoscaler
from tests.cluster.live.kube import Kube, Object, job, pod_spec
from tests.cluster.live.workloads import KINDS, make

from spotwright.cluster.descheduler import why_not_moved
from spotwright.engine.events import RunStatus
from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import BudgetUse

pytestmark = pytest.mark.cluster

PENDING = 5.0  # seconds of pending_timeout
MOVED = 180.0  # seconds until a moved workload has ended, on a busy machine
ON_DEMAND = "n1"  # a node of the last rung
EMPTY: Object = {"capacity": "spot", "provider": "aks", "price": "0.50/h", "node": {"cpu": 2, "memory": "4Gi"}}


@pytest.fixture
def leader(kube: Kube, bed: Settings, tmp_path: Path) -> Iterator[Controller]:
    """A controller whose first pool, the cheapest, has no nodes."""
    config = configuration(f"{PENDING:g}s", empty=EMPTY)
    with idle_autoscaler(kube, config), controller(kube, bed, tmp_path, config) as made:
        yield made


@pytest.mark.parametrize("kind", KINDS)
def test_what_waits_in_vain_runs_on_the_next_rung_and_is_charged_nothing(
    kube: Kube, leader: Controller, namespace: str, measured: Measured, kind: str
) -> None:
    leader.enable(namespace)
    began = time.monotonic()
    if not make(kube, kind, namespace, "true"):
        pytest.skip(f"this cluster has no {kind}s")
    kube.wait(lambda: leader.has_ended(kind), f"the {kind} has ended", MOVED)
    measured(f"{kind}: from its creation on a pool without nodes to its end on the next rung", time.monotonic() - began)
    run = leader.run(kind)
    assert run is not None
    assert run.status is RunStatus.SUCCEEDED, run.why
    tasks = list(run.tasks.values())
    causes = [[attempt.cause for attempt in task.attempts] for task in tasks]
    assert all(task.spent == BudgetUse() for task in tasks), [task.spent for task in tasks]
    assert any(Cause.UNSCHEDULABLE in each for each in causes), causes
    assert all(each[-1] is Cause.SUCCEEDED and len(each) == 2 for each in causes), causes
    assert {attempt.pools for task in tasks for attempt in task.attempts[1:]} == {("spot",)}, "one rung for all"
    assert sum(attempt.taken_back is not None for task in tasks for attempt in task.attempts) == 1, "one pod is enough"


@pytest.fixture
def closed(kube: Kube) -> Iterator[None]:
    """No node takes a pod."""
    names = [str(node["metadata"]["name"]) for node in kube.list("nodes")]
    kube.run("cordon", *names)
    yield
    kube.run("uncordon", *names)


@pytest.mark.usefixtures("closed")
def test_where_being_made_again_would_count_a_pod_is_open_to_all_rungs_and_never_taken_back(
    kube: Kube, leader: Controller, namespace: str
) -> None:
    leader.enable(namespace)
    counted = job("counted", namespace, pod_spec(kube.container("true")))  # a backoffLimit of its own, and a rule
    pattern = {"type": "DisruptionTarget", "status": "True"}
    counted["spec"]["podFailurePolicy"] = {"rules": [{"action": "Count", "onPodConditions": [pattern]}]}
    kube.apply(counted)
    kube.wait(lambda: [a for a in leader.attempts("counted") if a.waits], "the pod waits", 60)
    time.sleep(3 * PENDING)
    (pod,) = kube.list("pods", namespace)
    assert "deletionTimestamp" not in pod["metadata"]
    why_not = why_not_moved(pod, [kube.get("job", "counted", namespace) or {}], is_admitted=True)
    assert "would count it against backoffLimit 0" in why_not
    annotations = pod["metadata"]["annotations"]
    assert annotations["spotwright.dev/rung"] == "empty,spot,system"
    assert why_not in annotations["spotwright.dev/open"]
    kube.run("uncordon", ON_DEMAND)
    kube.wait(lambda: leader.has_ended("counted"), "the Job has ended", MOVED)
    (attempt,) = leader.attempts("counted")
    assert (attempt.cause, attempt.pool, attempt.taken_back) == (Cause.SUCCEEDED, "system", None)
