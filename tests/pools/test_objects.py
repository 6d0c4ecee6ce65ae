"""The objects that order pools and make them have the fields of their kinds alone, and the order is that of the policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests import plain_yaml
from tests.kinds.schemas import strange
from tests.pools.pool_tables import HERE, TABLES, request_for

from spotwright import config as configuration
from spotwright.errors import InputError
from spotwright.manifests.files import place_texts
from spotwright.pools.catalogue import script
from spotwright.pools.generic import compute_class_lines

FIELDS: Mapping[str, Any] = plain_yaml.load((HERE / "made_fields.yaml").read_text())
_KEYWORDS = {"type", "enum", "pattern", "minimum", "maximum"}


def as_schema(fields: Any) -> dict[str, Any]:
    """The short form of the list of fields as JSON schema; a field that is not listed is refused."""
    if isinstance(fields, list):
        return {"type": "array", "items": as_schema(fields[0])}
    if fields and set(fields) <= _KEYWORDS:
        return dict(fields)
    return {
        "type": "object",
        "properties": {key: as_schema(value) for key, value in fields.items()},
        "additionalProperties": False,
    }


def written(tool: str) -> Iterator[tuple[str, Any]]:
    """The objects that a tool gets for each pool of its table, by kind, with their specs."""
    config = configuration.load(HERE / f"pools_{TABLES[tool]}.yaml")
    for pool in config.pools:
        for document in plain_yaml.load_all("\n".join(script(request_for(config, pool), tool))):
            kind = document["kind"]
            yield kind, document["managedNodeGroups"][0] if kind == "ClusterConfig" else document["spec"]


def classes(text: str) -> list[Any]:
    return list(
        plain_yaml.load_all("\n".join(compute_class_lines(configuration.from_mapping(plain_yaml.load(text)).pools)))
    )


@pytest.mark.parametrize("tool", ["karpenter", "eksctl"])
def test_every_object_has_the_fields_of_its_kind_alone(tool: str) -> None:
    kinds = set()
    for kind, spec in written(tool):
        assert list(strange(as_schema(FIELDS[kind]), spec, kind)) == []
        kinds.add(kind)
    assert kinds == ({"ClusterConfig"} if tool == "eksctl" else {"NodePool", "EC2NodeClass", "AKSNodeClass"})


def test_weights_of_nodepools_put_spot_first_and_follow_the_ladder() -> None:
    mapping = {
        name: {"capacity": capacity, "provider": "karpenter"}
        for name, capacity in (("a", "on-demand"), ("b", "spot"), ("c", "spot"))
    }
    config = configuration.from_mapping({"version": 1, "pools": mapping})

    def order(ladder: tuple[str, ...]) -> list[str]:
        weights = {}
        for name in config.pools:
            request = request_for(config, name)
            request = type(request)(request.pool, request.pools, request.currency, ladder)
            weights[name] = next(plain_yaml.load_all("\n".join(script(request))))["spec"]["weight"]
        assert all(1 <= weight <= 100 for weight in weights.values())
        return sorted(weights, key=lambda name: -weights[name])

    assert order(()) == ["b", "c", "a"]
    assert order(("c", "b", "a")) == ["c", "b", "a"]


def test_two_hundred_nodepools_still_have_weights() -> None:
    pools = {f"p{number}": {"capacity": "spot", "provider": "karpenter"} for number in range(200)}
    config = configuration.from_mapping({"version": 1, "pools": pools})
    pool, _ = plain_yaml.load_all("\n".join(script(request_for(config, "p199"))))
    assert pool["spec"]["weight"] == 1


SHARED: dict[str, dict[str, Any]] = {
    f"general-{capacity}": {
        "capacity": capacity,
        "provider": "karpenter",
        "machine": "m5.xlarge",
        "node": {"cpu": 4, "memory": "16Gi"},
        "labels": {"karpenter.sh/nodepool": "general", "team": "a"},
        "taints": ["dedicated=train:NoSchedule"],
    }
    for capacity in ("spot", "on-demand")
}


def shared(pool: str, **changes: Any) -> list[Any]:
    """What is printed for one of two pools that are one NodePool; the changes are made to the on-demand one."""
    pools = {**SHARED, "general-on-demand": {**SHARED["general-on-demand"], **changes}}
    config = configuration.from_mapping({"version": 1, "pools": pools})
    return list(plain_yaml.load_all("\n".join(script(request_for(config, pool)))))


def test_pools_of_one_nodepool_are_one_object_whichever_of_them_is_named() -> None:
    node_pool, node_class = shared("general-spot")
    assert shared("general-on-demand") == [node_pool, node_class]
    assert node_pool["metadata"]["name"] == node_class["metadata"]["name"] == "general"
    made = node_pool["spec"]["template"]
    asked = {one["key"]: one["values"] for one in made["spec"]["requirements"]}
    assert sorted(asked["karpenter.sh/capacity-type"]) == ["on-demand", "spot"]
    assert asked["node.kubernetes.io/instance-type"] == ["m5.xlarge"]
    assert made["metadata"]["labels"] == {"team": "a"}
    assert made["spec"]["taints"] == [{"key": "dedicated", "value": "train", "effect": "NoSchedule"}]
    assert node_pool["spec"]["limits"] == {"cpu": 80, "memory": "320Gi"}


def test_one_nodepool_requires_what_all_of_its_pools_need() -> None:
    node_pool, _ = shared("general-spot", machine="c5.xlarge", labels={"karpenter.sh/nodepool": "general"}, zones=["a"])
    asked = {one["key"]: one["values"] for one in node_pool["spec"]["template"]["spec"]["requirements"]}
    assert asked["node.kubernetes.io/instance-type"] == ["m5.xlarge", "c5.xlarge"]
    assert "topology.kubernetes.io/zone" not in asked
    assert "metadata" not in node_pool["spec"]["template"]


def test_one_nodepool_cannot_have_two_sets_of_taints() -> None:
    with pytest.raises(InputError, match="general-spot and general-on-demand are both the NodePool general"):
        shared("general-spot", taints=[])


def test_a_nodepool_that_was_read_keeps_its_node_class_requirements_and_limits() -> None:
    requirement = {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m"]}
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    flags = {"requirements": [requirement], "nodeClassRef": reference, "limits": {"cpu": "1000"}}
    pools = {name: {**one, "create_flags": flags} for name, one in SHARED.items()}
    config = configuration.from_mapping({"version": 1, "pools": pools})
    [node_pool] = plain_yaml.load_all("\n".join(script(request_for(config, "general-spot"))))
    made = node_pool["spec"]["template"]["spec"]
    assert made["nodeClassRef"] == reference
    assert made["requirements"].count(requirement) == 1
    assert node_pool["spec"]["limits"] == {"cpu": "1000"}


def test_requirements_of_another_form_are_refused_with_an_example() -> None:
    with pytest.raises(InputError, match=r"create_flags: requirements: expected a list such as \[\{key:"):
        shared("general-on-demand", create_flags={"requirements": "c, m"})


def test_two_pools_of_one_name_are_refused_where_a_name_has_one_pool() -> None:
    pools = {name: {"capacity": "spot", "provider": "aks", "machine": "D4"} for name in ("gpu-spot", "gpuspot")}
    config = configuration.from_mapping({"version": 1, "pools": pools})
    with pytest.raises(InputError, match="pools gpu-spot, gpuspot: all are gpuspot at AKS"):
        script(request_for(config, "gpu-spot"))


def test_a_compute_class_tries_spot_pools_first_and_waits_rather_than_take_any_machine() -> None:
    [one] = classes((HERE / "pools_gke.yaml").read_text().replace("compute-class: train", "other: x"))
    assert list(strange(as_schema(FIELDS["ComputeClass"]), one["spec"], "ComputeClass")) == []
    assert [priority["nodepools"] for priority in one["spec"]["priorities"]] == [["old"], ["t4-spot"], ["l4"]]
    assert one["spec"]["whenUnsatisfiable"] == "DoNotScaleUp"
    assert one["spec"]["activeMigration"]["optimizeRulePriority"] is False


def test_pools_that_name_a_class_are_the_class() -> None:
    [one] = classes((HERE / "pools_gke.yaml").read_text())
    assert one["metadata"]["name"] == "train"
    assert [priority["nodepools"] for priority in one["spec"]["priorities"]] == [["t4-spot"], ["l4"]]


def test_without_pools_of_gke_there_is_no_compute_class() -> None:
    with pytest.raises(InputError, match="provider: gke"):
        classes("{version: 1, pools: {a: {capacity: spot, provider: aks}}}")


def test_place_refers_to_the_class_where_the_ladder_names_its_pools(tmp_path: Path) -> None:
    data = plain_yaml.load((HERE / "pools_gke.yaml").read_text())
    data["policy"] = {"default": {"spot": "prefer", "ladder": ["t4-spot", "l4"]}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}}},
    }
    [placed] = place_texts([("job.yaml", plain_yaml.dump(job))], configuration.from_mapping(data))
    spec = plain_yaml.load(placed.text)["spec"]["template"]["spec"]
    [term] = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {"key": "cloud.google.com/compute-class", "operator": "In", "values": ["train"]} in term["matchExpressions"]
    assert "cloud.google.com/compute-class" in [one["key"] for one in spec["tolerations"]]
