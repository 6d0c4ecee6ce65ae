"""Recurring situations of autoscaled pools: their groups, their work, and the cloud's behavior."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.cluster.live.autoscaling.machines import Fault, Group, aks_groups, eks_groups, gke_groups
from tests.cluster.live.autoscaling.scenarios import Case, job_of
from tests.cluster.live.kube import Object

__all__ = ["AKS_CPU", "AKS_SPOT", "SITUATIONS", "WORK", "Situation", "aks_config"]

AKS_SPOT, AKS_CPU = "aks-cpuspot-12345678-vmss", "aks-cpu-12345678-vmss"
WORK = {"cpu": "3", "memory": "8Gi"}  # one pod for each machine
_GPU_WORK = {"cpu": "3", "memory": "8Gi", "nvidia.com/gpu": 1}
_SPOT = {AKS_SPOT: Fault("error")}


def aks_config(pending_timeout: str, more: str = "") -> str:
    """Three pools of AKS."""
    return f"""\
version: 1
pools:
  cpuspot: {{capacity: spot, provider: aks, price: 0.05/h, node: {{cpu: 4, memory: 16Gi}}, max_nodes: 10}}
  cpu: {{capacity: on-demand, provider: aks, price: 0.20/h, node: {{cpu: 4, memory: 16Gi}}, max_nodes: 5}}
  gpuspot:
    capacity: spot
    provider: aks
    price: 0.97/h
    node: {{cpu: 6, memory: 112Gi, nvidia.com/gpu: 1}}
    max_nodes: 4
    taints: ["sku=gpu:NoSchedule"]
{more}policy: {{default: {{spot: prefer, pending_timeout: {pending_timeout}, timeout: 1h, grace_period: 20s}}}}
"""


_EKS = """\
version: 1
pools:
  cpu-spot: {capacity: spot, provider: eks, price: 0.05/h, node: {cpu: 4, memory: 16Gi}, max_nodes: 10}
  cpu-od: {capacity: on-demand, provider: eks, price: 0.20/h, node: {cpu: 4, memory: 16Gi}, max_nodes: 5}
  gpu-spot:
    capacity: spot
    provider: eks
    price: 0.97/h
    node: {cpu: 8, memory: 32Gi, nvidia.com/gpu: 1}
    max_nodes: 8
    taints: ["nvidia.com/gpu=true:NoSchedule"]
policy: {default: {spot: prefer, pending_timeout: 5s, timeout: 1h, grace_period: 20s}}
"""
_GKE = """\
version: 1
pools:
  spot:
    capacity: spot
    provider: gke
    price: 0.05/h
    node: {cpu: 4, memory: 16Gi}
    max_nodes: 10
    taints: ["cloud.google.com/gke-spot=true:NoSchedule"]
  regular: {capacity: on-demand, provider: gke, price: 0.20/h, node: {cpu: 4, memory: 16Gi}, max_nodes: 5}
  t4:
    capacity: on-demand
    provider: gke
    price: 0.50/h
    node: {cpu: 4, memory: 16Gi, nvidia.com/gpu: 1}
    max_nodes: 2
    taints: ["nvidia.com/gpu=present:NoSchedule"]
policy: {default: {spot: prefer, pending_timeout: 5s, timeout: 1h, grace_period: 20s}}
"""
_OTHER_TEAM: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "other-team"},
    "spec": {"containers": [{"name": "main", "image": "registry.example/other:1", "resources": {"requests": WORK}}]},
}
_SYSTEM_POOL = "  system: {capacity: on-demand, provider: aks, taints: ['CriticalAddonsOnly=true:NoSchedule']}\n"


@dataclass(frozen=True)
class Situation:
    """A situation, and what a reader expects of it without the controller.

    ``expander`` is the autoscaler's; ``priorities`` the text of the ConfigMap of ``priority``, by default what ``explain``
    prints. ``keeps`` says whether the autoscaler goes by the order of the pools: then both runs end on the same groups.
    """

    case: Case
    groups: Callable[[], list[Group]] = aks_groups
    boot: float = 1.0
    faults: Mapping[str, Fault] = field(default_factory=dict)
    expander: str = "priority"
    priorities: str | None = None
    keeps: bool = True
    runs_on: Mapping[str, int] | None = None  # pods by group without the controller; None: left to chance


def _case(name: str, pods: int = 1, pending_timeout: str = "5s", **more: object) -> Case:
    config = aks_config(pending_timeout)
    return Case(name, config, [job_of("cpu-train", WORK, pods)], pods, settle=3, **more)  # type: ignore[arg-type]


def _two_jobs(name: str, config: str, others: Sequence[Object] = ()) -> Case:
    jobs = [job_of("cpu-train", WORK), job_of("gpu-train", _GPU_WORK)]
    return Case(name, config, jobs, 2 + len(others), settle=3, unplaced=others)


_GPU_SPOT = "aks-gpuspot-12345678-vmss"
_EKS_GROUPS = [group.name for group in eks_groups()]
_GKE_GROUPS = [group.name for group in gke_groups()]

SITUATIONS: Mapping[str, Situation] = {
    situation.case.name: situation
    for situation in (
        Situation(_case("spot comes from zero"), runs_on={AKS_SPOT: 1}),
        Situation(_case("least-waste"), expander="least-waste", keeps=False),
        Situation(_case("spot is at its maximum"), lambda: aks_groups(spot_max=0), runs_on={AKS_CPU: 1}),
        Situation(_case("the cloud refuses spot"), faults=_SPOT, runs_on={AKS_CPU: 1}),
        Situation(_case("spot is sold out"), faults={AKS_SPOT: Fault("stockout")}, runs_on={AKS_CPU: 1}),
        Situation(_case("spot is ordered and never comes"), faults={AKS_SPOT: Fault("silent")}, runs_on={AKS_CPU: 1}),
        Situation(_case("six pods and two on spot", 6), lambda: aks_groups(2), runs_on={AKS_SPOT: 2, AKS_CPU: 4}),
        Situation(
            _two_jobs("pools are kept apart", aks_config("5s"), [_OTHER_TEAM]),
            runs_on={AKS_SPOT: 1, _GPU_SPOT: 1, AKS_CPU: 1},
        ),
        Situation(_case("no pattern matches"), priorities="10:\n  - ^other-.*\n", keeps=False),
        Situation(_two_jobs("EKS from zero", _EKS), eks_groups, runs_on={_EKS_GROUPS[0]: 1, _EKS_GROUPS[2]: 1}),
        Situation(_two_jobs("GKE with least-waste", _GKE), gke_groups, expander="least-waste", keeps=False),
        Situation(_case("refused, by default times", pending_timeout="10m"), faults=_SPOT, runs_on={AKS_CPU: 1}),
        Situation(_case("boots slower than pending_timeout"), boot=8.0, runs_on={AKS_SPOT: 1}),
        Situation(
            Case("slow boot and every pool described", aks_config("5s", _SYSTEM_POOL), [job_of("cpu-train", WORK)], 1),
            boot=8.0,
            runs_on={AKS_SPOT: 1},
        ),
        Situation(
            _case("six pods, two on spot, slow boot", 6),
            lambda: aks_groups(2),
            boot=8.0,
            runs_on={AKS_SPOT: 2, AKS_CPU: 4},
        ),
    )
}
"""The situations of one cluster each, by name."""
