"""Workflows of a KFP backend: placed by the pipeline's own policy, then by the namespace's."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.cluster.admission_objects import KEY, a_config, admitted
from tests.cluster.kfp_workflows import a_workflow, step_templates
from tests.placing.placed import at_path

from spotwright.cluster.admit_objects import Verdict, admit_object

CARRIED: dict[str, Any] = {
    "podMetadata": {
        "annotations": {"spotwright.dev/policy": '{"spot":"prefer","interruptions":{"max":3},"errors":{"retries":1}}'},
        "labels": {"spotwright.dev/spot": "prefer"},
    },
    "tolerations": [{"key": KEY, "operator": "Equal", "value": "spot", "effect": "NoSchedule"}],
}
INTERRUPTED = 'lastRetry.status == "Error" || lastRetry.exitCode in ["143","137","255"]'


def parameter(workflow: dict[str, Any], name: str) -> Any:
    [value] = [one["value"] for one in workflow["spec"]["arguments"]["parameters"] if one["name"] == name]
    return json.loads(value)


def template(workflow: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [one for one in workflow["spec"]["templates"] if one["name"] == name]
    return dict(found)


def test_a_task_without_a_placement_gets_the_namespace_s() -> None:
    workflow, outcome = admitted(a_workflow())
    settings = parameter(workflow, "kubernetes-comp-train")
    assert outcome.verdict == Verdict.PLACED
    assert settings["tolerations"][0]["key"] == KEY
    assert parameter(workflow, "implementations-train1")["env"] == [{"name": "SPOTWRIGHT_TASK", "value": "train"}]


def test_the_driver_is_given_settings_that_the_pipeline_had_not() -> None:
    workflow, _ = admitted(a_workflow())
    driver = template(workflow, "root")["dag"]["tasks"][0]
    arguments = {one["name"]: one["value"] for one in driver["arguments"]["parameters"]}
    assert arguments["kubernetes-config"] == "{{workflow.parameters.kubernetes-comp-train}}"


def test_the_pods_of_a_task_get_its_policy_as_metadata() -> None:
    _, pod = step_templates(admitted(a_workflow())[0], "train")
    assert pod["metadata"]["labels"] == {"spotwright.dev/spot": "require"}
    assert json.loads(pod["metadata"]["annotations"]["spotwright.dev/policy"])["spot"] == "require"
    assert pod["metadata"]["annotations"]["pipelines.kubeflow.org/v2_component"] == "true"


def test_interruptions_are_retried_and_errors_are_not_where_the_policy_retries_none() -> None:
    _, pod = step_templates(
        admitted(a_workflow(), a_config("{default: {spot: require, interruptions: {max: 4}}}"))[0], "train"
    )
    strategy = pod["retryStrategy"]
    assert (strategy["limit"], strategy["retryPolicy"], strategy["expression"]) == ("24", "Always", INTERRUPTED)


def test_everything_but_a_refusal_is_retried_where_the_policy_retries_errors() -> None:
    config = a_config("{default: {spot: require, interruptions: {max: 4}, errors: {retries: 2}}}")
    _, pod = step_templates(admitted(a_workflow(), config)[0], "train")
    assert (pod["retryStrategy"]["limit"], pod["retryStrategy"]["expression"]) == ("26", 'lastRetry.exitCode != "86"')


def test_the_policy_that_a_pipeline_carries_is_stronger_than_the_namespace_s() -> None:
    workflow, _ = admitted(a_workflow(settings={"train": CARRIED}), a_config("{default: {spot: never}}"))
    _, pod = step_templates(workflow, "train")
    assert pod["retryStrategy"]["limit"] == "24"  # 3 interruptions, 1 error, 20 moves
    assert parameter(workflow, "kubernetes-comp-train") == CARRIED


def test_a_task_named_by_the_namespace_is_stronger_than_what_the_pipeline_carries() -> None:
    config = a_config("{tasks: {train: {interruptions: {max: 9}}}}")
    _, pod = step_templates(admitted(a_workflow(settings={"train": CARRIED}), config)[0], "train")
    assert pod["retryStrategy"]["limit"] == "30"


def test_tasks_with_different_policies_get_templates_of_their_own() -> None:
    config = a_config("{default: {spot: require}, tasks: {train: {errors: {retries: 2}}}}")
    workflow, _ = admitted(a_workflow("prepare", "train"), config)
    assert step_templates(workflow, "prepare")[1]["retryStrategy"]["expression"] == INTERRUPTED
    assert step_templates(workflow, "train")[1]["retryStrategy"]["limit"] == "32"


def test_tasks_with_one_policy_share_their_templates() -> None:
    workflow, _ = admitted(a_workflow("prepare", "train"))
    assert step_templates(workflow, "prepare") == step_templates(workflow, "train")
    assert len(workflow["spec"]["templates"]) == 8


def test_the_backend_s_own_templates_stay_beside_the_copies() -> None:
    before = a_workflow()
    workflow, _ = admitted(before)
    names = {one["name"] for one in workflow["spec"]["templates"]}
    assert {one["name"] for one in before["spec"]["templates"]} < names
    assert "retryStrategy" not in template(workflow, "system-container-impl")


def test_no_dag_is_retried_where_the_backend_would_retry_everything() -> None:
    workflow, _ = admitted(a_workflow(newer=True))
    executor, _ = step_templates(workflow, "train")
    assert [
        one["retryStrategy"] for one in (executor, template(workflow, "root"), template(workflow, "entrypoint"))
    ] == [{"limit": "0"}] * 3


def test_dags_of_older_backends_stay_as_they_are() -> None:
    workflow, _ = admitted(a_workflow(newer=False))
    assert "retryStrategy" not in template(workflow, "root")


def test_dags_are_bounded_where_the_workflow_has_defaults_for_retries() -> None:
    given = a_workflow(newer=False)
    given["spec"]["templateDefaults"] = {"retryStrategy": {"limit": "2", "retryPolicy": "OnError"}}
    assert template(admitted(given)[0], "root")["retryStrategy"] == {"limit": "0"}


@pytest.mark.parametrize(
    "name", ["system-dag-driver", "system-container-driver", "system-importer", "system-importer-workspace"]
)
def test_pods_of_kfp_stay_on_on_demand_and_start_again_where_they_are_lost(name: str) -> None:
    driver = template(admitted(a_workflow(importer=name if "importer" in name else ""))[0], name)
    terms = at_path(driver, "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms")
    assert terms == [
        {"matchExpressions": [{"key": "kubernetes.azure.com/agentpool", "operator": "In", "values": ["regular"]}]}
    ]
    assert (driver["retryStrategy"]["limit"], driver["retryStrategy"]["expression"]) == ("20", INTERRUPTED)


def test_drivers_tolerate_spot_where_every_pool_is_spot() -> None:
    config = a_config()
    config = replace(config, pools={name: pool for name, pool in config.pools.items() if pool.is_spot})
    driver = template(admitted(a_workflow(), config)[0], "system-dag-driver")
    assert driver["tolerations"][0]["key"] == KEY


def test_drivers_get_no_retries_where_they_would_replace_an_expression_over_retries() -> None:
    affinity = [
        {"matchExpressions": [{"key": KEY, "operator": "{{=retries in ['0'] ? 'In' : 'NotIn'}}", "values": ["spot"]}]}
    ]
    workflow, _ = admitted(a_workflow(settings={"train": {**CARRIED, "nodeAffinity": affinity}}, newer=False))
    assert "retryStrategy" not in template(workflow, "system-dag-driver")


def test_an_exit_task_is_retried_as_its_policy_says_although_it_stands_in_a_hook() -> None:
    config = a_config("{default: {spot: require}, tasks: {notify: {spot: require, interruptions: {max: 4}}}}")
    workflow, _ = admitted(a_workflow("train", "notify", exit_task="notify"), config)
    [_, step] = template(workflow, "exit-hook-root-notify")["dag"]["tasks"]
    pod = template(workflow, step["template"].replace("system-container-executor", "system-container-impl"))
    assert (pod["retryStrategy"]["limit"], pod["retryStrategy"]["expression"]) == ("24", INTERRUPTED)


def test_resources_of_a_task_decide_which_pools_fit() -> None:
    resources = {"accelerator": {"resourceType": "nvidia.com/gpu", "resourceCount": "1"}, "cpuLimit": 1.0}
    config = a_config("{default: {spot: require}, tasks: {train: {ladder: [spot-a]}}}")
    assert admit_object(a_workflow(resources=resources), config).verdict == Verdict.PLACED


def test_a_workflow_without_a_policy_stays_as_it_is() -> None:
    assert admit_object(a_workflow(), a_config("{default: {interruptions: {max: 3}}}")).verdict == Verdict.NOTHING_TO_DO


def test_broken_parameters_leave_the_workflow_as_it_is() -> None:
    workflow = a_workflow()
    workflow["spec"]["arguments"]["parameters"][0]["value"] = "{"
    outcome = admit_object(workflow, a_config())
    assert (outcome.verdict, outcome.patch) == (Verdict.UNPLACEABLE, ())
    assert "components-root: expected JSON" in outcome.warnings[0]
