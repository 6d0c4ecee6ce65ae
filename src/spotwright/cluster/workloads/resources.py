"""Where the API serves the kinds of workloads that are runs, or own the pods of runs."""

from __future__ import annotations

from collections.abc import Mapping

from spotwright.cluster.api.mirror import Resource
from spotwright.cluster.workloads.owners import TRAINING_KINDS

__all__ = ["OWNERS"]

OWNERS: Mapping[str, Resource] = {
    "Job": Resource("/apis/batch/v1", "jobs"),
    "JobSet": Resource("/apis/jobset.x-k8s.io/v1alpha2", "jobsets"),
    "TrainJob": Resource("/apis/trainer.kubeflow.org/v1alpha1", "trainjobs"),
    "Workflow": Resource("/apis/argoproj.io/v1alpha1", "workflows"),
    **{kind: Resource("/apis/kubeflow.org/v1", f"{kind.lower()}s") for kind in TRAINING_KINDS},
    "MPIJob v2": Resource("/apis/kubeflow.org/v2beta1", "mpijobs"),
    "Trial": Resource("/apis/kubeflow.org/v1beta1", "trials"),
    "Experiment": Resource("/apis/kubeflow.org/v1beta1", "experiments"),
}
"""The resource of each kind. An API server has one version of MPIJob or the other."""
