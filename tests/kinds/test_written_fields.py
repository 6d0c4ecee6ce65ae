"""What ``place`` writes is a field of its kind, by our own list of fields; and the list agrees with the projects' schemas."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests import plain_yaml
from tests.kinds.field_schemas import FIELDS, HERE, schema
from tests.kinds.schemas import job_schema, load, strange
from tests.placing.placed import SHARED, without_added

GOLDEN = HERE / "golden"
CASES = sorted(path.name for path in GOLDEN.iterdir() if not path.name.startswith("kfp"))
CRDS = SHARED / "crds"
SCHEMAS = {
    "RayCluster": ("kuberay-v1.7.0/raycluster.json.gz", "v1"),
    "RayJob": ("kuberay-v1.7.0/rayjob.json.gz", "v1"),
    "LeaderWorkerSet": ("leaderworkerset/leaderworkerset.json.gz", "v1"),
    "RayService": ("kuberay-v1.7.0/rayservice.json.gz", "v1"),
    "PaddleJob": ("training-operator-v1.9.4/paddlejob.json.gz", "v1"),
    "JAXJob": ("training-operator-v1.9.4/jaxjob.json.gz", "v1"),
    "Notebook": ("notebooks-v1.11.0/notebook.json.gz", "v1"),
    "InferenceService": ("kserve/inferenceservice.json.gz", "v1beta1"),
    "ScheduledSparkApplication": ("spark-operator-v2.5.2/scheduledsparkapplication.json.gz", "v1beta2"),
    "SparkApplication": ("spark-operator-v2.5.2/sparkapplication.json.gz", "v1beta2"),
    **{
        kind: (f"kueue-v0.19.2/{kind.lower()}.json.gz", "v1beta2")
        for kind in ("ResourceFlavor", "ClusterQueue", "LocalQueue")
    },
    "Volcano Job": ("volcano-v1.15.1/job.json.gz", "v1alpha1"),
    "JobSet": ("jobset-v0.12.0/jobset.json.gz", "v1alpha2"),
    "TFJob": ("training-operator-v1.9.4/tfjob.json.gz", "v1"),
    "PyTorchJob": ("training-operator-v1.9.4/pytorchjob.json.gz", "v1"),
    "XGBoostJob": ("training-operator-v1.9.4/xgboostjob.json.gz", "v1"),
    "TrainingRuntime": ("trainer-v2.3.0/trainingruntime.json.gz", "v1alpha1"),
    "ClusterTrainingRuntime": ("trainer-v2.3.0/clustertrainingruntime.json.gz", "v1alpha1"),
    **{f"TrainJob 2.{minor}": (f"trainer-v2.{minor}.0/trainjob.json.gz", "v1alpha1") for minor in (2, 3)},
    **{
        kind: (f"argo-full-v4.0.6/{kind.lower().removeprefix('cluster')}.json.gz", "v1alpha1")
        for kind in ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow")
    },
}


def fields_of(document: Any, case: str) -> tuple[str, Any]:
    """The kind of a document, in the release of the case, and its fields; for an experiment those of its trial."""
    kind = str(document["kind"])
    if kind == "TrainJob":
        kind = f"TrainJob {case.rpartition('-')[2]}"
    if document["apiVersion"].startswith("batch.volcano.sh"):
        kind = "Volcano Job"
    if kind == "Experiment":
        trial = document["spec"]["trialTemplate"].get("trialSpec")
        fields = fields_of(trial, case)[1] if trial is not None else {}
        return kind, {
            "spec": {"trialTemplate": {"trialSpec": {**fields, "metadata": {"annotations": {"*": "string"}}}}}
        }
    return kind, FIELDS[kind]


def unknown(fields: Any, value: Any) -> set[str]:
    """Paths that the fields do not have, or that have another type; the same for every item of a list."""
    return {re.sub(r"\[\d+\]", "[]", path) for path in strange(schema(fields), value)}


@pytest.mark.parametrize("case", CASES)
def test_everything_that_is_written_is_a_field_of_its_kind(case: str) -> None:
    before, after = (
        list(without_added(plain_yaml.load_all((GOLDEN / case / name).read_text()))) for name in ("in.yaml", "out.yaml")
    )
    for old, new in zip(before, after, strict=True):
        _, fields = fields_of(new, case)
        assert unknown(fields, new) - unknown(fields, old) == set()


@pytest.mark.parametrize("case", [case for case in CASES if case != "katib-configmap"])
def test_a_field_that_no_kind_has_would_be_noticed(case: str) -> None:
    [document, *_] = without_added(plain_yaml.load_all((GOLDEN / case / "out.yaml").read_text()))
    _, fields = fields_of(document, case)
    wrong = {**document, "spec": {**document["spec"], "tolerationz": []}}

    assert unknown(fields, wrong) - unknown(fields, document) == {".spec.tolerationz"}


def misstated(fields: Any, real: dict[str, Any], path: str = "") -> Iterator[str]:
    """Paths of our list that a project's schema does not have so."""
    if real.get("x-kubernetes-preserve-unknown-fields"):
        return
    own = schema(fields)
    if own.get("type") != real.get("type") or bool(own.get("x-kubernetes-int-or-string")) != bool(
        real.get("x-kubernetes-int-or-string")
    ):
        yield f"{path} is {real.get('type')}"
    elif isinstance(fields, dict):
        known, others = real.get("properties") or {}, real.get("additionalProperties")
        for name, field in fields.items():
            if name == "metadata" and not path:
                continue
            below = others if name == "*" else known.get(name)
            if isinstance(below, dict):
                yield from misstated(field, below, f"{path}.{name}")
            elif name != "*" or others is not True:
                yield f"{path}.{name}"
    elif isinstance(fields, list):
        yield from misstated(fields[0], real["items"], f"{path}[]")
    else:
        yield from (
            f"{path} cannot be {value}"
            for value in set(own.get("enum", ())) - set(real.get("enum") or own.get("enum", ()))
        )


@pytest.mark.skipif(not CRDS.is_dir(), reason="the schemas are not beside this project")
@pytest.mark.parametrize("kind", [*SCHEMAS, "Job"])
def test_the_list_of_fields_agrees_with_the_projects_schema(kind: str) -> None:
    real = job_schema(CRDS / SCHEMAS["JobSet"][0]) if kind == "Job" else load(CRDS / SCHEMAS[kind][0], SCHEMAS[kind][1])

    assert list(misstated(FIELDS[kind], real)) == []
