"""Argo's and the Trainer's kinds, and trials of these, before and after placement; their schemas know every field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests import plain_yaml
from tests.kinds.schemas import load, strange
from tests.placing.placed import SHARED, place, without_added

GOLDEN = Path(__file__).parents[1] / "golden"
KINDS = [
    "workflow",
    "workflowtemplate",
    "clusterworkflowtemplate",
    "cronworkflow",
    "trainingruntime",
    "clustertrainingruntime",
]
TRAINERS = ["2.2", "2.3"]
TRIALS = ["katib-trainjob-2.3"]
POLICY = (
    "{default: {spot: prefer, fall_back_after: 2, interruptions: {max: 4}, errors: {retries: 1}, "
    "image_pull_secrets: [acr], checkpoint: 'pvc://ckpt'}}"
)
CRDS = SHARED / "crds"
ARGO = ["argo-full-v3.7.11", "argo-full-v4.0.6"]


def placed(case: str, trainer: str = "2.3") -> str:
    folder = GOLDEN / case
    beside = folder / "with.yaml"
    target = f"{{kubernetes: '1.33', argo: '4.0', trainer: '{trainer}'}}"
    text = (folder / "in.yaml").read_text()
    return place(text, POLICY, beside=beside.read_text() if beside.exists() else "", target=target).text


@pytest.mark.parametrize("case", [*KINDS, *TRIALS, *(f"trainjob-{version}" for version in TRAINERS)])
def test_a_manifest_comes_out_as_the_golden_file_says(case: str) -> None:
    trainer = case.rpartition("-")[2] if "trainjob" in case else "2.3"

    assert placed(case, trainer) == (GOLDEN / case / "out.yaml").read_text()


def new_strangeness(schema: dict[str, Any], before: str, after: str) -> list[str]:
    """Paths that the schema does not have and the input did not contain."""
    old, new = (without_added(plain_yaml.load_all(text)) for text in (before, after))
    pairs = zip(old, new, strict=True)
    return [path for one, other in pairs for path in strange(schema, other) if path not in set(strange(schema, one))]


@pytest.mark.skipif(not CRDS.is_dir(), reason="the schemas are not beside this project")
@pytest.mark.parametrize("release", ARGO)
@pytest.mark.parametrize("case", ["workflow", "workflowtemplate", "clusterworkflowtemplate", "cronworkflow"])
def test_argo_knows_every_field(case: str, release: str) -> None:
    name = case.removeprefix("cluster")
    if not (CRDS / release / f"{name}.json.gz").exists():
        pytest.skip(f"{release} has no schema of {name}")
    schema = load(CRDS / release / f"{name}.json.gz", "v1alpha1")

    assert (
        new_strangeness(schema, (GOLDEN / case / "in.yaml").read_text(), (GOLDEN / case / "out.yaml").read_text()) == []
    )


def test_every_kind_has_a_golden_file() -> None:
    folders = {path.name for path in GOLDEN.iterdir() if (path / "in.yaml").exists() and (path / "out.yaml").exists()}
    kinds = {
        *("pod", "job", "cronjob", "jobset", "tfjob", "pytorchjob", "trainingruntime", "clustertrainingruntime"),
        *("workflow", "workflowtemplate", "clusterworkflowtemplate", "cronworkflow", "kfp", "kfp-platforms"),
        *("katib-job", "katib-tfjob", "katib-pytorchjob", "katib-trainjob-2.3", "katib-configmap"),
        *(f"trainjob-{version}" for version in TRAINERS),
    }

    assert kinds <= folders


@pytest.mark.skipif(not CRDS.is_dir(), reason="the schemas are not beside this project")
@pytest.mark.parametrize("version", TRAINERS)
def test_the_trainer_knows_every_field(version: str) -> None:
    for case, name in ((f"trainjob-{version}", "trainjob"), ("clustertrainingruntime", "clustertrainingruntime")):
        schema = load(CRDS / f"trainer-v{version}.0" / f"{name}.json.gz", "v1alpha1")
        before, after = ((GOLDEN / case / file).read_text() for file in ("in.yaml", "out.yaml"))
        assert new_strangeness(schema, before, after) == []


@pytest.mark.skipif(not CRDS.is_dir(), reason="the schemas are not beside this project")
@pytest.mark.parametrize("path", sorted((SHARED / "manifests").glob("argo-*.yaml")), ids=lambda path: path.stem)
def test_upstream_workflows_are_placed_as_argo_knows_them(path: Path) -> None:
    before = path.read_text()
    name = "workflowtemplate" if "workflow-template" in path.name else "workflow"
    schema = load(CRDS / "argo-full-v4.0.6" / f"{name}.json.gz", "v1alpha1")

    for replace_retries in (False, True):
        after = place(before, POLICY, replace_retries=replace_retries).text
        assert after != before
        assert new_strangeness(schema, before, after) == []
