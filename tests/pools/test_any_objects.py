"""Whatever a file of nodes holds, ``pools import`` and ``pools check`` read it or refuse it with the place of what is wrong."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pools.checked_pools import PLUGIN, aks
from tests.pools.listed_node_pools import AWS, AZ, EKSCTL, GCLOUD, SHOWN, STATE

from spotwright.cli import cli
from spotwright.errors import InputError
from spotwright.pools.cluster_inventory import read_objects

KUBELET = {"kind": "KubeletConfiguration", "shutdownGracePeriod": "30s", "shutdownGracePeriodCriticalPods": "10s"}
BY_PRIORITY = {"shutdownGracePeriodByPodPriority": [{"priority": 0, "shutdownGracePeriodSeconds": 10}]}
PRIORITY_CLASS = {"kind": "PriorityClass", "metadata": {"name": "low"}, "value": -10, "globalDefault": True}
REQUIREMENT = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}
TEMPLATE = {"requirements": [REQUIREMENT], "taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}
NODE_POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "general"},
    "spec": {"template": {"spec": TEMPLATE}},
}
ADDON = {
    "name": "cluster-autoscaler",
    "config": {"min-nodes": "1", "max-nodes": "3"},
    "pools": [{"name": "agent1", "config": {"max-nodes": "3"}}],
}
PROFILE = {
    "name": "agent1",
    "count": 3,
    "vmSize": "Standard_D4s_v3",
    "scaleSetPriority": "Low",
    "availabilityZones": ["1"],
    "customNodeLabels": {"team": "a"},
    "OSDiskSizeGB": 100,
}
API_MODEL = {
    "apiVersion": "vlabs",
    "properties": {
        "orchestratorProfile": {"kubernetesConfig": {"addons": [ADDON]}},
        "agentPoolProfiles": [PROFILE],
    },
}
POOLS = "version: 1\npools:\n  gpuspot: {capacity: spot, provider: aks}\n"
OTHERS = [{"kubeletconfig": BY_PRIORITY}, PRIORITY_CLASS]
WHOLE = {"kind": "List", "items": [*aks()["items"], PLUGIN, KUBELET, NODE_POOL, *OTHERS]}
JUNK: list[Any] = [None, 5, -1.5, "x", "", [], {}, ["x"], [None], [[]], True, {"a": 1}, {"": None}, "9" * 40]


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value below this one."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*path, key)
        yield from paths(value[key], (*path, key))


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The document with another value at the path, whose last key may be new."""
    result = holder = copy.deepcopy(document)
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return result


LISTS = (AZ, [GCLOUD], AWS, [EKSCTL], SHOWN, STATE)
PLACES = [(document, path) for document in (WHOLE, API_MODEL, *LISTS) for path in paths(document)]
CHANGES = st.builds(lambda place, value: (*place, value), st.sampled_from(PLACES), st.sampled_from(JUNK))


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pools") / "spotwright.yaml"
    path.write_text(POOLS)
    return path


@settings(max_examples=150)
@given(change=CHANGES)
def test_any_value_anywhere_is_read_or_refused_in_words(pools: Path, change: tuple[Any, tuple[Any, ...], Any]) -> None:
    text = json.dumps(changed(*change))
    for command in (["import", "-"], ["check", "-", "--config", str(pools)]):
        result = CliRunner().invoke(cli, ["pools", *command], input=text)
        assert isinstance(result.exception, SystemExit | InputError | None), result.exception


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            ("items", 0, "metadata", "labels", "agentpool"),
            7,
            "node 1: metadata.labels.agentpool: expected a text, found a number",
        ),
        (("items", 1, "spec", "taints"), "x", "node 2: spec.taints: expected a list, found a text"),
        (("items", 1, "spec", "taints", 0), None, "node 2: spec.taints[0]: expected a mapping, found nothing"),
        (
            ("items", 4, "spec", "template", "spec", "requirements"),
            True,
            "NodePool 1: spec.template.spec.requirements: expected",
        ),
        (("items", 0), "x", "expected objects of Kubernetes, found a text"),
        (
            ("items", 3, "shutdownGracePeriod"),
            "soon",
            "nodes.json: kubelet 1: shutdownGracePeriod: expected a duration such as 30s, found a text (soon)",
        ),
        (
            ("items", 5, "kubeletconfig", "shutdownGracePeriodByPodPriority", 0, "priority"),
            "high",
            "kubelet 2: shutdownGracePeriodByPodPriority[0].priority: expected a priority, which is a whole number",
        ),
        (("items", 5, "kubeletconfig", "shutdownGracePeriod"), "30s", "no kubelet starts with both"),
        (
            ("items", 6, "value"),
            "10",
            "PriorityClass: value: expected a priority, which is a whole number, found a text",
        ),
    ],
)
def test_the_message_names_the_object_and_the_field(path: tuple[Any, ...], value: Any, message: str) -> None:
    with pytest.raises(InputError) as raised:
        read_objects(json.dumps(changed(WHOLE, path, value)), "nodes.json")
    assert message in str(raised.value)


def test_the_list_of_the_api_itself_has_the_kind_of_its_items() -> None:
    items = [
        {key: value for key, value in node.items() if key not in ("kind", "apiVersion")} for node in aks()["items"]
    ]

    assert len(read_objects(json.dumps({"kind": "NodeList", "apiVersion": "v1", "items": items}), "n.json").nodes) == 2
