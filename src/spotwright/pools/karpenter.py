"""The NodePool of Karpenter for a pool, and the node class that it refers to: EC2NodeClass on AWS, AKSNodeClass on Azure.

A NodePool has one capacity type here, as pools of ``spotwright.yaml`` have; weights put spot first. Where spot has no capacity,
Karpenter leaves that offering out for some minutes and takes the NodePool with the next weight: this is what ``spot: prefer``
means there.

Sources: kubernetes-sigs/karpenter, the CRD ``karpenter.sh_nodepools`` v1, and "NodePools" (weight from 1 to 100, the highest
first; consolidateAfter is required), "Disruption"; aws/karpenter-provider-aws, the CRD EC2NodeClass v1;
Azure/karpenter-provider-azure, the CRD AKSNodeClass v1beta1; Microsoft Learn, "Node auto provisioning" (names of zones:
``eastus-1``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spotwright.clouds import providers
from spotwright.clouds.providers import is_azure, zone_label
from spotwright.errors import InputError
from spotwright.kinds.kueue import quantity
from spotwright.model.pools import Pool, Provider
from spotwright.placing.kueue_flavors import flavor_order
from spotwright.placing.yaml_writer import flow
from spotwright.pools.request import Request, comment, counted, gpus, items, name_at_provider, own_fields

__all__ = ["karpenter_objects"]


_HEAVIEST = 100
_RESTRICTED = ("kubernetes.io/", "k8s.io/", "karpenter.sh/", "karpenter.k8s.aws/", "karpenter.azure.com/")
_SAID_BY = {
    "labels": "labels",
    "taints": "taints",
    "zones": "zones",
    "limits": "max_nodes and node",
    "weight": "the ladder and the prices",
}


def karpenter_objects(request: Request) -> Iterator[str]:
    """The NodePool and its node class as YAML. Raises :class:`InputError` for flags of other tools, unknown zones."""
    pool = request.pool
    own = own_fields(request, _SAID_BY, "a node class", "osDiskSizeGB or subnetSelectorTerms")
    unknown = providers.unknown_zones(pool)
    if unknown:
        raise InputError(
            f"pool {pool.name}: Karpenter takes the label of a zone, such as eastus-{unknown[0]}, and nothing says the "
            "region: set region: of the pool in spotwright.yaml"
        )
    name = name_at_provider(request)
    yield from comment(f"{pool.name}: {counted(pool)}, made by Karpenter.")
    yield from comment("Nothing has been run. Read it, then pass it to kubectl apply -f -")
    yield from items((*request.warnings, *_meanings(request)))
    yield from _node_pool(request, name)
    yield "---"
    yield from _azure_class(own, name) if is_azure(pool) else _aws_class(request, own, name)


def _meanings(request: Request) -> Iterator[str]:
    pool = request.pool
    if pool.is_spot:
        yield (
            "Karpenter hears of the notice only from a queue (settings.interruptionQueue on AWS); without it pods die "
            "with the node. It sets the label karpenter.sh/capacity-type and no taint but yours."
        )
        if not pool.taints:
            yield request.warn(
                'the pool has no taint: add taints: ["spot=true:NoSchedule"] in spotwright.yaml, or any work may '
                "land on it"
            )
        if pool.max_price is not None:
            yield request.warn("max_price is not given to Karpenter: it pays the spot price, and has no ceiling")
        if is_azure(pool) and pool.notice > 60:
            yield request.warn("on Azure the notice is 30 seconds: set notice: 30s in the pool")
    if pool.min_nodes:
        yield request.warn(f"min_nodes {pool.min_nodes} is not given to Karpenter, which keeps no empty nodes")
    yield (
        "consolidationPolicy WhenEmpty: a node is removed when no work is left on it. WhenEmptyOrUnderutilized would "
        "move running work to save money, which interrupts it more often than spot does."
    )


def _node_pool(request: Request, name: str) -> Iterator[str]:
    pool = request.pool
    group, kind = ("karpenter.azure.com", "AKSNodeClass") if is_azure(pool) else ("karpenter.k8s.aws", "EC2NodeClass")
    labels = {key: value for key, value in providers.own_labels(pool).items() if not key.startswith(_RESTRICTED)}
    yield "apiVersion: karpenter.sh/v1"
    yield "kind: NodePool"
    yield f"metadata: {flow({'name': name})}"
    yield "spec:"
    weight, among = _weight(request)
    yield f"  weight: {weight}  # the highest is tried first: {among}"
    yield "  template:"
    if labels:
        yield f"    metadata: {flow({'labels': labels})}"
    yield "    spec:"
    yield f"      nodeClassRef: {flow({'group': group, 'kind': kind, 'name': name})}"
    yield "      requirements:"
    for requirement in _requirements(pool):
        yield f"      - {flow(requirement)}"
    if pool.taints:
        yield "      taints:"
        yield from (f"      - {flow(taint.fields)}" for taint in pool.taints)
    if pool.lifetime is not None:
        yield f"      expireAfter: {max(int(pool.lifetime), 1)}s  # lifetime"
    yield "  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 5m}"
    yield from _limits(pool)


def _weight(request: Request) -> tuple[int, str]:
    """The pool's weight, and the order of all NodePools of the configuration."""
    ours = {name: one for name, one in request.pools.items() if one.provider is Provider.KARPENTER}
    ordered = sorted(flavor_order(ours, request.ladder), key=lambda pool: not pool.is_spot)
    step = max(1, min(10, (_HEAVIEST - 1) // max(len(ordered), 1)))
    place = [one.name for one in ordered].index(request.pool.name)
    return max(_HEAVIEST - step * place, 1), ", ".join(one.name for one in ordered)


def _requirements(pool: Pool) -> Iterator[dict[str, Any]]:
    def one_of(key: str, *values: str) -> dict[str, Any]:
        return {"key": key, "operator": "In", "values": list(values)}

    yield one_of("karpenter.sh/capacity-type", str(pool.capacity.value))
    yield one_of("kubernetes.io/os", pool.os)
    if pool.machine:
        yield one_of("node.kubernetes.io/instance-type", pool.machine)
    if pool.zones:
        yield one_of("topology.kubernetes.io/zone", *(zone_label(pool, zone) or zone for zone in pool.zones))


def _limits(pool: Pool) -> Iterator[str]:
    amounts = {
        name: quantity(name, amount * pool.max_nodes)
        for name, amount in (pool.node or {}).items()
        if amount and name in ("cpu", "memory", "nvidia.com/gpu", "amd.com/gpu")
    }
    if amounts:
        yield f"  limits: {flow(amounts)}  # max_nodes {pool.max_nodes} x node"
    else:
        yield (
            f"  # limits: SET node: of {pool.name} in spotwright.yaml; without it nothing bounds the pool to "
            f"{pool.max_nodes} nodes"
        )


def _aws_class(request: Request, own: Mapping[str, Any], name: str) -> Iterator[str]:
    cluster = request.cluster or "CLUSTER"
    mark = "" if request.cluster else "  # SET THIS: the name of the cluster, or use --cluster-name"
    discovered = [{"tags": {"karpenter.sh/discovery": cluster}}]
    family = "windows2022@latest" if request.pool.os == "windows" else "al2023@latest"
    spec: dict[str, Any] = {
        "amiSelectorTerms": [{"alias": family}],
        "role": f"KarpenterNodeRole-{cluster}",
        "subnetSelectorTerms": discovered,
        "securityGroupSelectorTerms": discovered,
    }
    if "instanceProfile" in own:
        del spec["role"]
    ours = {"role", "subnetSelectorTerms", "securityGroupSelectorTerms"} - own.keys()
    yield "apiVersion: karpenter.k8s.aws/v1"
    yield "kind: EC2NodeClass"
    yield f"metadata: {flow({'name': name})}"
    yield "spec:"
    if gpus(request.pool):
        yield "  # al2023 has an AMI with NVIDIA's driver for machines with GPUs; the device plugin is yours to install"
    for key, value in {**spec, **own}.items():
        yield f"  {key}: {flow(value)}{mark if key in ours else ''}"


def _azure_class(own: Mapping[str, Any], name: str) -> Iterator[str]:
    yield "apiVersion: karpenter.azure.com/v1beta1"
    yield "kind: AKSNodeClass"
    yield f"metadata: {flow({'name': name})}"
    yield "spec:"
    for key, value in {"imageFamily": "Ubuntu2204", **own}.items():
        yield f"  {key}: {flow(value)}"
