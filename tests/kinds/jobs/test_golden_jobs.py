"""Kubernetes' own kinds, JobSet, the training operator's jobs, Katib, Ray and Spark before and after, to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.placing.placed import place

GOLDEN = Path(__file__).parents[1] / "golden"
KINDS = [
    *("pod", "job", "cronjob", "jobset", "tfjob", "pytorchjob", "xgboostjob"),
    *("katib-job", "katib-tfjob", "katib-pytorchjob", "katib-configmap"),
    *("raycluster", "rayjob", "sparkapplication", "sparkapplication-template", "deployment"),
    *("volcanojob", "pipelinerun", "taskrun", "tekton-pipeline", "paddlejob", "jaxjob"),
    *("rayservice", "scheduledsparkapplication", "notebook", "inferenceservice", "statefulset", "daemonset"),
    *("resourceflavor", "leaderworkerset"),
]
POLICY = (
    "{default: {spot: prefer, timeout: 2h, interruptions: {max: 5}, errors: {retries: 1}, "
    "image_pull_secrets: [acr], checkpoint: 'pvc://ckpt'}}"
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_manifest_comes_out_as_the_golden_file_says(kind: str) -> None:
    folder = GOLDEN / kind

    assert place((folder / "in.yaml").read_text(), POLICY).text == (folder / "out.yaml").read_text()
