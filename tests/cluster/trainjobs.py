"""A TrainJob and the runtime that it names."""

from __future__ import annotations

from typing import Any

from tests.cluster.admission_objects import a_jobset

RUNTIME: dict[str, Any] = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "torch"},
    "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": a_jobset()["spec"]}},
}


TRAINJOB: dict[str, Any] = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "train", "labels": {"spotwright.dev/spot": "require"}},
    "spec": {"runtimeRef": {"name": "torch"}, "trainer": {"numNodes": 2}},
}
