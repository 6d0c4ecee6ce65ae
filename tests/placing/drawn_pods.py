"""Drawn pools, policies and pods for properties: affinity of any form, selectors, tolerations, with labels that we add too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from spotwright import config
from spotwright.config import Config
from spotwright.errors import SpotwrightError

__all__ = ["PREFERRED", "REQUIRED", "SPOT", "Pod", "configs", "specs"]

Pod = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

MACHINES: Mapping[str, tuple[str, str]] = {
    "aks": ("Standard_D8s_v5", "Standard_NC6s_v3"),
    "gke": ("n2-standard-8", "g2-standard-8"),
    "eks": ("m5.2xlarge", "g5.2xlarge"),
    "karpenter": ("m5.2xlarge", "g5.2xlarge"),
    "generic": ("", ""),
}
"""A machine without GPUs and one with GPUs, of each provider."""

GPU_TAINTS = ["nvidia.com/gpu=present:NoSchedule", "sku=gpu:NoSchedule"]
POOL_LABELS: list[dict[str, str]] = [{}, {"team": "a"}, {"kubernetes.io/os": "linux"}, {"accelerator": "nvidia"}]


NAMES = ["cpu-spot", "cpu", "gpu-spot", "gpu"]


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Pools of one provider, with GPUs and without, and a policy."""
    provider = draw(st.sampled_from(sorted(MACHINES)))
    with_machine = draw(st.booleans())
    pools: dict[str, Any] = {}
    for name in draw(st.one_of(st.just(NAMES), st.sets(st.sampled_from(NAMES), min_size=1))):
        has_gpus = name.startswith("gpu")
        machine = MACHINES[provider][has_gpus] if with_machine else ""
        pool: dict[str, Any] = {"capacity": "spot" if name.endswith("spot") else "on-demand", "provider": provider}
        pool |= {"machine": machine} if machine else {}
        pool["node"] = {"cpu": 8, "memory": "32Gi", **({"nvidia.com/gpu": 1} if has_gpus else {})}
        labels = {**draw(st.sampled_from(POOL_LABELS)), **({"market": name} if provider == "generic" else {})}
        pool["labels"] = labels
        pool["taints"] = [draw(st.sampled_from(GPU_TAINTS))] if has_gpus and draw(RARELY) else []
        pools[name] = pool
    policy: dict[str, Any] = {"spot": draw(SPOT)}
    if draw(RARELY):
        policy["ladder"] = draw(st.permutations(sorted(pools)))[: draw(st.integers(1, len(pools)))]
    try:
        return config.parse(json.dumps({"version": 1, "pools": pools, "policy": {"default": policy}}))
    except SpotwrightError:
        assume(condition=False)
        raise


SOMETIMES = st.booleans()
RARELY = st.sampled_from([False, False, False, True])
SPOT = st.sampled_from(["prefer", "require", "never"])
conditions = st.sampled_from(
    [
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "kubernetes.io/arch", "operator": "Exists"},
        {"key": "team", "operator": "DoesNotExist"},
        {"key": "team", "operator": "In", "values": ["a"]},
        {"key": "accelerator", "operator": "NotIn", "values": ["nvidia"]},
        {"key": "node.kubernetes.io/instance-type", "operator": "NotIn", "values": ["m5.large"]},
        {"key": "kubernetes.azure.com/scalesetpriority", "operator": "In", "values": ["spot"]},
        {"key": "kubernetes.azure.com/scalesetpriority", "operator": "NotIn", "values": ["spot"]},
        {"key": "cloud.google.com/gke-spot", "operator": "In", "values": ["true"]},
        {"key": "eks.amazonaws.com/capacityType", "operator": "In", "values": ["SPOT"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]},
        {"key": "market", "operator": "In", "values": ["cpu-spot"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["{{inputs.parameters.arch}}"]},
    ]
)


@st.composite
def a_term(draw: st.DrawFn) -> Pod:
    """A node selector term of 0 to 3 conditions, in each form of an empty one."""
    some = draw(st.lists(conditions, max_size=3))
    if some:
        return {"matchExpressions": some}
    return draw(st.sampled_from([{}, {"matchExpressions": []}, {"matchExpressions": None, "matchFields": []}]))


terms = st.lists(a_term(), min_size=1, max_size=3)
preferences = st.lists(
    st.tuples(st.integers(1, 100), a_term()).map(lambda pair: {"weight": pair[0], "preference": pair[1]}), max_size=2
)
tolerations = st.lists(
    st.sampled_from(
        [
            {"key": "sku", "operator": "Exists"},
            {"operator": "Exists"},
            {"key": "sku", "value": "gpu"},
            {
                "key": "kubernetes.azure.com/scalesetpriority",
                "operator": "Equal",
                "value": "spot",
                "effect": "NoSchedule",
            },
            {"key": "nvidia.com/gpu", "operator": "", "value": "present", "effect": None},
            {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
        ]
    ),
    max_size=3,
)
selectors = st.sampled_from(
    [
        {},
        {"kubernetes.io/os": "linux"},
        {"cloud.google.com/gke-accelerator": "nvidia-l4"},
        {"agentpool": "gpu"},
        {"team": "a"},
    ]
)


@st.composite
def specs(draw: st.DrawFn, name: str = "main") -> Pod:
    """A pod spec with conditions of its own."""
    limits = {"cpu": 1, **({"nvidia.com/gpu": 1} if draw(st.booleans()) else {})}
    pod: Pod = {"containers": [{"name": name, "image": "i", "resources": {"limits": limits}}]}
    nodes: Pod = {}
    if draw(SOMETIMES):
        nodes[REQUIRED] = {"nodeSelectorTerms": draw(terms)}
    if draw(RARELY):
        nodes[PREFERRED] = draw(preferences)
    if nodes:
        pod["affinity"] = {"nodeAffinity": nodes}
    elif draw(RARELY):
        pod["affinity"] = None
    selector: Pod = draw(selectors) if draw(RARELY) else {}
    if selector:
        pod["nodeSelector"] = selector
    if some := draw(tolerations):
        pod["tolerations"] = some
    if draw(RARELY):
        pod["terminationGracePeriodSeconds"] = draw(st.sampled_from([0, 10, 20, 600]))
    if draw(RARELY):
        pod["priorityClassName"] = "batch"
    return pod
