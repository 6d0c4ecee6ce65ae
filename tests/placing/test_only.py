"""place --only writes only the named groups of changes: placement, retries, checkpoint; unplace removes all of them."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from tests import plain_yaml
from tests.kinds.kfp.compiled import one_task
from tests.placing.placed import FILE, a_config, assert_unplaces

import spotwright as spot
from spotwright.cli import cli
from spotwright.errors import InputError
from spotwright.manifests.files import PlacedFile, place_text
from spotwright.placing.context import Group, PlaceOptions

POLICY = (
    "{default: {spot: prefer, interruptions: {max: 3}, fall_back_after: 1, errors: {retries: 1}, timeout: 1h, "
    "grace_period: 20s, checkpoint: 'pvc://ckpt', image_pull_secrets: [acr]}}"
)
POD = "{containers: [{name: pytorch, image: python}]}"
MANIFESTS = {
    "pod": f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {POD}\n",
    "job": f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: a}}\nspec: {{template: {{spec: {POD}}}}}\n",
    "jobset": (
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: a}\nspec:\n  replicatedJobs:\n"
        f"  - {{name: w, template: {{spec: {{template: {{spec: {POD}}}}}}}}}\n"
    ),
    "pytorchjob": (
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec:\n  pytorchReplicaSpecs:\n"
        f"    Worker: {{template: {{spec: {POD}}}}}\n"
    ),
    "mpijob": (
        "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: a}\nspec:\n  mpiReplicaSpecs:\n"
        f"    Worker: {{template: {{spec: {POD}}}}}\n"
    ),
    "workflow": (
        "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec:\n  entrypoint: main\n  templates:\n"
        "  - {name: main, container: {image: python}}\n"
    ),
    "rayjob": (
        "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: a}\nspec:\n  rayClusterSpec:\n"
        f"    headGroupSpec: {{template: {{spec: {POD}}}}}\n"
        f"    workerGroupSpecs: [{{groupName: w, template: {{spec: {POD}}}}}]\n"
    ),
    "sparkapplication": (
        "apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nmetadata: {name: a}\n"
        "spec: {sparkVersion: 4.0.4, driver: {cores: 1}, executor: {cores: 1}}\n"
    ),
    "deployment": (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a, labels: {spotwright.dev/role: worker}}\n"
        f"spec: {{template: {{spec: {POD}}}}}\n"
    ),
    "pipeline": one_task({}),
}
WRITTEN = {
    Group.PLACEMENT: {
        *("tolerations", "affinity", "nodeAffinity", "terminationGracePeriodSeconds", "imagePullSecrets"),
        *("imagePullSecret", "spotwright.dev/spot", "podMetadata"),
    },
    Group.RETRIES: {
        *("backoffLimit", "podFailurePolicy", "activeDeadlineSeconds", "restartPolicy", "failurePolicy", "maxRestarts"),
        *("runPolicy", "retryStrategy", "retryPolicy", "onFailureRetries", "sparkConf"),
    },
    Group.CHECKPOINT: {"env", "volumes", "volumeMounts", "pvcMount", "fieldPathAsEnv"},
}
"""Keys that only changes of one group add to these manifests."""


def placed(text: str, *groups: Group) -> PlacedFile:
    return place_text(text, FILE, a_config(POLICY), options=PlaceOptions(only=frozenset(groups or Group)))


def keys(text: str) -> set[str]:
    """Every key in the documents of a text."""

    def walk(value: Any) -> Iterator[str]:
        for key in value if isinstance(value, dict) else ():
            yield str(key)
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from walk(item)

    return {key for document in plain_yaml.load_all(text) for key in walk(document)}


@pytest.mark.parametrize("group", Group)
@pytest.mark.parametrize("kind", MANIFESTS)
def test_only_the_named_group_is_written_and_unplace_removes_it(kind: str, group: Group) -> None:
    text = MANIFESTS[kind]
    added = keys(placed(text, group).text) - keys(text)
    others = set().union(*(names for other, names in WRITTEN.items() if other is not group))

    assert added & others == set()
    assert (added & WRITTEN[group]) or (group is Group.RETRIES and kind in ("pod", "deployment"))
    assert_unplaces(text, placed(text, group).text)


@pytest.mark.parametrize("kind", MANIFESTS)
def test_all_groups_together_are_what_place_writes_without_the_option(kind: str) -> None:
    text = MANIFESTS[kind]
    whole = set().union(*(keys(placed(text, group).text) for group in Group))

    assert keys(placed(text).text) - {"podSpecPatch"} == whole - {"podSpecPatch"}
    assert placed(text, *Group).text == placed(text).text


def test_without_retries_a_role_says_that_they_stay() -> None:
    assert (
        placed(MANIFESTS["job"], Group.PLACEMENT).roles[0].after_interruption == "its retries stay as they are (--only)"
    )


def test_without_retries_nothing_is_said_about_what_they_would_count() -> None:
    texts = [finding.text for finding in placed(MANIFESTS["job"], Group.CHECKPOINT, Group.PLACEMENT).findings]

    assert not any("backoffLimit" in text or "no effect here" in text for text in texts)


@pytest.mark.parametrize("only", [(), ("placement",), ("retries", "checkpoint"), {"retries"}, "checkpoint"])
def test_python_objects_get_the_same_groups_as_files(only: Collection[str] | str) -> None:
    names = [only] if isinstance(only, str) else [*only]
    groups = frozenset(map(Group, names or Group))
    text = place_text(MANIFESTS["job"], FILE, a_config(POLICY), options=PlaceOptions(may_add=False, only=groups)).text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        placed = spot.place(plain_yaml.load(MANIFESTS["job"]), a_config(POLICY), only=only)

    assert placed["spec"] == plain_yaml.load(text)["spec"]


def test_a_wrong_group_is_refused_in_python_with_the_words_of_the_command(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(MANIFESTS["job"])
    with pytest.raises(InputError) as in_python:
        spot.place(plain_yaml.load(MANIFESTS["job"]), a_config(POLICY), only=["placment"])
    command = CliRunner().invoke(cli, ["place", "--only", "placment", str(file)], standalone_mode=False)

    assert isinstance(command.exception, click.BadParameter)
    assert str(in_python.value) == command.exception.format_message().replace("'--only'", "only")
