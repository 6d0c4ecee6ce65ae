"""Manifests in JSON: the placed file is JSON too, and unplace restores its bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spotwright.config import parse
from spotwright.manifests.files import place_text, unplace_text

CONFIG = parse(
    "version: 1\npools:\n  spot: {capacity: spot, provider: aks}\n  base: {capacity: on-demand, provider: aks}\n"
    "policy: {default: {spot: prefer}}\n",
    "spotwright.yaml",
)
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "count"},
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "python"}]}}},
}
LIST = {"apiVersion": "v1", "kind": "List", "items": [JOB, {**JOB, "metadata": {"name": "sum"}}]}


@pytest.mark.parametrize("value", [JOB, LIST], ids=["one object", "a list"])
@pytest.mark.parametrize("indent", [None, 2], ids=["one line", "indented"])
def test_json_stays_json_and_comes_back_to_the_same_bytes(value: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(value, indent=indent) + "\n"
    placed = place_text(text, "job.json", CONFIG).text
    objects = json.loads(placed).get("items", [json.loads(placed)])
    assert all(one["spec"]["template"]["spec"]["tolerations"] for one in objects)
    assert unplace_text(placed, "job.json").text == text


@pytest.mark.parametrize("value", [JOB, LIST], ids=["one object", "a list"])
def test_reformatted_json_becomes_an_equal_document(value: dict[str, Any]) -> None:
    placed = place_text(json.dumps(value), "job.json", CONFIG).text
    anew = json.dumps(json.loads(placed), indent=4)
    assert json.loads(unplace_text(anew, "job.json").text) == value


def test_flow_style_yaml_is_not_taken_for_json() -> None:
    text = "{apiVersion: v1, kind: Pod, metadata: {name: one}, spec: {containers: [{name: main, image: python}]}}\n"
    placed = place_text(text, "pod.yaml", CONFIG).text
    assert '"tolerations": ' not in placed
    assert unplace_text(placed, "pod.yaml").text == text
