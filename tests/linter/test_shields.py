"""Lint reports work that an autoscaler may move where place would keep it from that, be it on spot nodes or not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.linter.linting import found_in, linted, settings

from spotwright.linter.linting import fixed_text
from spotwright.linter.rule import AKS_POOLS

RULE = "churn-not-shielded"
GOLDEN = Path(__file__).parents[1] / "kinds" / "golden"
SAFE, STAY = "cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt"
NEVER = f"{AKS_POOLS.strip()}\npolicy: {{default: {{spot: never}}}}\n"
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train, OBJECT}
spec:
  template:
    metadata: {POD}
    spec: {restartPolicy: Never, NODES, containers: [{name: main, image: i}]}
"""


def job(on_object: str = "labels: {}", pod: str = "labels: {}", nodes: str = "nodeSelector: {}") -> str:
    return JOB.replace("OBJECT", on_object).replace("POD", pod).replace("NODES", nodes)


def fixes(text: str, configuration: str = "", *, python: bool = False) -> list[str]:
    return [one.fix for one in found_in(text, configuration, python=python) if one.rule == RULE]


@pytest.mark.parametrize(
    "text",
    [
        job("labels: {spotwright.dev/spot: never}"),
        job("labels: {spotwright.dev/spot: prefer}"),
        job('annotations: {spotwright.dev/policy: \'{"spot": "never"}\'}'),
        job(pod="labels: {spotwright.dev/spot: never}"),
        job(nodes="nodeSelector: {cloud.google.com/gke-provisioning: standard}"),
        job(nodes="nodeSelector: {kubernetes.azure.com/scalesetpriority: spot}"),
    ],
)
def test_work_with_a_policy_is_found_without_a_configuration(text: str) -> None:
    assert fixes(text) == [f'Annotate the pod: {SAFE}: "false".']


def test_work_that_keeps_itself_on_the_on_demand_nodes_of_karpenter_needs_its_annotation_alone() -> None:
    text = job(nodes="nodeSelector: {karpenter.sh/capacity-type: on-demand}")

    assert fixes(text) == [f'Annotate the pod: {STAY}: "true".']
    assert fixes(text.replace("{labels: {}}", f'{{annotations: {{{STAY}: "true"}}}}')) == []


def test_work_without_a_policy_is_none_of_its_business() -> None:
    assert fixes(job()) == []


@pytest.mark.parametrize(
    "policy", ["default: {spot: never}", "default: {spot: prefer}", "tasks: {train: {spot: never}}"]
)
def test_the_policy_of_the_configuration_counts(policy: str) -> None:
    assert len(fixes(job(), f"{AKS_POOLS.strip()}\npolicy: {{{policy}}}\n")) == 1


@pytest.mark.parametrize("own", ["true", "false"])
def test_what_the_user_says_is_left_alone(own: str) -> None:
    assert fixes(job(pod=f'annotations: {{{SAFE}: "{own}"}}'), NEVER) == []


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("sparkapplication", 2),
        ("sparkapplication-template", 2),
        ("workflow", 3),
        ("raycluster", 3),
        ("rayservice", 1),  # its head
        ("jobset", 2),
        ("volcanojob", 2),
        ("deployment", 1),  # of workers
        ("statefulset", 0),
        ("notebook", 0),
        ("daemonset", 0),
        ("inferenceservice", 0),
    ],
)
def test_every_role_that_works_is_found_and_fixed(kind: str, count: int) -> None:
    text = (GOLDEN / kind / "in.yaml").read_text().replace("spotwright.dev/spot: prefer", "spotwright.dev/spot: never")
    assert len(fixes(text, NEVER)) == count

    fixed = fixed_text(text, linted(text, NEVER), settings(NEVER))
    assert fixes(fixed, NEVER) == []
    assert fixed.count(f'{SAFE}: "false"') == text.count(f'{SAFE}: "false"') + count


def test_an_annotation_for_all_pods_of_a_workflow_counts() -> None:
    text = (GOLDEN / "workflow" / "in.yaml").read_text()
    shielded = text.replace("\nspec:\n", f'\nspec:\n  podMetadata: {{annotations: {{{SAFE}: "false"}}}}\n', 1)

    assert shielded != text
    assert fixes(shielded, NEVER) == []


PIPELINE = """\
from kfp import dsl, kubernetes

@dsl.component
def step():
    pass

@dsl.pipeline
def pipeline():
    task = step()
    kubernetes.add_node_selector(task, "cloud.google.com/gke-spot", "true")
"""


def test_a_task_of_a_pipeline_is_told_the_call() -> None:
    [fix] = fixes(PIPELINE, python=True)
    call = f'kubernetes.add_pod_annotation(task, "{SAFE}", "false")'

    assert fix.startswith(f"Call {call}")
    assert fixes(f"{PIPELINE}    {call}\n", python=True) == []
