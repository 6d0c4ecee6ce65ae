"""Kueue's objects that go with the pools: ResourceFlavors, a ClusterQueue with their order, and LocalQueues.

A flavor determines the nodes of its quota, so a ResourceFlavor gets the labels and taints of its pool. Kueue
adds ``nodeLabels`` to the pods' node selector and gives the flavor only to pods that tolerate its ``nodeTaints``, so a flavor
that lacks its pool's taints sends work to other nodes, or work without a policy to spot. The pool is the one with the flavor's
name, or the only one that has all of its labels. Tolerations are never added: Kueue adds them to every pod of the flavor.
Sources: kubernetes-sigs/kueue v0.19.2, ``apis/kueue/v1beta2/resourceflavor_types.go``;
``site/content/en/docs/concepts/resource_flavor.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spotwright.clouds import node_labels
from spotwright.errors import InputError
from spotwright.kinds.kind import Kind, holds_at
from spotwright.model.pools import Pool
from spotwright.placing.context import Group, Level, PlaceContext, name_of
from spotwright.placing.kueue_flavors import FLAVOR_SPEC, flavor_labels, flavor_order, flavor_taints
from spotwright.placing.pod_spec import check
from spotwright.placing.yaml_writer import flow

__all__ = ["KINDS", "QueueOptions", "quantity", "queue_lines", "unknown_quotas"]


_MOST = 8  # labels of a flavor, and taints, by its schema


def _place_flavor(ctx: PlaceContext) -> None:
    check(ctx, ctx.at("spec"), FLAVOR_SPEC)
    given = ctx.get("spec", "nodeLabels") or {}
    pool = _pool_of(ctx, given)
    if pool is None:
        text = f"ResourceFlavor {name_of(ctx.get('metadata'))} stays unchanged: no pool has its name, and its labels do not"
        text += f" identify one pool (the pools are {', '.join(ctx.config.pools)})"
        ctx.add_finding(Level.NOTE, ctx.at("kind"), text)
        return
    if ctx.writes(Group.PLACEMENT):
        _write_labels(ctx, pool, given)
        _write_taints(ctx, pool)
    _warn_of_tolerations(ctx, pool)


def _pool_of(ctx: PlaceContext, given: Mapping[str, Any]) -> Pool | None:
    """The pool of a flavor: by its name, else by its labels."""
    named = ctx.config.pools.get(name_of(ctx.get("metadata")))
    if named is not None or not given:
        return named
    labels = {str(key): str(value) for key, value in given.items()}
    fitting = [
        pool
        for pool in ctx.config.pools.values()
        if any(labels.items() <= known.items() for known in node_labels.known(pool))
    ]
    return fitting[0] if len(fitting) == 1 else None


def _write_labels(ctx: PlaceContext, pool: Pool, given: Mapping[str, Any]) -> None:
    """Add the labels of the pool that the flavor lacks. Raises :class:`ManifestError` if one has another value."""
    labels = flavor_labels(pool)
    for key, value in labels.items():
        if key in given and str(given[key]) != value:
            path = ctx.at("spec", "nodeLabels", key)
            text = f"nodes of pool {pool.name} have {key}={value}, so this flavor would match none of them"
            raise ctx.problem(path, f"{text}: write that, or correct labels: of the pool in spotwright.yaml")
    missing = {key: value for key, value in labels.items() if key not in given}
    for key, value in list(missing.items())[: _MOST - len(given)]:
        ctx.editor.add(ctx.at("spec", "nodeLabels", key), value)


def _write_taints(ctx: PlaceContext, pool: Pool) -> None:
    """Add the taints of the pool that the flavor lacks, so that work without a policy does not get it."""
    given = ctx.get("spec", "nodeTaints") or []
    have = {(one.get("key"), one.get("value") or "", one.get("effect")) for one in given}
    missing = [one for one in flavor_taints(pool) if (one.key, one.value or "", one.effect) not in have]
    ctx.editor.extend(ctx.at("spec", "nodeTaints"), [one.fields for one in missing[: _MOST - len(given)]])


def _warn_of_tolerations(ctx: PlaceContext, pool: Pool) -> None:
    """Warn of tolerations of the flavor for the taints of spot nodes, which admit all work to the flavor."""
    keys = {taint.key for taint in flavor_taints(pool)}
    for index, one in enumerate(ctx.get("spec", "tolerations") or ()):
        if pool.is_spot and (not one.get("key") or one.get("key") in keys):
            text = "Kueue adds this to every pod of the flavor, so work without a policy lands on spot, and in a TrainJob it"
            text += " replaces the tolerations of the pods: remove it, place adds what work needs"
            ctx.add_finding(Level.WARNING, ctx.at("spec", "tolerations", index), text)


KINDS = (
    Kind(group="kueue.x-k8s.io", name="ResourceFlavor", place=_place_flavor, is_of_nodes=True),
    Kind(group="kueue.x-k8s.io", name="Workload", shows_pods_of_another=True),  # of the queued object
    Kind(
        group="workload.codeflare.dev",
        name="AppWrapper",
        holds=holds_at("spec.components.*.template", "spec.resources.GenericItems.*.generictemplate"),
    ),
)


_MOST_FLAVORS = 64
_BASIC = ("cpu", "memory")
"""Resources that every flavor covers: Kueue never admits a pod that requests a resource which its ClusterQueue does not cover."""

_FIRST_V1BETA2 = (0, 15)
_BINARY = (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """The names and quotas of the queue. ``quotas``: by pool and resource, in the units of ``Pool.node``.

    ``version`` is Kueue's release, ``None`` for a new one: ``kueue.x-k8s.io/v1beta2`` is served since 0.15.
    """

    name: str = "spotwright"
    namespaces: Sequence[str] = ("default",)
    quotas: Mapping[tuple[str, str], int] = field(default_factory=dict)
    version: tuple[int, int] | None = None

    @property
    def is_v1beta2(self) -> bool:
        """Whether the objects have the newer version."""
        return self.version is None or self.version >= _FIRST_V1BETA2

    @property
    def api_version(self) -> str:
        """The apiVersion of the objects."""
        return f"kueue.x-k8s.io/{'v1beta2' if self.is_v1beta2 else 'v1beta1'}"


def queue_lines(pools: Mapping[str, Pool], options: QueueOptions, ladder: Sequence[str] = ()) -> Iterator[str]:
    """The lines of the objects. ``ladder`` is the default policy's, whose order the flavors follow.

    Raises :class:`InputError` if there are more pools than a queue can have flavors.
    """
    ordered = flavor_order(pools, ladder)
    if len(ordered) > _MOST_FLAVORS:
        raise InputError(f"{len(ordered)} pools: a ClusterQueue has at most {_MOST_FLAVORS} flavors")
    for pool in ordered:
        yield from _flavor(pool, options)
        yield "---"
    yield from _cluster_queue(ordered, options)
    for namespace in options.namespaces:
        yield "---"
        yield from (
            f"apiVersion: {options.api_version}",
            "kind: LocalQueue",
            f"metadata: {flow({'name': options.name, 'namespace': namespace})}  # the name for kueue.x-k8s.io/queue-name",
            f"spec: {flow({'clusterQueue': options.name})}",
        )


def _flavor(pool: Pool, options: QueueOptions) -> Iterator[str]:
    labels, taints = flavor_labels(pool), flavor_taints(pool)
    yield f"apiVersion: {options.api_version}"
    yield "kind: ResourceFlavor"
    yield f"metadata: {flow({'name': pool.name})}"
    if not labels and not taints:
        yield f"spec: {{}}  # pods may run anywhere: spotwright.yaml has no labels: for {pool.name}"
        return
    yield "spec:"
    if labels:
        yield "  nodeLabels:  # Kueue adds them to the node selector of the pods"
        yield from (f"    {flow(key)}: {flow(value)}" for key, value in labels.items())
    if taints:
        yield "  nodeTaints:  # only pods that tolerate them get this flavor; place adds the tolerations"
        yield from (f"  - {flow(taint.fields)}" for taint in taints)


def _cluster_queue(ordered: Sequence[Pool], options: QueueOptions) -> Iterator[str]:
    resources = _covered(ordered, options)
    selector = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(options.namespaces)}
    yield from (
        f"apiVersion: {options.api_version}",
        "kind: ClusterQueue",
        f"metadata: {flow({'name': options.name})}",
        "spec:",
        "  namespaceSelector:  # whose LocalQueues may use it; without a selector, none may",
        "    matchExpressions:",
        f"    - {flow(selector)}",
        "  flavorFungibility:",
        "    # Where the quota of a flavor is used, work takes the next flavor. MayStopSearch would stop running work of lower",
        "    # priority for it, once preemption is set: a disruption to save the difference in price.",
        "    whenCanPreempt: TryNextFlavor",
        "    # In a cohort, unused spot quota of others is borrowed before on-demand quota is used.",
        f"    whenCanBorrow: {'MayStopSearch' if options.is_v1beta2 else 'Borrow'}",
        "  resourceGroups:",
        f"  - coveredResources: {flow(resources)}",
        "    flavors:  # the first that matches and has quota is used: this order is what spot: prefer means here",
    )
    for pool in ordered:
        yield f"    - name: {flow(pool.name)}  # {pool.capacity}"
        yield "      resources:"
        for name in resources:
            amount, reason = _quota(pool, name, options)
            item = {"name": name, "nominalQuota": quantity(name, amount)}
            yield f"      - {flow(item)}{reason}"


def _covered(ordered: Sequence[Pool], options: QueueOptions) -> list[str]:
    """The resources of the queue: all resources of nodes and given quotas, because each flavor must list the same ones."""
    of_nodes = (name for pool in ordered for name in pool.node or ())
    return list(dict.fromkeys((*_BASIC, *of_nodes, *(name for _, name in options.quotas))))


def _quota(pool: Pool, resource: str, options: QueueOptions) -> tuple[int, str]:
    """The quota of a pool's flavor, and the comment on its source."""
    given = options.quotas.get((pool.name, resource))
    if given is not None:
        return given, ""
    if pool.node is None or (resource in _BASIC and resource not in pool.node):
        return 0, f"  # SET THIS: node: of {pool.name} does not say it, and 0 admits no pods"
    each = pool.node.get(resource, 0)
    return each * pool.max_nodes, f"  # max_nodes {pool.max_nodes} x {quantity(resource, each)}" if each else ""


def unknown_quotas(pools: Mapping[str, Pool], options: QueueOptions) -> list[str]:
    """The quotas left for the user to set, as ``POOL:RESOURCE``."""
    ordered = list(pools.values())
    resources = _covered(ordered, options)
    return [
        f"{pool.name}:{name}" for pool in ordered for name in resources if "SET THIS" in _quota(pool, name, options)[1]
    ]


def quantity(resource: str, amount: int) -> int | str:
    """An amount as Kubernetes writes it: ``24``, ``1500m``, ``448Gi``."""
    if resource == "cpu":
        return amount // 1000 if amount % 1000 == 0 else f"{amount}m"
    if resource in ("memory", "ephemeral-storage"):
        for suffix, size in _BINARY:
            if amount and amount % size == 0:
                return f"{amount // size}{suffix}"
    return amount
