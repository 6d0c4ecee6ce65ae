"""Messages name the obstacle: both lines of a contradiction, the right version, pods that are not placed."""

from __future__ import annotations

import pytest
from tests import plain_yaml
from tests.kinds.kfp.compiled import one_task
from tests.placing.placed import FILE, place, refusal

from spotwright import config
from spotwright.manifests.files import place_text, unplace_text
from spotwright.placing.documents import ManifestError

REQUIRE = "{default: {spot: require, timeout: 1h, errors: {retries: 0}}}"


def a_job(pod: str = "", container: str = "") -> str:
    return f"""\
apiVersion: batch/v1
kind: Job
metadata: {{name: train}}
spec:
  template:
    spec:
{pod}      containers:
      - name: main
        image: python
{container}"""


def test_a_selector_against_the_policy_is_named_with_the_line_of_the_policy() -> None:
    message = refusal(a_job("      nodeSelector:\n        kubernetes.azure.com/scalesetpriority: regular\n"), REQUIRE)

    assert message.startswith("work.yaml:8: spec.template.spec.nodeSelector.kubernetes.azure.com/scalesetpriority: ")
    assert "spot: require (spotwright.yaml:8)" in message


def test_an_affinity_against_the_policy_is_named_with_the_line_of_the_policy() -> None:
    expression = "{key: kubernetes.azure.com/scalesetpriority, operator: NotIn, values: [spot]}"
    affinity = (
        "      affinity:\n        nodeAffinity:\n          requiredDuringSchedulingIgnoredDuringExecution:\n"
        f"            nodeSelectorTerms:\n            - matchExpressions: [{expression}]\n"
    )
    message = refusal(a_job(affinity), REQUIRE)

    assert message.startswith("work.yaml:10: ")
    assert "spot: require (spotwright.yaml:8)" in message


def test_requests_that_fit_no_pool_are_named_at_the_container() -> None:
    message = refusal(a_job(container="        resources: {requests: {cpu: 99}}\n"), REQUIRE)

    assert message.startswith("work.yaml:10: spec.template.spec.containers[0].resources: ")


TAINTED = """\
version: 1
pools:
  system: {capacity: on-demand, provider: aks, node: {cpu: 2}, taints: ["CriticalAddonsOnly=true:NoSchedule"]}
  batch: {capacity: spot, provider: aks, node: {cpu: 4, nvidia.com/gpu: 1}, taints: ["type=batch:NoSchedule"]}
policy: {default: {spot: prefer}%s}
"""


@pytest.mark.parametrize(
    ("container", "pool"),
    [
        ("        resources: {limits: {nvidia.com/gpu: 1}}\n", "batch"),
        ("        resources: {requests: {cpu: 1}}\n", "system"),
    ],
)
def test_the_remedy_for_a_taint_that_only_a_ladder_tolerates_is_named_and_helps(container: str, pool: str) -> None:
    text = a_job(container=container)
    with pytest.raises(ManifestError) as refused:
        place_text(text, FILE, config.parse(TAINTED % ""))

    ladder = f'tasks: {{"train": {{ladder: [{pool}]}}}}'
    assert str(refused.value).endswith(f"(policy: {{{ladder}}} in spotwright.yaml)")
    [role] = place_text(text, FILE, config.parse(TAINTED % f", {ladder}")).roles
    assert role.pools == (pool,)


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("apiVersion: batch/v2\nkind: Job", "no API server knows Job of batch/v2: write batch/v1"),
        ("apiVersion: batch.example.com/v1alpha1\nkind: Job", "a Job of batch/v1 is placed"),
        ("apiVersion: batch/v1\nkind: PyTorchJob", "a PyTorchJob of kubeflow.org/v1 is placed"),
    ],
)
def test_a_kind_of_another_version_or_group_is_reported_with_the_right_one(text: str, messages: str) -> None:
    rest = "metadata: {name: a}\nspec: {template: {spec: {containers: [{name: main, image: python}]}}}\n"
    assert place(f"{text}\n{rest}").reports("warning", messages)


def test_a_kind_with_pods_that_is_left_alone_is_a_warning_and_others_are_a_note() -> None:
    dask = "apiVersion: kubernetes.dask.org/v1\nkind: DaskCluster\nspec: {worker: {spec: {containers: [{name: a, image: i}]}}}\n"
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n"

    assert place(dask).reports("warning", "DaskCluster", "stays unchanged", "--pod-path")
    assert place(service).reports("note", "Service a", "stays unchanged")


def test_a_training_job_without_an_end_says_so_where_the_interruption_is_explained() -> None:
    job = (
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec:\n  pytorchReplicaSpecs:\n"
        "    Worker: {template: {spec: {containers: [{name: pytorch, image: python}]}}}\n"
    )
    without, bounded = place(job), place(job, REQUIRE)

    assert without.value["spec"]["runPolicy"]["backoffLimit"] == 10
    assert without.reports(
        "backoffLimit 10", "no pods that are created again (interruptions)", "give the policy a timeout"
    )
    assert "retries are unlimited here" in without.roles["a/worker"].after_interruption
    assert "retries are unlimited here" not in bounded.roles["a/worker"].after_interruption
    assert "activeDeadlineSeconds" in bounded.value["spec"]["runPolicy"]


def test_a_value_that_was_changed_since_is_named_once_at_its_own_line() -> None:
    changed = place(a_job()).text.replace("backoffLimit: 10", "backoffLimit: 7")
    messages = [str(finding) for finding in unplace_text(changed, FILE).findings]

    assert messages[0] == (
        f"work.yaml:{changed[: changed.index('backoffLimit: 7')].count(chr(10)) + 1}: warning: spec.backoffLimit: was changed "
        "since it was placed, so it stays"
    )
    assert "the bytes differ from the original" in messages[1]
    assert len(messages) == 2


def test_the_short_notice_of_the_built_in_pools_shortens_no_grace_period_of_a_cluster() -> None:
    placed = plain_yaml.load(place_text(a_job(), FILE, config.built_in()).text)

    assert placed["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 25


def test_a_selector_of_a_compiled_task_against_the_policy_is_named_where_it_stands() -> None:
    labels = {"labels": {"kubernetes.azure.com/scalesetpriority": "regular"}}
    text = one_task({"nodeSelector": labels})
    message = refusal(text, REQUIRE)

    assert message.startswith(f"work.yaml:{text[: text.index('nodeSelector')].count(chr(10)) + 1}: ")
    assert "spot: require (spotwright.yaml:8)" in message
