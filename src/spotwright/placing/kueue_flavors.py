"""The ResourceFlavor of a pool (named as the pool), and the flavors that Kueue may assign to work.

Kueue assigns a flavor to the pods of a workload before they exist, and adds the flavor's labels to their node selector. It
skips a flavor whose ``nodeTaints`` the pods do not tolerate, and one whose ``nodeLabels`` contradict the pods' node selector or
required node affinity. Preferred affinity has no effect there. A condition on a label that the flavor does not have is ignored,
since 0.18.6 and 0.19.0 also where other flavors have the label; the pods would then wait for a node that does not exist. So
each unwanted pool must be excluded by a label of its own flavor. If the files have the queue's objects, their flavors and order
count, else those that ``pools command --as kueue`` prints. Sources: kubernetes-sigs/kueue v0.19.2,
``pkg/scheduler/flavorassigner/flavorassigner.go`` (checkFlavorForPodSets, flavorSelector);
``site/content/en/docs/concepts/cluster_queue.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from spotwright.clouds import node_labels, providers
from spotwright.clouds.providers import INSTANCE_TYPE, ZONE
from spotwright.kube.pod import scheduling_of
from spotwright.model.pools import Pool
from spotwright.model.scheduling_terms import Constraints, Expression, Taint, Term, Toleration
from spotwright.placing.documents import Document
from spotwright.placing.pod_spec import TEXT, check_value
from spotwright.scheduling.ladder import has_accelerators

__all__ = [
    "FLAVOR_SPEC",
    "ClusterQueue",
    "Flavor",
    "QueueFiles",
    "exclusion",
    "flavor_labels",
    "flavor_of",
    "flavor_order",
    "flavor_taints",
    "refusal",
]


_MOST = 8  # labels and taints of a flavor, by its schema
_REPELLING = ("NoSchedule", "NoExecute")  # Kueue ignores PreferNoSchedule

_OF_NEW_NODES = frozenset({"cloud.google.com/gke-provisioning"})
"""Labels that nodes of older releases do not have: in a node selector they would keep pods off these nodes."""

Condition = dict[str, Any]
"""A node selector requirement as Kubernetes writes it: key, operator, values."""


def flavor_labels(pool: Pool) -> dict[str, str]:
    """The labels of a pool's flavor: its nodes' labels, at most eight; the machine type and the zone are dropped first."""
    labels = {key: value for key, value in providers.labels(pool).items() if key not in _OF_NEW_NODES}
    return {key: labels[key] for key in sorted(labels, key=lambda key: key in (INSTANCE_TYPE, ZONE))[:_MOST]}


def flavor_taints(pool: Pool) -> tuple[Taint, ...]:
    """The taints of a pool's flavor: its nodes' taints that keep pods away, at most eight."""
    return tuple(taint for taint in providers.taints(pool) if taint.effect in _REPELLING)[:_MOST]


def flavor_order(pools: Mapping[str, Pool], ladder: Sequence[str] = ()) -> list[Pool]:
    """The order of the flavors in a ClusterQueue: the pools of ``ladder``, spot first, then the others.

    Kueue takes the first flavor that matches and has quota: spot before on-demand, the cheaper first, a pool without a price
    last. Pools without GPUs are before those with: work without GPUs then reaches a GPU pool last, and work with GPUs skips
    the others, whose quota has none.
    """

    def rank(pool: Pool) -> tuple[bool, bool, bool, int, bool, Any]:
        named = pool.name in ladder
        place = ladder.index(pool.name) if named else 0
        return (
            not named,
            not named and has_accelerators(pool.node or {}),
            not pool.is_spot,
            place,
            pool.price is None,
            pool.price or 0,
        )

    return sorted(pools.values(), key=rank)


class Flavor(NamedTuple):
    """A flavor of a ClusterQueue. ``pools``: pools whose nodes it may represent; ``tolerations``: what Kueue adds to the pods."""

    name: str
    pools: tuple[Pool, ...]
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    tolerations: tuple[Toleration, ...] = ()

    @property
    def capacity(self) -> set[bool]:
        """Whether its nodes are spot nodes: both if they may be of either kind."""
        return {pool.is_spot for pool in self.pools}


def flavor_of(pool: Pool) -> Flavor:
    """The flavor that a pool has by default."""
    return Flavor(pool.name, (pool,), flavor_labels(pool), flavor_taints(pool))


def refusal(flavor: Flavor, constraints: Constraints, required: Sequence[Condition] = ()) -> str:
    """Why Kueue does not assign a flavor to work with these constraints and ``required`` conditions; empty if it may."""
    for one in (_expression(condition) for condition in required):
        if one.key in flavor.labels and not one.matches(flavor.labels):
            return f"its label is {one.key}={flavor.labels[one.key]}"
    seen = replace(
        constraints,
        tolerations=(*constraints.tolerations, *flavor.tolerations),
        selector={key: value for key, value in constraints.selector.items() if key in flavor.labels},
        required=tuple(_known_terms(constraints.required, flavor.labels)),
    )
    return seen.refusal(flavor.labels, flavor.taints)


def _known_terms(terms: Sequence[Term], labels: Mapping[str, str]) -> Iterator[Term]:
    """The terms without conditions on labels that the flavor does not have; none if a term has no other conditions."""
    known = [Term(tuple(one for one in term.expressions if one.key in labels)) for term in terms]
    if all(term.expressions for term in known):
        yield from known


def _expression(condition: Condition) -> Expression:
    return Expression(condition["key"], condition["operator"], tuple(condition.get("values") or ()))


def exclusion(
    used: Sequence[Flavor], others: Sequence[Flavor], constraints: Constraints, required: Sequence[Condition]
) -> tuple[list[Condition], list[Flavor]]:
    """The conditions beside ``required`` that exclude the ``others`` in Kueue; and the flavors that stay possible.

    A flavor stays possible if it has no label whose value differs from every flavor in ``used`` and their nodes.
    A flavor without a pool is excluded only if its nodes may lack what is required: the pods would wait for ever there.
    """
    needs_labels = any(one["operator"] != "NotIn" for one in required)
    open_flavors = [
        flavor
        for flavor in others
        if (flavor.pools or (used and needs_labels)) and not refusal(flavor, constraints, required)
    ]
    shared = list(_differing(used, open_flavors, common=True)) if open_flavors else []
    if shared:
        return shared[:1], []
    values: dict[str, list[str]] = {}
    left = []
    for flavor in open_flavors:
        own = next(_differing(used, [flavor], common=False), None)
        if own is None:
            left.append(flavor)
        else:
            values.setdefault(own["key"], []).extend(own["values"])
    conditions = [
        {"key": key, "operator": "NotIn", "values": list(dict.fromkeys(some))} for key, some in values.items()
    ]
    return conditions, left


def _differing(used: Sequence[Flavor], others: Sequence[Flavor], *, common: bool) -> Iterator[Condition]:
    """Conditions on labels that all ``others`` have, with values that no flavor in ``used`` has.

    ``common``: the flavors in use have the label too, so that the condition names their values and excludes unknown pools.
    """
    labels = [flavor.labels for flavor in others]
    own = [flavor.labels for flavor in used]
    for key in labels[0]:
        values = list(dict.fromkeys(str(one.get(key)) for one in labels))
        if (
            key in (INSTANCE_TYPE, ZONE)
            or not all(key in one for one in labels)
            or any(one.get(key) in values for one in [*own, *_of_nodes(used)])
        ):
            continue
        if not common:
            yield {"key": key, "operator": "NotIn", "values": values}
        elif own and all(key in one for one in own):
            yield {"key": key, "operator": "In", "values": list(dict.fromkeys(one[key] for one in own))}


def _of_nodes(flavors: Sequence[Flavor]) -> Iterator[Mapping[str, str]]:
    """The labels of the flavors' nodes, which may be more than the flavors name."""
    for flavor in flavors:
        for pool in flavor.pools:
            yield from node_labels.known(pool)


FLAVOR_SPEC: Mapping[str, Any] = {
    "nodeLabels": {},
    "nodeTaints": [{"key": TEXT, "value": TEXT, "effect": TEXT}],
    "tolerations": [{"key": TEXT, "operator": TEXT, "value": TEXT, "effect": TEXT}],
}
"""The fields of a ResourceFlavor that are read or added to."""

_QUEUE_SPEC = {"resourceGroups": [{"coveredResources": [TEXT], "flavors": [{"name": TEXT}]}]}
_GROUP = "kueue.x-k8s.io"


class ClusterQueue(NamedTuple):
    """The flavors of each resource group of a ClusterQueue in their order. ``name`` and ``where`` are empty if no file shows it.

    ``unknown``: its flavors without a ResourceFlavor in the files or a pool of their name.
    """

    groups: tuple[tuple[Flavor, ...], ...]
    name: str = ""
    where: str = ""
    unknown: tuple[str, ...] = ()

    @property
    def flavors(self) -> list[Flavor]:
        """The flavors of all groups, each once."""
        return list({flavor.name: flavor for group in self.groups for flavor in group}.values())

    def __str__(self) -> str:
        return f"ClusterQueue {self.name} ({self.where})"


@dataclass(frozen=True, slots=True)
class QueueFiles:
    """Kueue's objects among the files of a command, and the pools whose flavors they are."""

    find: Callable[[str, str, str | None], Document | None]
    find_all: Callable[[str], Sequence[Document]]
    pools: Mapping[str, Pool]

    def cluster_queue(
        self, queue: str, namespace: str | None, resources: Collection[str], ladder: Sequence[str]
    ) -> ClusterQueue:
        """The ClusterQueue of a LocalQueue, for these resources only.

        Without that LocalQueue it is the only ClusterQueue of the files. Without that too, the flavors are those in the files,
        else the pools', in the order of :func:`flavor_order`.

        Raises :class:`ManifestError` for an object of another shape.
        """
        found = self._find_cluster_queue(queue, namespace)
        if found is None:
            return ClusterQueue((self._assumed(ladder),))
        spec = found.get(("spec",), None) or {}
        check_value(found, ("spec",), spec, _QUEUE_SPEC)
        groups = [group for group in spec.get("resourceGroups") or () if isinstance(group, dict)]
        covering = [group for group in groups if set(group.get("coveredResources") or ()) & set(resources)] or groups
        names = [
            [str(one.get("name")) for one in group.get("flavors") or () if isinstance(one, dict)] for group in covering
        ]
        known = {each: self._flavor(each) for each in dict.fromkeys(each for group in names for each in group)}
        flavors = [tuple(flavor for each in group if (flavor := known[each]) is not None) for group in names]
        unknown = tuple(each for each, flavor in known.items() if flavor is None)
        name = str(found.get(("metadata", "name"), ""))
        return ClusterQueue(tuple(flavors), name, f"{found.file}:{found.line(('spec',))}", unknown)

    def _find_cluster_queue(self, queue: str, namespace: str | None) -> Document | None:
        local = _of_kueue(self.find("LocalQueue", queue, namespace))
        if local is not None:
            name = local.get(("spec", "clusterQueue"), None)
            return _of_kueue(self.find("ClusterQueue", name, None)) if isinstance(name, str) else None
        every = [found for found in map(_of_kueue, self.find_all("ClusterQueue")) if found is not None]
        return every[0] if len(every) == 1 else None

    def _assumed(self, ladder: Sequence[str]) -> tuple[Flavor, ...]:
        """The flavors of all pools: each from its ResourceFlavor with labels, else derived from the pool."""
        documents = [found for found in map(_of_kueue, self.find_all("ResourceFlavor")) if found is not None]
        shown = [self._read(found, str(found.get(("metadata", "name"), ""))) for found in documents]
        listed: dict[str, Flavor] = {}
        for pool in flavor_order(self.pools, ladder):
            own = [flavor for flavor in shown if flavor.labels and pool in flavor.pools] or [flavor_of(pool)]
            listed.update({flavor.name: flavor for flavor in own})
        return tuple(listed.values())

    def _flavor(self, name: str) -> Flavor | None:
        """The flavor of a name: from its ResourceFlavor, else from the pool of that name; ``None`` if neither is known."""
        found = _of_kueue(self.find("ResourceFlavor", name, None))
        if found is not None:
            return self._read(found, name)
        return flavor_of(self.pools[name]) if name in self.pools else None

    def _read(self, found: Document, name: str) -> Flavor:
        """The flavor of a ResourceFlavor: for the pool of its name, unless its labels match others."""
        spec = found.get(("spec",), None) or {}
        check_value(found, ("spec",), spec, FLAVOR_SPEC)
        labels = {str(key): str(value) for key, value in (spec.get("nodeLabels") or {}).items()}
        own = self.pools.get(name)
        is_own = own is not None and any(
            all(each.get(key, value) == value for key, value in labels.items()) for each in node_labels.known(own)
        )
        wanted = Constraints(selector=labels)
        fitting = [pool for pool in self.pools.values() if not node_labels.refusal(pool, wanted, ())]
        taints = tuple(
            Taint(str(one.get("key")), str(one.get("value") or ""), str(one.get("effect")))
            for one in spec.get("nodeTaints") or ()
        )
        return Flavor(
            name,
            (own,) if own is not None and is_own else tuple(fitting),
            labels,
            tuple(taint for taint in taints if taint.effect in _REPELLING),
            scheduling_of({"tolerations": spec.get("tolerations")}).tolerations,
        )


def _of_kueue(found: Document | None) -> Document | None:
    """The object, if its group is Kueue's; ``None`` for one that only shares the kind's name."""
    is_ours = found is not None and str(found.get(("apiVersion",), "")).rpartition("/")[0] == _GROUP
    return found if is_ours else None
