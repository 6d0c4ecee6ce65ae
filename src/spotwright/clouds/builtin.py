"""The pools that are used without a ``spotwright.yaml``: one spot, one on-demand.

A first trial on a laptop must place any pipeline:

- The pools have the capacity labels of every provider, so that a pipeline written for AKS, GKE, EKS or Karpenter goes to the same
  kind of node as there.
- They have no taint, because there may be no policy that tolerates it.
- A node has room for the four GPUs in Google's guide to preemptible pools, and for the devices of AMD and Google.
- Nodes boot in half a second and go two seconds after their notice, because a person waits at a terminal.
- Their prices are examples, so that the first run of a pipeline shows an account: on-demand costs 1.00 an hour, spot 70 % less.
  Providers advertise discounts of up to 90 %; the real price depends on the machine type, the zone and the day. The numbers are
  round so that they do not look like an offer.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from spotwright.clouds import aks, eks, gke, karpenter
from spotwright.clouds.provider import NVIDIA_GPU
from spotwright.model.pools import Capacity, Pool, PriceSource, Simulate

__all__ = ["built_in_pools"]

_OTHER_DEVICES = ("amd.com/gpu", "google.com/tpu", "cloud-tpus.google.com/v2", "cloud-tpus.google.com/v3")
_PRICES = {Capacity.ON_DEMAND: Fraction(1), Capacity.SPOT: Fraction(3, 10)}  # of a node hour, in the run's currency
_PROVIDERS = (aks.FACTS, gke.FACTS, eks.FACTS, karpenter.FACTS)


def built_in_pools() -> Mapping[str, Pool]:
    """Return the two pools by name, ``spot`` first.

    A node has 8 cpu, 32Gi, 4 GPUs and 8 of each other device. Each pool has at most 10 nodes and an example price.
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
        price=_PRICES[capacity],
        price_source=PriceSource.EXAMPLE,
        notice=2.0,
        simulate=Simulate(boot=0.5),
    )
