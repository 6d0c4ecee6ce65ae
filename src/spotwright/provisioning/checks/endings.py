"""The end of a node against the end of a pod: the provider's notice, the kubelet's shutdown and the grace periods must fit.

Sources: Kubernetes, "Node Shutdowns" (``shutdownGracePeriod``, of which the last ``shutdownGracePeriodCriticalPods`` are for
critical pods; 0 and 0, the default, is off; a pod's own period is cut to its share); Google Cloud, "Spot VMs in GKE" (15 of 30
seconds); Azure/AKS#3528 and the EKS user guide (no graceful shutdown of the node by default).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spotwright.model.pools import Pool, Provider
from spotwright.model.quantities import format_duration, parse_duration
from spotwright.provisioning.checks.ground import Finding, Ground, PodWork, Severity

__all__ = ["check_endings"]

_GKE_SHARE = 15.0
_DEFAULT_GRACE = 30.0


def check_endings(ground: Ground) -> Iterator[Finding]:
    """Kubelet shutdown, notice and grace periods that do not fit each other."""
    spot = [pool for pool in ground.pools.values() if pool.is_spot]
    if not spot:
        return
    shortest = min(spot, key=lambda pool: pool.notice)
    periods = {_periods(kubelet) for kubelet in ground.kubelets}
    for total, critical in sorted(periods):
        yield from _shutdown(spot, total, critical)
    shares = [total - critical for total, critical in periods if total]
    share = min(shares) if shares else (_GKE_SHARE if any(pool.provider is Provider.GKE for pool in spot) else None)
    for name, grace in _policies(ground):
        yield from _grace(name, grace, shortest, share)
    for work in ground.works:
        if _lands_on_spot(ground, work, spot):
            given = work.spec.get("terminationGracePeriodSeconds")
            yield from _grace(work.where, float(given) if isinstance(given, int) else _DEFAULT_GRACE, shortest, share)


def _periods(kubelet: Mapping[str, Any]) -> tuple[float, float]:
    return _seconds(kubelet.get("shutdownGracePeriod")), _seconds(kubelet.get("shutdownGracePeriodCriticalPods"))


def _seconds(value: Any) -> float:
    try:
        return parse_duration(value) if value else 0.0
    except (ValueError, TypeError):
        return 0.0


def _shutdown(spot: list[Pool], total: float, critical: float) -> Iterator[Finding]:
    if not total:
        yield Finding(
            "kubelet-shutdown-off",
            Severity.WARNING,
            "kubelet",
            "shutdownGracePeriod is 0: when the provider ends the machine, pods are not told with SIGTERM unless "
            "something drains the node",
            "run a handler that drains (spotwright node-agent tells code of the notice), or set shutdownGracePeriod",
        )
        return
    for pool in spot:
        if total > pool.notice:
            yield Finding(
                "kubelet-shutdown-longer-than-notice",
                Severity.ERROR,
                f"pool {pool.name}",
                f"the kubelet takes {format_duration(total)} (shutdownGracePeriod), the node goes "
                f"{format_duration(pool.notice)} after the "
                "notice: its last pods are cut off without a word",
                f"set shutdownGracePeriod to at most {format_duration(pool.notice)}, or correct notice: of the pool",
            )
    if critical >= total:
        yield Finding(
            "kubelet-shutdown-without-share",
            Severity.ERROR,
            "kubelet",
            f"shutdownGracePeriodCriticalPods ({format_duration(critical)}) leaves no time of shutdownGracePeriod "
            f"({format_duration(total)}) "
            "for the pods of users",
            "make shutdownGracePeriod the larger of the two",
        )


def _policies(ground: Ground) -> Iterator[tuple[str, float]]:
    config = ground.config
    layers = (
        ("policy.default", config.policy_default),
        *((f"policy.tasks {key}", layer) for key, layer in config.policy_tasks),
    )
    for name, layer in layers:
        grace = layer.values.get("grace_period") if layer is not None else None
        if isinstance(grace, int | float):
            yield name, float(grace)


def _grace(where: str, grace: float, shortest: Pool, share: float | None) -> Iterator[Finding]:
    if grace > shortest.notice:
        yield Finding(
            "grace-longer-than-notice",
            Severity.ERROR,
            where,
            f"the grace period of {format_duration(grace)} is longer than the notice of the pool {shortest.name} "
            f"({format_duration(shortest.notice)}): the machine is gone before the code has ended",
            f"grace_period: at most {format_duration(share or shortest.notice)}",
        )
    elif share is not None and grace > share:
        yield Finding(
            "grace-longer-than-kubelet",
            Severity.WARNING,
            where,
            f"the grace period of {format_duration(grace)} is cut to {format_duration(share)}, what the kubelet "
            "gives pods of users when the "
            "node is shut down",
            f"grace_period: {format_duration(share)}, and save within it",
        )


def _lands_on_spot(ground: Ground, work: PodWork, spot: list[Pool]) -> bool:
    return any(not ground.refusal(pool, work) for pool in spot)
