"""The objects of Kueue that go with the pools: a ResourceFlavor for each, a ClusterQueue with their order, and LocalQueues.

They are printed for an administrator to review, as YAML with a comment where a value needs a reason or a decision. Quotas are the
size of the pools (``max_nodes`` times ``node``) unless they are given; of a pool whose node size is not known the quota is 0,
which admits nothing until someone sets it. Flavors have ``nodeTaints`` and no ``tolerations``: Kueue would add those to every
pod, so that work without a policy landed on spot, and in a TrainJob they would replace the pods' own. Source:
kubernetes-sigs/kueue v0.19.2, ``apis/kueue/v1beta2``, ``site/content/en/docs/concepts/resource_flavor.md`` and
``cluster_queue.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from spotwright.errors import InputError
from spotwright.manifests.kueue.flavors import flavor_labels, flavor_order, flavor_taints
from spotwright.manifests.yamltext.splice import flow
from spotwright.model.pools import Pool

__all__ = ["QueueOptions", "quantity", "queue_lines", "unknown_quotas"]

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
        """Whether the objects are of the newer version."""
        return self.version is None or self.version >= _FIRST_V1BETA2

    @property
    def api_version(self) -> str:
        """The apiVersion of the objects."""
        return f"kueue.x-k8s.io/{'v1beta2' if self.is_v1beta2 else 'v1beta1'}"


def queue_lines(pools: Mapping[str, Pool], options: QueueOptions, ladder: Sequence[str] = ()) -> Iterator[str]:
    """The lines of the objects. ``ladder`` is that of the default policy, whose order the flavors follow.

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
        "    flavors:  # the first that matches and has quota is taken: this order is what spot: prefer means here",
    )
    for pool in ordered:
        yield f"    - name: {flow(pool.name)}  # {pool.capacity}"
        yield "      resources:"
        for name in resources:
            amount, reason = _quota(pool, name, options)
            item = {"name": name, "nominalQuota": quantity(name, amount)}
            yield f"      - {flow(item)}{reason}"


def _covered(ordered: Sequence[Pool], options: QueueOptions) -> list[str]:
    """The resources of the queue: those of all nodes and of all given quotas, because each flavor must list the same ones."""
    of_nodes = (name for pool in ordered for name in pool.node or ())
    return list(dict.fromkeys((*_BASIC, *of_nodes, *(name for _, name in options.quotas))))


def _quota(pool: Pool, resource: str, options: QueueOptions) -> tuple[int, str]:
    """The quota of a pool's flavor, and the comment that says where it comes from."""
    given = options.quotas.get((pool.name, resource))
    if given is not None:
        return given, ""
    if pool.node is None or (resource in _BASIC and resource not in pool.node):
        return 0, f"  # SET THIS: node: of {pool.name} does not say it, and 0 admits nothing"
    each = pool.node.get(resource, 0)
    return each * pool.max_nodes, f"  # max_nodes {pool.max_nodes} x {quantity(resource, each)}" if each else ""


def unknown_quotas(pools: Mapping[str, Pool], options: QueueOptions) -> list[str]:
    """The quotas that someone has to set, as ``POOL:RESOURCE``."""
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
