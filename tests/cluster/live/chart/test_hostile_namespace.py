"""A hostile namespace fills records and memory: Jobs of another team are placed and recorded whole beside it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.cluster.chart.rendered import PROCESSES
from tests.cluster.conftest import Measured, Require
from tests.cluster.live.chart.attacks import ATTACKS, carry_out
from tests.cluster.live.chart.releases import SOON
from tests.cluster.live.chart.teams_release import TeamsRelease
from tests.cluster.live.chart.whole_jobs import WholeJobs
from tests.cluster.live.kube import Kube
from tests.cluster.live.pod_memory import highest_memory

pytestmark = pytest.mark.cluster

MEMORY = 512 << 20  # bytes; the chart's limit is half as high again
BESIDE = 8  # Jobs of the other team beside an attack, at least
PAUSE = 3.0  # seconds between two of them


@pytest.mark.parametrize("attack", ATTACKS)
def test_another_team_is_placed_and_recorded_beside_an_attack(
    kube: Kube, teams_release: TeamsRelease, measured: Measured, require: Require, attack: str
) -> None:
    require("workflows.argoproj.io")
    hostile, quiet = teams_release.teams
    beside = WholeJobs(kube, quiet)
    beside.make()
    beside.wait()
    problems = [f"before the attack: {each}" for each in beside.problems()]
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        creating = pool.submit(carry_out, attack, kube.kubeconfig, hostile)
        while not creating.done() or len(beside.names) < BESIDE:
            beside.make()
            time.sleep(PAUSE)
        count = creating.result()
    measured(f"{attack}: objects that it creates", count)
    beside.wait()
    measured(f"{attack}: until all Jobs beside it are recorded", time.monotonic() - began)
    measured(f"{attack}: MB of its records", recorded_bytes(kube, hostile) / 1e6)
    problems += beside.problems()
    problems += memory(teams_release, attack, measured)

    before = teams_release.leader()
    kube.run("delete", "pod", teams_release.leading_pod()["metadata"]["name"], "-n", teams_release.home, "--wait=false")
    began = time.monotonic()
    kube.wait(lambda: teams_release.leader() != before, "the other recorder leads", SOON)
    beside.make()
    beside.wait()
    measured(f"{attack}: after the leader's restart, until a new Job is recorded", time.monotonic() - began)
    teams_release.wait_until_rolled_out()
    problems += beside.problems()
    problems += memory(teams_release, f"{attack}, after the leader's restart", measured)
    told = Counter(each["reason"] for each in kube.list("events", hostile) if each["type"] == "Warning")
    measured(f"{attack}: warnings in its namespace, {dict(told)}", told.total())
    assert not problems, "\n".join(problems)


def recorded_bytes(kube: Kube, namespace: str) -> int:
    return sum(int(each.get("status", {}).get("bytes", 0)) for each in kube.list("spotruns", namespace))


def memory(release: TeamsRelease, when: str, measured: Measured) -> Iterator[str]:
    """Note the highest memory of both processes; return the problems with it."""
    for process in PROCESSES:
        pods = release.pods(process)
        highest = max(map(highest_memory, pods))
        measured(f"{when}: MB of memory of a {process}", highest / 1e6)
        if highest > MEMORY:
            yield f"a {process} takes {highest >> 20} MiB"
        restarts = sum(status["restartCount"] for pod in pods for status in pod["status"]["containerStatuses"])
        if restarts:
            yield f"containers of the {process} have started anew {restarts} times"
