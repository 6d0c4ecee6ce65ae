"""Pods of manifests against the pools: work that no node admits or nobody can read, and taints that none of it tolerates."""

from __future__ import annotations

from collections.abc import Iterator

from spotwright.provisioning.checks.ground import Finding, Ground, Severity

__all__ = ["check_landing", "check_readable"]


def check_readable(ground: Ground) -> Iterator[Finding]:
    """Pods of manifests and DaemonSets with a field of another form than Kubernetes asks for."""
    yield from ground.unread


def check_landing(ground: Ground) -> Iterator[Finding]:
    """Work that lands nowhere, and pools on which none of the work lands because of a taint."""
    for work in ground.works:
        reasons = {pool.name: ground.refusal(pool, work) for pool in ground.pools.values()}
        if all(reasons.values()):
            told = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
            yield Finding(
                "work-lands-nowhere",
                Severity.ERROR,
                work.where,
                f"no pool admits it: {told}",
                "spotwright place adds what the pools ask for; correct a selector that no pool has",
            )
    if not ground.works:
        return
    for pool in ground.pools.values():
        for taint in {
            taint for _, taints in ground.kinds_of_node(pool) for taint in taints if taint.effect != "PreferNoSchedule"
        }:
            if taint.key.startswith("node.kubernetes.io/") or any(
                ground.tolerates(pool, work, taint) for work in ground.works
            ):
                continue
            yield Finding(
                "taint-no-work-tolerates",
                Severity.ERROR if pool.is_spot else Severity.WARNING,
                f"pool {pool.name}",
                f"none of the {len(ground.works)} pod templates tolerates the taint {taint}: nothing of it lands there",
                "spotwright place adds the toleration where the policy allows the pool",
            )
