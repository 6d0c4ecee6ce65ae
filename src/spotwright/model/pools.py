"""Pools: nodes of one kind, what they cost, how they announce their end, and how the local worlds simulate them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from spotwright.model.placing import Taint

__all__ = ["Capacity", "Drain", "Pool", "Provider", "Resources", "Simulate"]

Resources = Mapping[str, int]
"""Amounts by resource name: ``cpu`` in millicores, ``memory`` in bytes, everything else (``nvidia.com/gpu``) as a count."""


class Capacity(StrEnum):
    """How the provider sells the nodes of a pool."""

    SPOT = "spot"  # cheaper, can be taken away
    ON_DEMAND = "on-demand"


class Provider(StrEnum):
    """Whose labels, taints and notices the pool carries."""

    AKS = "aks"
    GKE = "gke"
    EKS = "eks"
    KARPENTER = "karpenter"
    GENERIC = "generic"  # nothing is assumed but what the configuration says


class Drain(StrEnum):
    """When SIGTERM comes after a notice."""

    BEFORE_END = "before-end"  # at the end of the notice minus the grace period
    AT_NOTICE = "at-notice"  # at once, for providers that drain as soon as they know


@dataclass(frozen=True, slots=True)
class Simulate:
    """How the local and simulated worlds play this pool; the cluster ignores it. Durations in seconds of the simulated world.

    ``taken_every`` is the mean time between interruptions and needs no trace; with neither, nodes are never taken.
    ``work`` is how long a whole attempt that reports its progress is taken to be when ``taken_every`` is turned into a
    share of its work (see :mod:`spotwright.supply.market`); default: ``taken_every`` itself.
    """

    boot: float = 2.0
    taken_every: float | None = None
    work: float | None = None
    trace: str | None = None  # path of a recorded trace
    start: float = 0.0  # where in the trace the run begins
    drain: Drain = Drain.BEFORE_END


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes of one kind. ``price`` and ``max_price`` are per node hour; durations are seconds.

    ``node`` is what one node offers; ``None`` where the configuration does not say and no other pool of the same machine
    does: such a node takes one attempt at a time, whatever it asks for.
    ``labels`` and ``taints`` are those of the configuration; :mod:`spotwright.clouds` adds what the provider sets.
    """

    name: str
    capacity: Capacity
    provider: Provider = Provider.GENERIC
    machine: str = ""
    zones: tuple[str, ...] = ()
    node: Resources | None = None
    min_nodes: int = 0
    max_nodes: int = 10
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    price: Fraction | None = None
    max_price: Fraction | None = None
    notice: float = 30.0
    lifetime: float | None = None
    simulate: Simulate = field(default_factory=Simulate)

    @property
    def is_spot(self) -> bool:
        """Whether the provider may take these nodes away."""
        return self.capacity is Capacity.SPOT
