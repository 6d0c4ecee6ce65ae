"""Headings of the mechanisms on the pages of the kinds, for the tables that are made from the facts."""

from __future__ import annotations

from collections.abc import Mapping

from spotwright.manifests.enforcement.mechanisms import Mechanism

__all__ = ["TITLES"]

TITLES: Mapping[Mechanism, str] = {
    Mechanism.PODS_ONLY: "only the pods are placed",
    Mechanism.NODES_ONLY: "",
    Mechanism.POD: "",
    Mechanism.JOB_IGNORES: "interruptions are ignored until a deadline",
    Mechanism.JOB_SEPARATES: "rules keep errors apart",
    Mechanism.JOB_COUNTS: "interruptions and errors are counted together",
    Mechanism.JOB_FAILS: "its own rule fails the Job",
    Mechanism.SET_RESTARTS: "the set restarts",
    Mechanism.SET_SEPARATES: "a set of one pod",
    Mechanism.SET_UNCOUNTED: "its own rule does not count restarts",
    Mechanism.SET_FAILS: "its own rule fails the set",
    Mechanism.SET_ALONE: "its own fields replace the pod alone",
    Mechanism.RUNTIME_DECIDES: "the runtime's own failure policy",
    Mechanism.RUNTIME_PLACED: "its runtime is placed in the same command",
    Mechanism.EXIT_CODE: "`restartPolicy: ExitCode`",
    Mechanism.ANY_ERROR: "its own `OnFailure` or `Always`",
    Mechanism.IN_PLACE: "its own `OnFailure` or `Always`",
    Mechanism.NEVER: "its own `Never`",
    Mechanism.ELASTIC: "elastic",
    Mechanism.MPI_EVICTED: "`kubeflow.org/v1`",
    Mechanism.MPI_LAUNCHER: "`kubeflow.org/v2beta1`",
    Mechanism.ARGO: "",
    Mechanism.ARGO_OWN: "its own `retryStrategy`",
    Mechanism.ARGO_INLINE: "an inline template that Argo loses with retries",
    Mechanism.ARGO_TEMPLATES: "a `workflowTemplateRef` to an object of the same command",
    Mechanism.KFP: "`target.kfp` up to 2.16, or `target.kfp_retries: always`",
    Mechanism.KFP_STOCK: "2.17 as it is installed, or no `target.kfp`",
    Mechanism.DEPLOYMENT: "",
    Mechanism.RAY_CLUSTER: "",
    Mechanism.RAY_JOB: "",
    Mechanism.SPARK: "",
    Mechanism.TEKTON: "",
    Mechanism.VOLCANO: "",
    Mechanism.VOLCANO_ENDS: "its own policy ends the Job",
}
"""The heading of each mechanism on the pages of the kinds; empty where it is the only one or the usual one."""
