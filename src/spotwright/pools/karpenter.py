"""The NodePool of Karpenter for a pool, and the node class that it refers to: EC2NodeClass on AWS, AKSNodeClass on Azure.

Pools of ``spotwright.yaml`` have one capacity type. Pools with one name at Karpenter, such as the two that ``pools import``
reads from a NodePool of both capacity types, are one NodePool here; weights put spot first among the others. If spot has no
capacity, Karpenter skips that offering for some minutes and takes on-demand of the same NodePool, or the NodePool with the next
weight: so it implements ``spot: prefer``.

The ``max_lifetime`` of a pool is ``expireAfter``: then Karpenter drains the node. A drain waits for pods with
``karpenter.sh/do-not-disrupt``, which placement writes, unless ``terminationGracePeriod`` is set: then each pod is deleted
early enough for its own grace period to end with that period, and a node lives for the sum of the two at most. It also lets
Karpenter replace nodes that have drifted from their NodePool or its image despite such pods; a budget of 0 nodes for that
reason prevents it.

Sources: kubernetes-sigs/karpenter, the CRD ``karpenter.sh_nodepools`` v1, and "NodePools" (weight from 1 to 100, the highest
first; consolidateAfter is required), "Disruption" (TerminationGracePeriod, Pod-Level Controls, NodePool Disruption Budgets), with
``pkg/controllers/node/termination/terminator/terminator.go`` (DeleteExpiringPods), ``pkg/controllers/disruption/types.go``
(NewCandidate) and ``drift.go`` (EventualDisruptionClass); aws/karpenter-provider-aws, the CRD EC2NodeClass v1;
Azure/karpenter-provider-azure, the CRD AKSNodeClass v1beta1; Microsoft Learn, "Node auto provisioning" (names of zones:
``eastus-1``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spotwright.clouds import providers
from spotwright.clouds.node_signs import ARCH, OS
from spotwright.clouds.providers import INSTANCE_TYPE, ZONE, is_azure, zone_label
from spotwright.errors import InputError
from spotwright.kinds.kueue import quantity
from spotwright.model.pools import Pool
from spotwright.model.quantities import parse_duration
from spotwright.model.scheduling_terms import Taint
from spotwright.placing.kueue_flavors import flavor_order
from spotwright.placing.yaml_writer import flow
from spotwright.pools.request import Request, comment, counted, gpus, items, name_at_provider, own_fields

__all__ = [
    "CAPACITY_TYPE",
    "NODE_CLASS_LABELS",
    "RESERVED",
    "NodePool",
    "karpenter_objects",
    "longest_end",
    "read_node_pool",
]


CAPACITY_TYPE = "karpenter.sh/capacity-type"
"""Label of nodes with the capacity for which Karpenter asked."""

RESERVED = "reserved"
"""The capacity type of reserved machines: on-demand ones in spotwright.yaml, distinguished by the label."""

_CAPACITIES = ("spot", "on-demand", RESERVED)
_DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
_AWS_CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass"}
_AZURE_CLASS = {"group": "karpenter.azure.com", "kind": "AKSNodeClass"}
_AUTO_MODE_CLASS = {"group": "eks.amazonaws.com", "kind": "NodeClass"}

NODE_CLASS_LABELS: Mapping[str, Mapping[str, str]] = {
    "karpenter.k8s.aws/ec2nodeclass": _AWS_CLASS,
    "karpenter.azure.com/aksnodeclass": _AZURE_CLASS,
    "eks.amazonaws.com/nodeclass": _AUTO_MODE_CLASS,
}
"""Labels of nodes whose value names their node class, with its group and kind."""


class NodePool(NamedTuple):
    """The requirements of a cluster's NodePool. ``capacities``: spot first. ``flags`` are settings for ``create_flags``.

    ``max_lifetime`` is empty if work does not end at that age, which ``notes`` say.
    """

    name: str
    capacities: tuple[str, ...]
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    machine: str
    zones: tuple[str, ...]
    archs: tuple[str, ...]
    os: str
    lifetime: str
    flags: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def read_node_pool(node_pool: Mapping[str, Any]) -> NodePool:
    """Read a NodePool (``karpenter.sh/v1``, ``v1beta1``). Without a capacity type Karpenter makes on-demand nodes."""
    spec = node_pool.get("spec") or {}
    template = spec.get("template") or {}
    made = template.get("spec") or {}
    left = [dict(one) for one in made.get("requirements") or ()]
    capacities = _allowed(left, CAPACITY_TYPE, _CAPACITIES) or ("on-demand",)
    archs, systems = _allowed(left, ARCH, ("amd64", "arm64")), _allowed(left, OS, ("linux", "windows"))
    machines, zones = _allowed(left, INSTANCE_TYPE, ()), _allowed(left, ZONE, ())
    said = {CAPACITY_TYPE}
    said |= {OS} if len(systems) == 1 else set()
    said |= {ARCH} if len(archs) == 1 else set()
    said |= {INSTANCE_TYPE} if len(machines) == 1 else set()
    said |= {ZONE} if zones else set()
    others = [one for one in left if one.get("key") not in said]
    expires = str(made.get("expireAfter") or (spec.get("disruption") or {}).get("expireAfter") or "Never")
    expires = expires if _is_duration(expires) else ""
    last = str(made.get("terminationGracePeriod") or "")
    flags = {
        **({"requirements": others} if others else {}),
        **({"startupTaints": [dict(one) for one in made["startupTaints"]]} if made.get("startupTaints") else {}),
        **({"expireAfter": expires} if expires and not last else {}),
        **({"nodeClassRef": reference} if (reference := _reference(made.get("nodeClassRef") or {})) else {}),
        **({"limits": dict(spec["limits"])} if spec.get("limits") else {}),
    }
    return NodePool(
        str((node_pool.get("metadata") or {}).get("name", "")),
        tuple(kind for kind in _CAPACITIES if kind in capacities),
        {str(key): str(value) for key, value in ((template.get("metadata") or {}).get("labels") or {}).items()},
        tuple(
            Taint(one["key"], one.get("value") or "", one.get("effect") or "NoSchedule")
            for one in made.get("taints") or ()
            if one.get("key")
        ),
        machines[0] if len(machines) == 1 else "",
        zones,
        archs,
        "windows" if systems == ("windows",) else "linux",
        expires if last else "",
        flags,
        tuple(_notes_on_the_end(expires, last, (spec.get("disruption") or {}).get("budgets") or ())),
    )


def _notes_on_the_end(expires: str, last: str, budgets: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The effect of a NodePool on work with do-not-disrupt; ``expires`` and ``last``, its two fields, may be empty."""
    if expires and not last:
        yield (
            f"its expireAfter {expires} is not a lifetime: a drain waits for work with {_DO_NOT_DISRUPT} unless "
            "terminationGracePeriod is set, so that work outlives it"
        )
    if expires and last:
        yield f"its lifetime is expireAfter; work with {_DO_NOT_DISRUPT} ends up to {last} later (terminationGracePeriod)"
    holds_drift = any(
        str(one.get("nodes")) in ("0", "0%")
        and "Drifted" in (one.get("reasons") or ("Drifted",))
        and not one.get("schedule")
        for one in budgets
    )
    if last and not holds_drift:
        yield (
            f"its terminationGracePeriod {last} also ends work with {_DO_NOT_DISRUPT} on nodes that have drifted from the "
            'NodePool: a budget {nodes: "0", reasons: [Drifted]} in its spec.disruption holds that'
        )


def _reference(given: Mapping[str, str]) -> dict[str, str]:
    """The reference to a node class as v1 writes it: v1beta1 names the group in ``apiVersion``; empty without a kind."""
    group = given.get("group") or str(given.get("apiVersion", "")).partition("/")[0]
    if not (group and given.get("kind") and given.get("name")):
        return {}
    return {"group": group, "kind": given["kind"], "name": given["name"]}


def _allowed(requirements: Iterable[Mapping[str, Any]], key: str, known: Sequence[str]) -> tuple[str, ...]:
    """The values of a label that the requirements allow; exclusions are taken from the ``known`` ones."""
    allowed: tuple[str, ...] = ()
    for one in requirements:
        if one.get("key") == key:
            values = tuple(map(str, one.get("values") or ()))
            if one.get("operator", "In") == "In":
                allowed = tuple(value for value in values if not allowed or value in allowed)
            else:
                allowed = tuple(
                    value for value in allowed or known if one["operator"] != "NotIn" or value not in values
                )
    return allowed


def _is_duration(text: str) -> bool:
    try:
        return parse_duration(text) > 0
    except ValueError:
        return False


_HEAVIEST = 100
_RESTRICTED = ("kubernetes.io/", "k8s.io/", "karpenter.sh/", "karpenter.k8s.aws/", "karpenter.azure.com/")
_SAID_BY = {
    "labels": "labels",
    "taints": "taints",
    "zones": "zones",
    "weight": "the ladder and the prices",
}


def karpenter_objects(request: Request) -> Iterator[str]:
    """The NodePool and its node class as YAML. Raises :class:`InputError` for flags of other tools, unknown zones."""
    pool = request.pool
    own = own_fields(request, _SAID_BY, "a node class", "osDiskSizeGB or subnetSelectorTerms")
    unknown = providers.unknown_zones(pool)
    if unknown:
        raise InputError(
            f"pool {pool.name}: Karpenter takes the label of a zone, such as eastus-{unknown[0]}, but the "
            "region is unknown: set region: of the pool in spotwright.yaml"
        )
    name = name_at_provider(request)
    members = _members(request, name)
    reference = own.pop("nodeClassRef", None)
    own = {key: value for key, value in own.items() if key not in _OF_NODE_POOL}
    yield from comment(f"{', '.join(f'{one.name}: {counted(one)}' for one in members)}, made by Karpenter.")
    yield from comment("No command has run yet. Read it, then pass it to kubectl apply -f -")
    yield from items((*request.warnings, *_meanings(request, members)))
    if reference is not None:
        yield from _node_pool(request, name, members, reference)
        return
    yield from _node_pool(request, name, members, {**(_AZURE_CLASS if is_azure(pool) else _AWS_CLASS), "name": name})
    yield "---"
    yield from _azure_class(own, name) if is_azure(pool) else _aws_class(request, own, name)


_OF_NODE_POOL = ("requirements", "limits", "startupTaints", "expireAfter")  # flags of a NodePool, not of its node class


def _members(request: Request, name: str) -> list[Pool]:
    """The pools in this NodePool. Raises :class:`InputError` if one NodePool cannot have all of them."""
    members = _of_name(name, request.pools) or [request.pool]
    for other in members:
        if set(other.taints) != set(request.pool.taints):
            raise InputError(
                f"pools {request.pool.name} and {other.name} are both the NodePool {name}, whose nodes have the same "
                f"taints: give them the same taints, or labels: {{{providers.pool_label(other)}: NAME}} that differ"
            )
    return members


def _of_name(name: str | None, pools: Mapping[str, Pool]) -> list[Pool]:
    """The pools in one NodePool by their name at Karpenter."""
    ours = (one for one in pools.values() if providers.of(one).mixes_capacities)
    return [one for one in ours if providers.pool_name(one) == name]


def longest_end(pool: Pool, pools: Mapping[str, Pool], grace_period: float) -> int:
    """How long a node of the pool may outlive its lifetime, in seconds: enough for every grace period.

    That is ``grace_period``, the policies' longest, or the notice of its spot nodes, to which placement limits others.
    """
    members = _of_name(providers.pool_name(pool), pools) or [pool]
    return math.ceil(max(grace_period, *(one.notice for one in members if one.is_spot), 0.0))


def _meanings(request: Request, members: Sequence[Pool]) -> Iterator[str]:
    pool = request.pool
    if len(members) > 1:
        yield (
            f"{', '.join(one.name for one in members)} are one NodePool: its requirements and its limits cover all of "
            "them together, and each of these pools gives this same text."
        )
    if any(one.is_spot for one in members):
        yield (
            "Karpenter gets the notice only from a queue (settings.interruptionQueue on AWS); without it pods die "
            "with the node. It sets the label karpenter.sh/capacity-type and no taint but yours."
        )
        if not pool.taints:
            yield request.warn(
                'the pool has no taint: add taints: ["spot=true:NoSchedule"] in spotwright.yaml, or any work may '
                "land on it"
            )
        if any(one.max_price is not None for one in members):
            yield request.warn("max_price is not given to Karpenter: it pays the spot price, and has no ceiling")
        if is_azure(pool) and pool.notice > 60:
            yield request.warn("on Azure the notice is 30 seconds: set notice: 30s in the pool")
    for one in members:
        if one.min_nodes:
            yield request.warn(f"min_nodes {one.min_nodes} is not given to Karpenter, which keeps no empty nodes")
    if any(one.max_lifetime is not None for one in members):
        yield (
            f"max_lifetime: Karpenter drains a node at the age expireAfter, and removes it at most {_last(request)} s later "
            "(terminationGracePeriod: the longest grace period of the policies, or the notice). Pods with "
            f"{_DO_NOT_DISRUPT} keep working until their own grace period has to begin; without terminationGracePeriod they "
            "would outlive the node's lifetime."
        )
        yield (
            "budget for Drifted: with terminationGracePeriod Karpenter would also end work on nodes that have drifted, such as "
            "from a new image; so none is replaced for that, and new nodes bring the new image."
        )
    yield (
        "consolidationPolicy WhenEmpty: a node is removed when no work is left on it. WhenEmptyOrUnderutilized would "
        "move running work to save money, which interrupts it more often than spot does."
    )


def _node_pool(request: Request, name: str, members: Sequence[Pool], reference: Mapping[str, Any]) -> Iterator[str]:
    pool = request.pool
    yield "apiVersion: karpenter.sh/v1"
    yield "kind: NodePool"
    yield f"metadata: {flow({'name': name})}"
    yield "spec:"
    weight, among = _weight(request, members)
    yield f"  weight: {weight}  # the highest is tried first: {among}"
    yield "  template:"
    labels = set.intersection(*(set(providers.own_labels(one).items()) for one in members))
    labels = {(key, value) for key, value in labels if not key.startswith(_RESTRICTED)}
    if labels:
        yield f"    metadata: {flow({'labels': dict(one for one in pool.labels.items() if one in labels)})}"
    yield "    spec:"
    yield f"      nodeClassRef: {flow(dict(reference))}"
    yield "      requirements:"
    for requirement in _requirements(members):
        yield f"      - {flow(requirement)}"
    if pool.taints:
        yield "      taints:"
        yield from (f"      - {flow(taint.fields)}" for taint in pool.taints)
    starting = pool.create_flags.get("startupTaints")
    if starting:
        yield f"      startupTaints: {flow(list(starting))}"
    lifetimes = [one.max_lifetime for one in members if one.max_lifetime is not None]
    if not lifetimes and "expireAfter" in pool.create_flags:
        yield f"      expireAfter: {flow(pool.create_flags['expireAfter'])}"
    if lifetimes:
        yield f"      expireAfter: {max(int(min(lifetimes)), 1)}s  # max_lifetime"
        yield f"      terminationGracePeriod: {_last(request)}s  # after it no work is left on the node"
    yield "  disruption:" if lifetimes else "  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 5m}"
    if lifetimes:
        yield "    consolidationPolicy: WhenEmpty"
        yield "    consolidateAfter: 5m"
        yield '    budgets: [{nodes: "10%"}, {nodes: "0", reasons: [Drifted]}]  # 10%: as without budgets'
    yield from _limits(members)


def _last(request: Request) -> int:
    return longest_end(request.pool, request.pools, request.grace_period)


def _weight(request: Request, members: Sequence[Pool]) -> tuple[int, str]:
    """The NodePool's weight, and the order of all pools of the configuration that Karpenter makes."""
    ours = {name: one for name, one in request.pools.items() if one.provider == request.pool.provider}
    ordered = sorted(flavor_order(ours, request.ladder), key=lambda pool: not pool.is_spot)
    step = max(1, min(10, (_HEAVIEST - 1) // max(len(ordered), 1)))
    names = [one.name for one in members]
    place = next(number for number, one in enumerate(ordered) if one.name in names)
    return max(_HEAVIEST - step * place, 1), ", ".join(one.name for one in ordered)


def _requirements(members: Sequence[Pool]) -> Iterator[dict[str, Any]]:
    """The union of the pools' requirements; the NodePool has only requirements common to all."""

    def one_of(key: str, *values: str) -> Iterator[dict[str, Any]]:
        if all(values):
            yield {"key": key, "operator": "In", "values": list(dict.fromkeys(values))}

    given = [one for pool in members for one in _given(pool)]
    given = [one for number, one in enumerate(given) if one not in given[:number]]
    said = {one["key"] for one in given}
    yield from one_of(CAPACITY_TYPE, *(one.labels.get(CAPACITY_TYPE, str(one.capacity.value)) for one in members))
    yield from () if OS in said else one_of(OS, *(one.os for one in members))
    yield from () if ARCH in said else one_of(ARCH, *(one.labels.get(ARCH, "") for one in members))
    yield from () if INSTANCE_TYPE in said else one_of(INSTANCE_TYPE, *(one.machine for one in members))
    if ZONE not in said and all(one.zones for one in members):
        yield from one_of(ZONE, *(zone_label(one, zone) or zone for one in members for zone in one.zones))
    yield from given


def _given(pool: Pool) -> Sequence[dict[str, Any]]:
    """The requirements of ``create_flags``. Raises :class:`InputError` for another form."""
    given = pool.create_flags.get("requirements", ())
    if not isinstance(given, list | tuple) or not all(isinstance(one, dict) and one.get("key") for one in given):
        raise InputError(
            f"pool {pool.name}: create_flags: requirements: expected a list such as "
            "[{key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}]"
        )
    return given


def _limits(members: Sequence[Pool]) -> Iterator[str]:
    given = next((one.create_flags["limits"] for one in members if "limits" in one.create_flags), None)
    if given is not None:
        yield f"  limits: {flow(given)}"
        return
    amounts: dict[str, int] = {}
    for pool in members:
        for name, amount in (pool.node or {}).items():
            if amount and name in ("cpu", "memory", "nvidia.com/gpu", "amd.com/gpu"):
                amounts[name] = amounts.get(name, 0) + amount * pool.max_nodes
    unknown = [pool for pool in members if not pool.node]
    if amounts and not unknown:
        products = " + ".join(f"max_nodes {pool.max_nodes} x node" for pool in members)
        yield f"  limits: {flow({name: quantity(name, amount) for name, amount in amounts.items()})}  # {products}"
    for pool in unknown[:1]:
        yield (
            f"  # limits: SET node: of {pool.name} in spotwright.yaml; without it the pool is not bounded to "
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
