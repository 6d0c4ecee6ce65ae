"""What autoscalers write, as the tests put it together: Events, NodeClaims, and the status of the cluster autoscaler.

Moments are seconds after the begin, or Unix seconds.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import yaml
from tests.cluster.watching.watched_objects import BEGIN
from tests.cluster.watching.watched_objects import at as after_begin

from spotwright import config as configuration
from spotwright.cluster.autoscaler_status import PROVISIONER, SCALER, AutoscalerStatus
from spotwright.cluster.signals import PodWaits
from spotwright.model.pools import Pool

AKS = {"cpuspot": {"capacity": "spot", "provider": "aks"}, "cpu": {"capacity": "on-demand", "provider": "aks"}}
KARPENTERS = {
    "cpu-spot": {"capacity": "spot", "provider": "karpenter"},
    "od": {"capacity": "on-demand", "provider": "karpenter"},
}
SPOT_GROUP, GROUP = "aks-cpuspot-12345678-vmss", "aks-cpu-12345678-vmss"
POD = {"metadata": {"name": "one", "namespace": "team-a", "uid": "uid-one"}}
FULL = "pod didn't trigger scale-up: 1 max node group size reached, 1 node(s) didn't match Pod's node affinity/selector"


def at(when: float) -> str:
    """A moment as the API writes it."""
    return after_begin(when) if when < BEGIN / 2 else f"{datetime.fromtimestamp(when, UTC):%Y-%m-%dT%H:%M:%SZ}"


def pools(*given: dict[str, dict[str, Any]], **more: Any) -> dict[str, Pool]:
    """The pools of these providers; ``more`` are fields of every one."""
    every = {name: {**pool, **more} for each in given for name, pool in each.items()}
    return dict(configuration.from_mapping({"pools": every}).pools)


def event(
    reason: str, message: str = "", *, when: float = 10, source: str = SCALER, about: Any = None, namespace: str = ""
) -> dict[str, Any]:
    """An Event about the pod, unless it is ``about`` another object."""
    about = about or {"kind": "Pod", "name": "one", "namespace": "team-a", "uid": "uid-one"}
    return {
        "metadata": {"name": f"{reason}.{when}", "namespace": namespace or "team-a"},
        "involvedObject": about,
        "reason": reason,
        "message": message,
        "source": {"component": source},
        "reportingComponent": source,
        "lastTimestamp": at(when),
    }


def triggered(when: float = 10, group: str = SPOT_GROUP) -> dict[str, Any]:
    return event("TriggeredScaleUp", f"pod triggered scale-up: [{{{group} 0->1 (max: 10)}}]", when=when)


def not_triggered(when: float = 10, message: str = FULL) -> dict[str, Any]:
    return event("NotTriggerScaleUp", message, when=when)


def of_karpenter(reason: str, message: str = "", when: float = 10) -> dict[str, Any]:
    return event(reason, message, when=when, source=PROVISIONER)


def no_offering(node_pool: str = "cpu-spot", when: float = 10, namespace: str = "default") -> dict[str, Any]:
    about = {"kind": "NodePool", "name": node_pool}
    message = "NodePool requirements filtered out all compatible available instance types"
    return event("NoCompatibleInstanceTypes", message, when=when, source=PROVISIONER, about=about, namespace=namespace)


def claim(name: str = "cpu-spot-x", pool: str = "cpu-spot", made: float = 10, **more: Any) -> dict[str, Any]:
    """A NodeClaim; ``more``: ``deleted`` or ``initialized``."""
    meta: dict[str, Any] = {
        "name": name,
        "labels": {"karpenter.sh/nodepool": pool},
        "creationTimestamp": at(made),
    }
    if more.get("deleted"):
        meta["deletionTimestamp"] = at(made + 1)
    is_there = "True" if more.get("initialized") else "Unknown"
    condition = {"type": "Initialized", "status": is_there, "lastTransitionTime": at(made)}
    return {"metadata": meta, "status": {"conditions": [condition]}}


def group(
    name: str = SPOT_GROUP,
    *,
    target: int = 0,
    ready: int = 0,
    most: int = 10,
    state: str = "NoActivity",
    since: float = 0,
    error: str = "",
) -> dict[str, Any]:
    """A group in the status. Numbers that are 0 are left out, as Go leaves them out."""
    counts = {"registered": {"total": ready, **({"ready": ready} if ready else {})}}
    health = {"status": "Healthy", "nodeCounts": counts, "maxSize": most}
    if target:
        health["cloudProviderTarget"] = target
    backoff = {"errorCode": error, "errorMessage": "refused"} if error else {}
    return {"name": name, "health": health, "scaleUp": {"status": state, "backoffInfo": backoff, "moved": since}}


def status(*groups: dict[str, Any], when: float = 20) -> dict[str, Any]:
    """The ConfigMap with the state of these groups at a moment."""
    written = []
    for one in groups:
        scale_up = {key: value for key, value in one["scaleUp"].items() if key != "moved"}
        scale_up |= {"lastProbeTime": at(when), "lastTransitionTime": at(one["scaleUp"]["moved"])}
        written.append({**one, "health": {**one["health"], "lastProbeTime": at(when)}, "scaleUp": scale_up})
    text = yaml.safe_dump(
        {"time": f"{at(when)[:10]} {at(when)[11:19]} +0000 UTC", "autoscalerStatus": "Running", "nodeGroups": written}
    )
    return {"metadata": {"name": "cluster-autoscaler-status", "namespace": "kube-system"}, "data": {"status": text}}


def hear(*said: dict[str, Any] | None, sees_claims: bool = True) -> AutoscalerStatus:
    """Words after all of these were heard in their order: Events, NodeClaims, and ConfigMaps."""
    words = AutoscalerStatus()
    words.sees_claims = sees_claims
    for one in said:
        if one is None or "data" in one:
            words.put_status(one)
        elif "involvedObject" in one:
            words.put_event(one)
        else:
            words.put_claim(one)
    return words


def means(words: AutoscalerStatus, wanted: list[str], known: dict[str, Pool], now: float = 25) -> PodWaits | None:
    """The meaning of the status for the pod at a time, in seconds after the start."""
    return words.of(POD, wanted, known, BEGIN + now)
