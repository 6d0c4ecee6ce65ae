"""On the test bed: a gang that gets no node is moved as a whole, even if some of its pods already run.

Its pool is then skipped, for all pods of later gangs too, and tried again; the pauses grow. In these tests the first pause is
short, so that they see its end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed.settings import Settings
from tests.cluster.conftest import Measured, Require
from tests.cluster.live.controllers import Controller, configuration, controller
from tests.cluster.live.gangs.a_gang import (
    CRDS,
    STARTS,
    a_gang,
    charged,
    created,
    is_done,
    recorded,
    rung,
    why,
)
from tests.cluster.live.idle_autoscaler import idle_autoscaler
from tests.cluster.live.kube import Kube, Object, pod, pod_spec

from spotwright.engine.state import AttemptState
from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import BudgetUse, Pause

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("autoscaler")]

PENDING = 5.0  # seconds of pending_timeout
PAUSE = 30.0  # seconds of the first pause of a pool, 300 by default
MOVED = 180.0  # seconds until a moved gang has ended, on a busy machine
HALF, OTHER = 2, 3  # spot nodes: one with room for some pods of a gang, and the first of those that take none
SHARE = 400  # thousandths of a CPU that a pod of a gang asks for
EMPTY: Object = {"capacity": "spot", "provider": "aks", "price": "0.50/h", "node": {"cpu": 2, "memory": "4Gi"}}
SHORT_PAUSES = f"from spotwright.scheduling import budgets as waiting; waiting.FIRST_PAUSE = {PAUSE}"
WAIT_FIRST = """\
if [ "$SPOTWRIGHT_ATTEMPT" != 1 ]; then exit 0; fi
trap 'exit 143' TERM
while :; do sleep 0.2; done
"""


@pytest.fixture(scope="module")
def autoscaler(kube: Kube) -> Iterator[None]:
    """An autoscaler that keeps no order of the pools, and adds no node: a gang waits for one pool."""
    with idle_autoscaler(kube, configuration(f"{PENDING:g}s", empty=EMPTY)):
        yield


@pytest.fixture
def room_for_one(kube: Kube, bed: Settings, namespace: str) -> Iterator[None]:
    """The spot nodes have room for one pod of a gang."""
    others = [f"n{number}" for number in range(OTHER, bed.nodes + 1)]
    kube.run("cordon", *others)
    try:
        processors = (kube.get("node", f"n{HALF}") or {})["status"]["allocatable"]["cpu"]
        used = {
            **kube.container("sleep 3600"),
            "resources": {"requests": {"cpu": f"{int(processors) * 1000 - SHARE - 200}m"}},
        }
        kube.apply(pod("filler", namespace, pod_spec(used, f"n{HALF}")))
        kube.wait_for_phase("filler", namespace, "Running", seconds=STARTS)
        yield
    finally:
        kube.run("uncordon", *others)


@pytest.mark.usefixtures("room_for_one")
@pytest.mark.parametrize("kind", CRDS)
def test_a_gang_of_which_only_some_pods_find_room_is_moved_as_a_whole(
    kube: Kube,
    bed: Settings,
    namespace: str,
    tmp_path: Path,
    require: Require,
    measured: Measured,
    kind: str,
) -> None:
    require(CRDS[kind])
    pods = 3
    with controller(kube, bed, tmp_path, configuration(f"{PENDING:g}s")) as leader:
        leader.enable(namespace)
        for made in a_gang(kube, kind, namespace, WAIT_FIRST, pods=pods, cpu=f"{SHARE}m"):
            kube.apply(made)
        kube.wait(lambda: taken_back(leader), "one of its pods is taken back", MOVED)
        decided = time.monotonic()
        second = kube.wait(lambda: created(kube, namespace, 1, pods=pods), "the set has restarted", MOVED)
        measured(f"{kind} of {pods} pods with room for one: until all are made again", time.monotonic() - decided)
        kube.wait(lambda: is_done(kube, kind, namespace), "it has completed", MOVED)
        assert {rung(each) for each in second} == {"system"}
        assert {why(each) for each in second} == {"attempt 1 got no node, and none was on its way"}
        run = recorded(kube, leader)
        assert charged(run) == [Cause.UNSCHEDULABLE, Cause.SUCCEEDED]
        assert {task.spent for task in run.tasks.values()} == {BudgetUse()}
        first = [task.attempts[0] for task in run.tasks.values()]
        assert sum(attempt.bound_at is not None for attempt in first) == 1
        assert len(taken_back(leader)) == 1, "one pod is enough"
        assert leader.left_out() == {}, "the pool has room for smaller work, so nobody else is kept off"


@pytest.fixture
def alone(kube: Kube, namespace: str) -> None:
    """The gangs of the tests before are gone: one that still waits for the pool would keep a new controller off it too."""

    def others() -> list[str]:
        names = kube.run("get", "namespaces", "--output=name").split()
        return [name for name in names if name.startswith("namespace/test-") and name != f"namespace/{namespace}"]

    kube.wait(lambda: not others(), "the namespaces of the tests before are gone", MOVED)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("kind", CRDS)
def test_a_pool_that_had_no_node_for_a_gang_is_left_out_by_all_pods_of_the_next_one_and_then_tried_again(
    kube: Kube, bed: Settings, namespace: str, tmp_path: Path, require: Require, measured: Measured, kind: str
) -> None:
    require(CRDS[kind])
    config = configuration(f"{PENDING:g}s", empty=EMPTY)
    with controller(kube, bed, tmp_path, config, before=SHORT_PAUSES) as leader:
        leader.enable(namespace)
        make(kube, kind, namespace, "one")
        waiting = kube.wait(lambda: created(kube, namespace, 0, name="one"), "the first gang is made", STARTS)
        assert {rung(each) for each in waiting} == {"empty"}
        first = kube.wait(lambda: leader.left_out().get("empty"), "the pool is left out", MOVED)
        make(kube, kind, namespace, "two")
        passed_over = kube.wait(lambda: created(kube, namespace, 0, name="two"), "the second gang is made", STARTS)
        assert {rung(each) for each in passed_over} == {"spot"}
        kube.wait(lambda: is_done(kube, kind, namespace, "one"), "the first gang has completed", MOVED)
        kube.wait(lambda: is_done(kube, kind, namespace, "two"), "the second gang has completed", MOVED)
        assert {task.spent for task in recorded(kube, leader, "one").tasks.values()} == {BudgetUse()}
        kube.wait(lambda: time.time() >= first.until + 2, "the pause is over", 2 * PAUSE)
        make(kube, kind, namespace, "three")
        tried = kube.wait(lambda: created(kube, namespace, 0, name="three"), "the third gang is made", STARTS)
        assert {rung(each) for each in tried} == {"empty"}, (first, leader.left_out(), time.time())
        second = kube.wait(lambda: later(leader, first), "the pool is left out again", MOVED)
        assert [round(pause.until - pause.since) for pause in (first, second)] == [PAUSE, 2 * PAUSE]
        assert (first.times, second.times) == (1, 2)


def make(kube: Kube, kind: str, namespace: str, name: str) -> None:
    """Create a gang that ends at once wherever it runs."""
    for made in a_gang(kube, kind, namespace, "true", name=name):
        kube.apply(made)


def taken_back(leader: Controller) -> list[AttemptState]:
    return [attempt for attempt in leader.attempts("gang") if attempt.taken_back is not None]


def later(leader: Controller, before: Pause) -> Pause | None:
    pause = leader.left_out().get("empty")
    return pause if pause is not None and pause.since > before.since else None
