"""The record of a provider: a :class:`Provider` holds everything that differs between providers. Pure, no IO.

Code reads a provider's record (:func:`spotwright.clouds.providers.of`) and never compares its name, so that a new provider is
one record of :mod:`spotwright.clouds.provider_records`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from spotwright.clouds.node_signs import CapacitySign
from spotwright.model.pools import Pool
from spotwright.model.scheduling_terms import Taint

__all__ = ["AZURE", "CLUSTER_AUTOSCALER", "NVIDIA_GPU", "Form", "Label", "NamingRule", "PastForm", "Provider", "Setter"]


NVIDIA_GPU = "nvidia.com/gpu"
"""Resource of NVIDIA's device plugin, and key of the taint that GKE sets on nodes with GPUs."""

CLUSTER_AUTOSCALER = "cluster-autoscaler"
"""The name of the cluster autoscaler in ``target.autoscaler`` and in its Events."""

AZURE = "Azure"
"""The cloud whose zones are numbers, and whose zone labels begin with the region."""


class Form(NamedTuple):
    """One form of spot capacity of a provider, with its nodes' labels and taints.

    A pool has a form other than the provider's usual one if its own labels contain one that only that form sets.
    """

    labels: Mapping[str, str] = MappingProxyType({})
    taints: tuple[Taint, ...] = ()


class NamingRule(NamedTuple):
    """A provider's rule for names of pools. ``dropped`` are characters that are removed from a pool's name."""

    pattern: str
    dropped: str
    words: str


class Setter(NamedTuple):
    """A setter of labels, and its nodes. A key that ends with ``*`` stands for every key with that prefix.

    ``on``: the sorts of pools (:attr:`Provider.sorts`), empty for all. ``devices``: only on nodes with such devices: ``gpu`` or
    ``tpu``. ``source``: the source of the names.
    """

    name: str
    keys: tuple[str, ...]
    on: frozenset[str] = frozenset()
    devices: str = ""
    source: str = ""

    def sets(self, key: str) -> bool:
        """Whether it sets this label."""
        return any(key.startswith(one[:-1]) if one.endswith("*") else key == one for one in self.keys)


class Label(NamedTuple):
    """A label that the user does not set.

    ``values``: the nodes' values; with ``is_open`` there may be others. ``is_small``: all values are lowercase. ``misspelt``:
    wrong keys that people write for it.
    """

    key: str
    values: tuple[str, ...] = ()
    is_small: bool = False
    misspelt: tuple[str, ...] = ()
    is_open: bool = False


class PastForm(NamedTuple):
    """A deprecated label. ``value``: None for any. ``instead``: labels beside which it is harmless."""

    key: str
    value: str | None
    today: str
    instead: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, repr=False, match_args=False)
class Provider:
    """One provider. An omitted field means no assumption beyond the configuration.

    ``notice`` is in seconds; no provider guarantees it. Patterns are texts, compiled on use. ``has_groups``: its nodes are in
    groups that the cluster autoscaler can grow.
    """

    name: str  # in spotwright.yaml
    notice: float
    title: str = ""  # for people
    remark: str = ""  # advice for users of its pools, for the page of providers
    notice_words: str = ""  # whose notice it is, for people
    pods_share: float = 1.0  # of the notice; the kubelet keeps the rest for system pods

    # Labels and taints of its nodes
    pool_label: str = ""  # label with the pool's name
    other_pool_labels: tuple[str, ...] = ()  # of other tools, or of earlier versions
    spot: tuple[Form, ...] = (Form(),)  # the forms of spot capacity, the usual one first
    on_demand_labels: Mapping[str, str] = field(default_factory=dict)
    gpu_labels: Mapping[str, str] = field(default_factory=dict)
    automatic_spot_taints: tuple[Taint, ...] = ()  # of pools that the provider creates automatically
    gpu_taints: tuple[Taint, ...] = ()
    tolerates_requests: bool = False  # its API server adds tolerations for the extended resources that a pod requests
    spot_taint_keys: frozenset[str] = frozenset()  # keys that mean spot there, including users' taints
    capacity_signs: Mapping[str, CapacitySign] = field(default_factory=dict)  # more labels of the capacity type
    past: tuple[PastForm, ...] = ()  # deprecated labels of its nodes
    marks_spot: bool = False  # a node without a sign of spot is on-demand
    node_prefix: str = ""  # of labels that identify its nodes, if none names their pool
    plain_labels: frozenset[str] = frozenset()  # that it sets, without a domain
    chosen_labels: frozenset[str] = frozenset()  # that it sets, and that work is expected to select by
    setters: tuple[Setter, ...] = ()  # of built-in labels
    zone_labels: tuple[str, ...] = ()  # beside Kubernetes', with the same value
    derived: Callable[[Pool], Mapping[str, str]] | None = None  # labels that follow from the pool's settings

    # Facts about its labels independent of any pool
    labels: tuple[Label, ...] = ()
    makers: Mapping[str, frozenset[str]] = field(default_factory=dict)  # who makes nodes with a label, by key or domain
    machines: tuple[str, frozenset[str]] | None = None  # the form of its cloud's machine types, and their provisioners
    domains: str = ""  # a pattern for the domains of its labels, misspelt ones included

    # Machines
    clouds: tuple[str, ...] = ()  # whose machines its nodes are
    cloud_of: Callable[[Pool], tuple[str, ...]] | None = None  # the possible clouds of a pool
    arm_machines: tuple[str, ...] = ()  # prefixes of Arm machine types; if set, all others are amd64
    gpu_machines: tuple[str, ...] = ()  # prefixes of machine types with accelerators
    metadata_service: str = ""  # of its nodes, where notices are read
    billed_by: str = ""
    gpu_driver: str = ""  # how it installs the GPU driver and device plugin, for people; empty: the user does

    # Pools
    naming: NamingRule | None = None
    naming_on_windows: NamingRule | None = None
    tools: tuple[str, ...] = ()  # that make its pools, as in ``pools command --as``, the usual one first
    makes_pools: str = ""  # its feature that creates pools, for people; empty: none
    makes_pools_of: str = ""  # cloud services that this provider covers, for people
    adds_pools: bool = False  # may create pools at any time, with unknown names
    mixes_capacities: bool = False  # one pool there may be several here, of both capacity types; spot is used first
    machines_setting: str = ""  # for a pool with several machine types, as the usual tool names it
    lifetime_field: str = ""  # of its pools: the age at which it drains a node

    # Autoscaling
    autoscaler: str = CLUSTER_AUTOSCALER
    expander_command: str = "start the cluster autoscaler with --expander=priority"
    orders_by: str = ""  # the setting that orders its pools, if its autoscaler has no priority expander
    class_label: str = ""  # with the class that orders a pool as its value
    group: str = (
        ""  # a pattern for the name of a pool's node group; ``pool``, or ``cluster_and_pool``, which ends with it
    )
    likely_group: str = "{name}"  # a group's likely name, if no status shows it
    group_pattern: str = ".*{name}.*"  # a pattern for the expander that matches no group of another pool
    hints_at_zero: bool = False  # its autoscaler knows an empty pool's labels and taints only from hints

    # Without a configuration
    marks: tuple[
        str, ...
    ] = ()  # texts in manifests: prefixes of labels and annotations, storage drivers, addresses of buckets
    first_pools: tuple[str, ...] = ()  # lines of a first spotwright.yaml

    has_groups: bool = field(init=False)

    def __post_init__(self) -> None:
        """Cache values that are read for every pool."""
        object.__setattr__(self, "has_groups", self.autoscaler == CLUSTER_AUTOSCALER)

    @property
    def spot_labels(self) -> Mapping[str, str]:
        """The labels of the usual form of spot capacity."""
        return self.spot[0].labels

    @property
    def notice_of_pods(self) -> float:
        """The seconds of its notice that pods get; the kubelet keeps the rest for system pods."""
        return self.notice * self.pods_share

    @property
    def is_one_cloud(self) -> bool:
        """Whether all its nodes are machines of one cloud."""
        return len(self.clouds) == 1

    @property
    def makes_nodes_alike(self) -> bool:
        """Whether all nodes of a pool are alike."""
        return self.has_groups and bool(self.pool_label)

    @property
    def has_numbered_zones(self) -> bool:
        """Whether zones are numbers in its commands, beside the region."""
        return self.clouds == (AZURE,)

    @property
    def names_groups(self) -> bool:
        """Whether a group's name identifies its pool."""
        return "(?P<pool>" in self.group

    def form_of(self, pool: Pool) -> Form:
        """The form of a spot pool: the first one with a label in its configuration, else the usual one."""
        return next((form for form in self.spot if form.labels.items() & pool.labels.items()), self.spot[0])

    def clouds_of(self, pool: Pool) -> tuple[str, ...]:
        """The clouds whose machines the nodes of a pool may be."""
        return self.cloud_of(pool) if self.cloud_of is not None else self.clouds

    def sorts(self, clouds: tuple[str, ...]) -> frozenset[str]:
        """The sorts of its pools on these clouds, as setters of labels distinguish them."""
        if len(self.clouds) < 2:
            return frozenset({self.title} - {""})
        return frozenset(f"{self.title} on {cloud}" for cloud in clouds)
