"""Spark: the driver stays on on-demand, executors follow the policy, and what Spark requests decides which pools fit."""

from __future__ import annotations

from typing import Any

import pytest
from tests import plain_yaml
from tests.placing.placed import PREFER, REQUIRE, Outcome, at_path, place, refusal

from spotwright.kinds.spark import levels_of

SPOT = "kubernetes.azure.com/scalesetpriority"


def an_application(executor: str = "cores: 2", driver: str = "cores: 1", spec: str = "", kind: str = "Scala") -> str:
    return f"""\
apiVersion: sparkoperator.k8s.io/v1beta2
kind: SparkApplication
metadata: {{name: features}}
spec:
  type: {kind}
  sparkVersion: 4.0.4
{spec}  driver: {{{driver}}}
  executor: {{{executor}}}
"""


def role(outcome: Outcome, name: str) -> dict[str, Any]:
    fields: dict[str, Any] = outcome.value["spec"][name]
    return fields


def test_the_fields_that_the_webhook_reads_are_written_at_the_roles() -> None:
    outcome = place(an_application(), REQUIRE)
    driver, executor = role(outcome, "driver"), role(outcome, "executor")

    assert [one["key"] for one in executor["tolerations"]] == [SPOT]
    assert "tolerations" not in driver
    assert driver["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert executor["terminationGracePeriodSeconds"] == 25
    assert executor["labels"] == {"spotwright.dev/spot": "require"}
    assert outcome.roles["features/driver"].pools == ("regular",)
    assert outcome.reports("note", "the operator's webhook", "spark-operator#2537")


def test_a_label_of_the_application_moves_its_executors_and_never_its_driver() -> None:
    text = an_application().replace("{name: features}", "{name: features, labels: {spotwright.dev/spot: require}}")
    outcome = place(text, "{default: {timeout: 1h}}")

    assert outcome.roles["features/driver"].pools == ("regular",)
    assert outcome.roles["features/executor"].pools == ("spot",)


def test_a_driver_that_the_policy_puts_on_spot_is_named() -> None:
    outcome = place(an_application(), "{default: {spot: prefer}, tasks: {features/driver: {spot: require}}}")

    assert outcome.reports("warning", "driver: it is on spot", "the application is lost with its driver")
    assert outcome.roles["features/driver"].after_interruption.startswith("the application fails; ")


@pytest.mark.parametrize(
    ("executor", "spec", "kind"),
    [
        ("cores: 16, memory: 50g", "", "Scala"),  # 55 GiB with the overhead of a tenth
        ("cores: 16, memory: 50g, memoryOverhead: 1g", "", "Python"),
        ("cores: 17, coreRequest: 1500m", "", "Scala"),
        ("cores: 1, memory: 512m", "", "R"),
    ],
)
def test_a_pool_fits_if_its_nodes_hold_what_spark_will_request(executor: str, spec: str, kind: str) -> None:
    outcome = place(an_application(executor, spec=spec, kind=kind), REQUIRE)

    assert outcome.roles["features/executor"].pools == ("spot",)


@pytest.mark.parametrize(
    ("executor", "spec", "kind", "asked"),
    [
        ("cores: 16, memory: 50g", "", "Python", "70Gi memory"),  # with Python's overhead
        ("cores: 16, memory: 60000m", "", "Scala", "64.45Gi memory"),  # Spark's m are mebibytes
        ("cores: 17", "", "Scala", "17 cpu"),
        ("cores: 1, memory: 50g", "  memoryOverheadFactor: '0.5'\n", "Scala", "75Gi memory"),
        ("cores: 1", "  sparkConf: {spark.executor.memory: 70g}\n", "Scala", "77Gi memory"),
    ],
)
def test_nodes_that_are_too_small_are_named_with_what_spark_will_request(
    executor: str, spec: str, kind: str, asked: str
) -> None:
    refused = refusal(an_application(executor, spec=spec, kind=kind), REQUIRE)

    assert f"it asks for {asked}, a node has" in refused
    assert ": spec.executor: " in refused


def test_executors_with_gpus_go_to_gpu_pools() -> None:
    outcome = place(an_application("cores: 2, gpu: {name: nvidia.com/gpu, quantity: 1}"), REQUIRE)

    assert outcome.roles["features/executor"].pools == ("gpu-spot",)
    assert {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"} in role(outcome, "executor")[
        "tolerations"
    ]


def test_the_node_selector_of_the_application_counts_for_both_roles() -> None:
    assert "its node selector asks for disk=ssd" in refusal(
        an_application(spec="  nodeSelector: {disk: ssd}\n"), PREFER
    )


def a_conf_of(key: str, value: str = "spot") -> str:
    return f"  sparkConf:\n    {key}: {value}\n"


def test_a_node_selector_in_spark_conf_decides_which_pools_fit() -> None:
    outcome = place(an_application(spec=a_conf_of(f"spark.kubernetes.executor.node.selector.{SPOT}")), PREFER)

    assert outcome.roles["features/executor"].pools == ("spot",)
    assert outcome.roles["features/executor"].refusals["regular"] == f"its node selector asks for {SPOT}=spot"
    assert outcome.roles["features/driver"].pools == ("regular",)
    assert "nodeSelector" not in role(outcome, "executor")


def test_a_node_selector_in_spark_conf_that_no_pool_meets_is_named_where_it_stands() -> None:
    key = "spark.kubernetes.driver.node.selector.disk"
    refused = refusal(an_application(spec=a_conf_of(key, "ssd")), PREFER)

    assert refused.startswith(f"work.yaml:8: spec.sparkConf.{key}: driver fits no pool")
    assert "its node selector asks for disk=ssd" in refused


def test_a_node_selector_in_spark_conf_for_both_roles_counts_for_the_driver_too() -> None:
    refused = refusal(an_application(spec=a_conf_of(f"spark.kubernetes.node.selector.{SPOT}")), PREFER)

    assert f": spec.sparkConf.spark.kubernetes.node.selector.{SPOT}: driver fits no pool" in refused


def test_the_selector_of_a_role_is_stronger_than_that_of_both_roles() -> None:
    conf = "  sparkConf: {spark.kubernetes.node.selector.pool: a, spark.kubernetes.executor.node.selector.pool: b}\n"
    selected = {
        name: levels_of(plain_yaml.load(an_application(spec=conf))["spec"], name).spec["nodeSelector"]
        for name in ("driver", "executor")
    }

    assert selected == {"driver": {"pool": "a"}, "executor": {"pool": "b"}}


def test_a_selector_in_spark_conf_counts_beside_a_template_and_is_not_written_into_it() -> None:
    outcome = place(an_application(TEMPLATE, spec=a_conf_of(f"spark.kubernetes.executor.node.selector.{SPOT}")), PREFER)

    assert outcome.roles["features/executor"].pools == ("spot",)
    assert "nodeSelector" not in at_path(role(outcome, "executor"), "template.spec")


def test_gpus_and_cores_in_spark_conf_are_requests() -> None:
    gpus = "  sparkConf: {spark.executor.resource.gpu.amount: '1', spark.executor.resource.gpu.vendor: nvidia.com}\n"
    cores = a_conf_of("spark.kubernetes.executor.request.cores", "'17'")

    assert place(an_application(spec=gpus), REQUIRE).roles["features/executor"].pools == ("gpu-spot",)
    assert "it asks for 17 cpu" in refusal(an_application(spec=cores), REQUIRE)


@pytest.mark.parametrize(("version", "is_read"), [("4.0.4", True), ("2.4.8", False)])
def test_a_pod_template_that_is_a_file_is_named_because_nobody_can_read_it_here(version: str, is_read: bool) -> None:
    conf = a_conf_of("spark.kubernetes.executor.podTemplateFile", "'s3a://conf/executor.yaml'")
    outcome = place(an_application(spec=conf).replace("4.0.4", version))

    text = "executor: what this file says about nodes, tolerations and requests holds too"
    assert outcome.reports("work.yaml:8: warning", text, "write it into executor.template") is is_read


def test_an_application_that_fails_is_submitted_again_within_the_budgets() -> None:
    policy = "{default: {spot: prefer, interruptions: {max: 4}, errors: {retries: 1, backoff: 90s}}}"
    outcome = place(an_application(), policy)

    assert outcome.value["spec"]["restartPolicy"] == {
        "type": "OnFailure",
        "onFailureRetries": 5,
        "onFailureRetryInterval": 90,
    }
    assert outcome.reports("warning", "onFailureRetries 5 counts interruptions (4) and errors (1) together")
    assert "against onFailureRetries 5" in outcome.roles["features/executor"].after_interruption


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ("{type: Never}", "restartPolicy Never stays (--replace-retries)"),
        ("{type: Always}", "restartPolicy Always stays (--replace-retries)"),
        ("{type: OnFailure, onFailureRetries: 1}", "onFailureRetries 1 stays; the policy allows 10"),
    ],
)
def test_a_restart_policy_of_the_users_stays_unless_it_is_to_be_replaced(own: str, message: str) -> None:
    text = an_application(spec=f"  restartPolicy: {own}\n")
    kept, replaced = place(text), place(text, replace_retries=True)

    assert kept.value["spec"]["restartPolicy"] == plain_yaml.load(own)
    assert kept.reports("warning", message)
    assert replaced.value["spec"]["restartPolicy"] == {"type": "OnFailure", "onFailureRetries": 10}


def test_executors_are_decommissioned_so_that_their_blocks_survive_a_notice() -> None:
    conf = place(an_application(spec="  sparkConf: {spark.sql.shuffle.partitions: '8'}\n")).value["spec"]["sparkConf"]

    assert conf["spark.decommission.enabled"] == "true"
    assert conf["spark.storage.decommission.shuffleBlocks.enabled"] == "true"
    assert conf["spark.sql.shuffle.partitions"] == "8"


def test_decommissioning_that_the_user_or_the_version_rules_out_is_not_written() -> None:
    off = place(an_application(spec="  sparkConf: {spark.decommission.enabled: 'false'}\n"))
    old = place(an_application().replace("4.0.4", "3.0.1"))

    assert off.value["spec"]["sparkConf"] == {"spark.decommission.enabled": "false"}
    assert off.reports("note", "spark.decommission.enabled is off")
    assert "sparkConf" not in old.value["spec"]
    assert old.reports("warning", "Spark before 3.1 cannot decommission executors")


def test_a_volume_and_secrets_go_where_the_application_has_them() -> None:
    outcome = place(an_application(), "{default: {spot: prefer, checkpoint: 'pvc://ckpt', image_pull_secrets: [acr]}}")
    spec = outcome.value["spec"]

    assert spec["imagePullSecrets"] == ["acr"]
    assert [volume["name"] for volume in spec["volumes"]] == ["spotwright-checkpoint"]
    assert [one["mountPath"] for one in spec["executor"]["volumeMounts"]] == ["/spotwright/checkpoint"]


TEMPLATE = "cores: 2, template: {spec: {containers: [{name: spark-kubernetes-executor}]}}"


def test_a_role_with_a_template_is_placed_in_the_template_because_the_webhook_leaves_it_alone() -> None:
    outcome = place(an_application(TEMPLATE), REQUIRE)
    executor = role(outcome, "executor")

    assert at_path(executor, "template.spec.tolerations.0.key") == SPOT
    assert set(executor) == {"cores", "template"}
    assert "resources" not in at_path(executor, "template.spec.containers.0")


def test_a_template_of_a_spark_that_takes_none_is_not_placed() -> None:
    assert "tolerations" in role(place(an_application(TEMPLATE).replace("4.0.4", "2.4.8"), REQUIRE), "executor")


def test_fields_that_the_webhook_ignores_beside_a_template_are_named() -> None:
    outcome = place(an_application(f"tolerations: [{{key: a, operator: Exists}}], {TEMPLATE}"))

    assert outcome.reports("warning", "the operator's webhook ignores this field: move it to template.spec")


def test_the_application_of_a_schedule_is_placed_in_its_template() -> None:
    head, spec = an_application().split("spec:\n")
    inner = "".join(f"  {line}\n" for line in spec.splitlines())
    text = head.replace("SparkApplication", "ScheduledSparkApplication")
    text += f"spec:\n  schedule: '@daily'\n  template:\n{inner}"
    outcome = place(text, REQUIRE)

    assert at_path(outcome.value, "spec.template.executor.tolerations.0.key") == SPOT
    assert at_path(outcome.value, "spec.template.restartPolicy.onFailureRetries") == 10
    assert outcome.reports("warning", "set concurrencyPolicy to Forbid or Replace")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (an_application("memory: many"), "expected memory as Spark writes it, such as 512m or 4g, found 'many'"),
        (an_application(spec="  tolerations: []\n"), "it belongs under spec.executor.tolerations"),
        (an_application(spec="  memoryOverheadFactor: some\n"), "expected a number in quotes"),
        (an_application().replace("  driver: {cores: 1}\n", ""), "expected a Spark application with a driver"),
    ],
)
def test_a_mistake_is_refused_with_what_was_expected(text: str, message: str) -> None:
    assert message in refusal(text)
