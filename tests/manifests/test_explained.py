"""What ``explain`` says: of work that nobody has said anything of, and of documents that others refer to."""

from __future__ import annotations

from tests.manifests.placing import FILE, a_config

from spotwright import config
from spotwright.manifests.documents import parse
from spotwright.manifests.files import place_text
from spotwright.manifests.references import References
from spotwright.views.explanation import explanation_json, explanation_text

GKE = config.parse(
    """\
version: 1
pools:
  gpu: {capacity: on-demand, provider: gke, node: {cpu: 8, memory: 32Gi, nvidia.com/gpu: 1}}
  cpu: {capacity: on-demand, provider: gke, node: {cpu: 8, memory: 32Gi}}
"""
)
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
    placed = place_text(JOB, FILE, GKE)
    said = explanation_text({FILE: placed}, GKE)

    assert placed.text == JOB
    assert "pools that take it as it is: gpu (on-demand)" in said
    assert "not cpu: it asks for 1 nvidia.com/gpu" in said


def test_what_is_said_of_a_runtime_names_its_file() -> None:
    kind = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: {}\nmetadata: {{name: {}}}\nspec:\n"
    node = "{name: node, template: {spec: {template: {spec: {containers: [{name: node}]}}}}}"
    job = kind.format("TrainJob", "a") + "  runtimeRef: {name: torch}\n"
    runtime = kind.format("ClusterTrainingRuntime", "torch") + (
        f"  template:\n    spec:\n      replicatedJobs:\n      - {node}\n"
    )
    settings = a_config("{default: {spot: prefer}}", "{trainer: '2.3'}")
    placed = {FILE: place_text(job, FILE, settings, References(parse(runtime, "runtime.yaml")))}

    assert "warning: runtime.yaml: line 6: maxRestarts 10" in explanation_text(placed, settings)
    assert "runtime.yaml" in {
        finding["file"] for finding in explanation_json(placed, settings)["files"][FILE]["findings"]
    }
