"""The end of a node against the end of pods: notices, what kubelets give pods, and grace periods of policies and manifests."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.pools.checked_pools import (
    GPU_TOLERATION,
    NODES,
    PLACED,
    SPOT_TOLERATION,
    aks,
    config_of,
    errors,
    found,
    job,
    with_plugin,
)

from spotwright import config as configuration
from spotwright.pools.checks import check
from spotwright.pools.cluster_inventory import Objects, ground_of, pod_works


def kubelet(total: str, critical: str) -> dict[str, Any]:
    return {"kubeletconfig": {"shutdownGracePeriod": total, "shutdownGracePeriodCriticalPods": critical}}


@pytest.mark.parametrize(
    ("total", "critical", "code", "severity"),
    [
        ("60s", "10s", "kubelet-shutdown-longer-than-notice", "error"),
        ("0s", "0s", "kubelet-shutdown-off", "warning"),
        ("20s", "20s", "kubelet-shutdown-without-share", "error"),
    ],
)
def test_a_kubelet_shutdown_that_does_not_fit_the_notice_is_found(
    total: str, critical: str, code: str, severity: str
) -> None:
    data = aks()
    data["items"].append(kubelet(total, critical))
    assert found(data)[code].severity == severity


def test_a_shutdown_within_the_notice_cuts_longer_grace_periods() -> None:
    data = with_plugin(aks(), kubelet("30s", "15s"))
    assert found(data, config=config_of({"grace_period": "20s"}))["grace-longer-than-kubelet"].where == "policy.default"
    assert found(data, config=config_of({"grace_period": "15s"})) == {}


def by_priority(**seconds: int) -> dict[str, Any]:
    """The settings of a kubelet; ``p1000=10``: ten seconds for a priority of 1000 and more."""
    phases = [{"priority": int(name[1:]), "shutdownGracePeriodSeconds": one} for name, one in seconds.items()]
    return {"kind": "KubeletConfiguration", "shutdownGracePeriodByPodPriority": phases}


def priority_class(name: str, value: int, **more: Any) -> dict[str, Any]:
    return {"kind": "PriorityClass", "metadata": {"name": name}, "value": value, **more}


@pytest.mark.parametrize(
    ("pod", "seconds"),
    [
        ({}, 4),
        ({"priority": 999}, 4),
        ({"priority": 1000}, 8),
        ({"priority": -5}, 4),
        ({"priorityClassName": "batch"}, 8),
        ({"priorityClassName": "unknown"}, 4),
        ({"priorityClassName": "system-node-critical"}, 2),
    ],
)
def test_a_kubelet_gives_a_pod_the_time_of_its_priority(pod: dict[str, Any], seconds: int) -> None:
    settings = by_priority(p2000000000=2, p0=4, p1000=8)
    data = with_plugin(aks(), settings, priority_class("batch", 5000))
    work = job(SPOT_TOLERATION, GPU_TOLERATION, nodeSelector={"gpu": "true"}, **pod)

    def codes(grace: int) -> set[str]:
        work["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = grace
        return set(found(data, work))

    assert codes(seconds) == set()
    assert codes(seconds + 1) == {"grace-longer-than-kubelet"}


def test_pods_without_a_class_have_the_priority_of_the_default_class() -> None:
    data = with_plugin(aks(), by_priority(p0=4, p1000=20), priority_class("normal", 1000, globalDefault=True))
    assert found(data, PLACED, config=config_of({"grace_period": "20s"})) == {}


def test_all_phases_of_a_kubelet_together_must_fit_the_notice() -> None:
    finding = found(with_plugin(aks(), by_priority(p0=15, p1000=16)))["kubelet-shutdown-longer-than-notice"]
    assert finding.text.startswith("the kubelet takes 31s (shutdownGracePeriodByPodPriority)")
    assert "kubelet-shutdown-longer-than-notice" not in found(with_plugin(aks(), by_priority(p0=15, p1000=15)))


def test_a_kubelet_that_has_time_for_pods_of_high_priority_alone_is_found() -> None:
    assert "kubelet-shutdown-without-share" in errors(with_plugin(aks(), by_priority(p0=0, p1000=20)))


def test_a_grace_period_longer_than_the_notice_is_an_error_in_policy_and_manifest() -> None:
    assert "grace-longer-than-notice" in errors(aks(), config=config_of({"grace_period": "2m"}))
    longer = job(SPOT_TOLERATION, GPU_TOLERATION, terminationGracePeriodSeconds=120)
    assert found(aks(), longer)["grace-longer-than-notice"].where == "work.yaml: Job train"


THREE_CLOUDS = {
    "aks": {"capacity": "spot", "provider": "aks", "labels": {"cloud": "aks"}},
    "gke": {"capacity": "spot", "provider": "gke", "labels": {"cloud": "gke"}},
    "eks": {"capacity": "spot", "provider": "eks", "labels": {"cloud": "eks"}},
    "small": {"capacity": "spot", "provider": "gke", "node": {"cpu": 1, "memory": "1Gi"}, "labels": {"cloud": "eks"}},
    "main": {"capacity": "on-demand", "provider": "eks"},
}


def ends_on_three_clouds(policy: dict[str, Any], *works: dict[str, Any]) -> dict[str, str]:
    """What is found about grace periods: the place and the code."""
    config = configuration.from_mapping({"pools": THREE_CLOUDS, "policy": policy})
    pods = [work for manifest in works for work in pod_works(manifest, "w.yaml", config)]
    return {one.where: one.code for one in check(ground_of(config, Objects(), pods)) if one.code.startswith("grace-")}


@pytest.mark.parametrize(
    ("cloud", "grace", "code"),
    [
        ("eks", 115, None),
        ("eks", 121, "grace-longer-than-notice"),
        ("aks", 25, None),
        ("aks", 31, "grace-longer-than-notice"),
        ("gke", 15, None),
        ("gke", 16, "grace-longer-than-kubelet"),
    ],
)
def test_a_grace_period_is_compared_with_the_notice_of_the_pools_on_which_the_work_lands(
    cloud: str, grace: int, code: str | None
) -> None:
    containers = [{"name": "a", "resources": {"requests": {"cpu": 2}}}]
    selector = {"cloud": cloud}
    work = job(SPOT_TOLERATION, nodeSelector=selector, containers=containers, terminationGracePeriodSeconds=grace)
    assert ends_on_three_clouds({}, work).get("w.yaml: Job train") == code


def test_the_grace_period_of_a_policy_is_compared_with_the_notice_of_its_ladder() -> None:
    ends = {"spot": "prefer", "grace_period": "100s", "ladder": ["eks", "main"]}
    tasks = {
        "a": {"ladder": ["aks", "main"]},
        "b": {"grace_period": "110s"},
        "c": {"ladder": ["gke", "main"], "grace_period": "16s"},
        "d": {"spot": "never", "grace_period": "10m"},
    }
    assert ends_on_three_clouds({"default": ends, "tasks": tasks}) == {
        "policy.tasks a": "grace-longer-than-notice",
        "policy.tasks c": "grace-longer-than-kubelet",
    }


def test_work_that_never_lands_on_spot_may_take_its_time() -> None:
    pods = {"containers": [{"name": "a", "image": "b"}], "terminationGracePeriodSeconds": 600}
    serving = {"kind": "Deployment", "metadata": {"name": "s"}, "spec": {"template": {"spec": pods}}}
    assert "grace-longer-than-notice" not in found(aks(), serving, PLACED)


def test_gke_cuts_the_grace_period_to_fifteen_seconds() -> None:
    pools = {
        "t4-spot": {
            "capacity": "spot",
            "provider": "gke",
            "node": {"nvidia.com/gpu": 1},
            "taints": ["cloud.google.com/gke-spot=true:NoSchedule"],
        }
    }
    config = configuration.from_mapping({"version": 1, "pools": pools, "policy": {"default": {"grace_period": "25s"}}})
    codes = found(json.loads((NODES / "gke.json").read_text()), config=config)
    assert codes["grace-longer-than-kubelet"].text.startswith("the grace period of 25s is cut to 15s")
    assert codes["node-of-no-pool"].severity == "note"
    assert "Spot VMs" in codes["form-of-the-past"].text
