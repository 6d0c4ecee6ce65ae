"""The watcher on a real Kubernetes: killed again and again, it records every pod of every Job once and with its cause.

Needs ``KUBECONFIG`` and an image with Python on the nodes (``SPOTWRIGHT_TEST_IMAGE``, default ``localhost/python:1``).
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spotwright.cluster.api.connection import connect, find_cluster
from spotwright.cluster.api.requests import Api
from spotwright.engine.state import RunState
from spotwright.model.attempts import Cause
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import StateFolder

pytestmark = pytest.mark.cluster

IMAGE = os.environ.get("SPOTWRIGHT_TEST_IMAGE", "localhost/python:1")
JOBS, KILLS = 4, 9


def call(method: str, path: str, body: object = None) -> dict[str, Any]:
    async def ask() -> dict[str, Any]:
        api = Api(connect(find_cluster()))
        try:
            return await (api.get(path) if method == "GET" else api.send(method, path, body))
        finally:
            await api.close()

    return asyncio.run(ask())


@pytest.fixture
def namespace() -> Iterator[str]:
    name = f"watched-{os.getpid()}"
    labels = {"spotwright.dev/enabled": "true"}
    call("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    yield name
    call("DELETE", f"/api/v1/namespaces/{name}")


def job(name: str, code: str) -> dict[str, Any]:
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["python3", "-c", code]}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"metadata": {"name": name}, "spec": {"backoffLimit": 2, "template": {"spec": pod}}}


def start_watcher(state: Path, namespace: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "spotwright.cluster.watching", "--state", str(state), "--namespace", namespace]
    with (state.parent / "watcher.log").open("ab") as log:
        return subprocess.Popen(command, stderr=log)


def states(state: Path) -> dict[str, RunState]:
    found = [RunReader(folder, lambda _: False).state for folder in StateFolder.open(state).runs()]
    return {str(each.meta.arguments["name"]): each for each in found}


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
        _wait_for_ends(state)
    finally:
        watcher.terminate()
        assert watcher.wait(10) == 0
    pods = call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    recorded = Counter(_uids(states(state).values()))
    assert recorded == Counter({pod["metadata"]["uid"]: 1 for pod in pods})
    causes = {name: [a.cause for a in next(iter(each.tasks.values())).attempts] for name, each in states(state).items()}
    assert causes["job-0"] == [Cause.SUCCEEDED]
    assert all(causes[f"job-{number}"] == [Cause.FAILED] * 3 for number in range(1, JOBS))


def _wait_for_ends(state: Path) -> None:
    until = time.monotonic() + 180
    while time.monotonic() < until:
        runs = states(state)
        if len(runs) == JOBS and all(run.finished_at is not None for run in runs.values()):
            return
        time.sleep(1)
    pytest.fail(f"after 3 minutes: { {name: run.status for name, run in states(state).items()} }")


def _uids(runs: Any) -> Iterator[str]:
    for run in runs:
        for task in run.tasks.values():
            yield from (attempt.key.partition("/")[0] for attempt in task.attempts)
