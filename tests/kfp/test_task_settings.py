"""Resources, retries and kubernetes settings of a compiled task."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kfp.builders import component, graph, kubernetes, one, python_container, task

from spotwright.errors import PipelineError
from spotwright.graph import DagInput, TaskOutput
from spotwright.kfp.compiled import Compiled
from spotwright.kfp.kfp_settings import read_retry
from spotwright.kfp.pipeline_graph import build
from spotwright.kfp.task_settings import read_deferred, read_settings
from spotwright.model.scheduling_terms import Constraints, Toleration


def test_a_limit_without_a_request_is_the_request() -> None:
    resources = {
        "resourceCpuLimit": "2",
        "resourceCpuRequest": "500m",
        "resourceMemoryLimit": "1Gi",
        "accelerator": {"resourceType": "nvidia.com/gpu", "resourceCount": "4"},
    }
    settings = read_settings({"resources": resources}, {})
    assert settings.limits == {"cpu": 2000, "memory": 2**30, "nvidia.com/gpu": 4}
    assert settings.requests == {"cpu": 500, "memory": 2**30, "nvidia.com/gpu": 4}


def test_the_fields_of_older_versions_count_where_the_newer_are_missing() -> None:
    resources = {"cpuLimit": 1.5, "memoryLimit": 0.5, "accelerator": {"type": "nvidia.com/gpu", "count": "1"}}
    settings = read_settings({"resources": resources}, {})
    assert settings.limits == {"cpu": 1500, "memory": 5 * 10**8, "nvidia.com/gpu": 1}


@pytest.mark.parametrize(
    ("kind", "device"),
    [("NVIDIA_TESLA_P4", "nvidia.com/gpu"), ("TPU_V3", "google.com/tpu"), ("tpu-v3", "google.com/tpu")],
)
def test_accelerator_names_without_a_domain_become_the_device_name_of_nodes(kind: str, device: str) -> None:
    settings = read_settings({"resources": {"accelerator": {"type": kind, "count": "1"}}}, {})
    assert settings.limits == {device: 1}


def test_the_error_for_an_invalid_quantity_names_its_task() -> None:
    containers = {"exec-step": python_container(resources={"resourceCpuLimit": "many"})}
    with pytest.raises(PipelineError, match=r"task step: its resources .* 'many' is not a quantity"):
        graph({"step": task("step")}, containers=containers)


def test_tolerations_may_be_given_as_json_one_or_many_or_none() -> None:
    entries = [
        {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": "30"},
        {"tolerationJson": {"runtimeValue": {"constant": {"key": "b", "value": "x"}}}},
        {"tolerationJson": {"runtimeValue": {"constant": [{"operator": "Exists"}]}}},
        {"tolerationJson": {"runtimeValue": {"constant": None}}},
    ]
    found = read_settings({}, {"tolerations": entries}).constraints.tolerations
    assert found == (
        Toleration("a", "Exists", "", "NoExecute", 30),
        Toleration("b", "Equal", "x"),
        Toleration("", "Exists"),
    )


def test_every_required_affinity_is_an_alternative_of_its_own() -> None:
    terms = [{"matchExpressions": [{"key": key, "operator": "Exists"}]} for key in "ab"]
    constraints = read_settings({}, {"nodeAffinity": terms}).constraints
    assert constraints.refusal({"b": "1"}, ()) == ""
    assert "affinity" in constraints.refusal({"c": "1"}, ())


def test_a_selector_as_json_replaces_the_labels() -> None:
    selector = {"labels": {"a": "1"}, "nodeSelectorJson": {"runtimeValue": {"constant": {"b": "2"}}}}
    assert read_settings({}, {"nodeSelector": selector}).constraints.selector == {"b": "2"}


INPUTS = {"parameters": {"tol": {"parameterType": "STRUCT"}, "mem": {"parameterType": "STRING"}}}
REFERENCES = [
    {"tolerationJson": {"componentInputParameter": "tol"}},
    {"tolerationJson": {"taskOutputParameter": {"producerTask": "first", "outputParameterKey": "out"}}},
]


def deferred_step() -> Any:
    resources = {"resourceCpuLimit": "1", "resourceMemoryLimit": "{{$.inputs.parameters['m']}}"}
    return one(
        graph(
            {
                "first": task("first"),
                "step": task("step", inputs={"parameters": {"m": {"componentInputParameter": "mem"}}}),
            },
            {"comp-first": component("first", outputs={"parameters": {"out": {"parameterType": "STRUCT"}}})},
            {"exec-step": python_container(resources=resources)},
            root={"inputDefinitions": INPUTS},
            platform=kubernetes("exec-step", tolerations=REFERENCES),
        )
    )


def test_settings_that_need_values_are_inputs_of_the_task() -> None:
    step = deferred_step()
    assert step.parameters["placement:tol"] == DagInput("tol")
    assert step.parameters["placement:first.out"] == TaskOutput("first", "out")
    assert step.after == ("first",)


def test_settings_without_references_are_read_before_the_run() -> None:
    assert deferred_step().limits == {"cpu": 1000}


def test_deferred_settings_are_read_from_the_values() -> None:
    values = {"m": "2Gi", "placement:tol": {"key": "a"}, "placement:first.out": [{"key": "b", "operator": "Exists"}]}
    step = read_deferred(deferred_step(), values)
    assert step.limits == {"cpu": 1000, "memory": 2**31}
    assert step.constraints == Constraints(tolerations=(Toleration("a"), Toleration("b", "Exists")))
    assert read_deferred(step, {}) is step


@pytest.mark.parametrize(
    "wrong",
    [
        {"m": "much"},
        {"placement:tol": "text"},
        {"placement:tol": [1]},
        {"placement:first.out": {"tolerationSeconds": "x"}},
    ],
)
def test_deferred_settings_refuse_invalid_values(wrong: dict[str, Any]) -> None:
    values = {"m": "2Gi", "placement:tol": None, "placement:first.out": None, **wrong}
    with pytest.raises(PipelineError, match="task step: its placement or resources cannot be read"):
        read_deferred(deferred_step(), values)


def test_resources_that_read_a_missing_input_are_refused() -> None:
    containers = {"exec-step": python_container(resources={"resourceCpuLimit": "{{$.inputs.parameters['gone']}}"})}
    with pytest.raises(PipelineError, match="task step: its resources read the input 'gone'"):
        graph({"step": task("step")}, containers=containers)


def test_deferred_settings_of_a_real_pipeline_are_read_from_parameters_and_outputs(training: Compiled) -> None:
    root = build(training).root
    assert read_deferred(root.tasks["train"], {"pipelinechannel--memory": "2Gi"}).limits["memory"] == 2**31
    assert read_deferred(root.tasks["train-2"], {"pipelinechannel--size-Output": "3Gi"}).requests["memory"] == 3 * 2**30


def test_a_backoff_of_zero_counts_as_left_out() -> None:
    layer = read_retry({"maxRetryCount": 3, "backoffDuration": "0s", "backoffFactor": 2.0}, None)
    assert layer is not None
    assert (layer.source, layer.values) == ("set_retry", {"errors.retries": 3})


def test_without_set_retry_and_set_timeout_there_is_no_layer() -> None:
    assert read_retry(None, None) is None
    timeout = read_retry(None, 60.0)
    assert timeout is not None
    assert (timeout.source, timeout.values) == ("set_timeout", {"timeout": 60.0})


def test_labels_are_reported_as_ignored_unless_the_code_reads_them() -> None:
    metadata = {"labels": {"team": "a"}, "annotations": {"x": "1"}}
    read = [
        {"name": "TEAM", "fieldPath": "metadata.labels['team']"},
        {"name": "X", "fieldPath": "metadata.annotations['x']"},
    ]
    assert read_settings({}, {"podMetadata": metadata, "fieldPathAsEnv": read}).ignored == ()
    assert read_settings({}, {"podMetadata": metadata, "fieldPathAsEnv": read[:1]}).ignored == ("podMetadata",)


@pytest.mark.parametrize(
    ("policy", "retries"),
    [("POLICY_ON_ERROR", 0), ("POLICY_ON_TRANSIENT_ERROR", 0), ("POLICY_ON_FAILURE", 3), ("POLICY_ALWAYS", 3)],
)
def test_the_retry_policy_of_newer_sdks_decides_whether_failures_of_the_code_are_retried(
    policy: str, retries: int
) -> None:
    layer = read_retry({"maxRetryCount": 3, "policy": policy}, None)
    assert layer is not None
    assert layer.values == {"errors.retries": retries}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"nodeAffinity": [{"nodeAffinityJson": "spot"}]}, "nodeAffinityJson: expected a mapping, found 'spot'"),
        ({"nodeSelector": {"nodeSelectorJson": [1]}}, r"nodeSelector: expected a mapping, found \[1\]"),
        ({"tolerations": [{"tolerationJson": [7]}]}, "tolerationJson: expected a mapping, found 7"),
    ],
)
def test_a_wrong_setting_is_refused_before_the_run_also_beside_a_deferred_one(
    wrong: dict[str, Any], message: str
) -> None:
    waits = {"secretAsEnv": [{"secretNameParameter": {"componentInputParameter": "name"}}]}
    with pytest.raises(ValueError, match=message):
        read_settings({}, {**waits, **wrong})
    assert read_settings({}, waits).sources
