"""Records on a real API server: they outlive the machine of the controller, and anyone with a kubeconfig reads them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed.settings import Settings
from tests.cluster.conftest import Measured
from tests.cluster.live.controllers import configuration, controller
from tests.cluster.live.kube import Kube, job, pod_spec
from tests.cluster.live.recorded import install_kinds
from tests.cluster.reading.recorded import looks_at_train
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import job as recorded_job

from spotwright.cluster.api_run_records import ApiRecords
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.engine.state import RunState
from spotwright.errors import SpotwrightError
from spotwright.records.reader import RunReader

pytestmark = pytest.mark.cluster

SECONDS = 120.0


@pytest.fixture(scope="module", autouse=True)
def kinds(kube: Kube) -> None:
    """The kinds of records, which the cluster keeps for other tests."""
    install_kinds(kube)


@pytest.fixture
def login(bed: Settings) -> Iterator[Kubernetes]:
    kubernetes = Kubernetes(None, str(bed.kubeconfig))
    yield kubernetes
    kubernetes.close()


def in_namespace(root: dict[str, Any], namespace: str) -> dict[str, Any]:
    return {**root, "metadata": {**root["metadata"], "namespace": namespace}}


def test_a_real_api_server_keeps_what_is_recorded_and_shows_it(
    kube: Kube, login: Kubernetes, tmp_path: Path, measured: Measured
) -> None:
    kube.wait(
        lambda: kube.get("namespace", "team-a") is None or None, "the namespace of an earlier test is gone", SECONDS
    )
    kube.run("create", "namespace", "team-a")
    try:
        records = ApiRecords(login)
        cluster = Cluster(tmp_path / "unused", records)
        began = time.monotonic()
        for step in looks_at_train(cluster):
            cluster.records = ApiRecords(login)
            cluster.kill()
            step()
        measured(
            "four looks at a Job with three attempts, each by a process that has just started", time.monotonic() - began
        )
        whole = Cluster(tmp_path / "whole")
        for step in looks_at_train(whole):
            step()
        record = records.of(recorded_job())
        assert attempts(RunReader(record.folder, record.source()).state) == attempts(whole.state())
        table = kube.run("get", "spotruns", "-n", "team-a")
        heading, line = table.splitlines()
        assert heading.split() == ["NAME", "STATUS", "ATTEMPTS", "INTERRUPTIONS", "COST", "SAVED", "AGE"]
        assert line.split()[1:4] == ["succeeded", "3", "1"]
        assert kube.run("get", "spotattempts", "-n", "team-a").count("\n") == 4
        kube.run("delete", "spotruns", "--all", "-n", "team-a")
        kube.wait(lambda: not kube.list("spotattempts", "team-a") or None, "the attempts go with their run", SECONDS)
    finally:
        kube.run("delete", "namespace", "team-a", "--wait=false")


def attempts(state: RunState) -> list[tuple[Any, ...]]:
    return [
        (path, each.number, each.node, each.pool, each.cause, each.ended_at)
        for path, task in state.tasks.items()
        for each in task.attempts
    ]


def recorded(login: Kubernetes, folder: Path, root: dict[str, Any]) -> RunState | None:
    record = ApiRecords(login).of(root)
    try:
        return RunReader(record.folder, record.source()).state
    except SpotwrightError:
        return None  # it has not begun


@pytest.mark.cluster_ci
def test_a_controller_on_another_machine_goes_on_with_the_records_of_one_that_is_gone(
    bed: Settings, kube: Kube, login: Kubernetes, namespace: str, tmp_path: Path
) -> None:
    config = configuration("10m")
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    spec = pod_spec(kube.container('[ "$SPOTWRIGHT_ATTEMPT" = 1 ] && sleep 600; exit 0'))
    with controller(kube, bed, tmp_path / "first", config) as first:
        first.enable(namespace)
        train = job("train", namespace, spec)
        del train["spec"]["backoffLimit"]  # a pod that somebody deletes counts as a failure
        kube.apply(train)
        root = kube.get("job", "train", namespace)
        assert root is not None

        def runs() -> bool | None:
            state = recorded(login, tmp_path / "state", root)
            live = [] if state is None else [a for task in state.tasks.values() for a in task.attempts if a.node]
            return True if live else None

        kube.wait(runs, "the first attempt is recorded on its node", SECONDS)
        for pid in first.pids:  # its folder is not seen again
            os.kill(pid, signal.SIGKILL)
        (lost,) = kube.list("pods", namespace)
        kube.run("delete", "pod", lost["metadata"]["name"], "-n", namespace, "--grace-period=1")
    with controller(kube, bed, tmp_path / "second", config) as second:
        second.enable(namespace)
        kube.wait(lambda: has_ended(login, tmp_path, root), "the end of the run is recorded", SECONDS)
        state = recorded(login, tmp_path / "state", root)
        assert state is not None
        found = attempts(state)
        assert [each[1] for each in found] == [1, 2], (found, second.log.read_text(encoding="utf-8")[-3000:])
        shown = subprocess.run(
            [sys.executable, "-m", "spotwright", "runs", "--cluster", "-n", namespace, "--json"],
            env={**os.environ, "KUBECONFIG": str(bed.kubeconfig)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert shown.returncode == 0, shown.stderr
        (line,) = json.loads(shown.stdout)
        assert (line["status"], line["attempts"]) == ("succeeded", 2)


def has_ended(login: Kubernetes, folder: Path, root: dict[str, Any]) -> bool | None:
    state = recorded(login, folder / "state", root)
    return True if state is not None and state.finished_at is not None else None
