"""Work without GPUs is kept off GPU pools that nothing else keeps it off; work with GPUs is not."""

from __future__ import annotations

from typing import Any

import pytest
from tests import plain_yaml
from tests.kinds.kfp.compiled import executor, one_task
from tests.placing.placed import FILE, assert_unplaces, at_path

from spotwright import config
from spotwright.manifests.files import place_text

NOT_GPU = {"key": "kubernetes.azure.com/accelerator", "operator": "NotIn", "values": ["nvidia"]}
TERMS = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"


def placed(
    text: str, *, spot: str = "prefer", provider: str = "aks", taints: str = "[]", labels: str = "{}"
) -> list[Any]:
    """The placed documents of a text, with a spot pool and an on-demand pool that have GPUs."""
    gpu = f"provider: {provider}, node: {{cpu: 8, memory: 32Gi, nvidia.com/gpu: 1}}, taints: {taints}, labels: {labels}"
    settings = config.parse(
        f"""\
version: 1
pools:
  spot: {{capacity: spot, provider: {provider}, node: {{cpu: 8, memory: 32Gi}}, labels: {{market: spot}}}}
  regular: {{capacity: on-demand, provider: {provider}, node: {{cpu: 8, memory: 32Gi}}}}
  gpu-spot: {{capacity: spot, {gpu}}}
  gpu: {{capacity: on-demand, {gpu}}}
policy: {{default: {{spot: {spot}, timeout: 1h}}}}
"""
    )
    text_of = place_text(text, FILE, settings).text
    assert_unplaces(text, text_of)
    return list(plain_yaml.load_all(text_of))


def job(limits: str = "{cpu: 1}") -> str:
    return (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: train}\nspec:\n  template:\n    spec:\n"
        f"      containers:\n      - {{name: main, image: python, resources: {{limits: {limits}}}}}\n"
    )


def conditions(documents: list[Any]) -> list[Any]:
    """The conditions in the only required term of the pods."""
    terms = at_path(documents[0], f"spec.template.spec.{TERMS}")
    return [] if terms is None else [one for term in terms for one in term["matchExpressions"]]


@pytest.mark.parametrize("spot", ["prefer", "require"])
def test_work_without_gpus_is_kept_off_gpu_pools_without_a_taint(spot: str) -> None:
    assert NOT_GPU in conditions(placed(job(), spot=spot))


def test_a_taint_that_keeps_it_off_needs_no_condition() -> None:
    assert conditions(placed(job(), taints='["sku=gpu:NoSchedule"]')) == []


def test_a_selector_that_other_pools_meet_too_asks_for_no_gpus() -> None:
    text = job().replace("      containers", "      nodeSelector: {kubernetes.io/os: linux}\n      containers")
    assert NOT_GPU in conditions(placed(text))


@pytest.mark.parametrize("limits", ["{nvidia.com/gpu: 1}", '{nvidia.com/gpu: "${trialParameters.gpus}"}'])
def test_work_with_gpus_is_kept_off_nothing(limits: str) -> None:
    assert NOT_GPU not in conditions(placed(job(limits)))


def test_pools_are_distinguished_by_name_labels_where_no_label_is_about_gpus() -> None:
    expected = {"key": "eks.amazonaws.com/nodegroup", "operator": "NotIn", "values": ["gpu-spot", "gpu"]}

    assert expected in conditions(placed(job(), provider="eks"))


def test_a_pool_that_no_label_tells_apart_is_left_as_it_is() -> None:
    assert conditions(placed(job(), provider="generic")) == []


def test_the_pools_own_labels_tell_them_apart() -> None:
    expected = {"key": "team", "operator": "NotIn", "values": ["vision"]}

    assert expected in conditions(placed(job(), provider="generic", labels="{team: vision}"))


def test_tasks_of_compiled_pipelines_are_kept_off_too() -> None:
    affinity = executor(placed(one_task()))["nodeAffinity"]

    [required] = [entry["matchExpressions"] for entry in affinity if "weight" not in entry]
    assert NOT_GPU in required
    assert any(entry.get("weight") for entry in affinity)
