"""The fix of a finding is for the object that it is about, not for another kind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.linter.linting import found_in

from spotwright.linter.rule import kfp


def fixes(text: str, rule: str) -> list[str]:
    return [one.fix for one in found_in(text) if one.rule == rule]


@pytest.mark.parametrize(
    ("kind", "model"), [("NVIDIA_TESLA_T4", "nvidia-tesla-t4"), ("nvidia-l4", "nvidia-l4"), ("NVIDIA_L4", "nvidia-l4")]
)
def test_the_label_of_an_accelerator_is_that_of_the_task_s_own_model(kind: str, model: str) -> None:
    text = kfp(executor=f"resources: {{accelerator: {{type: {kind}, count: '2'}}}}\n")
    [fix] = fixes(text, "accelerator-without-nodes")
    assert f"'cloud.google.com/gke-accelerator', '{model}'" in fix
    assert "set_accelerator_limit(2)" in fix


def spark(policy: str) -> dict[str, Any]:
    spot = {
        "tolerations": [
            {
                "key": "kubernetes.azure.com/scalesetpriority",
                "operator": "Equal",
                "value": "spot",
                "effect": "NoSchedule",
            }
        ]
    }
    pod = {**spot, "nodeSelector": {"kubernetes.azure.com/scalesetpriority": "spot"}}
    spec = {"type": "Python", "restartPolicy": {"type": policy}, "driver": {}, "executor": pod}
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "s"},
        "spec": spec,
    }


def test_a_spark_application_is_not_advised_a_field_of_jobs() -> None:
    [fix] = fixes(json.dumps(spark("Never")), "no-retries")
    assert "restartPolicy" in fix
    assert "podFailurePolicy" not in fix
    assert fixes(json.dumps(spark("OnFailure")), "no-retries") == []
