"""Upstream manifests: placed as their schemas allow, placed twice with the same result, and unplaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests import plain_yaml
from tests.kinds.schemas import job_schema, load, strange
from tests.placing.placed import SHARED, assert_unplaces, at_path, without_added

from spotwright import config
from spotwright.manifests.files import place_text
from spotwright.placing.context import PlaceOptions
from spotwright.placing.documents import References, parse

FILES = sorted((SHARED / "manifests").glob("*.yaml"))
CRDS = SHARED / "crds"
SCHEMAS = {
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): "jobset-v0.12.0/jobset.json.gz",
    ("kubeflow.org/v1", "TFJob"): "training-operator-v1.9.4/tfjob.json.gz",
    ("kubeflow.org/v1", "PyTorchJob"): "training-operator-v1.9.4/pytorchjob.json.gz",
    ("kubeflow.org/v1", "XGBoostJob"): "training-operator-v1.9.4/xgboostjob.json.gz",
    ("kubeflow.org/v1", "MPIJob"): "training-operator-v1.9.4/mpijob.json.gz",
    ("kubeflow.org/v2beta1", "MPIJob"): "mpi-operator-v0.8.0/mpijob.json.gz",
    ("kubeflow.org/v1beta1", "Experiment"): "katib-v0.19.0/experiment.json.gz",
    ("ray.io/v1", "RayCluster"): "kuberay-v1.7.0/raycluster.json.gz",
    ("ray.io/v1", "RayJob"): "kuberay-v1.7.0/rayjob.json.gz",
    ("batch.volcano.sh/v1alpha1", "Job"): "volcano-v1.15.1/job.json.gz",
    ("ray.io/v1", "RayService"): "kuberay-v1.7.0/rayservice.json.gz",
    ("sparkoperator.k8s.io/v1beta2", "SparkApplication"): "spark-operator-v2.5.2/sparkapplication.json.gz",
}
POOLS = """\
version: 1
pools:
  spot: {capacity: spot, provider: aks, labels: {node-type: training, disktype: ssd}}
  regular: {capacity: on-demand, provider: aks, labels: {node-type: training, disktype: ssd}}
"""
POLICIES = {
    "counted": "{default: {spot: prefer, image_pull_secrets: [acr], checkpoint: 'pvc://ckpt'}}",
    "bounded": "{default: {spot: require, timeout: 1h, errors: {retries: 2}, checkpoint: 's3://b'}}",
}
CONFIGS = {name: config.parse(f"{POOLS}policy: {policy}\n") for name, policy in POLICIES.items()}

pytestmark = pytest.mark.skipif(not FILES, reason="the upstream manifests are not beside this project")


REFERENCES = References([document for path in FILES for document in parse(path.read_text(), path.name)])


def placed(path: Path, text: str, policy: str, *, replace_retries: bool = False) -> str:
    """A file after it was placed, with every other file beside it."""
    return place_text(text, path.name, CONFIGS[policy], REFERENCES, PlaceOptions(replace_retries=replace_retries)).text


def schema_of(document: Any) -> dict[str, Any] | None:
    """The schema of a document, or of the trials in it."""
    kind = (str(document.get("apiVersion")), str(document.get("kind")))
    if kind[0].startswith("batch/"):
        return job_schema(CRDS / SCHEMAS["jobset.x-k8s.io/v1alpha2", "JobSet"])
    if kind not in SCHEMAS or not CRDS.is_dir():
        return None
    return load(CRDS / SCHEMAS[kind], kind[0].rpartition("/")[2])


def trial_of(document: Any) -> Any:
    return at_path(document, "spec.trialTemplate.trialSpec")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_is_placed_is_placed_once_and_comes_out_again(path: Path, policy: str) -> None:
    text = path.read_bytes().decode()
    after = placed(path, text, policy)

    assert placed(path, after, policy) == after
    assert_unplaces(text, after)


@pytest.mark.skipif(not CRDS.is_dir(), reason="the schemas are not beside this project")
@pytest.mark.parametrize("replace_retries", [False, True], ids=["", "replaced"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_is_placed_is_known_to_the_schema(path: Path, policy: str, replace_retries: bool) -> None:
    text = path.read_bytes().decode()
    after = placed(path, text, policy, replace_retries=replace_retries)
    for old, new in zip(plain_yaml.load_all(text), without_added(plain_yaml.load_all(after)), strict=True):
        for before, now in ((old, new), (trial_of(old), trial_of(new))):
            schema = schema_of(now) if isinstance(now, dict) else None
            if schema is not None:
                assert set(strange(schema, now)) <= set(strange(schema, before))
