"""Autoscalers leave alone what is dear to move, be it on spot nodes or not; what serves they may move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests import plain_yaml
from tests.placing.placed import FILE, a_config, place

from spotwright import config
from spotwright.manifests.files import place_text, unplace_text
from spotwright.placing.context import PlaceOptions

GOLDEN = Path(__file__).parents[1] / "kinds" / "golden"
SAFE, STAY = "cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt"
NEVER = "{default: {spot: never}}"
WORK = {  # kinds whose pods all work or coordinate, with the number of their pod templates
    "clusterworkflowtemplate": 1,
    "cronjob": 1,
    "job": 1,
    "jobset": 2,
    "katib-job": 1,
    "katib-tfjob": 2,
    "paddlejob": 1,
    "pipelinerun": 1,
    "pod": 1,
    "pytorchjob": 2,
    "raycluster": 3,
    "rayjob": 3,
    "scheduledsparkapplication": 2,
    "sparkapplication": 2,
    "sparkapplication-template": 2,
    "taskrun": 1,
    "tfjob": 2,
    "trainingruntime": 2,
    "volcanojob": 2,
    "workflow": 3,
    "xgboostjob": 2,
}
POOLS = """\
version: 1
pools:
  spot: {{capacity: spot, provider: {provider}, labels: {{{label}: spot}}}}
  regular: {{capacity: on-demand, provider: {provider}, labels: {{{label}: regular}}}}
target: {{autoscaler: {autoscaler}}}
policy: {{default: {{spot: never}}}}
"""
JOB = (GOLDEN / "job" / "in.yaml").read_text()
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: app, labels: {{{label}}}}}
spec: {{template: {{metadata: {{labels: {{a: b}}}}, spec: {{containers: [{{name: main, image: i}}]}}}}}}
"""


def values_of(value: Any, key: str) -> list[Any]:
    """The values of a key anywhere in a value; also in texts that hold objects, as a Katib trial may."""
    if isinstance(value, dict):
        own = [value[key]] if key in value else []
        return own + [one for child in value.values() for one in values_of(child, key)]
    return [one for child in value for one in values_of(child, key)] if isinstance(value, list) else []


def shields_of(text: str, key: str) -> list[Any]:
    return values_of(list(plain_yaml.load_all(text)), key)


@pytest.mark.parametrize("policy", [NEVER, "{default: {spot: prefer}}", "{default: {spot: require, timeout: 1h}}"])
@pytest.mark.parametrize("kind", WORK)
def test_all_pods_of_work_are_shielded_on_spot_nodes_and_off_them(kind: str, policy: str) -> None:
    outcome = place((GOLDEN / kind / "in.yaml").read_text(), policy)

    assert shields_of(outcome.text, SAFE) == ["false"] * WORK[kind]


@pytest.mark.parametrize("kind", ["inferenceservice", "notebook", "statefulset", "daemonset"])
@pytest.mark.parametrize("spot", ["never", "prefer"])
def test_what_serves_is_not_shielded(kind: str, spot: str) -> None:
    outcome = place((GOLDEN / kind / "in.yaml").read_text(), f"{{default: {{spot: {spot}}}}}")

    assert shields_of(outcome.text, SAFE) == []


@pytest.mark.parametrize("kind", ["statefulset", "daemonset", "inferenceservice"])
def test_a_service_that_its_label_keeps_on_on_demand_is_not_shielded(kind: str) -> None:
    text = (GOLDEN / kind / "in.yaml").read_text().replace("spotwright.dev/spot: prefer", "spotwright.dev/spot: never")

    assert "spotwright.dev/spot: never" in text
    assert shields_of(place(text, NEVER).text, SAFE) == []


def test_a_ray_service_shields_the_head_and_not_the_groups_that_serve() -> None:
    [service] = plain_yaml.load_all(place((GOLDEN / "rayservice" / "in.yaml").read_text(), NEVER).text)
    cluster = service["spec"]["rayClusterConfig"]

    assert values_of(cluster["headGroupSpec"], SAFE) == ["false"]
    assert values_of(cluster["workerGroupSpecs"], SAFE) == []


@pytest.mark.parametrize(
    ("label", "is_shielded"),
    [
        ("spotwright.dev/role: worker", True),
        ("spotwright.dev/spot: prefer", True),
        ("spotwright.dev/spot: never", False),
        ('spotwright.dev/spot: never, spotwright.dev/role: "worker"', True),
    ],
)
def test_a_deployment_is_shielded_if_it_works(label: str, is_shielded: bool) -> None:
    outcome = place(DEPLOYMENT.format(label=label), NEVER)

    assert shields_of(outcome.text, SAFE) == (["false"] if is_shielded else [])
    assert "affinity" in outcome.text


@pytest.mark.parametrize(
    ("provider", "label", "autoscaler", "shields"),
    [
        ("aks", "team", "cluster-autoscaler", {SAFE: "false"}),
        ("generic", "team", "karpenter", {STAY: "true"}),
        ("karpenter", "team", "karpenter", {STAY: "true"}),
        ("karpenter", "team", "cluster-autoscaler", {SAFE: "false", STAY: "true"}),
        ("generic", "karpenter.sh/nodepool", "cluster-autoscaler", {SAFE: "false", STAY: "true"}),
    ],
)
def test_the_shields_are_those_of_the_autoscalers_that_the_cluster_has(
    provider: str, label: str, autoscaler: str, shields: dict[str, str]
) -> None:
    given = config.parse(POOLS.format(provider=provider, label=label, autoscaler=autoscaler))
    [job] = plain_yaml.load_all(place_text(JOB, FILE, given).text)

    annotations = job["spec"]["template"]["metadata"]["annotations"]
    assert {key: value for key, value in annotations.items() if key in (SAFE, STAY)} == shields


@pytest.mark.parametrize("own", ["true", "False"])
def test_what_the_user_says_stays_with_a_warning(own: str) -> None:
    annotated = f'  template:\n    metadata:\n      annotations: {{{SAFE}: "{own}"}}\n'
    text = JOB.replace("  template:\n", annotated, 1)
    outcome = place(text, NEVER)

    assert shields_of(outcome.text, SAFE) == [own]
    line = text.splitlines().index(f'      annotations: {{{SAFE}: "{own}"}}') + 1
    assert outcome.reports(
        f'{FILE}:{line}: warning: train: its own {SAFE}: "{own}" stays', 'to save a node; write "false"'
    )
    assert unplace_text(outcome.text, FILE).text == text


def test_the_same_word_of_the_user_needs_no_warning() -> None:
    text = JOB.replace("  template:\n", f'  template:\n    metadata:\n      annotations: {{{SAFE}: "false"}}\n', 1)

    assert not place(text, NEVER).reports(SAFE)


def test_what_a_workflow_says_for_all_pods_stays_too() -> None:
    text = (
        "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec:\n  entrypoint: a\n"
        f'  podMetadata: {{annotations: {{{SAFE}: "true"}}}}\n  templates:\n  - {{name: a, container: {{image: i}}}}\n'
    )
    outcome = place(text, NEVER)

    assert shields_of(outcome.text, SAFE) == ["true"]
    assert outcome.reports(f'w/a: its own {SAFE}: "true" stays')


@pytest.mark.parametrize(
    ("kind", "is_shielded"),
    [
        ("apps/v1:DaemonSet", False),
        ("serving.knative.dev/v1:Service", False),
        ("apps/v1:StatefulSet", True),
        ("x.io/v1:Run", True),
    ],
)
def test_pods_that_the_user_names_are_shielded_unless_their_kind_serves(kind: str, is_shielded: bool) -> None:
    api_version, _, name = kind.partition(":")
    text = f"apiVersion: {api_version}\nkind: {name}\n" + DEPLOYMENT.format(label="a: b").split("\n", 2)[2]
    options = PlaceOptions(pod_paths=(("spec", "template", "spec"),))
    placed = place_text(text, FILE, a_config(NEVER), options=options).text

    assert "affinity" in placed
    assert shields_of(placed, SAFE) == (["false"] if is_shielded else [])


def test_without_a_policy_for_spot_nothing_is_written() -> None:
    assert place(JOB, "{default: {timeout: 1h}}").text == JOB
