"""Starts the real processes of a controller beside a test bed: one replica of both, or several behind one address.

They run in the network of the control plane, where the API server reaches them.
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
from tests.cluster.live.recorded import forget_pools, install_kinds, runs_of

from spotwright.engine.state import RunState

__all__ = ["Controllers", "configure", "controllers"]

_READY = 120.0  # seconds, on a busy machine
_ENDED = 20.0


@dataclass
class Controllers:
    """Replicas of one controller, by their numbers from 0: each a webhook and a recorder. ``home`` is their namespace."""

    settings: Settings
    kube: Kube
    home: str
    folder: Path
    ports: Sequence[int]
    processes: dict[tuple[int, str], subprocess.Popen[bytes]] = field(default_factory=dict)
    options: Sequence[str] = ("-v",)  # of both
    webhook: Sequence[str] = ()

    def start(self, number: int) -> None:
        """Start a replica; it is not waited for."""
        at = f"{NETWORK.control_plane}:{self.ports[number + 1]}"
        reached = self.ports[0 if len(self.ports) > 2 else 1]  # one replica needs nobody before it
        webhook = ["--listen", at, "--webhook-url", f"https://{NETWORK.control_plane}:{reached}"]
        own = {"webhook": [*webhook, "--refusal-image", BUSYBOX, *self.webhook], "recorder": ["--log-limit", "0"]}
        common = ["--home", self.home, "--name", self.home, "--kubeconfig", str(self.settings.inside_kubeconfig)]
        for name, options in own.items():
            command = ["-m", "spotwright", "controller", name, *common, "--metrics-listen", "127.0.0.1:0"]
            command += ["--authority-folder", str(self.folder / f"{name}-{number}"), *options, *self.options]
            with (self.folder / f"controller-{number}.log").open("ab") as log:
                inside = self._inside(*command)  # in a session of its own, so that it shares processors with no test
                made = subprocess.Popen(inside, stdout=log, stderr=log, start_new_session=True)
                self.processes[number, name] = made

    def wait(self) -> None:
        """Wait until every replica that runs is ready, and one records."""

        def ready() -> bool:
            for (number, _), process in self.processes.items():
                assert process.poll() is None, self.log(number)
            logs = [self.log(number) for number in {number for number, _ in self.processes}]
            return all(" ready\n" in log for log in logs) and any("streams are complete" in log for log in logs)

        self.kube.wait(ready, "the controllers are ready", _READY)

    def of(self, number: int) -> list[subprocess.Popen[bytes]]:
        """The processes of a replica."""
        return [process for (each, _), process in self.processes.items() if each == number]

    def pids(self, number: int) -> list[int]:
        """The numbers of its processes."""
        return [process.pid for process in self.of(number)]

    def kill(self, number: int) -> None:
        """End a replica with SIGKILL."""
        for process in self.of(number):
            process.send_signal(signal.SIGKILL)
            process.wait(_ENDED)
        self.processes = {key: process for key, process in self.processes.items() if key[0] != number}

    def leader(self) -> int:
        """The replica that records."""

        def found() -> list[int]:
            lease = self.kube.get("lease", self.home, self.home) or {}
            holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
            return [number for (number, _), process in self.processes.items() if f"_{process.pid}_" in holder]

        return self.kube.wait(found, "a replica holds the Lease", _READY)[0]

    def log(self, number: int) -> str:
        """The output of a replica."""
        return (self.folder / f"controller-{number}.log").read_text(encoding="utf-8", errors="replace")

    def runs(self) -> dict[tuple[str, str], RunState]:
        """The records, by namespace and name of the workload. A run that is just being created has none yet."""
        return {(named.namespace, named.name): state for named, state in runs_of(self.kube.kubeconfig)}

    def balance(self) -> subprocess.Popen[bytes]:
        """Start the balancer for all replicas."""
        addresses = [f"{NETWORK.control_plane}:{port}" for port in self.ports]
        return subprocess.Popen(self._inside("-m", "tests.cluster.live.balancer", *addresses))

    def _inside(self, *arguments: str) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.settings.namespace}", sys.executable, *arguments]


@contextmanager
def controllers(
    settings: Settings,
    kube: Kube,
    folder: Path,
    *,
    replicas: int = 1,
    options: Sequence[str] = ("-v",),
    webhook: Sequence[str] = (),
) -> Iterator[Controllers]:
    """Replicas that are ready; afterwards they have ended, and nothing of them is left in the cluster."""
    first = random.randrange(20_000, 30_000)  # noqa: S311  # a port, no secret
    home = f"controller-{first}"
    ports = [first + number for number in range(replicas + 1)]
    made = Controllers(settings, kube, home, folder, ports, options=options, webhook=webhook)
    install_kinds(kube)
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
        forget_pools(kube, f"{home}.{home}")
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
