"""DaemonSets against the pools: device plugins, drivers and log collectors that do not reach the nodes where work will run.

Sources: Kubernetes, "DaemonSet", "Taints and tolerations" (the tolerations that the controller adds: conditions of the node, none
of a provider); NVIDIA/k8s-device-plugin, README (the toleration of nvidia.com/gpu that its manifest has, and no other).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from spotwright.clouds import providers
from spotwright.manifests.rules.pod_spec import pod_constraints
from spotwright.model.pools import Pool, Provider
from spotwright.provisioning.checks.ground import Finding, Ground, PodWork, Severity

__all__ = ["check_daemon_sets"]


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
        "work there hears of no interruption",
        False,
    ),
)


def check_daemon_sets(ground: Ground) -> Iterator[Finding]:
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
            and pool.provider is not Provider.GKE
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


def _refusal(ground: Ground, pool: Pool, work: PodWork) -> str:
    constraints = pod_constraints(work.spec)
    for labels, taints in ground.kinds_of_node(pool):
        reason = constraints.refusal({"kubernetes.io/os": pool.os, **labels}, taints)
        if reason:
            return reason
    return ""


def _has_another(ground: Ground, pool: Pool, sort: _Sort) -> bool:
    """Whether another DaemonSet of the sort reaches the pool: clusters have one for each machine family."""
    return any(_sort_of(other) is sort and not _refusal(ground, pool, other) for other in ground.daemon_sets)


def _any_plugin(ground: Ground) -> bool:
    return any((sort := _sort_of(work)) is not None and sort.what == "device plugin" for work in ground.daemon_sets)
