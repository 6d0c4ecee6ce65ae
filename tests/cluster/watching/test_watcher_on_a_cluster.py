"""The watcher on a real Kubernetes: killed again and again, alone or of three, it records every pod once and with its cause.

Needs an image with Python on the nodes (``SPOTWRIGHT_TEST_IMAGE``, default ``localhost/python:1``).
"""

from __future__ import annotations

import os
import random
import signal
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.live.kube import Kube
from tests.cluster.watching.started_watcher import IMAGE, call, start_watcher, states

from spotwright.model.attempts import Cause

pytestmark = pytest.mark.cluster

JOBS, KILLS = 4, 9


@pytest.fixture
def namespace() -> Iterator[str]:
    name = f"watched-{uuid.uuid4().hex[:8]}"
    labels = {"spotwright.dev/enabled": "true"}
    call("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    yield name
    call("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(autouse=True)
def cluster(kube: Kube, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster is the one that all programs without options find."""
    monkeypatch.setenv("KUBECONFIG", str(kube.kubeconfig))


def job(name: str, code: str) -> dict[str, Any]:
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["python3", "-c", code]}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"metadata": {"name": name}, "spec": {"backoffLimit": 2, "template": {"spec": pod}}}


def test_a_watcher_that_is_killed_again_and_again_records_each_pod_once(tmp_path: Path, namespace: str) -> None:
    state = tmp_path / "state"
    seconds = random.Random(7)  # noqa: S311  # the moments of kills, no secret
    for number in range(JOBS):  # the first Job succeeds, the others spend their retries
        code = f"import sys, time; time.sleep(2); sys.exit({3 if number else 0})"
        call("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", job(f"job-{number}", code))
    for _ in range(KILLS):
        watcher = start_watcher(state, namespace)
        time.sleep(seconds.uniform(1.5, 5.0))
        watcher.send_signal(signal.SIGKILL)
        watcher.wait()
    watcher = start_watcher(state, namespace)
    try:
        _wait_for_ends(state, JOBS)
    finally:
        watcher.terminate()
        assert watcher.wait(10) == 0
    pods = call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    recorded = Counter(_uids(states(state).values()))
    assert recorded == Counter({pod["metadata"]["uid"]: 1 for pod in pods})
    causes = {name: [a.cause for a in next(iter(each.tasks.values())).attempts] for name, each in states(state).items()}
    assert causes["job-0"] == [Cause.SUCCEEDED]
    assert all(causes[f"job-{number}"] == [Cause.FAILED] * 3 for number in range(1, JOBS))


def _wait_for_ends(state: Path, jobs: int) -> None:
    until = time.monotonic() + 180
    while time.monotonic() < until:
        runs = states(state)
        if len(runs) == jobs and all(run.finished_at is not None for run in runs.values()):
            return
        time.sleep(1)
    pytest.fail(f"after 3 minutes: { {name: run.status for name, run in states(state).items()} }")


def _uids(runs: Any) -> Iterator[str]:
    for run in runs:
        for task in run.tasks.values():
            yield from (attempt.key.partition("/")[0] for attempt in task.attempts)


def test_the_replica_that_holds_the_lease_records_and_the_next_takes_over(tmp_path: Path, namespace: str) -> None:
    state = tmp_path / "state"
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/watcher"
    replicas = [start_watcher(state, namespace, "--lease", f"{namespace}/watcher") for _ in range(3)]
    ended: dict[int, int] = {}
    try:
        for number, ending in enumerate((signal.SIGKILL, signal.SIGSTOP, None)):
            jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
            call("POST", jobs, job(f"job-{number}", "import time; time.sleep(1)"))
            _wait_for_ends(state, number + 1)
            pid = int(call("GET", lease)["spec"]["holderIdentity"].split("_")[1])
            if ending is not None:
                os.kill(pid, ending)
                ended[ending] = pid
        frozen = next(replica for replica in replicas if replica.pid == ended[signal.SIGSTOP])
        frozen.send_signal(signal.SIGCONT)
        assert frozen.wait(60) == 1
    finally:
        for replica in replicas:
            replica.send_signal(signal.SIGCONT)
            replica.terminate()
        codes = {replica.pid: replica.wait(60) for replica in replicas}
    assert sorted(codes.values()) == [-9, 0, 1]
    assert "this replica stops writing" in (tmp_path / "watcher.log").read_text(encoding="utf-8")
    assert call("GET", lease)["spec"]["holderIdentity"] == ""
    pods = call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    assert Counter(_uids(states(state).values())) == Counter({pod["metadata"]["uid"]: 1 for pod in pods})
