"""The models of the Kubernetes client read and write placed objects without losing a field.

Where the client has no model of a kind, its pods and their scheduling are read: every mapping with containers, tolerations or an
affinity.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from tests import plain_yaml

kubernetes = pytest.importorskip("kubernetes.client", reason="the Kubernetes client is not installed")

GOLDEN = Path(__file__).parents[1] / "kinds" / "golden"
FILES = sorted(path for path in GOLDEN.glob("*/out.yaml") if not path.parent.name.startswith(("kfp", "resourceflavor")))
MODELS = {"Pod": "V1Pod", "Job": "V1Job", "CronJob": "V1CronJob"}
PARTS = {"tolerations": "list[V1Toleration]", "affinity": "V1Affinity", "podFailurePolicy": "V1PodFailurePolicy"}


def modelled(value: Any) -> Iterator[tuple[str, Any]]:
    """Every part of a document that the client has a model of, with the model's name."""
    if isinstance(value, list):
        for item in value:
            yield from modelled(item)
    if not isinstance(value, dict):
        return
    if value.get("kind") in MODELS and str(value.get("apiVersion")) in ("v1", "batch/v1"):
        yield MODELS[value["kind"]], value
    elif isinstance(value.get("containers"), list):
        yield (
            "V1PodSpec",
            {name: item for name, item in value.items() if name != "targetJobs"},
        )  # of the Trainer's overrides
    for name, item in value.items():
        if name in PARTS:
            yield PARTS[name], item
        if name != "containerSet":  # whose containers have dependencies
            yield from modelled(embedded(item))


def embedded(item: Any) -> Any:
    """What a text holds that is YAML itself: a template in a ConfigMap, a patch, a manifest."""
    if isinstance(item, str) and "\n" in item and ":" in item:
        try:
            return list(plain_yaml.load_all(item))
        except yaml.YAMLError:
            return None
    return item


def read(model: str, value: Any) -> Any:
    """A value after the client has read and written it."""
    client = kubernetes.ApiClient()
    return client.sanitize_for_serialization(client.deserialize(SimpleNamespace(data=json.dumps(value)), model))


def without_nulls(value: Any) -> Any:
    """The same without what a model cannot tell from nothing; a placeholder in the place of a number becomes one."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return 1 if isinstance(value, str) and value.startswith("${") else value


def spelled(value: Any) -> Any:
    """The same with numbers as texts: a quantity may be either."""
    if isinstance(value, dict):
        return {key: spelled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [spelled(item) for item in value]
    return value if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_the_models_of_the_client_lose_nothing_of_what_is_placed(path: Path) -> None:
    found = [part for document in plain_yaml.load_all(path.read_text()) for part in modelled(document)]

    assert found
    for model, value in found:
        assert spelled(read(model, without_nulls(value))) == spelled(without_nulls(value))


def test_a_field_that_the_model_does_not_know_would_be_found() -> None:
    pod = {"containers": [{"name": "a", "image": "b"}], "tolerance": []}
    assert read("V1PodSpec", pod) != pod
