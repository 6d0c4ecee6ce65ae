"""On the test bed: a gang's node is tainted, or reclaimed after a notice; the gang restarts once, for one cause.

Its code saves on SIGTERM, so that every pod resumes at the current step, also the pods on undisturbed nodes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed.faults import Faults
from testbed.settings import Settings
from tests.cluster.conftest import Measured, Require
from tests.cluster.live.controllers import Controller
from tests.cluster.live.gangs.a_gang import (
    ALONE,
    CRDS,
    STARTS,
    a_gang,
    charged,
    created,
    is_done,
    logs,
    recorded,
    rung,
    why,
)
from tests.cluster.live.gangs.a_gang import running as running_pods
from tests.cluster.live.kube import Kube
from tests.cluster.live.recorded import events_of
from tests.cluster.watching.node_agents import node_agent

from spotwright.engine.events import NoticeGiven
from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import BudgetUse

pytestmark = pytest.mark.cluster

STRUCK = 2  # a spot node
FOLLOWED = 180.0  # seconds until the set has restarted, and until it has completed
SAVE = """\
mine="$SPOTWRIGHT_CHECKPOINT/step-$JOB_COMPLETION_INDEX"
step=$(cat "$mine" 2>/dev/null || echo 0)
echo "begins at step $step"
if [ "$step" -ge 5 ]; then exit 0; fi
trap 'echo 6 >"$mine"; exit 143' TERM
echo 5 >"$mine"
while :; do sleep 0.2; done
"""


@pytest.fixture
def agent(kube: Kube, bed: Settings, tmp_path: Path) -> Iterator[Path]:
    """The log of a node agent on the node that is struck."""
    with node_agent(kube, bed, tmp_path / "agent", STRUCK) as log:
        yield log


@pytest.fixture(params=CRDS)
def kind(
    request: pytest.FixtureRequest, kube: Kube, leader: Controller, saves: Path, namespace: str, require: Require
) -> str:
    """The kind of a gang whose two pods run on two spot nodes, and have saved; the controller places and watches it."""
    found = str(request.param)
    require(CRDS[found])
    for made in a_gang(kube, found, namespace, SAVE):
        kube.apply(made)
    first = kube.wait(lambda: running_pods(kube, namespace, 0), "both pods run", STARTS)
    assert {rung(each) for each in first} == {"spot"}
    kube.wait(lambda: len(list(saves.rglob("step-*"))) == 2, "both pods have saved", 60)
    assert sorted(each["spec"]["nodeName"] for each in first) == ["n2", "n3"]
    return found


def test_a_gang_one_of_whose_nodes_gets_a_noexecute_taint_is_moved_once_as_a_whole(
    kube: Kube,
    faults: Faults,
    leader: Controller,
    namespace: str,
    measured: Measured,
    kind: str,
) -> None:
    faults.taint(STRUCK)
    struck = time.monotonic()
    second = kube.wait(lambda: created(kube, namespace, 1), "the set has restarted", FOLLOWED)
    measured(f"{kind}: from a NoExecute taint on one node until both pods are made again", time.monotonic() - struck)
    kube.wait(lambda: is_done(kube, kind, namespace), "it has completed", FOLLOWED)
    assert {rung(each) for each in second} == {"spot"}
    assert {why(each) for each in second} == {f"moved (1 of 20), tried again on the same rung{ALONE}"}
    run = recorded(kube, leader)
    assert charged(run) == [Cause.DISRUPTED, Cause.SUCCEEDED]
    assert {task.spent for task in run.tasks.values()} == {BudgetUse(moves=1)}
    assert {task.attempts[0].cause for task in run.tasks.values()} == {Cause.DISRUPTED}
    assert [logs(kube, each) for each in second] == ["begins at step 6\n"] * 2


def test_a_gang_one_of_whose_nodes_is_taken_after_its_notice_is_interrupted_once_as_a_whole(
    kube: Kube,
    faults: Faults,
    leader: Controller,
    namespace: str,
    agent: Path,
    measured: Measured,
    kind: str,
) -> None:
    kube.wait(lambda: "listening" in agent.read_text(encoding="utf-8"), "the agent listens", 90)
    faults.notice(STRUCK, 120.0)
    told = time.monotonic()
    kube.wait(lambda: notices(leader), "the notice is in the journal", 60)
    measured(f"{kind}: from the notice of one node until it is in the journal", time.monotonic() - told)
    faults.shut_down(STRUCK)
    taken = time.monotonic()
    second = kube.wait(lambda: created(kube, namespace, 1), "the set has restarted", FOLLOWED)
    measured(f"{kind}: from the end of that node until both pods are made again", time.monotonic() - taken)
    kube.wait(lambda: is_done(kube, kind, namespace), "it has completed", FOLLOWED)
    assert {rung(each) for each in second} == {"system"}
    assert {why(each) for each in second} == {"interruption 1 of 3: falls back to system"}
    run = recorded(kube, leader)
    assert charged(run) == [Cause.INTERRUPTED, Cause.SUCCEEDED]
    assert {task.spent for task in run.tasks.values()} == {BudgetUse(interruptions=1)}
    struck = [task for task in run.tasks.values() if task.attempts[0].node == f"n{STRUCK}"]
    (given,) = notices(leader)
    assert (given.node, given.attempts) == (f"n{STRUCK}", tuple((task.path, 1) for task in struck))
    assert [task.attempts[0].cause for task in struck] == [Cause.INTERRUPTED]
    assert [logs(kube, each) for each in second] == ["begins at step 6\n"] * 2


def notices(leader: Controller) -> list[NoticeGiven]:
    """All notices that are recorded."""
    return [event for event in events_of(leader.kube.kubeconfig) if isinstance(event, NoticeGiven)]
