"""Rules on what pools can hold: gangs larger than all their pools, and pods that keep each other away.

They look at the pods of a template together, as the situation counts them. Without the size of a pool's nodes they say nothing.
Sources: Kubernetes documentation, "Assigning Pods to Nodes", "Pod Topology Spread Constraints".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spotwright.clouds import node_labels, providers
from spotwright.kube.pod import is_selected
from spotwright.linter.rule import ON_SPOT, Checks, Problem, Rule, Severity, job
from spotwright.linter.settings import Settings
from spotwright.linter.spot_reach import admits, selects_pool
from spotwright.linter.subjects import Pods, is_whole, items_of, mapping_at, mapping_of
from spotwright.model.pools import Pool
from spotwright.scheduling.ladder import EVERYWHERE

__all__ = ["RULES", "needed_at_once"]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_HOST = "kubernetes.io/hostname"


def _holding(pods: Pods, settings: Settings) -> list[tuple[Pool, int]]:
    """The pools that the pods select and fit, whatever their taints, with how many one node holds; none if that is not known."""
    requests = pods.requests
    found = [pool for pool in settings.pools.values() if selects_pool(pods.constraints, pool, requests)]
    held = [(pool, _on_a_node(pool, requests)) for pool in found]
    if any(pool.node is None or count is None for pool, count in held):
        return []
    return [(pool, count) for pool, count in held if count]


def _on_a_node(pool: Pool, requests: Mapping[str, int]) -> int | None:
    """How many of the pods one node of a pool holds; ``None`` without a bound."""
    node = pool.node or {}
    counts = [
        node.get(name, 0) // amount
        for name, amount in requests.items()
        if amount and (name in node or name not in EVERYWHERE)
    ]
    return min(counts, default=None)


def _gang(pods: Pods, settings: Settings) -> Iterator[Problem]:
    """Pods that run together or not at all, and are more than all their pools hold."""
    group = pods.group
    if group is None or not group.is_gang or group.at_once is None or pods.is_partial:
        return
    needed = min(group.at_once, needed_at_once(pods))
    held = _holding(pods, settings)
    most = sum(pool.max_nodes * count for pool, count in held)
    if held and most < needed:
        named = ", ".join(f"{pool.name} {pool.max_nodes} x {count}" for pool, count in held)
        text = f"{pods.label} has {needed} pods that start together, and its pools hold {most} at most ({named})"
        yield Problem(pods.spec, text)


def needed_at_once(pods: Pods) -> int:
    """The least number of pods that the object needs (``minAvailable``); very large if unset."""
    owner = pods.owner
    given = [] if owner is None else [owner.get("spec", *above, "minAvailable") for above in _MINIMA]
    return min((int(one) for one in given if is_whole(one) and one > 0), default=2**31)


_MINIMA = ((), ("runPolicy", "schedulingPolicy"), ("jobTemplate", "spec"))


def _apart(pods: Pods, settings: Settings) -> Iterator[Problem]:
    """Pods that exclude each other from a topology domain, with fewer domains than pods."""
    count = pods.group.at_once if pods.group is not None else None
    pools = [pool for pool in settings.pools.values() if admits(pool, pods.constraints, pods.requests)]
    if count is None or count < 2 or not pools:
        return
    for index, term in enumerate(items_of(mapping_at(pods.value, "affinity", "podAntiAffinity").get(_REQUIRED))):
        selector, key = mapping_of(term).get("labelSelector"), str(mapping_of(term).get("topologyKey"))
        if not selector or not is_selected(selector, mapping_at(pods.metadata, "labels")):
            continue
        most = _domains(key, pools)
        if most is not None and most < count:
            text = f"{pods.label} allows one of its {count} pods a {key}, and its pools have {most}, so {count - most} wait"
            yield Problem(pods.at("affinity", "podAntiAffinity", _REQUIRED, index), text)


def _domains(key: str, pools: Sequence[Pool]) -> int | None:
    """How many domains of a topology key the nodes of pools have at most; ``None`` if a pool does not show it."""
    if key == _HOST:
        return sum(pool.max_nodes for pool in pools)
    each = [labels.get(key) for pool in pools for labels in node_labels.known(pool)]
    return None if any(one is None for one in each) else len(set(each))


def _spread(pods: Pods, settings: Settings) -> Iterator[Problem]:
    """A spread over capacity types: half of the pods have to be on on-demand, whatever spot there is."""
    pools = [pool for pool in settings.pools.values() if admits(pool, pods.constraints, pods.requests)]
    for index, one in enumerate(items_of(pods.value.get("topologySpreadConstraints"))):
        given: Mapping[str, Any] = mapping_of(one)
        key = str(given.get("topologyKey"))
        is_hard = given.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
        if not is_hard or (key not in providers.CAPACITY_LABELS and key not in providers.SPOT_LABELS):
            continue
        if pods.asks_for_spot and len({pool.is_spot for pool in pools}) != 1:
            text = f"{pods.label} is spread evenly over {key}, so half of its pods wait for on-demand nodes and half for spot"
            yield Problem(pods.at("topologySpreadConstraints", index), text)


_POOLS = (
    "version: 1\npools:\n  spot: {capacity: spot, provider: aks, node: {cpu: 4, memory: 16Gi}, max_nodes: 3}\n"
    "  regular: {capacity: on-demand, provider: aks, node: {cpu: 4, memory: 16Gi}, max_nodes: 1}\n"
)
_GANG = (
    "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {{name: train}}\nspec:\n  schedulerName: volcano\n"
    "  minAvailable: {count}\n  tasks:\n  - name: worker\n    replicas: {count}\n    template:\n      spec:\n"
    "        containers: [{{name: main, image: 'trainer:1', resources: {{requests: {{cpu: 4}}}}}}]\n"
)
_LABELS = ("    metadata:\n", "    metadata:\n      labels: {app: train}\n")
_ONE_EACH = (
    "affinity:\n  podAntiAffinity:\n    requiredDuringSchedulingIgnoredDuringExecution:\n"
    "    - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: train}}}\n"
)
_SPREAD = (
    "topologySpreadConstraints:\n- {{topologyKey: {key}, maxSkew: 1, whenUnsatisfiable: DoNotSchedule,\n"
    "   labelSelector: {{matchLabels: {{app: train}}}}}}\n"
)

RULES = (
    Rule(
        id="gang-larger-than-pools",
        severity=Severity.WARNING,
        title="More pods that start together than the pools hold",
        why="A gang starts whole or not at all. If its pools at their largest hold fewer pods, it waits for ever, or holds nodes "
        "that do nothing.",
        fix="Raise max_nodes of a pool, or let fewer pods start together.",
        fails=_GANG.format(count=6),
        passes=_GANG.format(count=1),
        checks=Checks(pods=_gang),
        config=_POOLS,
    ),
    Rule(
        id="pods-keep-apart",
        severity=Severity.WARNING,
        title="Pods that keep each other away, and too few places",
        why="Required anti-affinity allows one of the pods in each domain. With fewer domains than pods the rest stay Pending.",
        fix="Prefer anti-affinity, or make more nodes or zones.",
        fails=job(_ONE_EACH, spec="parallelism: 9\n").replace(*_LABELS),
        passes=job(_ONE_EACH, spec="parallelism: 1\n").replace(*_LABELS),
        checks=Checks(pods=_apart),
        config=_POOLS,
        source='Kubernetes documentation, "Assigning Pods to Nodes"',
    ),
    Rule(
        id="spread-over-capacity",
        severity=Severity.WARNING,
        title="A spread over capacity types",
        why="An even spread that must hold puts half of the pods on on-demand, and lets them wait if either kind is used up. "
        "Preferences do not change that.",
        fix="Spread over zones or nodes, or write whenUnsatisfiable: ScheduleAnyway.",
        fails=job(ON_SPOT + _SPREAD.format(key="kubernetes.azure.com/scalesetpriority")),
        passes=job(ON_SPOT + _SPREAD.format(key="topology.kubernetes.io/zone")),
        checks=Checks(pods=_spread),
        source='Kubernetes documentation, "Pod Topology Spread Constraints"',
    ),
)
"""The rules of this module."""
