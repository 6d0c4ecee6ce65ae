"""On the test bed: a gang loses nodes, and all its pods start again on one rung and go on from their checkpoint."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from testbed.faults import Faults
from tests.cluster.conftest import Measured, Require
from tests.cluster.live.controllers import Controller
from tests.cluster.live.gangs.a_gang import (
    CRDS,
    STARTS,
    a_gang,
    charged,
    created,
    is_done,
    logs,
    of_restart,
    recorded,
    rung,
    running,
    why,
)
from tests.cluster.live.kube import Kube, Object

from spotwright.engine.state import RunState
from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import BudgetUse

pytestmark = pytest.mark.cluster

FOLLOWED = 300.0  # seconds until a lost node, its pods and the next ones are through
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
SAVE = """\
mine="$SPOTWRIGHT_CHECKPOINT/step-$JOB_COMPLETION_INDEX"
step=$(cat "$mine" 2>/dev/null || echo 0)
echo "begins at step $step"
if [ "$step" -ge 5 ]; then exit 0; fi
echo 5 >"$mine"
sleep 3600
"""


@pytest.fixture
def in_service(kube: Kube, faults: Faults) -> Iterator[Faults]:
    """Faults of nodes; the taint that says that a machine is gone is removed after the test."""
    yield faults
    for node in kube.list("nodes"):
        if any(taint["key"] == OUT_OF_SERVICE for taint in node["spec"].get("taints") or ()):
            kube.run("taint", "nodes", node["metadata"]["name"], f"{OUT_OF_SERVICE}-")


def saved_gang(kube: Kube, kind: str, namespace: str, saves: Path) -> list[Object]:
    """The two pods of a gang that run on two spot nodes, and have saved."""
    for made in a_gang(kube, kind, namespace, SAVE):
        kube.apply(made)
    first = kube.wait(lambda: running(kube, namespace, 0), "both pods run", STARTS)
    assert {rung(each) for each in first} == {"spot"}
    kube.wait(lambda: len(list(saves.rglob("step-*"))) == 2, "both pods have saved", 60)
    return first


def check_that_it_went_on(kube: Kube, kind: str, namespace: str, leader: Controller, second: list[Object]) -> RunState:
    """All pods went on at their saved step on on-demand, and one interruption is charged; the run."""
    kube.wait(lambda: is_done(kube, kind, namespace), "it has completed", FOLLOWED)
    assert {rung(each) for each in second} == {"system"}
    assert {why(each) for each in second} == {"interruption 1 of 3: falls back to system"}
    run = recorded(kube, leader)
    causes = [[attempt.cause for attempt in task.attempts] for task in run.tasks.values()]
    assert [each[1:] for each in causes] == [[Cause.SUCCEEDED]] * 2, causes
    assert {task.spent for task in run.tasks.values()} == {BudgetUse(interruptions=1)}
    assert charged(run)[0] in (Cause.LOST, Cause.INTERRUPTED), causes
    assert [logs(kube, each) for each in second] == ["begins at step 5\n"] * 2
    return run


@pytest.mark.parametrize("kind", CRDS)
def test_a_gang_that_loses_a_node_goes_on_whole_on_the_next_rung_at_its_saved_step(
    kube: Kube,
    faults: Faults,
    leader: Controller,
    saves: Path,
    namespace: str,
    require: Require,
    measured: Measured,
    kind: str,
) -> None:
    require(CRDS[kind])
    first = saved_gang(kube, kind, namespace, saves)
    node = int(first[0]["spec"]["nodeName"].removeprefix("n"))
    faults.cut_power(node)
    faults.delete(node)  # the word of the provider
    cut = time.monotonic()
    second = kube.wait(lambda: created(kube, namespace, 1), "the set has restarted", FOLLOWED)
    measured(
        f"{kind} of two pods, from a power cut with its Node object deleted until both are made again",
        time.monotonic() - cut,
    )
    check_that_it_went_on(kube, kind, namespace, leader, second)


@pytest.mark.parametrize("kind", CRDS)
def test_members_whose_nodes_die_together_are_one_interruption(
    kube: Kube,
    in_service: Faults,
    leader: Controller,
    saves: Path,
    namespace: str,
    require: Require,
    measured: Measured,
    kind: str,
) -> None:
    require(CRDS[kind])
    first = saved_gang(kube, kind, namespace, saves)
    nodes = sorted({str(each["spec"]["nodeName"]) for each in first})
    assert len(nodes) == 2, "each pod has a node of its own"
    began = time.monotonic()
    for node in nodes:
        in_service.cut_power(int(node.removeprefix("n")))
    cut = time.monotonic()
    assert cut - began < 5
    kube.wait(lambda: are_marked(of_restart(kube, namespace, 0)), "Kubernetes has given up both pods", STARTS)
    measured(f"{kind} whose two nodes die together: seconds between both power cuts", cut - began)
    for node in nodes:
        kube.run("taint", "nodes", node, f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute")
    second = kube.wait(lambda: created(kube, namespace, 1), "the set has restarted", FOLLOWED)
    measured(f"{kind} whose two nodes die together, until both pods are made again", time.monotonic() - cut)
    run = check_that_it_went_on(kube, kind, namespace, leader, second)
    ends = {task.attempts[0].cause for task in run.tasks.values()}
    assert ends <= {Cause.LOST, Cause.INTERRUPTED}, ends
    assert len(charged(run)) == 2, "one restart, and the one that succeeded"


def are_marked(pods: Sequence[Object]) -> bool:
    return len(pods) == 2 and all("deletionTimestamp" in each["metadata"] for each in pods)
