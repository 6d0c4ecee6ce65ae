"""What can happen to a node, on command: the deaths, and the ways back.

| fault | what happens | what Kubernetes sees |
|---|---|---|
| power-cut | every process of the node ends at once | no heartbeat; NotReady after the monitor's grace |
| unplug | the network is cut, processes go on | the same |
| shutdown | logind announces it, the kubelet ends its pods, the power goes | NotReady at once, pods Failed/Terminated |
| drain | cordoned, and its pods are evicted | unschedulable, SIGTERM to the pods |
| taint | a taint with NoExecute | pods that do not tolerate it are deleted |
| delete | the Node object is deleted, the machine runs on | pods are deleted by the garbage collector |
| notice | the metadata server announces the end, as the cloud does | nothing |
| restore | power, network, Node object and schedulability are back | Ready |
"""

from __future__ import annotations

import time

from testbed.control.api import Api
from testbed.machine import network, nodes
from testbed.machine.node_services import order
from testbed.machine.processes import wait_until
from testbed.settings import Settings

__all__ = ["FAULT_TAINT", "Faults"]

FAULT_TAINT = "testbed.spotwright.dev/fault"
"""Key of the taint of the fault ``taint``."""

_NOTICE_SECONDS = {"aks": 30.0, "gke": 30.0, "eks": 120.0}
"""How long before its end a spot node hears of it, by the documentation of each cloud."""

_READY_TIMEOUT = 120.0  # seconds
_LISTENS_TIMEOUT = 60.0  # seconds; a kubelet that has just started may be Ready before it listens
_SPARE = 15.0  # seconds beyond the kubelet's own grace period


class Faults:
    """Faults of the nodes of one cluster, which are named by their numbers."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._api = settings, Api(settings)

    def cut_power(self, number: int) -> None:
        """End every process of a node at once."""
        nodes.cut_power(self._settings, number)

    def unplug(self, number: int) -> None:
        """Cut a node's network; its processes continue."""
        network.unplug(self._settings, number)

    def plug(self, number: int) -> None:
        """Connect a node's network again."""
        network.plug(self._settings, number)

    def shut_down(self, number: int) -> float:
        """Shut a node down as systemd does: announce it, wait for the kubelet, cut the power. Returns seconds until then."""
        folder = self._settings.node_folder(number)
        hint = f"the kubelet of n{number} listens for shutdowns; TESTBED_SHUTDOWN_GRACE is 0?"
        wait_until(lambda: bool(order(folder, "state")["inhibited"]), hint, _LISTENS_TIMEOUT)
        answer = order(folder, "shutdown", timeout=self._settings.shutdown_grace + _SPARE)
        nodes.cut_power(self._settings, number)
        return float(answer["seconds"])

    def drain(self, number: int, *, timeout: int = 120) -> None:
        """Cordon a node and evict its pods, also those without a controller. ``timeout`` is in seconds."""
        flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--timeout={timeout}s")
        self._api.kubectl("drain", f"n{number}", *flags)

    def taint(self, number: int, key: str = FAULT_TAINT, effect: str = "NoExecute") -> None:
        """Taint a node."""
        self._api.kubectl("taint", "node", f"n{number}", f"{key}=true:{effect}", "--overwrite")

    def delete(self, number: int) -> None:
        """Delete a Node object. Its kubelet continues, and does not register again until it restarts."""
        self._api.kubectl("delete", "node", f"n{number}", "--wait=false")

    def notice(self, number: int, seconds: float | None = None) -> None:
        """Let a node's metadata server announce its end in ``seconds``; by default as early as the cloud does."""
        seconds = _NOTICE_SECONDS[self._settings.cloud] if seconds is None else seconds
        order(self._settings.node_folder(number), "notice", seconds=seconds)

    def withdraw(self, number: int) -> None:
        """Take a notice back."""
        order(self._settings.node_folder(number), "withdraw")

    def restore(self, number: int) -> float:
        """Undo every fault of a node, and wait until it is Ready and schedulable. Returns the seconds that it took."""
        name = f"n{number}"
        if nodes.is_running(self._settings, number) and self._api.get(f"/api/v1/nodes/{name}") is None:
            nodes.cut_power(self._settings, number)  # only a new kubelet registers
        if nodes.is_running(self._settings, number):
            self.plug(number)
            self.withdraw(number)
        else:
            nodes.start(self._settings, number)
        started = time.time()  # Kubernetes calls a node Ready for some seconds after its end
        seconds = wait_until(
            lambda: self._api.heartbeat(name) > started and name in self._api.ready_nodes(),
            f"{name} is Ready",
            _READY_TIMEOUT,
        )
        self._api.kubectl("uncordon", name)
        taints = self._api.get(f"/api/v1/nodes/{name}")["spec"].get("taints", [])
        for key in {taint["key"] for taint in taints} & {FAULT_TAINT}:
            self._api.kubectl("taint", "node", name, f"{key}-")
        return seconds
