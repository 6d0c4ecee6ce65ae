"""Bad days of a controller on a real cluster: its dependencies fail and return, it is killed, certificates change."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from testbed.control import control_plane
from testbed.machine.processes import Processes
from testbed.settings import NETWORK, Settings
from tests.cluster.conftest import Measured
from tests.cluster.controller.authorities import Files, an_authority, issued
from tests.cluster.live.kube import Kube, Object, job, pod_spec
from tests.cluster.live.replicas import Controllers, configure, controllers
from tests.cluster.live.stopped_control_plane import serves
from tests.cluster.recorder.api import Api, collection

from spotwright.engine.events import RunStatus
from spotwright.engine.state import AttemptState, RunState
from spotwright.model.attempts import Cause

pytestmark = pytest.mark.cluster

CONFIGURATION = """\
version: 1
target: {kubernetes: "1.35"}
pools:
  spot: {capacity: spot, provider: aks, node: {cpu: 1000, memory: 8Gi}}
  system: {capacity: on-demand, provider: aks, node: {cpu: 1000, memory: 8Gi}}
policy:
  default: {spot: prefer, interruptions: {max: 3}, fall_back_after: 1, errors: {retries: 0}}
"""
SOON = 180.0  # seconds, on a busy machine
JOBS = 15  # in a burst
REVIEWS = 4  # asked for at a time while certificates change


@pytest.fixture
def controller(bed: Settings, kube: Kube, tmp_path: Path, namespace: str) -> Iterator[Controllers]:
    """A controller that serves the test's namespace."""
    with controllers(bed, kube, tmp_path) as made:
        configure(kube, namespace, CONFIGURATION)
        kube.wait(lambda: f"ConfigMap {namespace}/spotwright was read" in made.log(0), "the policy is read", SOON)
        yield made


def test_while_api_server_and_etcd_start_anew_nothing_is_lost_and_nothing_is_recorded_twice(
    kube: Kube, control: Settings, controller: Controllers, namespace: str
) -> None:
    kube.apply(*(a_job(kube, f"before-{number}", namespace, "sleep 12") for number in range(4)))
    kube.wait(lambda: len(phases(kube, namespace)["Running"]) == 4, "the pods run", SOON)
    for stopped in (["apiserver"], ["apiserver", "etcd"]):
        for name in stopped:
            Processes(control).end(name)
        time.sleep(3)  # pods end, and nobody hears of it
        for name in reversed(stopped):
            control_plane.restart(control, name)
        serves(control)
    kube.wait(lambda: is_placed(kube, namespace), "objects are placed again", SOON)
    kube.apply(a_job(kube, "after", namespace, "true"))
    runs = kube.wait(lambda: all_ended(controller, namespace, 5), "all ends are recorded", SOON)
    assert {run.status for run in runs.values()} == {RunStatus.SUCCEEDED}
    assert recorded(runs) == existing(kube, namespace)


def test_a_namespace_that_is_deleted_under_way_takes_its_records_along_and_others_are_recorded(
    kube: Kube, controller: Controllers, namespace: str
) -> None:
    other = f"{namespace}-other"
    kube.run("create", "namespace", other)
    try:
        deleted_under_way(kube, controller, namespace, other)
    finally:
        kube.run("delete", "namespace", other, "--wait=false")


def deleted_under_way(kube: Kube, controller: Controllers, namespace: str, other: str) -> None:
    configure(kube, other, CONFIGURATION)
    kube.wait(lambda: kube.get("serviceaccount", "default", other), "its account", SOON)
    kube.apply(a_job(kube, "train", namespace, "sleep 600"))
    kube.wait(lambda: phases(kube, namespace)["Running"], "the pod runs", SOON)
    kube.run("delete", "namespace", namespace, "--wait=false")
    kube.wait(lambda: kube.get("namespace", namespace) is None, "the namespace is gone", SOON)
    kube.apply(a_job(kube, "train", other, "true"))
    runs = kube.wait(lambda: all_ended(controller, other, 1), "what is in another namespace is recorded", SOON)
    assert [run.status for run in runs.values()] == [RunStatus.SUCCEEDED]
    assert not [key for key in controller.runs() if key[0] == namespace]
    assert "Traceback" not in controller.log(0)


def test_a_controller_that_is_killed_in_a_burst_of_pods_records_each_of_them_once(
    kube: Kube, controller: Controllers, namespace: str
) -> None:
    jobs = [a_job(kube, f"job-{number}", namespace, "sleep 2") for number in range(JOBS)]
    with ThreadPoolExecutor(len(jobs)) as pool:
        first = [pool.submit(kube.apply, each) for each in jobs[: JOBS // 3]]
        kube.wait(lambda: kube.list("pods", namespace), "the burst is under way", SOON)
        controller.kill(0)
        second = [pool.submit(kube.apply, each) for each in jobs[JOBS // 3 : -JOBS // 3]]
        controller.start(0)
        third = [pool.submit(kube.apply, each) for each in jobs[-JOBS // 3 :]]
        for each in (*first, *second, *third):
            each.result(SOON)
    runs = kube.wait(lambda: all_ended(controller, namespace, JOBS), "all ends are recorded", SOON)
    assert {run.status for run in runs.values()} == {RunStatus.SUCCEEDED}
    assert recorded(runs) == existing(kube, namespace)
    assert {attempt.cause for run in runs.values() for attempt in attempts(run)} == {Cause.SUCCEEDED}


@pytest.mark.parametrize("ending", ["killed", "frozen"])
def test_where_nobody_answers_reviews_pods_start_as_they_were_written_and_are_recorded_afterwards(
    kube: Kube, controller: Controllers, namespace: str, measured: Measured, ending: str
) -> None:
    if ending == "frozen":
        for process in controller.of(0):
            process.send_signal(signal.SIGSTOP)
    else:
        controller.kill(0)
    began = time.monotonic()
    kube.apply(a_job(kube, "plain", namespace, "sleep 1"))
    (pod,) = kube.wait(lambda: phases(kube, namespace)["Succeeded"], "the pod has run", SOON)
    measured(f"a Job of one second whose webhook is {ending}, until its pod has ended", time.monotonic() - began)
    assert not [key for key in pod["metadata"].get("annotations", {}) if key.startswith("spotwright.dev/")]
    if ending == "frozen":
        controller.kill(0)
    controller.start(0)
    runs = kube.wait(lambda: all_ended(controller, namespace, 1), "its end is recorded", SOON)
    assert recorded(runs) == existing(kube, namespace)
    kube.wait(lambda: is_placed(kube, namespace), "objects are placed again", SOON)


def test_while_certificates_are_renewed_every_object_is_placed(
    bed: Settings, kube: Kube, tmp_path: Path, namespace: str
) -> None:
    authorities = [an_authority(name) for name in ("first", "second", "third")]
    pairs = [issued(each, address=NETWORK.control_plane) for each in authorities]
    files = Files(tmp_path / "tls").write(pairs[0], authorities[0])
    options = ["-v", "--certificate", str(files.paths.certificate), "--key", str(files.paths.key)]
    options += ["--authority", str(files.paths.authority)]
    with controllers(bed, kube, tmp_path, options=options) as made:
        configure(kube, namespace, CONFIGURATION)
        kube.wait(lambda: is_placed(kube, namespace), "objects are placed", SOON)
        answers: Counter[bool] = Counter()
        with ThreadPoolExecutor(REVIEWS) as pool:
            for number in (1, 2):
                files.write(pairs[number], authorities[number])
                until = time.monotonic() + SOON
                while made.log(0).count("a new certificate is served") < number:
                    assert time.monotonic() < until, made.log(0)
                    answers.update(pool.map(lambda _: is_placed(kube, namespace), range(REVIEWS)))
            for _ in range(5):
                answers.update(pool.map(lambda _: is_placed(kube, namespace), range(REVIEWS)))
        assert answers[True] > REVIEWS * 5
        assert answers[False] == 0, f"{answers} {made.log(0)}"


def a_job(kube: Kube, name: str, namespace: str, script: str) -> Object:
    """A Job without a spot policy."""
    spec = pod_spec(kube.container(script))
    return job(name, namespace, {**spec, "tolerations": [{"operator": "Exists"}]})


def is_placed(kube: Kube, namespace: str) -> bool:
    """Whether a Job that is created now, which is a trial, would be placed."""
    path = f"{collection('Job', namespace)}?dryRun=All"
    made = Api(kube.kubeconfig).request("POST", path, a_job(kube, "trial", namespace, "true"))
    return "spotwright.dev/admitted" in made["metadata"].get("annotations", {})


def phases(kube: Kube, namespace: str) -> Mapping[str, list[Object]]:
    """The pods of a namespace by their phases."""
    found: dict[str, list[Object]] = {"Running": [], "Succeeded": []}
    for pod in kube.list("pods", namespace):
        found.setdefault(pod["status"]["phase"], []).append(pod)
    return found


def all_ended(controller: Controllers, namespace: str, count: int) -> dict[str, RunState] | None:
    """The runs of a namespace by the names of their workloads, once so many have ended and none is active."""
    runs = {name: run for (where, name), run in controller.runs().items() if where == namespace}
    return runs if len(runs) == count and all(run.finished_at is not None for run in runs.values()) else None


def attempts(run: RunState) -> list[AttemptState]:
    return [attempt for task in run.tasks.values() for attempt in task.attempts]


def recorded(runs: Mapping[str, RunState]) -> Counter[str]:
    """How often each pod is recorded, by its UID."""
    return Counter(attempt.key.partition("/")[0] for run in runs.values() for attempt in attempts(run))


def existing(kube: Kube, namespace: str) -> Counter[str]:
    """Each pod that is there, once."""
    return Counter(pod["metadata"]["uid"] for pod in kube.list("pods", namespace))
