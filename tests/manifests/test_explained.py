"""What ``explain`` says of work that nobody has said anything of."""

from __future__ import annotations

from tests.manifests.placing import FILE

from spotwright import config
from spotwright.manifests.files import place_text
from spotwright.views.explanation import explanation_text

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
