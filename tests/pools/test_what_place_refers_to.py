"""Work that is placed asks for what the objects beside the commands make: a ComputeClass, NodePools of Karpenter, flavors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests import plain_yaml
from tests.pools.pool_tables import HERE, request_for

from spotwright import config as configuration
from spotwright.config import Config
from spotwright.kinds.kueue import QueueOptions, queue_lines
from spotwright.linter.linting import lint_text
from spotwright.linter.settings import settings_of
from spotwright.manifests.files import place_text
from spotwright.pools.catalogue import script
from spotwright.pools.generic import compute_class_lines

GOLDEN = HERE / "golden" / "placed"
LADDERS = {"gke": ["t4-spot", "l4"], "karpenter": ["gpu-spot", "gpu"]}
GPU = "{cpu: 8, memory: 32Gi, nvidia.com/gpu: 1}"
KARPENTER = f"""\
version: 1
pools:
  gpu-spot: {{capacity: spot, provider: karpenter, machine: g5.2xlarge, node: {GPU}, taints: ["spot:NoSchedule"]}}
  gpu: {{capacity: on-demand, provider: karpenter, machine: g5.2xlarge, node: {GPU}}}
  cpu: {{capacity: on-demand, provider: karpenter, machine: m5.xlarge, node: {{cpu: 4, memory: 16Gi}}}}
"""


def config_of(provider: str) -> Config:
    text = KARPENTER if provider == "karpenter" else (HERE / "pools_gke.yaml").read_text()
    policy = {"default": {"spot": "prefer", "ladder": LADDERS[provider]}}
    return configuration.from_mapping({**plain_yaml.load(text), "policy": policy})


def the_same(golden: Path, text: str) -> bool:
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    return golden.read_text() == text


def placed(config: Config) -> str:
    return place_text((GOLDEN / "job.yaml").read_text(), "job.yaml", config).text


def pod(text: str) -> Any:
    return plain_yaml.load(text)["spec"]["template"]["spec"]


def conditions(text: str) -> dict[str, list[str]]:
    """The values of each label that the only required term asks for."""
    [term] = pod(text)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert all(one["operator"] == "In" for one in term["matchExpressions"])
    return {one["key"]: one["values"] for one in term["matchExpressions"]}


@pytest.mark.parametrize("provider", LADDERS)
def test_a_job_is_placed_as_the_golden_file_says_and_has_no_finding(provider: str) -> None:
    config = config_of(provider)
    text = placed(config)

    assert the_same(GOLDEN / f"{provider}.yaml", text)
    assert lint_text(text, "job.yaml", settings_of(config)).findings == []


def test_the_compute_class_is_the_golden_one() -> None:
    assert the_same(GOLDEN / "computeclass.yaml", "\n".join(compute_class_lines(config_of("gke").pools)) + "\n")


def test_a_placed_job_asks_for_the_compute_class_and_tolerates_the_taint_of_its_pools() -> None:
    config = config_of("gke")
    text, made = placed(config), plain_yaml.load("\n".join(compute_class_lines(config.pools)))

    assert conditions(text)["cloud.google.com/compute-class"] == [made["metadata"]["name"]]
    assert {pool for one in made["spec"]["priorities"] for pool in one["nodepools"]} == set(LADDERS["gke"])
    tolerated = {(one["key"], one.get("value", "")) for one in pod(text)["tolerations"]}
    assert {(taint.key, taint.value) for name in LADDERS["gke"] for taint in config.pools[name].taints} <= tolerated


def test_a_placed_job_asks_for_labels_that_the_nodepools_of_its_ladder_give_their_nodes() -> None:
    config = config_of("karpenter")
    wanted = conditions(placed(config))
    for name in LADDERS["karpenter"]:
        made = next(plain_yaml.load_all("\n".join(script(request_for(config, name)))))
        template = made["spec"]["template"]
        given = {key: [value] for key, value in template.get("metadata", {}).get("labels", {}).items()}
        given |= {one["key"]: one["values"] for one in template["spec"]["requirements"]}
        given["karpenter.sh/nodepool"] = [made["metadata"]["name"]]  # Karpenter's own
        assert all(set(given[key]) & set(values) for key, values in wanted.items())


@pytest.mark.parametrize("provider", LADDERS)
def test_the_flavors_of_kueue_have_the_labels_that_a_queued_job_asks_for(provider: str) -> None:
    config = config_of(provider)
    queued = (
        (GOLDEN / "job.yaml")
        .read_text()
        .replace("  name: train\nspec", "  name: train\n  labels: {kueue.x-k8s.io/queue-name: q}\nspec")
    )
    wanted = conditions(place_text(queued, "job.yaml", config).text)
    made = list(plain_yaml.load_all("\n".join(queue_lines(config.pools, QueueOptions()))))
    flavors = {one["metadata"]["name"]: one["spec"]["nodeLabels"] for one in made if one["kind"] == "ResourceFlavor"}
    fitting = {
        name
        for name, labels in flavors.items()
        if all(labels.get(key) in (None, *some) for key, some in wanted.items())  # Kueue ignores what a flavor lacks
    }
    assert fitting == set(LADDERS[provider])


def test_the_class_is_asked_for_also_where_no_other_pool_has_to_be_kept_out() -> None:
    data = plain_yaml.load((HERE / "pools_gke.yaml").read_text())
    del data["pools"]["old"]
    data["policy"] = {"default": {"spot": "prefer", "ladder": LADDERS["gke"]}}
    found = place_text((GOLDEN / "job.yaml").read_text(), "job.yaml", configuration.from_mapping(data))

    assert conditions(found.text) == {"cloud.google.com/compute-class": ["train"]}
    assert not any("ignores preferred affinity" in str(one) for one in found.findings)


def test_pools_of_gke_without_a_class_are_told_to_need_one() -> None:
    data = plain_yaml.load((HERE / "pools_gke.yaml").read_text().replace("compute-class: train", "other: train"))
    data["pools"] = {name: {**pool, "taints": []} for name, pool in data["pools"].items()}
    data["policy"] = {"default": {"spot": "prefer"}}
    found = place_text((GOLDEN / "job.yaml").read_text(), "job.yaml", configuration.from_mapping(data))

    assert any("use a ComputeClass with spot first" in str(one) for one in found.findings)
