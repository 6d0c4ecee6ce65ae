"""A fake cloud for node groups: it makes the machines that an autoscaler orders, or refuses, or lets it wait forever.

It stands in for AKS, EKS and GKE. A machine is a Node object that KWOK pretends, made when its boot is over. Not modelled:
preemption, prices, zones, machines that register and break.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.cluster.live.autoscaling.requests import Requests
from tests.cluster.live.kube import Object

__all__ = ["Cloud", "Fault", "Group", "Machine", "RefusedError", "aks_groups", "eks_groups", "gke_groups"]

_TICK = 0.1  # seconds
_FAILS = 1.0  # seconds until a machine reports that there is no capacity
_LETTERS = 5  # in the end of a machine's name
_KWOK = {"kwok.x-k8s.io/node": "fake"}
_COMMON = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}


@dataclass(frozen=True)
class Group:
    """A node group: the properties of its machines, and how many there may be."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[tuple[str, str, str]] = ()  # key, value, effect
    size: Mapping[str, str] = field(default_factory=lambda: {"cpu": "4", "memory": "16Gi"})
    min: int = 0
    max: int = 10

    def node(self, name: str) -> Object:
        """A machine of the group as a Node."""
        size = {"pods": "110", **self.size}
        labels = {"kubernetes.io/hostname": name, **_COMMON, **self.labels}
        taints = [{"key": key, "value": value, "effect": effect} for key, value, effect in self.taints]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": dict(_KWOK)},
            "spec": {"providerID": f"testbed://{self.name}/{name}", "taints": taints},
            "status": {"allocatable": size, "capacity": size},
        }


@dataclass(frozen=True)
class Fault:
    """The cloud's behavior instead of making a machine at once.

    ``mode``: "" makes it; ``error`` refuses every order; ``stockout`` takes the order, and the machine reports missing
    capacity; ``silent`` takes the order, and nothing comes. ``boot`` is a machine's boot time, in seconds.
    """

    mode: str = ""
    boot: float = 0.0


@dataclass
class Machine:
    """A machine that was ordered."""

    name: str
    due: float  # when it is there, or has failed, by the monotonic clock
    error: str = ""  # what the cloud says of a machine that will not come
    is_made: bool = False  # its Node is there

    @property
    def has_failed(self) -> bool:
        """Whether the cloud says that it will not come."""
        return bool(self.error) and self.due <= time.monotonic()


class RefusedError(Exception):
    """The cloud does not take an order."""


class Cloud:
    """The machines of all groups. It keeps orders while there is no autoscaler, as real ones do."""

    def __init__(
        self, api: Requests, groups: Sequence[Group], *, boot: float = 0.0, faults: Mapping[str, Fault] | None = None
    ) -> None:
        self.groups = {group.name: group for group in groups}
        self.faults = dict(faults or {})
        self._api, self._boot = api, boot
        self._machines: dict[str, list[Machine]] = {group.name: [] for group in groups}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = ThreadPoolExecutor(1)
        self._work = self._thread.submit(self._run)

    def target(self, group: str) -> int:
        """How many machines the group has or awaits."""
        with self._lock:
            return len(self._machines[group])

    def machines(self, group: str) -> list[Machine]:
        """The machines of a group, with those that are still to come."""
        with self._lock:
            return list(self._machines[group])

    def order(self, group: str, more: int) -> None:
        """Order machines. Raise :class:`RefusedError` where the cloud refuses."""
        fault = self.faults.get(group, Fault(boot=self._boot))
        if fault.mode == "error":
            raise RefusedError(f"SkuNotAvailable, the cloud refuses to grow {group}")
        due = time.monotonic() + (fault.boot or self._boot)
        with self._lock:
            for _ in range(more):
                machine = Machine(f"{group}-{uuid.uuid4().hex[:_LETTERS]}", due)
                if fault.mode == "silent":
                    machine.due = float("inf")
                elif fault.mode == "stockout":
                    machine.due, machine.error = time.monotonic() + _FAILS, "no spot capacity"
                self._machines[group].append(machine)

    def cancel(self, group: str, machine: Machine) -> None:
        """Give up or end a machine."""
        with self._lock:
            if machine in self._machines.get(group, ()):
                self._machines[group].remove(machine)
        if machine.is_made:
            self._api.send("DELETE", f"/api/v1/nodes/{machine.name}")

    def forget(self, group: str) -> None:
        """Delete a whole group with its machines, also those that are on their way."""
        for machine in self.machines(group):
            self.cancel(group, machine)
        with self._lock:
            del self.groups[group], self._machines[group]

    def end(self) -> None:
        """End all machines, and raise their errors."""
        self._over.set()
        self._thread.shutdown()
        for group in list(self.groups):
            for machine in self.machines(group):
                self.cancel(group, machine)
        self._work.result()

    def _run(self) -> None:
        while not self._over.wait(_TICK):
            self._make()

    def _make(self) -> None:
        """Make the Nodes whose machines have booted."""
        now = time.monotonic()
        with self._lock:
            due = [
                (self.groups[name], machine)
                for name, machines in self._machines.items()
                for machine in machines
                if not machine.is_made and not machine.error and machine.due <= now
            ]
            for _, machine in due:
                machine.is_made = True
        for group, machine in due:
            self._api.send("POST", "/api/v1/nodes", group.node(machine.name))


_AKS_SPOT = "kubernetes.azure.com/scalesetpriority"


def aks_groups(spot_max: int = 10, cpu_max: int = 5) -> list[Group]:
    """Three scale sets of AKS: general machines on spot and on-demand, and GPUs on spot."""

    def group(pool: str, size: Mapping[str, str], most: int, *, spot: bool) -> Group:
        labels = {"agentpool": pool, "kubernetes.azure.com/agentpool": pool, "kubernetes.azure.com/mode": "user"}
        taints = [(_AKS_SPOT, "spot", "NoSchedule")] if spot else []
        if "nvidia.com/gpu" in size:
            taints.append(("sku", "gpu", "NoSchedule"))
            labels["kubernetes.azure.com/accelerator"] = "nvidia"
        return Group(
            f"aks-{pool}-12345678-vmss", {**labels, **({_AKS_SPOT: "spot"} if spot else {})}, taints, size, max=most
        )

    general = {"cpu": "3860m", "memory": "13Gi"}
    return [
        group("cpuspot", general, spot_max, spot=True),
        group("cpu", general, cpu_max, spot=False),
        group("gpuspot", {"cpu": "5860m", "memory": "104Gi", "nvidia.com/gpu": "1"}, 4, spot=True),
    ]


def eks_groups() -> list[Group]:
    """Three node groups of EKS, whose spot has no taint."""

    def group(pool: str, capacity: str, size: Mapping[str, str], most: int) -> Group:
        labels = {"eks.amazonaws.com/nodegroup": pool, "eks.amazonaws.com/capacityType": capacity}
        taints = [("nvidia.com/gpu", "true", "NoSchedule")] if "nvidia.com/gpu" in size else []
        return Group(f"eks-{pool}-0a1b2c3d-1111-2222-3333-444455556666", labels, taints, size, max=most)

    general = {"cpu": "3920m", "memory": "14Gi"}
    return [
        group("cpu-spot", "SPOT", general, 10),
        group("cpu-od", "ON_DEMAND", general, 5),
        group("gpu-spot", "SPOT", {"cpu": "7910m", "memory": "29Gi", "nvidia.com/gpu": "1"}, 8),
    ]


def gke_groups() -> list[Group]:
    """Three node pools of GKE: general machines on spot and on-demand, and GPUs on-demand."""

    def group(pool: str, size: Mapping[str, str], most: int, *, spot: bool) -> Group:
        labels = {
            "cloud.google.com/gke-nodepool": pool,
            "cloud.google.com/gke-provisioning": "spot" if spot else "standard",
        }
        taints = [("cloud.google.com/gke-spot", "true", "NoSchedule")] if spot else []
        if spot:
            labels["cloud.google.com/gke-spot"] = "true"
        if "nvidia.com/gpu" in size:
            taints.append(("nvidia.com/gpu", "present", "NoSchedule"))
            labels["cloud.google.com/gke-accelerator"] = "nvidia-tesla-t4"
        return Group(f"gke-c-{pool}-12345678-grp", labels, taints, size, max=most)

    general = {"cpu": "3920m", "memory": "13Gi"}
    return [
        group("spot", general, 10, spot=True),
        group("regular", general, 5, spot=False),
        group("t4", {**general, "nvidia.com/gpu": "1"}, 2, spot=False),
    ]
