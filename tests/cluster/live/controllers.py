"""The whole controller beside the API server of the test bed: webhook, watcher and mover in one process, as a user starts it."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from testbed.settings import Settings
from tests.cluster.live.chart_account import login_of_the_chart, remove_rights_of
from tests.cluster.live.kube import Kube

from spotwright.engine.state import AttemptState, RunState
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import StateFolder

HOST, PORT = "10.89.0.1", 19443  # where the API server of the test bed reaches webhooks
_STARTS = 120.0  # seconds


@dataclass(frozen=True)
class Controller:
    """A controller that runs. ``home`` is its own namespace, ``state`` its state folder."""

    kube: Kube
    home: str
    state: Path
    log: Path
    pid: int  # of the process that starts all others
    end: Callable[[], None]  # ends it, and takes its registration out

    def enable(self, namespace: str) -> None:
        """Let it place and watch what is in a namespace."""
        self.kube.run("label", "namespace", namespace, "spotwright.dev/enabled=true")

    def run(self, name: str) -> RunState | None:
        """The run of the newest workload of this name: namespaces of earlier tests may still go away."""
        states = [RunReader(folder, lambda _: False).state for folder in StateFolder.open(self.state).runs()]
        named = [state for state in states if state.events and state.meta.arguments.get("name") == name]
        return max(named, key=lambda state: state.started_at, default=None)

    def has_ended(self, name: str) -> bool:
        """Whether the end of this workload is recorded."""
        run = self.run(name)
        return run is not None and run.finished_at is not None

    def attempts(self, name: str) -> list[AttemptState]:
        """All attempts of a workload, task by task."""
        run = self.run(name)
        return [attempt for task in run.tasks.values() for attempt in task.attempts] if run is not None else []


@contextmanager
def controller(
    kube: Kube,
    bed: Settings,
    folder: Path,
    config: str,
    *options: str,
    before: str = "",
    kubeconfig: Path | None = None,
) -> Iterator[Controller]:
    """A controller with this configuration for all labelled namespaces, while the block runs.

    ``before`` is Python code that each of its processes runs first: to shorten a time that nobody can set.
    ``kubeconfig`` is that of a user with other rights than the chart's account, which is the default.
    """
    home = f"controller-{uuid.uuid4().hex[:6]}"
    state, log_file = folder / "state", folder / "controller.log"
    kube.run("create", "namespace", home)
    kube.run("create", "configmap", "spotwright", "-n", home, f"--from-literal=spotwright.yaml={config}")
    first = folder / "first"  # what Python imports first (docs of the module `site`)
    first.mkdir(exist_ok=True)
    (first / "sitecustomize.py").write_text(before, encoding="utf-8")
    command = [sys.executable, "-m", "spotwright", "controller", "--state", str(state), "--home", home]
    command += ["--name", home, "--listen", f"{HOST}:{PORT}", "--webhook-url", f"https://{HOST}:{PORT}", *options]
    inside = ["ip", "netns", "exec", bed.namespace, *command]
    inside += ["--kubeconfig", str(kubeconfig or login_of_the_chart(kube, bed, home, folder))]
    path = os.pathsep.join([str(first), *filter(None, [os.environ.get("PYTHONPATH")])])
    with log_file.open("wb") as log:
        process = subprocess.Popen(inside, stderr=log, env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path})

    def end() -> None:
        process.terminate()
        process.wait(60)
        subprocess.run([*inside, "--unregister"], check=False, capture_output=True)

    made = Controller(kube, home, state, log_file, process.pid, end)
    try:
        kube.wait(lambda: process.poll() is not None or is_ready(made), "the controller is ready", _STARTS)
        assert process.poll() is None, made.log.read_text(encoding="utf-8")
        yield made
    finally:
        end()
        kube.run("delete", "namespace", home, "--wait=false")
        if kubeconfig is None:
            remove_rights_of(kube, home)


def is_ready(made: Controller) -> bool:
    """Whether a controller answers reviews and watches."""
    text = made.log.read_text(encoding="utf-8")
    return " ready" in text and "all streams are complete" in text


def configuration(pending_timeout: str, **pools: dict[str, object]) -> str:
    """A configuration whose policy prefers spot, with the pools of the test bed and perhaps more."""
    known: dict[str, object] = {
        "spot": {"capacity": "spot", "provider": "aks", "price": "1.10/h", "node": {"cpu": 2, "memory": "4Gi"}},
        "system": {"capacity": "on-demand", "provider": "aks", "price": "3.30/h", "node": {"cpu": 2, "memory": "4Gi"}},
    }
    policy = {"spot": "prefer", "pending_timeout": pending_timeout, "timeout": "1h", "grace_period": "5s"}
    data = {"version": 1, "pools": {**pools, **known}, "policy": {"default": policy}}
    return yaml.safe_dump(data, sort_keys=False)
