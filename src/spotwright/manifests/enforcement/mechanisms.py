"""The ways in which kinds go on after the end of an attempt: their names, and those of each kind.

A kind may retry in several ways, because its own fields and the policy decide (a Job with and without a bound). The facts about
each way are in :mod:`spotwright.manifests.enforcement.table`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

__all__ = ["KINDS", "Mechanism"]


class Mechanism(StrEnum):
    """How a kind goes on after the end of an attempt."""

    PODS_ONLY = "pods-only"  # only the fields of the pod are placed
    NODES_ONLY = "nodes-only"  # only where the pods may run is placed
    POD = "pod"
    JOB_IGNORES = "job-ignores"
    JOB_SEPARATES = "job-separates"
    JOB_COUNTS = "job-counts"
    JOB_FAILS = "job-fails"
    SET_RESTARTS = "set-restarts"
    SET_SEPARATES = "set-separates"
    SET_UNCOUNTED = "set-uncounted"
    SET_FAILS = "set-fails"
    SET_ALONE = "set-alone"
    RUNTIME_DECIDES = "runtime-decides"
    RUNTIME_PLACED = "runtime-placed"
    EXIT_CODE = "exit-code"
    ANY_ERROR = "any-error"
    IN_PLACE = "in-place"
    NEVER = "never"
    ELASTIC = "elastic"
    MPI_EVICTED = "mpi-evicted"
    MPI_LAUNCHER = "mpi-launcher"
    ARGO = "argo"
    ARGO_OWN = "argo-own"
    ARGO_INLINE = "argo-inline"
    ARGO_TEMPLATES = "argo-templates"
    KFP = "kfp"
    KFP_STOCK = "kfp-stock"
    DEPLOYMENT = "deployment"
    RAY_CLUSTER = "ray-cluster"
    RAY_JOB = "ray-job"
    SPARK = "spark"
    TEKTON = "tekton"
    VOLCANO = "volcano"
    VOLCANO_ENDS = "volcano-ends"


_ON_JOBS = (Mechanism.JOB_IGNORES, Mechanism.JOB_SEPARATES, Mechanism.JOB_COUNTS, Mechanism.JOB_FAILS)
_OF_SETS = (
    Mechanism.SET_RESTARTS,
    Mechanism.SET_SEPARATES,
    Mechanism.SET_UNCOUNTED,
    Mechanism.SET_FAILS,
    Mechanism.SET_ALONE,
)
_ON_ROLES = (Mechanism.EXIT_CODE, Mechanism.ANY_ERROR, Mechanism.NEVER)
_ON_STEPS = (Mechanism.ARGO, Mechanism.ARGO_OWN, Mechanism.ARGO_INLINE)

KINDS: Mapping[str, tuple[Mechanism, ...]] = {
    "Pod": (Mechanism.POD,),
    **dict.fromkeys(("Job", "CronJob"), _ON_JOBS),
    **dict.fromkeys(("JobSet", "TrainingRuntime", "ClusterTrainingRuntime"), _OF_SETS),
    "TrainJob": (*_OF_SETS, Mechanism.RUNTIME_DECIDES, Mechanism.RUNTIME_PLACED),
    **dict.fromkeys(("TFJob", "JAXJob"), _ON_ROLES),
    "XGBoostJob": (Mechanism.EXIT_CODE, Mechanism.IN_PLACE, Mechanism.NEVER),
    **dict.fromkeys(("PyTorchJob", "PaddleJob"), (*_ON_ROLES, Mechanism.ELASTIC)),
    "MPIJob": (Mechanism.MPI_EVICTED, Mechanism.MPI_LAUNCHER),
    **dict.fromkeys(("WorkflowTemplate", "ClusterWorkflowTemplate"), _ON_STEPS),
    **dict.fromkeys(("Workflow", "CronWorkflow"), (*_ON_STEPS, Mechanism.ARGO_TEMPLATES)),
    "Deployment": (Mechanism.DEPLOYMENT,),
    **dict.fromkeys(
        (
            "DaemonSet",
            "InferenceService",
            "Notebook",
            "PVCViewer",
            "ReplicaSet",
            "ReplicationController",
            "StatefulSet",
        ),
        (Mechanism.NODES_ONLY,),
    ),
    **dict.fromkeys(("RayCluster", "RayService"), (Mechanism.RAY_CLUSTER,)),
    **dict.fromkeys(("RayJob", "RayCronJob"), (Mechanism.RAY_JOB,)),
    **dict.fromkeys(("SparkApplication", "ScheduledSparkApplication"), (Mechanism.SPARK,)),
    **dict.fromkeys(("PipelineRun", "TaskRun", "Pipeline"), (Mechanism.TEKTON,)),
    "Job of Volcano": (Mechanism.VOLCANO, Mechanism.VOLCANO_ENDS),
    **dict.fromkeys(("PipelineSpec", "PipelineVersion"), (Mechanism.KFP, Mechanism.KFP_STOCK)),
}
"""The mechanisms of each kind. A Katib Experiment has those of its trials' kind; kinds of ``--pod-path`` have
:attr:`Mechanism.PODS_ONLY`."""
