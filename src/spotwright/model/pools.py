"""Pools: nodes of one kind, with their capacity type, price, notice and lifetime, and settings for simulations.

A price keeps its origin, because figures are only as good as their prices are new. A recorded trace is the number of
available nodes over time; :mod:`spotwright.config` reads both from files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from fractions import Fraction
from typing import Any, NamedTuple

from spotwright.model.scheduling_terms import Taint

__all__ = [
    "DEFAULT_CPU",
    "EXPECTED_BOOT",
    "GENERIC",
    "Capacity",
    "Drain",
    "Pool",
    "PriceSource",
    "Quote",
    "Resources",
    "Simulate",
    "Trace",
]


_DAY = 86400


class Quote(NamedTuple):
    """The price of a node hour in a price sheet, and where it was found.

    ``sheet`` is the file. ``region`` and ``zone`` belong to the offer; an empty zone means the whole region. ``since`` is the
    sheet's start of the price's validity, ``dated`` the last change of the file. Both are Unix seconds; ``since`` is ``None``
    if the sheet lacks it. ``remark`` says which of several prices was used.
    """

    price: Fraction
    currency: str
    region: str
    zone: str
    since: float | None
    dated: float
    sheet: str
    remark: str = ""

    def age(self, now: float) -> float:
        """Seconds since the sheet was saved, 0 or more."""
        return max(0.0, now - self.dated)

    def origin(self, now: float) -> str:
        """Words for people: ``prices.csv of 2026-11-01 (21 days old), eastus``."""
        days = int(self.age(now) // _DAY)
        old = "from today" if days == 0 else f"from {_date(self.dated)} ({days} day{'s' if days > 1 else ''} old)"
        parts = [f"{self.sheet} {old}", self.zone or self.region]
        if self.since is not None:
            parts.append(f"in effect since {_date(self.since)}")
        return ", ".join(filter(None, [*parts, self.remark]))


def _date(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).date().isoformat()


Resources = Mapping[str, int]
"""Amounts by resource name: ``cpu`` in millicores, ``memory`` in bytes, everything else (``nvidia.com/gpu``) as a count."""

DEFAULT_CPU = 1000
"""Millicores of a simulated node that an attempt without resource requests takes: one CPU, as one Python process can use.

kube-scheduler counts 100m CPU and 200Mi memory for such a container when it scores nodes (``DefaultMilliCPURequest``,
``DefaultMemoryRequest`` in ``pkg/scheduler/util/pod_resources.go``), and zero when it filters them. 100m would put 40 of them
on a node of 4 CPUs.
"""

EXPECTED_BOOT = 180.0
"""Assumed seconds from the request for a cloud's virtual machine until its node is ready, for pools that do not state it."""


class Capacity(StrEnum):
    """The capacity type of a pool's nodes."""

    SPOT = "spot"  # cheaper, can be reclaimed
    ON_DEMAND = "on-demand"


GENERIC = "generic"
"""The provider of nodes known only by the configuration. :mod:`spotwright.clouds` has the others."""


class PriceSource(StrEnum):
    """Source of the price of a pool's nodes, so that no computed figure looks like a bill."""

    CONFIGURED = "configured"  # real nodes, at the configuration's price
    EXAMPLE = "example"  # the nodes are simulated, and the price is a round number of the built-in pools, not an offer
    SIMULATED = "simulated"  # the nodes are simulated, and not billed


class Drain(StrEnum):
    """Time of SIGTERM after a notice."""

    BEFORE_END = "before-end"  # at the end of the notice minus the grace period
    AT_NOTICE = "at-notice"  # at once, for providers that drain the node with the notice


class Simulate(NamedTuple):
    """Settings of the pool in local runs and simulations; a cluster ignores them. Durations are simulated seconds.

    ``interrupt_every`` is the mean time between interruptions of a node, without a trace. With neither, nodes are never
    reclaimed. ``expected_duration`` is the assumed duration of a whole attempt that reports its progress: it turns
    ``interrupt_every`` into a share of the attempt's work (see :mod:`spotwright.supply.node_fit`). Default: ``interrupt_every``.
    """

    boot: float = 2.0
    interrupt_every: float | None = None
    expected_duration: float | None = None
    trace: str | None = None  # path of a recorded trace
    start: float = 0.0  # the run's begin in the trace
    drain: Drain = Drain.BEFORE_END


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes of one kind. ``price`` and ``max_price`` are per node hour; durations are seconds.

    ``is_spot``: the provider may reclaim the nodes.

    ``automatic``: the provider makes and names the node pools itself, so that no label has this pool's name.

    ``region`` is the provider's (``eastus``, ``us-east-1``), ``os`` is ``linux`` or ``windows``: price sheets have a price for
    each. ``quote`` is the origin of a price from a sheet, ``None`` for a configured one.

    ``node`` holds the resources of one node. It is ``None`` if the configuration has them neither for this pool nor for another
    with its machine type: such a node runs one attempt at a time, whatever that requests. ``labels`` and ``taints`` come from
    the configuration; :mod:`spotwright.clouds` adds the provider's. ``boot`` is the expected time until a new node is ready.
    Deadlines leave room for it until a node of the pool has booted in the run. ``create_flags`` are further settings of the
    command that creates the pool, by the provider's names.
    """

    name: str
    capacity: Capacity
    provider: str = GENERIC
    machine: str = ""
    zones: tuple[str, ...] = ()
    region: str = ""
    os: str = "linux"
    node: Resources | None = None
    min_nodes: int = 0
    max_nodes: int = 10
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    price: Fraction | None = None
    max_price: Fraction | None = None
    quote: Quote | None = None
    price_source: PriceSource = PriceSource.CONFIGURED
    notice: float = 30.0
    max_lifetime: float | None = None
    boot: float = EXPECTED_BOOT
    create_flags: Mapping[str, Any] = field(default_factory=dict)
    simulate: Simulate = field(default_factory=Simulate)
    automatic: bool = False
    is_spot: bool = field(init=False, repr=False)

    def __hash__(self) -> int:
        """The hash of the name, for caches by pool."""
        return hash(self.name)

    def __post_init__(self) -> None:
        """Cache whether it is spot, which every placement asks many times."""
        object.__setattr__(self, "is_spot", self.capacity is Capacity.SPOT)

    @property
    def simulated(self) -> Pool:
        """The pool in a simulation, with the boot time of ``simulate`` and unbilled nodes."""
        is_example = self.price_source is PriceSource.EXAMPLE
        source = PriceSource.EXAMPLE if is_example else PriceSource.SIMULATED
        return replace(self, boot=self.simulate.boot, price_source=source)


class Trace(NamedTuple):
    """A recording of spot capacity: ``counts[i]`` nodes were available from ``i * gap`` seconds after its start on.

    ``gap`` is more than 0; there is at least one count, and none is negative.
    """

    gap: float
    counts: tuple[int, ...]

    @property
    def length(self) -> float:
        """Duration of the recording in seconds."""
        return self.gap * len(self.counts)
