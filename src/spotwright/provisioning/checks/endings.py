"""The end of a node against the end of a pod: the provider's notice, the kubelet's shutdown and the grace periods must fit.

What a kubelet does is :mod:`spotwright.provisioning.kubelets`'. Sources: Kubernetes, "Node Shutdowns" (without settings nothing
waits for pods; a pod's own period is cut to that of its phase); Azure/AKS#3528 and the EKS user guide (no
graceful shutdown of the node by default). The notices are those of :mod:`spotwright.clouds`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from spotwright.config import Config
from spotwright.manifests.rules.pod_rules import longest_grace, shortest_notice
from spotwright.model.policy import BUILT_IN, Policy, Spot, imply_spot, resolve
from spotwright.model.pools import Pool
from spotwright.model.quantities import format_duration
from spotwright.provisioning.checks.ground import Finding, Ground, Severity
from spotwright.provisioning.kubelets import Shutdown

__all__ = ["check_endings"]

_DEFAULT_GRACE = 30.0
_OF_PRIORITY = "its priority"
_OF_UNKNOWN = "its priority class (the value is in no file, so it may be the least)"
_DECIDING = {"grace_period", "ladder", "spot"}


def check_endings(ground: Ground) -> Iterator[Finding]:
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
    """Seconds that the kubelets leave a pod of this priority; None where no kubelet waits for pods."""
    return min((one.share(priority) for one in kubelets if one.total), default=None)


def _shutdown(spot: Sequence[Pool], shutdown: Shutdown) -> Iterator[Finding]:
    total, setting = shutdown.total, shutdown.setting
    if not total:
        yield Finding(
            "kubelet-shutdown-off",
            Severity.WARNING,
            "kubelet",
            f"{setting} is 0: when the provider ends the machine, pods are not told with SIGTERM unless something "
            "drains the node",
            "run a handler that drains (spotwright node-agent tells code of the notice), or set shutdownGracePeriod",
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
            f"of the {format_duration(total)} of {setting} nothing is left for the pods of users, whose priority is 0",
            "make shutdownGracePeriod longer than shutdownGracePeriodCriticalPods, or give priority 0 a period",
        )


def _policies(config: Config) -> Iterator[tuple[str, Policy]]:
    """The policies of the configuration that set a grace period, or the pools for that of the default policy."""
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
    """``pools``: the spot pools of the work. ``share``: what kubelets leave for pods of users, None where nobody said it."""
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
