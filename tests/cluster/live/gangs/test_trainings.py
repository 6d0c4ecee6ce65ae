"""On the test bed: a training of four pods loses a node, with PyTorch on gloo, and goes on; beside it the same one by hand.

PyTorch is too large for an image of the test bed: ``SPOTWRIGHT_TEST_TORCH`` names a virtual environment of this machine with it,
which pods mount. One command starts a bed with a spot node for each pod, strikes each training in each way, and ends with the
table of the steps that were lost and the seconds until the training goes on (on a quiet machine in less than 20 minutes):

    SPOTWRIGHT_TEST_TORCH=VENV TESTBED_NODES=5 TESTBED_CONTROLLERS=jobset,trainer \\
        .venv/bin/python -m pytest -q -n 0 -m cluster -o faulthandler_timeout=600 tests/cluster/live/gangs/test_trainings.py
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from testbed.building.images import PYTHON
from testbed.faults import Faults
from testbed.settings import Settings
from tests.cluster.conftest import Require
from tests.cluster.live.gangs.a_gang import CRDS, STARTS, a_gang, of_restart
from tests.cluster.live.gangs.conftest import Compared, Taken
from tests.cluster.live.kube import Kube, Object, has_condition
from tests.cluster.watching.node_agents import node_agent

from spotwright.placing.environment import NOTICE_PORT, TORCHRUN_VARIABLE

pytestmark = pytest.mark.cluster

PODS = 4
PLACE = "/saves"
FOLLOWED = 300.0  # seconds until a lost node, its pods and the next ones are through
AT_WORK = 40  # steps before the fault
NOTICE = 30.0  # seconds
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
SOURCES = Path(__file__).parents[4]
STEP, SAVED_EVERY = 0.25, 5.0  # seconds


class Site(NamedTuple):
    """Where a training runs: a namespace whose claim ``saves`` is a folder, and the virtual environment with PyTorch."""

    kube: Kube
    namespace: str
    saves: Path
    torch: Path
    faults: Faults


@pytest.fixture
def site(bed: Settings, faults: Faults, kube: Kube, namespace: str, saves: Path) -> Site:
    """A place for trainings, on a bed with a spot node for each of their pods."""
    named = os.environ.get("SPOTWRIGHT_TEST_TORCH")
    if not named:
        pytest.skip("SPOTWRIGHT_TEST_TORCH names no environment with PyTorch for pods")
    if bed.nodes <= PODS:
        pytest.skip(f"the test bed has no {PODS} spot nodes: TESTBED_NODES={PODS + 1}")
    return Site(kube, namespace, saves, Path(named), faults)


BY_TORCHRUN = """\
mine="{place}/host-$RESTART-$JOB_COMPLETION_INDEX"
grep "^$ADDRESS[[:space:]]" /etc/hosts >"$mine.new"
mv "$mine.new" "$mine"
for index in {indexes}; do
    until [ -f "{place}/host-$RESTART-$index" ]; do sleep 0.1; done
    [ $index = $JOB_COMPLETION_INDEX ] || cat "{place}/host-$RESTART-$index" >>/etc/hosts
done
read -r _ first _ <"{place}/host-$RESTART-0"
set -- --nnodes {pods} --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint "$first:29400" --rdzv-id "round-$RESTART"
exec python3 -m torch.distributed.run "$@" {program}
"""
"""Start a program with torchrun, whose agents meet at the first pod. They know its name by files, as the bed has no DNS."""


def a_training(site: Site, kind: str, keeping: str, *, pods: int = PODS, by_torchrun: bool = False) -> list[Object]:
    """A gang whose pods train; without our controller it has retries of its user's."""
    program = f"{SOURCES}/tests/cluster/live/gangs/ddp_program.py {keeping} {PLACE} {STEP} {SAVED_EVERY}"
    start = f"exec python3 {program}"
    if by_torchrun:
        start = BY_TORCHRUN.format(
            place=PLACE, pods=pods, indexes=" ".join(str(each) for each in range(pods)), program=program
        )
    script = (
        "echo hosts: files >/etc/nsswitch.conf\n"  # the bed has no DNS, and PyTorch asks it for 10 s at each connection
    )
    environment = site.torch
    *before, gang = a_gang(site.kube, kind, site.namespace, script + start, pods=pods)
    if kind == "TrainJob":
        (job,) = before[0]["spec"]["template"]["spec"]["replicatedJobs"]
    else:
        (job,) = gang["spec"]["replicatedJobs"]
        if keeping != "ours":
            gang["spec"]["failurePolicy"] = {"maxRestarts": 5}
            job["template"]["spec"]["backoffLimit"] = (
                0  # as JobSet's own example of a training has it: no pod is replaced alone
            )
    spec = job["template"]["spec"]["template"]["spec"]
    folders = {"saves": PLACE, "torch": str(environment), "sources": str(SOURCES), "libraries": "/torch-libraries"}
    paths = {"torch": str(environment), "sources": str(SOURCES), "libraries": LIBRARIES}
    own = {name: {"hostPath": {"path": path}} for name, path in paths.items()}
    own["saves"] = {"persistentVolumeClaim": {"claimName": "saves"}}
    fields = {"RESTART": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']", "ADDRESS": "status.podIP"}
    (packages,) = (environment / "lib").glob("python3.*/site-packages")
    values = {
        "PYTHONPATH": f"{SOURCES}/src:{packages}",
        "LD_LIBRARY_PATH": f"{environment}/stubs:/torch-libraries",
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": str(pods),
    }
    (container,) = spec["containers"]
    container["image"] = PYTHON
    container["env"] = [
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
        *({"name": name, "value": value} for name, value in values.items()),
    ]
    container["volumeMounts"] = [{"name": name, "mountPath": path} for name, path in folders.items()]
    spec["volumes"] = [{"name": name, **source} for name, source in own.items()]
    spec["terminationGracePeriodSeconds"] = 30
    return [*before, gang]


def steps(saves: Path, restart: int) -> list[tuple[float, int]]:
    """The moments of the steps of an attempt, of whichever rank."""
    lines = [line.split() for each in saves.glob(f"steps-{restart}-*") for line in each.read_text().splitlines()]
    return sorted((float(line[0]), int(line[1])) for line in lines if len(line) == 2)


def cut_power(site: Site, node: int) -> None:
    """Kill a node at once. When Kubernetes notices, the provider reports it as gone, without which it is not replaced."""
    site.faults.cut_power(node)
    site.kube.wait(lambda: not has_condition(site.kube.get("node", f"n{node}"), "Ready"), "the node is missed", 120)
    site.faults.delete(node)


def drain(site: Site, node: int) -> None:
    """Drain a node."""
    site.faults.drain(node)


def take_after_notice(site: Site, node: int) -> None:
    """Announce the end of a node, and let it go when that time is over."""
    told = time.monotonic()
    site.faults.notice(node, NOTICE)
    time.sleep(max(0.0, told + NOTICE - time.monotonic()))
    cut_power(site, node)


def strike(site: Site, fault: Callable[[int], None], *, member: int = 1) -> Taken:
    """Strike the node of a member, by default the second, when the training is at work, and follow it until it trains again."""
    kube, saves = site.kube, site.saves
    kube.wait(lambda: len({step for _, step in steps(saves, 0)}) > AT_WORK, "it is at work", STARTS)
    struck = next(
        each for each in of_restart(kube, site.namespace, 0) if f"-{member}-" in each["metadata"]["name"][-8:]
    )
    fault(int(struck["spec"]["nodeName"].removeprefix("n")))
    kube.wait(lambda: steps(saves, 1), "it trains again", FOLLOWED)
    before, after = steps(saves, 0), steps(saves, 1)
    return Taken(max(step for _, step in before) + 1 - after[0][1], after[0][0] - before[-1][0])


POWER_CUT, DRAIN, NOTICED = "power cut", "drain", "notice of 30 s, then a power cut"
FAULTS = {POWER_CUT: cut_power, DRAIN: drain, NOTICED: take_after_notice}
MOST_AFTER_A_CUT = int(SAVED_EVERY / STEP) + 4
"""Steps that a power cut takes: those since the last save, and the few that members finish while one is missed."""


@pytest.mark.usefixtures("leader")
@pytest.mark.parametrize(("fault", "kind"), [*((fault, "JobSet") for fault in FAULTS), (DRAIN, "TrainJob")])
def test_a_training_loses_no_step_to_what_is_announced(
    site: Site, bed: Settings, require: Require, compared: Compared, tmp_path: Path, fault: str, kind: str
) -> None:
    require(CRDS[kind])
    site.kube.apply(*a_training(site, kind, "ours"))
    with ExitStack() as agents:

        def struck(node: int) -> None:
            if fault == NOTICED:
                beside = node_agent(site.kube, bed, tmp_path / "agent", node, listen=f"0.0.0.0:{NOTICE_PORT}")
                log = agents.enter_context(beside)
                site.kube.wait(lambda: "listening" in log.read_text(encoding="utf-8"), "the agent listens", 90)
            FAULTS[fault](site, node)

        taken = strike(site, struck)
    compared(f"{kind}: {fault}", "with Spotwright", taken)
    assert 0 <= taken.steps <= (MOST_AFTER_A_CUT if fault == POWER_CUT else 4)


@pytest.mark.parametrize("keeping", ["plain", "none"])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_same_training_by_hand_loses_what_it_did_since_its_last_save(
    site: Site, require: Require, compared: Compared, fault: str, keeping: str
) -> None:
    require(CRDS["JobSet"])
    site.kube.apply(*a_training(site, "JobSet", keeping))
    taken = strike(site, partial(FAULTS[fault], site))
    how = f"by hand, saves every {SAVED_EVERY:.0f} s" if keeping == "plain" else "no checkpoint"
    compared(f"JobSet: {fault}", how, taken)
    assert taken.steps >= (AT_WORK if keeping == "none" else 0)


@pytest.mark.usefixtures("leader")
def test_a_training_that_torchrun_starts_goes_on_after_a_drain_of_the_pod_with_its_rendezvous(
    site: Site, require: Require, compared: Compared
) -> None:
    require(CRDS["JobSet"])
    site.kube.apply(*a_training(site, "JobSet", "ours", pods=2, by_torchrun=True))
    taken = strike(site, partial(drain, site), member=0)
    members = of_restart(site.kube, site.namespace, 1)
    given = [{one["name"]: one.get("value") for one in each["spec"]["containers"][0]["env"]} for each in members]
    compared(f"JobSet of 2, torchrun: {DRAIN} of rank 0", "with Spotwright", taken)
    assert [each.get(TORCHRUN_VARIABLE["name"]) for each in given] == [TORCHRUN_VARIABLE["value"]] * 2
    assert {path.name for path in site.saves.glob("steps-0-*")} == {"steps-0-0", "steps-0-1"}
    assert 0 <= taken.steps <= 4
