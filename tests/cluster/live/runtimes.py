"""Training runtimes for a real cluster."""

from __future__ import annotations

from tests.cluster.live.kube import Kube, Object, pod_spec


def training_runtime(kube: Kube, namespace: str, script: str) -> Object:
    """A runtime whose nodes run a script; Trainer makes a JobSet of it."""
    template = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": {"spec": pod_spec({**kube.container(script), "name": "node"})}},
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {
            "name": "plain",
            "namespace": namespace,
            "labels": {"trainer.kubeflow.org/framework": "plain"},
        },
        "spec": {
            "mlPolicy": {"numNodes": 2},
            "template": {"spec": {"replicatedJobs": [{"name": "node", "replicas": 1, "template": template}]}},
        },
    }
