"""Says why nothing of a run begins, where its tasks cannot say it: a person who looks at an empty table waits in vain.

Two things were seen on a real backend (2.16.1). While its persistence agent could not report, a run stayed PENDING without a
node, although its pods ran and ended. And a driver's pod that could not start stayed Pending for ever; no task has begun then,
and drivers are no tasks of the pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable

from spotwright.cluster.workloads.tasks import workflow_task
from spotwright.kubeflow.nodes import Node

__all__ = ["SILENT", "hold_up"]

SILENT = 60.0
"""Seconds until a wait is told: a driver takes about five on an idle cluster, and a new node some minutes."""

_DRIVER = "driver"


def hold_up(nodes: Iterable[Node], waited: float, now: float, *, has_pods: bool) -> str:
    """What a run waits for, in a sentence; empty where nothing is strange.

    ``waited``: seconds since it was started here. ``now``: the moment by the clock of the nodes. ``has_pods``: Kubernetes shows
    pods of it.
    """
    nodes = list(nodes)
    if not nodes:
        if waited < SILENT:
            return ""
        if has_pods:
            return (
                "it has pods, and KFP tells nothing of them: does its persistence agent work "
                "(deployment ml-pipeline-persistenceagent)?"
            )
        return "nothing of it has begun: do Argo's workflow-controller and KFP's persistence agent work there?"
    waiting = [node for node in nodes if node.phase == "Pending" and node.name.rpartition("-")[2] == _DRIVER]
    for node in waiting:
        if node.started_at is not None and now - node.started_at >= SILENT:
            path = workflow_task(node.name, is_kfp=True).path
            return f"the pod {path} of KFP waits: {node.message or 'Argo does not say why'}"
    return ""
