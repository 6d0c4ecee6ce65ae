"""Starts the real ``spotwright controller`` beside a test bed, as one process or as several replicas behind one address.

The processes run in the network of the control plane, where the API server reaches them, and share a state folder.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from testbed.building.images import BUSYBOX
from testbed.settings import NETWORK, Settings
from tests.cluster.live.kube import Kube, Object

from spotwright.engine.state import RunState
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import StateFolder

__all__ = ["Controllers", "configure", "controllers"]

_READY = 120.0  # seconds, on a busy machine
_ENDED = 20.0


@dataclass
class Controllers:
    """Replicas of one controller, by their numbers from 0. ``state`` is their state folder, ``home`` their namespace."""

    settings: Settings
    kube: Kube
    home: str
    state: Path
    logs: Path
    ports: Sequence[int]
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    options: Sequence[str] = ("-v",)

    def start(self, number: int) -> None:
        """Start a replica; it is not waited for."""
        at = f"{NETWORK.control_plane}:{self.ports[number + 1]}"
        command = ["-m", "spotwright", "controller", "--state", str(self.state), "--home", self.home]
        command += ["--kubeconfig", str(self.settings.inside_kubeconfig), "--name", self.home, "--listen", at]
        reached = self.ports[0 if len(self.ports) > 2 else 1]  # one replica needs nobody before it
        command += ["--webhook-url", f"https://{NETWORK.control_plane}:{reached}", "--refusal-image", BUSYBOX]
        command += ["--log-limit", "0", *self.options]
        with (self.logs / f"controller-{number}.log").open("ab") as log:
            inside = self._inside(*command)  # in a session of its own, so that it shares processors with no test
            self.processes[number] = subprocess.Popen(inside, stdout=log, stderr=log, start_new_session=True)

    def wait(self) -> None:
        """Wait until every replica that runs says that it is ready."""

        def ready() -> bool:
            for number, process in self.processes.items():
                assert process.poll() is None, self.log(number)
            return all(self.log(number).rstrip().count(" ready") for number in self.processes)

        self.kube.wait(ready, "the controllers are ready", _READY)

    def kill(self, number: int) -> None:
        """End a replica with SIGKILL."""
        process = self.processes.pop(number)
        process.send_signal(signal.SIGKILL)
        process.wait(_ENDED)

    def leader(self) -> int:
        """The replica that records."""

        def found() -> list[int]:
            lease = self.kube.get("lease", self.home, self.home) or {}
            holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
            return [number for number, process in self.processes.items() if str(process.pid) in holder]

        return self.kube.wait(found, "a replica holds the Lease", _READY)[0]

    def log(self, number: int) -> str:
        """What a replica has written."""
        return (self.logs / f"controller-{number}.log").read_text(encoding="utf-8", errors="replace")

    def runs(self) -> dict[tuple[str, str], RunState]:
        """What is recorded, by namespace and name of the workload. A run that is just being made has none yet."""
        states = [RunReader(folder, lambda _: False).state for folder in StateFolder.open(self.state).runs()]
        made = [each for each in states if "name" in each.meta.arguments]
        return {(str(each.meta.arguments["namespace"]), str(each.meta.arguments["name"])): each for each in made}

    def balance(self) -> subprocess.Popen[bytes]:
        """Start what takes connections for all replicas."""
        addresses = [f"{NETWORK.control_plane}:{port}" for port in self.ports]
        return subprocess.Popen(self._inside("-m", "tests.cluster.live.balancer", *addresses))

    def _inside(self, *arguments: str) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.settings.namespace}", sys.executable, *arguments]


@contextmanager
def controllers(
    settings: Settings, kube: Kube, folder: Path, *, replicas: int = 1, options: Sequence[str] = ("-v",)
) -> Iterator[Controllers]:
    """Replicas that are ready; afterwards they have ended, and nothing of them is left in the cluster."""
    first = random.randrange(20_000, 30_000)  # noqa: S311  # a port, no secret
    home = f"controller-{first}"
    ports = [first + number for number in range(replicas + 1)]
    made = Controllers(settings, kube, home, folder / "state", folder, ports, options=options)
    kube.run("create", "namespace", home)
    balancer = made.balance()
    try:
        for number in range(replicas):
            made.start(number)
        made.wait()
        yield made
    finally:
        kube.run("delete", "mutatingwebhookconfiguration", home, "--ignore-not-found")
        for process in (*made.processes.values(), balancer):
            process.terminate()
        for process in (*made.processes.values(), balancer):
            try:
                process.wait(_ENDED)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_ENDED)
        kube.run("delete", "namespace", home, "--wait=false", "--ignore-not-found")


def configure(kube: Kube, namespace: str, text: str) -> Object:
    """Give a namespace a configuration, and label it for the controller. Returns the ConfigMap."""
    made = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "spotwright", "namespace": namespace},
        "data": {"spotwright.yaml": text},
    }
    kube.apply(made)
    kube.run("label", "namespace", namespace, "spotwright.dev/enabled=true", "--overwrite")
    return made
