"""The stand-in of the Cluster Autoscaler without a cluster: its text, its expanders, and its reasons against a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.cluster.live.autoscaling.expanders import Option, best
from tests.cluster.live.autoscaling.fitting import pack, room_of
from tests.cluster.live.autoscaling.machines import aks_groups
from tests.cluster.live.autoscaling.scenarios import job_of
from tests.cluster.live.autoscaling.status_text import GroupState, StatusText
from tests.cluster.live.kube import Object

CPUSPOT, CPU, GPUSPOT = aks_groups()
BACKOFF = ("cloudProviderError", "no capacity")


def pod(name: str = "one", cpu: str = "3", **spec: Any) -> Object:
    """A pod that asks for processors."""
    made = job_of(name, {"cpu": cpu, "memory": "1Gi"})["spec"]["template"]["spec"]
    return {"metadata": {"name": name}, "spec": {**made, **spec}, "status": {}}


def paths(data: Any, above: str = "") -> Iterator[str]:
    """The path of every field that holds a value."""
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from paths(value, f"{above}.{key}")
    elif isinstance(data, list):
        for value in data:
            yield from paths(value, f"{above}[]")
    else:
        yield above


def test_the_status_has_the_fields_of_the_real_one() -> None:
    empty = GroupState("a", 0, 0, 0, 0, 5, in_progress=False)
    text = StatusText().write([empty, GroupState("b", 0, 1, 0, 0, 5, in_progress=False, backoff=BACKOFF)], 0.0)
    assert text == yaml.safe_dump(yaml.safe_load(text), sort_keys=True), "in the order of the alphabet"
    counts = ["longUnregistered", "unregistered"]
    counts += [f"registered.{key}" for key in ("notStarted", "ready", "total")]
    counts += [f"registered.unready.{key}" for key in ("resourceUnready", "total")]
    times = ["lastProbeTime", "lastTransitionTime", "status"]
    health = [*times, *(f"nodeCounts.{key}" for key in counts)]
    group = ["name", *(f"health.{key}" for key in (*health, "cloudProviderTarget", "maxSize", "minSize"))]
    group += ["scaleUp.backoffInfo", "scaleUp.backoffInfo.errorCode", "scaleUp.backoffInfo.errorMessage"]
    whole = [f"clusterWide.health.{key}" for key in health] + ["autoscalerStatus", "time"]
    for name in ("scaleUp", "scaleDown"):
        whole += [f"clusterWide.{name}.{key}" for key in times]
        group += [f"{name}.{key}" for key in times]
    assert set(paths(yaml.safe_load(text))) == {f".{key}" for key in whole} | {f".nodeGroups[].{key}" for key in group}


def test_a_state_keeps_its_time_until_it_changes_and_a_group_without_machines_has_none() -> None:
    text = StatusText()
    waiting = GroupState("a", 1, 0, 1, 0, 5, in_progress=True)
    first, second = (yaml.safe_load(text.write([waiting], at))["nodeGroups"][0]["scaleUp"] for at in (100.0, 200.0))
    assert first["lastTransitionTime"] == second["lastTransitionTime"] != second["lastProbeTime"]
    empty = yaml.safe_load(text.write([GroupState("a", 0, 0, 0, 0, 5, in_progress=False)], 300.0))["nodeGroups"][0]
    assert (empty["scaleUp"]["status"], empty["scaleUp"]["lastTransitionTime"]) == ("NoActivity", None)


@pytest.mark.parametrize(
    ("priorities", "chosen", "said"),
    [
        ("20: [^aks-cpuspot-.*]\n10: [^aks-cpu-.*]", {CPUSPOT.name}, set()),
        ("10: [cpuspot]\n20: [nothing]", {CPUSPOT.name}, {"PriorityConfigMapNotMatchedGroup"}),
        ("10: [aks]\n20: [aks-cpu-]", {CPU.name}, set()),
        ("10: [aks]", {CPUSPOT.name, CPU.name}, set()),
        (
            "10: [other]",
            {CPUSPOT.name, CPU.name},
            {"PriorityConfigMapNotMatchedGroup", "PriorityConfigMapNoGroupMatched"},
        ),
        ("10: ['(']", {CPUSPOT.name, CPU.name}, {"PriorityConfigMapInvalid"}),
        (None, {CPUSPOT.name, CPU.name}, set()),
    ],
)
def test_the_priority_expander_takes_the_highest_pattern_that_matches_a_fitting_group(
    priorities: str | None, chosen: set[str], said: set[str]
) -> None:
    options = [Option(CPUSPOT, 1, [pod()]), Option(CPU, 1, [pod()])]
    heard: set[str] = set()
    found = {best("priority", options, priorities, lambda reason, _: heard.add(reason)).group.name for _ in range(40)}
    assert found <= chosen
    assert len(found) == len(chosen), "by chance among equals; forty times the same are one in 10^12"
    assert heard == said


def test_what_is_against_a_node_is_said_in_the_scheduler_s_order() -> None:
    spot = {"key": "kubernetes.azure.com/scalesetpriority", "operator": "Exists"}
    there = room_of(CPUSPOT.node("n"))
    assert there.reasons_against(pod()) == ["node(s) had untolerated taint(s)"]
    selected = pod(tolerations=[spot], nodeSelector={"agentpool": "cpu"})
    assert there.reasons_against(selected) == ["node(s) didn't match Pod's node affinity/selector"]
    assert there.reasons_against(pod(cpu="9", tolerations=[spot])) == ["Insufficient cpu"]
    assert there.reasons_against(pod(tolerations=[spot])) == []
    assert len(pack([pod("a"), pod("b")], [room_of(CPU.node("n"))])) == 1
