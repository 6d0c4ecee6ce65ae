"""The findings of ``pools check``, most severe first: pools, nodes and DaemonSets against the work to come.

Pods of manifests: work that no node admits or that is unreadable, and taints that none of it tolerates. Pools that grow from
zero: labels that the autoscaler cannot know without a node. The end of a node: the provider's notice, the kubelet's shutdown
and the grace periods must fit. DaemonSets: device plugins, drivers and log collectors that miss nodes for the work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from spotwright.clouds import providers
from spotwright.clouds.providers import CUT_OFF, below_cut_off
from spotwright.config import Config
from spotwright.kube.pod import scheduling_of
from spotwright.model.policy import BUILT_IN, Layer, Policy, Spot, imply_spot, resolve
from spotwright.model.pools import Pool
from spotwright.model.quantities import format_duration
from spotwright.model.scheduling_terms import Toleration
from spotwright.placing.pod_change import longest_grace
from spotwright.placing.pods import shortest_notice
from spotwright.pools.autoscaler_facts import check_expander, check_groups
from spotwright.pools.cluster_inventory import ClusterInventory, Finding, PodWork, Severity, Shutdown
from spotwright.pools.node_facts import (
    check_gpus,
    check_labels,
    check_leftovers,
    check_strangers,
    check_taints,
    check_zones,
)
from spotwright.scheduling.ladder import PodRequirements, build, has_accelerators

__all__ = ["CHECKS", "check", "check_daemon_sets", "check_endings", "check_growth", "check_landing", "check_readable"]


def check_readable(ground: ClusterInventory) -> Iterator[Finding]:
    """Pods of manifests and DaemonSets with a field that Kubernetes would refuse."""
    yield from ground.unread


def check_landing(ground: ClusterInventory) -> Iterator[Finding]:
    """Work that fits no pool, and pools that a taint keeps all the work off."""
    for work in ground.works:
        reasons = {pool.name: ground.refusal(pool, work) for pool in ground.pools.values()}
        if all(reasons.values()):
            told = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
            yield Finding(
                "work-lands-nowhere",
                Severity.ERROR,
                work.where,
                f"no pool admits it: {told}",
                _advice(ground, work, reasons),
            )
    for pool in ground.pools.values():
        works = [work for work in ground.works if _is_meant_for(ground, pool, work)]
        for taint in {
            taint for _, taints in ground.kinds_of_node(pool) for taint in taints if taint.effect != "PreferNoSchedule"
        }:
            if taint.key.startswith("node.kubernetes.io/") or any(
                ground.tolerates(pool, work, taint) for work in works
            ):
                continue
            if works:
                yield Finding(
                    "taint-no-work-tolerates",
                    Severity.ERROR if pool.is_spot else Severity.WARNING,
                    f"pool {pool.name}",
                    f"none of the {len(works)} pod templates that fit there tolerates the taint {taint}: none of these "
                    "pods can be scheduled there",
                    _SYSTEM_POOL
                    if taint.key == "CriticalAddonsOnly"
                    else "spotwright place adds the toleration where the policy allows the pool"
                    if providers.is_spot_taint(pool, taint) or providers.is_gpu_taint(taint)
                    else f"spotwright place adds it for work whose policy names the pool: ladder: [{pool.name}]",
                )


_SYSTEM_POOL = (
    "leave it so: the pool is for the cluster's own add-ons; remove it from spotwright.yaml, so that no work goes there"
)
_WISH = resolve([Layer("any work", {"spot": Spot.PREFER})])


def _advice(ground: ClusterInventory, work: PodWork, reasons: Mapping[str, str]) -> str:
    """The fix for work that fits no pool: ``place`` only if it would not refuse the work too."""
    ladder = build(PodRequirements(work.requests, work.constraints), _WISH, ground.pools)
    if ladder.rungs:
        return "spotwright place adds the tolerations that the pools ask for"
    if ladder.tainted:
        named = ", ".join(ladder.tainted)
        return f"name {named} in the ladder of its policy: spotwright place then adds the tolerations"
    if all(reason.startswith("it asks for") for reason in reasons.values()):
        return "make a pool of larger nodes (spotwright pools command), or let it ask for less"
    return "correct what it asks of nodes, or add a label that they have under labels: of their pool in spotwright.yaml"


def _is_meant_for(ground: ClusterInventory, pool: Pool, work: PodWork) -> bool:
    """Whether a toleration would bring the work to the pool: its size and labels fit, and it asks for the pool's accelerators."""
    offers = pool.node or {}
    is_idle = has_accelerators(offers) or any(providers.is_gpu_taint(taint) for taint in providers.taints(pool))
    if is_idle and not has_accelerators(work.requests):
        return False
    everything = replace(work.constraints, tolerations=(Toleration(operator="Exists"),))
    return not ground.refusal(pool, work._replace(constraints=everything))


_AFTER_BOOT = ("nvidia.com/", "amd.com/", "feature.node.kubernetes.io/", "gpu.intel.com/", "node-role.kubernetes.io/")


def check_growth(ground: ClusterInventory) -> Iterator[Finding]:
    """Labels of pools and of selectors that an empty pool's template lacks."""
    from_zero = [pool for pool in ground.pools.values() if pool.min_nodes == 0]
    for pool in from_zero:
        for key, value in pool.labels.items():
            if key.startswith(_AFTER_BOOT):
                is_role = key.startswith("node-role.") and ground.members[pool.name]
                yield Finding(
                    "label-unknown-at-zero",
                    Severity.WARNING if is_role else Severity.ERROR,
                    f"pool {pool.name}",
                    f"the label {key}={value} is put on a node after it has booted: the autoscaler does not know it "
                    "while the pool has no node, and never makes one for work that selects it",
                    "give the pool a distinct label when it is made, or set min_nodes: 1",
                )
        hints = _hints(pool)
        if hints:
            yield hints
    for work in ground.works:
        for key, value in work.constraints.selector.items():
            pools = [
                pool.name for pool in from_zero if any(one.get(key) == value for one in providers.labels_by_zone(pool))
            ]
            if key.startswith(_AFTER_BOOT) and not _is_always_there(ground, key, value):
                yield Finding(
                    "selector-unknown-at-zero",
                    Severity.ERROR,
                    work.where,
                    f"its node selector asks for {key}={value}, a label that nodes have only after they have "
                    f"booted{': ' + ', '.join(pools) if pools else ''}: no pool grows from 0 for it",
                    "select a label that the pool is made with; spotwright pools list shows them",
                )


def _is_always_there(ground: ClusterInventory, key: str, value: str) -> bool:
    """Whether a pool that never shrinks to 0 has a node with the label."""
    return any(
        labels.get(key) == value
        for pool in ground.pools.values()
        if pool.min_nodes and ground.members[pool.name]
        for labels, _ in ground.kinds_of_node(pool)
    )


def _hints(pool: Pool) -> Finding | None:
    own = [key for key in providers.own_labels(pool) if not key.startswith(_AFTER_BOOT)]
    if not providers.of(pool).hints_at_zero or not (own or pool.taints):
        return None
    return Finding(
        "hints-at-zero",
        Severity.NOTE,
        f"pool {pool.name}",
        "an autoscaler knows its labels and taints at 0 nodes only by hints: node-template tags, or the rights to read "
        "the group",
        f"spotwright pools command {pool.name} prints them",
    )


_DEFAULT_GRACE = 30.0
_OF_PRIORITY = "its priority"
_OF_UNKNOWN = "its priority class (the value is in no file, so it may be the least)"
_DECIDING = {"grace_period", "ladder", "spot"}


def check_priorities(ground: ClusterInventory) -> Iterator[Finding]:
    """Work whose priority is too low for the cluster autoscaler to add nodes."""
    for work in ground.works:
        priority = ground.priority_of(work)
        maker = f"PriorityClass {named}" if (named := work.spec.get("priorityClassName")) else "its priority"
        landing = [pool for pool in ground.pools.values() if not ground.refusal(pool, work)]
        text = "" if priority is None else below_cut_off(priority, maker, landing, ground.config.target)
        if text:
            fix = f"give the class a value of {CUT_OFF} or more; preemptionPolicy: Never keeps its pods from preempting others"
            yield Finding("priority-below-cutoff", Severity.WARNING, work.where, text, fix)


def check_endings(ground: ClusterInventory) -> Iterator[Finding]:
    """Kubelet shutdown, notice and grace periods that do not fit each other."""
    spot = [pool for pool in ground.pools.values() if pool.is_spot]
    if not spot:
        return
    for shutdown in dict.fromkeys(ground.kubelets):
        yield from _shutdown(spot, shutdown)
    for name, policy in _policies(ground.config):
        share = _share(ground.kubelets, ground.priorities.get("", 0))
        yield from _grace(name, policy.grace_period, _pools_of(policy, ground.pools), share)
    for work in ground.works:
        given = work.spec.get("terminationGracePeriodSeconds")
        grace = float(given) if isinstance(given, int) else _DEFAULT_GRACE
        priority = ground.priority_of(work)
        share, of = _share(ground.kubelets, priority), _OF_UNKNOWN if priority is None else _OF_PRIORITY
        yield from _grace(work.where, grace, ground.spot_pools_of(work), share, of)


def _share(kubelets: Sequence[Shutdown], priority: int | None) -> float | None:
    """Seconds that the kubelets leave a pod of this priority; ``None`` if no kubelet waits for pods."""
    return min((one.share(priority) for one in kubelets if one.total), default=None)


def _shutdown(spot: Sequence[Pool], shutdown: Shutdown) -> Iterator[Finding]:
    total, setting = shutdown.total, shutdown.setting
    if not total:
        yield Finding(
            "kubelet-shutdown-off",
            Severity.WARNING,
            "kubelet",
            f"{setting} is 0: when the provider ends the machine, pods get no SIGTERM unless something drains the node",
            "run a handler that drains (spotwright node-agent passes the notice to code), or set shutdownGracePeriod",
        )
        return
    for pool in spot:
        if total > pool.notice:
            yield Finding(
                "kubelet-shutdown-longer-than-notice",
                Severity.ERROR,
                f"pool {pool.name}",
                f"the kubelet takes {format_duration(total)} ({setting}), the node goes {format_duration(pool.notice)} "
                "after the notice: its last pods are cut off without a word",
                f"set {setting} to at most {format_duration(pool.notice)} in all, or correct notice: of the pool",
            )
    if not shutdown.share(0):
        yield Finding(
            "kubelet-shutdown-without-share",
            Severity.ERROR,
            "kubelet",
            f"the {format_duration(total)} of {setting} leave no time for the pods of users, whose priority is 0",
            "make shutdownGracePeriod longer than shutdownGracePeriodCriticalPods, or give priority 0 a period",
        )


def _policies(config: Config) -> Iterator[tuple[str, Policy]]:
    """The policies of the configuration that set a grace period, or the pools for the default policy's."""
    default, _ = config.layers_for()
    named = [("policy.default", default)]
    named += [(f"policy.tasks {key}", (*default, layer)) for key, layer in config.policy_tasks]
    for name, layers in named:
        policy, own = imply_spot(resolve(layers)), layers[-1].values if layers else {}
        if policy.sources["grace_period"] != BUILT_IN.source and not _DECIDING.isdisjoint(own):
            yield name, policy


def _pools_of(policy: Policy, pools: Mapping[str, Pool]) -> list[Pool]:
    """The spot pools that the policy allows."""
    allowed = pools if policy.ladder is None else policy.ladder
    return [pools[name] for name in allowed if pools[name].is_spot and policy.spot is not Spot.NEVER]


def _grace(
    where: str, grace: float, pools: Sequence[Pool], share: float | None, of: str = _OF_PRIORITY
) -> Iterator[Finding]:
    """``pools``: the spot pools of the work. ``share``: seconds that kubelets leave for users' pods, ``None`` if unknown."""
    notice = shortest_notice(pools)
    if notice is None:
        return
    shortest = min(pools, key=lambda pool: pool.notice)
    share = notice if share is None else share
    if grace > shortest.notice:
        yield Finding(
            "grace-longer-than-notice",
            Severity.ERROR,
            where,
            f"the grace period of {format_duration(grace)} is longer than the notice of the pool {shortest.name} "
            f"({format_duration(shortest.notice)}): the machine is gone before the code has ended",
            f"grace_period: at most {format_duration(min(share, longest_grace(notice)))}",
        )
    elif grace > share:
        yield Finding(
            "grace-longer-than-kubelet",
            Severity.WARNING,
            where,
            f"the grace period of {format_duration(grace)} is cut to {format_duration(share)}, what the kubelet gives "
            f"pods of {of} when the node is shut down",
            f"grace_period: {format_duration(share)}, and save within it",
        )


class _Sort(NamedTuple):
    """A sort of DaemonSet by words in its name and images. ``only_gpus``: only nodes with GPUs need it."""

    words: re.Pattern[str]
    what: str
    severity: Severity
    harm: str
    only_gpus: bool


_SORTS = (
    _Sort(
        re.compile(r"device-plugin"),
        "device plugin",
        Severity.ERROR,
        "its nodes will offer no GPUs, and work that asks for them waits",
        True,
    ),
    _Sort(
        re.compile(r"nvidia-driver|gpu-driver|driver-installer|container-toolkit|gpu-operator"),
        "driver",
        Severity.ERROR,
        "its nodes will have no driver, and GPUs do not work",
        True,
    ),
    _Sort(
        re.compile(
            r"fluent|promtail|vector|filebeat|logging|log-collector|logstash|ama-logs|omsagent|cloudwatch-agent|grafana-agent|alloy"
        ),
        "log collector",
        Severity.WARNING,
        "the logs of work that ran there are lost with the node",
        False,
    ),
    _Sort(
        re.compile(r"spotwright-agent|spotwright-node-agent|node-termination-handler"),
        "notice agent",
        Severity.WARNING,
        "work there gets no notice of an interruption",
        False,
    ),
)


def check_daemon_sets(ground: ClusterInventory) -> Iterator[Finding]:
    """DaemonSets whose pods a pool's taints keep away; a pool with GPUs whose device plugin is missing."""
    for pool in ground.pools.values():
        has_gpus = bool(providers.gpus_of(pool))
        plugins = []
        for work in ground.daemon_sets:
            sort = _sort_of(work)
            if sort is None or (sort.only_gpus and not has_gpus):
                continue
            reason = _refusal(ground, pool, work)
            plugins += [work] if sort.what == "device plugin" and not reason else []
            if reason and not (sort.only_gpus and _has_another(ground, pool, sort)):
                yield Finding(
                    "daemonset-does-not-tolerate",
                    sort.severity,
                    f"pool {pool.name}",
                    f"{work.where} ({sort.what}): {reason}: {sort.harm}",
                    "add the toleration to the DaemonSet: {operator: Exists} tolerates every taint",
                )
        if (
            has_gpus
            and ground.daemon_sets
            and not plugins
            and not providers.of(pool).gpu_driver
            and not _any_plugin(ground)
        ):
            yield Finding(
                "device-plugin-missing",
                Severity.ERROR,
                f"pool {pool.name}",
                "none of the DaemonSets is a device plugin: nodes with GPUs will offer none",
                "install NVIDIA's device plugin or GPU operator, with a toleration for the pool's taints",
            )


def _sort_of(work: PodWork) -> _Sort | None:
    images = (str(one.get("image", "")) for one in work.spec.get("containers") or ())
    text = " ".join((work.where, *images)).lower()
    return next((sort for sort in _SORTS if sort.words.search(text)), None)


def _refusal(ground: ClusterInventory, pool: Pool, work: PodWork) -> str:
    constraints = scheduling_of(work.spec)
    for labels, taints in ground.kinds_of_node(pool):
        reason = constraints.refusal({"kubernetes.io/os": pool.os, **labels}, taints)
        if reason:
            return reason
    return ""


def _has_another(ground: ClusterInventory, pool: Pool, sort: _Sort) -> bool:
    """Whether another DaemonSet of the sort reaches the pool: clusters have one for each machine family."""
    return any(_sort_of(other) is sort and not _refusal(ground, pool, other) for other in ground.daemon_sets)


def _any_plugin(ground: ClusterInventory) -> bool:
    return any((sort := _sort_of(work)) is not None and sort.what == "device plugin" for work in ground.daemon_sets)


CHECKS: tuple[Callable[[ClusterInventory], Iterator[Finding]], ...] = (
    check_readable,
    check_taints,
    check_labels,
    check_zones,
    check_gpus,
    check_daemon_sets,
    check_leftovers,
    check_growth,
    check_endings,
    check_priorities,
    check_landing,
    check_expander,
    check_groups,
    check_strangers,
)
"""All checks; each returns its findings for an inventory."""


def check(ground: ClusterInventory) -> list[Finding]:
    """All findings, errors first, each once."""
    order = list(Severity)
    found = dict.fromkeys(chain.from_iterable(one(ground) for one in CHECKS))
    return sorted(found, key=lambda finding: order.index(finding.severity))
