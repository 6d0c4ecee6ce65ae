"""On the test bed: nodes lose their power in four forms, and the recorded ends are held against what the programs know.

A program prints the uptime of the machine, and all nodes of the bed share one kernel: its last line and the moment of the cut
bound the truth to a tenth of a second. Each cut strikes two Jobs: one prints five lines a second, one a line in five seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from testbed.faults import Faults
from testbed.settings import Settings
from tests.cluster.conftest import Measured
from tests.cluster.live.controllers import Controller, configuration, controller
from tests.cluster.live.kube import Kube, job, pod_spec
from tests.cluster.live.recorded import kept_log, runs_of

from spotwright.engine.state import AttemptState
from spotwright.model.attempts import Cause

pytestmark = pytest.mark.cluster

LOST, OTHER = 2, 3  # two spot nodes
STARTS, RECORDED = 180.0, 240.0  # seconds, on a busy machine
NEAR = 2.0
"""Seconds by which a recorded end may miss the true one where its range does not contain it."""

JOBS = {"chatty": 0.2, "quiet": 5.0}
ROUNDS = 3


def start(kube: Kube, namespace: str) -> None:
    """Start both Jobs on the node that will lose its power, and let them print for a while."""
    kube.run("cordon", f"n{OTHER}")
    try:
        for name, pause in JOBS.items():
            script = f"while true; do cut -d' ' -f1 /proc/uptime; sleep {pause}; done"
            made = job(name, namespace, pod_spec(kube.container(script)))
            del made["spec"]["backoffLimit"]  # the policy's counts
            kube.apply(made)
        for name in JOBS:
            kube.wait(partial(runs_there, kube, namespace, name), f"{name} runs", STARTS)
    finally:
        kube.run("uncordon", f"n{OTHER}")
    time.sleep(12.0)


def runs_there(kube: Kube, namespace: str, name: str) -> bool:
    pods = kube.list("pods", namespace, f"batch.kubernetes.io/job-name={name}")
    return [(pod["status"].get("phase"), pod["spec"].get("nodeName")) for pod in pods] == [("Running", f"n{LOST}")]


def cut(faults: Faults) -> float:
    """Cut the power; the moment, in Unix seconds."""
    before = time.time()
    faults.cut_power(LOST)
    return (before + time.time()) / 2


def first_of(leader: Controller, name: str) -> AttemptState | None:
    """The first attempt of a Job, once its end is recorded."""
    attempts = leader.attempts(name)
    return attempts[0] if attempts and attempts[0].cause is not None else None


def last_line(leader: Controller, namespace: str, name: str) -> float:
    """When the program printed its last stored line, in Unix seconds by its own clock."""
    ((named, _),) = [each for each in runs_of(leader.kube.kubeconfig, name) if each[0].namespace == namespace]
    text = kept_log(leader.logs, named.run, name).decode()
    lines = [line for line in text.splitlines() if line.replace(".", "").isdigit()]
    booted = time.time() - float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    return booted + float(lines[-1])


def check(
    leader: Controller, kube: Kube, namespace: str, form: str, number: int, true: float, measured: Measured
) -> None:
    """Compare the records with the truth, and note both in seconds since the attempt had its node."""
    for name in JOBS:
        first = kube.wait(partial(first_of, leader, name), f"the end of {name} is recorded", RECORDED)
        assert first.ended is not None
        assert first.ended_at is not None
        assert first.bound_at is not None
        assert last_line(leader, namespace, name) <= true + 0.5
        by = first.ended_at if first.ended.ended_by is None else first.ended.ended_by
        label = f"{form} {number}, {name} ({first.ended.proof or 'told'}; {first.cause_why})"
        measured(f"{label}: true", true - first.bound_at)
        measured(f"{label}: recorded", first.ended_at - first.bound_at)
        measured(f"{label}: at the latest", by - first.bound_at)
        assert first.cause in (Cause.INTERRUPTED, Cause.LOST), first.cause_why
        is_near = abs(first.ended_at - true) <= NEAR
        assert is_near or first.ended_at <= true <= by, (form, name, first.ended_at - true, by - true)


def silent(kube: Kube, faults: Faults) -> float:
    """The node is NotReady before anything else is known; its pods leave it 3 s later."""
    return cut(faults)


def deleted(kube: Kube, faults: Faults) -> float:
    """The Node object is deleted within a second, as when a cloud's controller deletes the machine."""
    at = cut(faults)
    kube.run("delete", "node", f"n{LOST}", "--wait=false")
    return at


def rebooted(kube: Kube, faults: Faults) -> float:
    """The machine boots again at once, under its name."""
    at = cut(faults)
    faults.restore(LOST)
    return at


FORMS: dict[str, Callable[[Kube, Faults], float]] = {
    "NotReady first": silent,
    "Node object deleted": deleted,
    "booted again": rebooted,
}


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize("form", FORMS)
def test_an_end_is_recorded_within_two_seconds_or_its_range_contains_it(
    kube: Kube,
    bed: Settings,
    faults: Faults,
    namespace: str,
    tmp_path: Path,
    measured: Measured,
    form: str,
    number: int,
) -> None:
    with controller(kube, bed, tmp_path, configuration("10m")) as leader:
        leader.enable(namespace)
        start(kube, namespace)
        true = FORMS[form](kube, faults)
        check(leader, kube, namespace, form, number, true, measured)


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize("goes", ["silent", "deleted"])
def test_so_is_one_while_the_controller_is_away(
    kube: Kube,
    bed: Settings,
    faults: Faults,
    namespace: str,
    tmp_path: Path,
    measured: Measured,
    goes: str,
    number: int,
) -> None:
    with controller(kube, bed, tmp_path, configuration("10m")) as leader:
        leader.enable(namespace)
        start(kube, namespace)
    time.sleep(3.0)
    true = (silent if goes == "silent" else deleted)(kube, faults)
    time.sleep(60.0)
    with controller(kube, bed, tmp_path, configuration("10m")) as leader:
        check(leader, kube, namespace, f"controller away, node {goes}", number, true, measured)
