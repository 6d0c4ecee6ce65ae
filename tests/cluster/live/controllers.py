"""The whole controller beside the API server of the test bed: webhook and recorder, as a user starts them."""

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
from tests.cluster.live.chart_account import logins_of_the_chart, remove_rights_of
from tests.cluster.live.kube import Kube
from tests.cluster.live.recorded import forget_pools, install_kinds, left_out, runs_of

from spotwright.cluster.permissions import PROCESSES
from spotwright.engine.state import AttemptState, RunState
from spotwright.scheduling.budgets import Pause

HOST, PORT = "10.89.0.1", 19443  # where the API server of the test bed reaches webhooks
_STARTS = 120.0  # seconds


@dataclass(frozen=True)
class Controller:
    """A controller that runs. ``home`` is its own namespace, ``logs`` the folder with the logs that it keeps."""

    kube: Kube
    home: str
    folder: Path
    log: Path  # of both processes
    pids: tuple[int, ...]
    end: Callable[[], None]  # ends it, and takes its registration out

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def enable(self, namespace: str) -> None:
        """Let it place and watch a namespace."""
        self.kube.run("label", "namespace", namespace, "spotwright.dev/enabled=true")

    def run(self, name: str) -> RunState | None:
        """The run of the newest workload of this name: namespaces of earlier tests may still go away."""
        named = [state for _, state in runs_of(self.kube.kubeconfig, name)]
        return max(named, key=lambda state: state.started_at, default=None)

    def has_ended(self, name: str) -> bool:
        """Whether the end of this workload is recorded."""
        run = self.run(name)
        return run is not None and run.finished_at is not None

    def attempts(self, name: str) -> list[AttemptState]:
        """All attempts of a workload, task by task."""
        run = self.run(name)
        return [attempt for task in run.tasks.values() for attempt in task.attempts] if run is not None else []

    def left_out(self) -> dict[str, Pause]:
        """The published pauses of pools."""
        return left_out(self.kube, _release(self.home))


def _release(home: str) -> str:
    return f"{home}.{home}"


@contextmanager
def controller(
    kube: Kube,
    bed: Settings,
    folder: Path,
    config: str,
    *recorder: str,
    before: str = "",
    kubeconfig: Path | None = None,
) -> Iterator[Controller]:
    """A controller with this configuration for all labelled namespaces, during the block.

    ``recorder`` are options of that process. ``before`` is Python code that each process runs first: to shorten a time that
    has no setting. ``kubeconfig`` is that of a user with other rights than the chart's accounts, which are the default.
    """
    home = f"controller-{uuid.uuid4().hex[:6]}"
    log = folder / "controller.log"
    install_kinds(kube)
    kube.run("create", "namespace", home)
    kube.run("create", "configmap", "spotwright", "-n", home, f"--from-literal=spotwright.yaml={config}")
    first = folder / "first"  # what Python imports first (docs of the module `site`)
    first.mkdir(exist_ok=True)
    (first / "sitecustomize.py").write_text(before, encoding="utf-8")
    path = os.pathsep.join([str(first), *filter(None, [os.environ.get("PYTHONPATH")])])
    logins = dict.fromkeys(PROCESSES, kubeconfig) if kubeconfig else logins_of_the_chart(kube, bed, home, folder)

    def command(name: str, *options: str) -> list[str]:
        inside = ["ip", "netns", "exec", bed.namespace, sys.executable, "-m", "spotwright", "controller", name]
        login = logins["recorder" if name == "recorder" else "webhook"]
        return [*inside, "--name", home, "--kubeconfig", str(login), *options]

    def start(name: str, *options: str) -> subprocess.Popen[bytes]:
        common = ["--home", home, "--authority-folder", str(folder / name), "--metrics-listen", "127.0.0.1:0"]
        with log.open("ab") as output:
            return subprocess.Popen(
                command(name, *common, *options),
                stderr=output,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path},
            )

    log.unlink(missing_ok=True)
    processes = (
        start("webhook", "--listen", f"{HOST}:{PORT}", "--webhook-url", f"https://{HOST}:{PORT}"),
        start("recorder", "--logs", f"file://{folder.absolute()}/logs", *recorder),
    )

    def end() -> None:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)
        subprocess.run(command("unregister"), check=False, capture_output=True)

    made = Controller(kube, home, folder, log, tuple(process.pid for process in processes), end)
    try:
        kube.wait(
            lambda: any(each.poll() is not None for each in processes) or is_ready(made),
            "the controller is ready",
            _STARTS,
        )
        assert all(each.poll() is None for each in processes), made.log.read_text(encoding="utf-8")
        yield made
    finally:
        end()
        forget_pools(kube, _release(home))
        kube.run("delete", "namespace", home, "--wait=false")
        if kubeconfig is None:
            remove_rights_of(kube, home)


def is_ready(made: Controller) -> bool:
    """Whether a controller answers reviews and watches."""
    text = made.log.read_text(encoding="utf-8")
    return " ready\n" in text and "all streams are complete" in text


def configuration(pending_timeout: str, **pools: dict[str, object]) -> str:
    """A configuration whose policy prefers spot, with the pools of the test bed and perhaps more."""
    known: dict[str, object] = {
        "spot": {"capacity": "spot", "provider": "aks", "price": "1.10/h", "node": {"cpu": 2, "memory": "4Gi"}},
        "system": {"capacity": "on-demand", "provider": "aks", "price": "3.30/h", "node": {"cpu": 2, "memory": "4Gi"}},
    }
    policy = {"spot": "prefer", "pending_timeout": pending_timeout, "timeout": "1h", "grace_period": "5s"}
    data = {"version": 1, "pools": {**pools, **known}, "policy": {"default": policy}}
    return yaml.safe_dump(data, sort_keys=False)
