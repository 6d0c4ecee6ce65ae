"""What a provider's record says: one :class:`Provider` holds everything that differs from one provider to the next. Pure, no IO.

Code that needs to know what a provider does asks its record (:func:`spotwright.clouds.providers.of`) and never compares its name,
so that a new provider is one record of :mod:`spotwright.clouds.provider_records`.
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
"""The autoscaler that grows groups of nodes, by the name that ``target.autoscaler`` and its Events have."""

AZURE = "Azure"
"""The cloud whose zones are numbers, and whose zone labels begin with the region."""


class Form(NamedTuple):
    """One form of spot capacity that a provider sells, with what its nodes carry.

    A pool is of another form than the provider's usual one if its own labels have one of the form's, which are set only by it.
    """

    labels: Mapping[str, str] = MappingProxyType({})
    taints: tuple[Taint, ...] = ()


class NamingRule(NamedTuple):
    """What the name of a pool may be at a provider. ``dropped`` are characters that are left out where a pool's name has them."""

    pattern: str
    dropped: str
    words: str


class Setter(NamedTuple):
    """Who sets labels, and on which nodes. A key that ends with ``*`` stands for every key that begins so.

    ``on``: the sorts of pools (:attr:`Provider.sorts`), empty for all. ``devices``: only on nodes with such devices: ``gpu`` or
    ``tpu``. ``source``: where the names are from.
    """

    name: str
    keys: tuple[str, ...]
    on: frozenset[str] = frozenset()
    devices: str = ""
    source: str = ""

    def sets(self, key: str) -> bool:
        """Whether it sets a label."""
        return any(key.startswith(one[:-1]) if one.endswith("*") else key == one for one in self.keys)


class Label(NamedTuple):
    """A label that is set by others than the user.

    ``values``: those that nodes have; there may be others too if ``is_open``. ``is_small``: no value has a capital letter.
    ``misspelt``: keys that people write for it and no node has.
    """

    key: str
    values: tuple[str, ...] = ()
    is_small: bool = False
    misspelt: tuple[str, ...] = ()
    is_open: bool = False


class PastForm(NamedTuple):
    """A label of the past. ``value``: None for any. ``instead``: labels that make it harmless, where one is set beside it."""

    key: str
    value: str | None
    today: str
    instead: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, repr=False, match_args=False)
class Provider:
    """One provider. An omitted field means no assumption beyond the configuration.

    ``notice`` is in seconds; no provider guarantees it. Patterns are texts, which are compiled where they are needed.
    ``has_groups``: its nodes are in groups that the cluster autoscaler may grow.
    """

    name: str  # in spotwright.yaml
    notice: float
    title: str = ""  # as people call it
    remark: str = ""  # what the users of its pools have to know, for the page of providers
    notice_words: str = ""  # whose notice it is, for people
    pods_share: float = 1.0  # of the notice; the kubelet keeps the rest for system pods

    # What its nodes carry
    pool_label: str = ""  # label whose value is the name of the pool
    other_pool_labels: tuple[str, ...] = ()  # on nodes that others made there, or that it made in the past
    spot: tuple[Form, ...] = (Form(),)  # the forms of spot capacity, the usual one first
    on_demand_labels: Mapping[str, str] = field(default_factory=dict)
    gpu_labels: Mapping[str, str] = field(default_factory=dict)
    automatic_spot_taints: tuple[Taint, ...] = ()  # of pools that the provider makes by itself
    gpu_taints: tuple[Taint, ...] = ()
    tolerates_requests: bool = (
        False  # its API server adds to a pod a toleration of each extended resource in its requests
    )
    spot_taint_keys: frozenset[str] = frozenset()  # keys that mean spot there, also of taints set by people
    capacity_signs: Mapping[str, CapacitySign] = field(
        default_factory=dict
    )  # labels that show the capacity beside these
    past: tuple[PastForm, ...] = ()  # labels of its nodes in the past
    marks_spot: bool = False  # a node without a sign of spot is on-demand
    node_prefix: str = ""  # of labels by which its nodes are known, where none names their pool
    plain_labels: frozenset[str] = frozenset()  # without a domain, that it sets by itself
    chosen_labels: frozenset[str] = frozenset()  # that it sets, and by which work is expected to choose
    setters: tuple[Setter, ...] = ()  # of built-in labels
    zone_labels: tuple[str, ...] = ()  # beside that of Kubernetes, with the same value
    derived: Callable[[Pool], Mapping[str, str]] | None = None  # labels that follow from the pool's own settings

    # What can be said of its labels without knowing any pool
    labels: tuple[Label, ...] = ()
    makers: Mapping[str, frozenset[str]] = field(default_factory=dict)  # who makes nodes with a label, by key or domain
    machines: tuple[str, frozenset[str]] | None = (
        None  # the form of its cloud's machine types, and who makes such nodes
    )
    domains: str = ""  # a pattern for the domains of its labels, also of misspelt ones

    # Machines
    clouds: tuple[str, ...] = ()  # whose machines its nodes are
    cloud_of: Callable[[Pool], tuple[str, ...]] | None = None  # which of several clouds it can be for a pool
    arm_machines: tuple[str, ...] = ()  # how types of Arm machines begin; then all others are amd64
    gpu_machines: tuple[str, ...] = ()  # how types of machines with accelerators begin
    metadata_service: str = ""  # of its nodes, where notices are read
    billed_by: str = ""
    gpu_driver: str = ""  # how it installs driver and device plugin of GPUs, for people; empty: the user installs them

    # Pools
    naming: NamingRule | None = None
    naming_on_windows: NamingRule | None = None
    tools: tuple[str, ...] = ()  # that make its pools, as in ``pools command --as``, the usual one first
    makes_pools: str = ""  # by what it makes pools by itself, for people; empty: it makes none
    makes_pools_of: str = ""  # services of clouds that are this provider for us, for people
    adds_pools: bool = False  # may make pools at any time, with unknown names
    mixes_capacities: bool = False  # one pool there may be several here, of both capacities; spot is used first
    machines_setting: str = ""  # of a pool with machines of several types, by the usual tool's name for it
    lifetime_field: str = ""  # of its pools, at whose time it drains a node

    # Who grows them
    autoscaler: str = CLUSTER_AUTOSCALER
    expander_command: str = "start the cluster autoscaler with --expander=priority"
    orders_by: str = ""  # what orders its pools, as its autoscaler has no priority expander
    class_label: str = ""  # of pools that one class orders, which is the value
    group: str = (
        ""  # the name of a pool's group of nodes as a pattern; ``pool``, or what ends with it, ``cluster_and_pool``
    )
    likely_group: str = "{name}"  # such a name, if no status shows it
    group_pattern: str = ".*{name}.*"  # a pattern for the expander that matches no group of another pool
    hints_at_zero: bool = False  # its autoscaler knows labels and taints of an empty pool only by hints

    # Before there is a configuration
    marks: tuple[
        str, ...
    ] = ()  # texts in manifests: prefixes of labels and annotations, storage drivers, addresses of buckets
    first_pools: tuple[str, ...] = ()  # lines of a first spotwright.yaml

    has_groups: bool = field(init=False)

    def __post_init__(self) -> None:
        """Note what is asked of every pool."""
        object.__setattr__(self, "has_groups", self.autoscaler == CLUSTER_AUTOSCALER)

    @property
    def spot_labels(self) -> Mapping[str, str]:
        """The labels of the usual form of spot capacity."""
        return self.spot[0].labels

    @property
    def notice_of_pods(self) -> float:
        """Seconds of its notice that pods get; the kubelet keeps the others for system pods."""
        return self.notice * self.pods_share

    @property
    def is_one_cloud(self) -> bool:
        """Whether the machines of all its nodes are of one cloud."""
        return len(self.clouds) == 1

    @property
    def makes_nodes_alike(self) -> bool:
        """Whether all nodes of one of its pools are made alike."""
        return self.has_groups and bool(self.pool_label)

    @property
    def has_numbered_zones(self) -> bool:
        """Whether zones are numbers in its commands, and the region stands beside them."""
        return self.clouds == (AZURE,)

    @property
    def names_groups(self) -> bool:
        """Whether the name of a group says which pool it is."""
        return "(?P<pool>" in self.group

    def form_of(self, pool: Pool) -> Form:
        """The form of a spot pool: the first of which it has a label in its configuration, else the usual one."""
        return next((form for form in self.spot if form.labels.items() & pool.labels.items()), self.spot[0])

    def clouds_of(self, pool: Pool) -> tuple[str, ...]:
        """The clouds whose machines the nodes of a pool may be."""
        return self.cloud_of(pool) if self.cloud_of is not None else self.clouds

    def sorts(self, clouds: tuple[str, ...]) -> frozenset[str]:
        """What its pools on these clouds are, as setters of labels distinguish pools."""
        if len(self.clouds) < 2:
            return frozenset({self.title} - {""})
        return frozenset(f"{self.title} on {cloud}" for cloud in clouds)
