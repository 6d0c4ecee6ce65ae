"""Bad days of an installed chart: etcd stops, an upgrade is rolled back, the recorder's and a pod's node fail together."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest
from testbed.control import control_plane
from testbed.faults import Faults
from testbed.machine.processes import Processes
from testbed.settings import Settings
from tests.cluster.chart.rendered import Helm
from tests.cluster.conftest import Measured
from tests.cluster.live.chart.releases import SOON
from tests.cluster.live.chart.s3_store import s3_store
from tests.cluster.live.chart.spotwright_command import spotwright
from tests.cluster.live.chart.teams_release import TeamsRelease, installed, new_home
from tests.cluster.live.chart.whole_jobs import WholeJobs
from tests.cluster.live.kube import Kube, job, pod_spec
from tests.cluster.live.recorded import runs_of
from tests.cluster.live.stopped_control_plane import serves

pytestmark = pytest.mark.cluster

STOPPED = 30.0  # seconds without etcd
IN_FLIGHT = 50  # pods
LOST = 5.0  # seconds of a log
NODE = 2  # of the pod


def test_jobs_are_placed_and_recorded_whole_after_etcd_has_stopped_while_pods_are_created(
    kube: Kube, control: Settings, teams_release: TeamsRelease, measured: Measured
) -> None:
    jobs = [WholeJobs(kube, team) for team in teams_release.teams]
    for each in jobs:
        each.make("sleep 10", count=5)
    jobs[0].wait_until_pods_run(3)
    with ThreadPoolExecutor(1) as pool:
        until = time.monotonic() + 10.0 + STOPPED
        creating = pool.submit(create_until, jobs, until)
        time.sleep(3)
        Processes(control).end("etcd")
        time.sleep(STOPPED)
        control_plane.restart(control, "etcd")
        back = time.monotonic()
        refused = creating.result()
    serves(control)
    for each in jobs:
        each.make()
        each.wait()
    measured("after etcd is back, until all Jobs are recorded", time.monotonic() - back)
    measured("Jobs beside it", sum(len(each.names) for each in jobs))
    measured("creations that were refused meanwhile", refused)
    problems = [problem for each in jobs for problem in each.problems()]
    assert not problems, "\n".join(problems)


def create_until(jobs: list[WholeJobs], until: float) -> int:
    """Create a Job of each team every second. Returns how often that was refused."""
    refused = 0
    while time.monotonic() < until:
        for each in jobs:
            try:
                each.make()
            except AssertionError:  # kubectl says that it was refused
                refused += 1
        time.sleep(1)
    return refused


def test_fifty_pods_in_flight_are_recorded_once_through_an_upgrade_that_is_rolled_back(
    kube: Kube, teams_release: TeamsRelease, measured: Measured
) -> None:
    team, _ = teams_release.teams
    jobs = WholeJobs(kube, team)
    jobs.make("sleep 60", count=IN_FLIGHT)
    jobs.wait_until_pods_run(IN_FLIGHT // 5)
    began = time.monotonic()
    teams_release.run("upgrade", verbose=True)
    time.sleep(5)
    teams_release.roll_back()
    teams_release.wait_until_rolled_out()
    measured(
        "an upgrade that is rolled back after five seconds, until both processes are rolled out", seconds_since(began)
    )
    jobs.make()
    jobs.wait()
    measured("and until the pods in flight are recorded", seconds_since(began))
    problems = list(jobs.problems())
    assert not problems, "\n".join(problems)


def seconds_since(moment: float) -> float:
    return time.monotonic() - moment


# Logs in a store


@pytest.fixture
def release_with_store(helm_for_two: Helm, kube: Kube, bed: Settings, teams: tuple[str, str]) -> Iterator[TeamsRelease]:
    """The release, which keeps logs in S3."""
    with s3_store(bed) as store, new_home(kube) as home:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "store", "namespace": home}}
        kube.apply({**secret, "stringData": store.environment})
        logs = {"url": store.url, "secret": "store", "ports": [store.port]}
        with installed(helm_for_two, kube, home, teams, logs=logs) as made:
            yield made


def test_at_most_five_seconds_of_a_log_are_lost_where_the_nodes_of_the_recorder_and_of_the_pod_go_together(
    kube: Kube, bed: Settings, faults: Faults, release_with_store: TeamsRelease, measured: Measured
) -> None:
    release = release_with_store
    team, _ = release.teams
    script = "i=0; while :; do i=$((i + 1)); echo line $i; sleep 0.1; done"
    kube.apply(job("talks", team, pod_spec(kube.container(script), f"n{NODE}")))
    run = kube.wait(
        lambda: next((named.run for named, _ in runs_of(kube.kubeconfig, "talks", team)), ""), "its run", SOON
    )
    kube.wait(lambda: len(kept(kube, release, run)) > 100, "its log is kept", SOON)
    (pod,) = kube.list("pods", team)
    (path,) = (bed.node_folder(NODE) / "pods").glob(f"{team}_*_{pod['metadata']['uid']}/main/0.log")
    before = release.leader()
    leader = int(release.leading_pod()["spec"]["nodeName"].removeprefix("n"))
    assert leader != NODE
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(faults.cut_power, (NODE, leader)))
    cut = time.monotonic()
    written = path.read_text(encoding="utf-8").splitlines()
    kube.wait(lambda: release.leader() != before, "the other recorder leads", SOON)
    measured("from the power cut of both nodes until the other recorder leads", seconds_since(cut))
    kube.wait(lambda: has_ended(kube, team), "the end of the attempt is recorded", SOON)
    measured("and until the end of the attempt is recorded", seconds_since(cut))
    found = kept(kube, release, run)
    assert found == list(range(1, len(found) + 1))
    lost = moment(written[-1]) - moment(written[len(found) - 1])
    measured("seconds of the log that are lost", lost)
    assert lost <= LOST


def kept(kube: Kube, release: TeamsRelease, run: str) -> list[int]:
    """The numbers of the lines that people read of a log."""
    logs: Any = spotwright(kube, "logs", run, "-n", release.teams[0], "--controller", release.home)
    return [int(number) for number in re.findall(r"line (\d+)\\n", json.dumps(logs))]


def has_ended(kube: Kube, team: str) -> bool:
    ends = [
        attempt.ended_at
        for _, run in runs_of(kube.kubeconfig, "talks", team)
        for task in run.tasks.values()
        for attempt in task.attempts[:1]
    ]
    return bool(ends) and None not in ends


def moment(line: str) -> float:
    """When a node has stored a line, in Unix seconds."""
    return datetime.fromisoformat(line.split(" ", 1)[0]).timestamp()
