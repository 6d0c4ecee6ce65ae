"""The pair of pools that is used where there is no ``spotwright.yaml``: one spot, one on-demand.

A first trial on a laptop must place any pipeline. So the pair carries the capacity labels of every provider, and a pipeline
written for AKS, GKE, EKS or Karpenter lands where it would land there; it has no taint, because no policy is known that
would answer it; and a node has room for the four GPUs that Google's guide to preemptible pools asks for, and for the devices
of AMD and Google. Nodes boot in half a second and go two seconds after their notice, which is what a person at a terminal
waits for.
"""

from __future__ import annotations

from collections.abc import Mapping

from spotwright.clouds import aks, eks, gke, karpenter
from spotwright.clouds.provider import NVIDIA_GPU
from spotwright.model.pools import Capacity, Pool, Simulate

__all__ = ["built_in_pools"]

_OTHER_DEVICES = ("amd.com/gpu", "google.com/tpu", "cloud-tpus.google.com/v2", "cloud-tpus.google.com/v3")
_PROVIDERS = (aks.FACTS, gke.FACTS, eks.FACTS, karpenter.FACTS)


def built_in_pools() -> Mapping[str, Pool]:
    """The two pools by name, ``spot`` first.

    A node offers 8 cpu, 32Gi, 4 GPUs and 8 of each other device; each pool has at most 10 nodes and no price, so that
    figures are node-hours.
    """
    spot = {key: value for facts in _PROVIDERS for key, value in facts.spot_labels.items()}
    on_demand = {key: value for facts in _PROVIDERS for key, value in facts.on_demand_labels.items()}
    pools = (
        _pool("spot", Capacity.SPOT, {**spot, gke.PREEMPTIBLE: "true"}),
        _pool("on-demand", Capacity.ON_DEMAND, on_demand),
    )
    return {pool.name: pool for pool in pools}


def _pool(name: str, capacity: Capacity, labels: Mapping[str, str]) -> Pool:
    return Pool(
        name=name,
        capacity=capacity,
        node={"cpu": 8_000, "memory": 32 * 2**30, NVIDIA_GPU: 4, **dict.fromkeys(_OTHER_DEVICES, 8)},
        max_nodes=10,
        labels=labels,
        notice=2.0,
        simulate=Simulate(boot=0.5),
    )
