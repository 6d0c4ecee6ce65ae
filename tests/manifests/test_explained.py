"""The output of ``explain`` for work without a policy, and for documents that others refer to."""

from __future__ import annotations

from tests.placing.placed import FILE, a_config

from spotwright import config
from spotwright.manifests.files import place_text
from spotwright.placing.context import PlaceOptions
from spotwright.placing.documents import References, parse
from spotwright.views.explanation import explanation_json, explanation_text

GKE = config.parse(
    """\
version: 1
pools:
  gpu: {capacity: on-demand, provider: gke, node: {cpu: 8, memory: 32Gi, nvidia.com/gpu: 1}}
  cpu: {capacity: on-demand, provider: gke, node: {cpu: 8, memory: 32Gi}}
"""
)
EXPLAIN = PlaceOptions(only_explain=True)
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      containers:
      - name: main
        image: python
        resources: {limits: {nvidia.com/gpu: 1}}
"""


def test_gpu_work_on_gke_fits_its_gpu_pools_as_it_is() -> None:
    placed = place_text(JOB, FILE, GKE, options=EXPLAIN)
    messages = explanation_text({FILE: placed}, GKE)

    assert placed.text == JOB
    assert "pools that take it as it is: gpu (on-demand)" in messages
    assert "not cpu: it asks for 1 nvidia.com/gpu" in messages


def test_a_finding_about_a_runtime_names_its_file() -> None:
    kind = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: {}\nmetadata: {{name: {}}}\nspec:\n"
    node = "{name: node, template: {spec: {template: {spec: {containers: [{name: node}]}}}}}"
    job = kind.format("TrainJob", "a") + "  runtimeRef: {name: torch}\n"
    runtime = kind.format("ClusterTrainingRuntime", "torch") + (
        f"  template:\n    spec:\n      replicatedJobs:\n      - {node}\n"
    )
    settings = a_config("{default: {spot: prefer}}", "{trainer: '2.3'}")
    placed = {FILE: place_text(job, FILE, settings, References(parse(runtime, "runtime.yaml")), EXPLAIN)}

    assert "runtime.yaml: line 6: maxRestarts 16 counts interruptions" in explanation_text(placed, settings)
    assert "runtime.yaml" in {
        finding["file"] for finding in explanation_json(placed, settings)["files"][FILE]["findings"]
    }
