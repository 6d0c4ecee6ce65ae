"""Says how often a workload's own controller tries a task again, as far as its objects tell.

==================  =====================================================================================================
controller          retries of a task
==================  =====================================================================================================
Job                 ``backoffLimit``, of an indexed Job with ``backoffLimitPerIndex`` that
JobSet, TrainJob    those of its Job in each restart of the set: ``(backoffLimit + 1) * (maxRestarts + 1) - 1``
Argo Workflow       ``retryStrategy.limit`` of the template of its node; without a retryStrategy none
Pod                 none with ``restartPolicy: Never``
anything else       not known
==================  =====================================================================================================

Where a template carries a policy, ``place`` has written the controller's number from it: there the policy says how many retries
errors have, and the number of the controller, which holds interruptions too, says nothing more.

Argo's limit may be an expression over inputs, which stand in the node's status, and a strategy without a limit has no bound: both
count as not known where nothing resolves them. The name of a pod's template stands in its environment (``ARGO_TEMPLATE``, seen in
pods of Argo 3.7.3 and 4.0.5), because the Workflow's status names a new node only after its pod.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spotwright.cluster.workloads.owners import metadata
from spotwright.manifests.rules.context import POLICY_ANNOTATION, SPOT_LABEL

__all__ = ["has_policy", "retries_of", "retries_of_job"]

_NODE_ID = "workflows.argoproj.io/node-id"
_INPUT = re.compile(r"\{\{inputs\.parameters\.([^}]+)\}\}")


def has_policy(labels: Mapping[str, Any], annotations: Mapping[str, Any]) -> bool:
    """Whether a pod template carries a policy, by its label or its annotation."""
    return SPOT_LABEL in labels or POLICY_ANNOTATION in annotations


def retries_of(pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]]) -> int | None:
    """The retries of a pod's task by its controller; None: not known."""
    if not owners:
        return 0 if (pod.get("spec") or {}).get("restartPolicy") == "Never" else None
    if owners[-1].get("kind") == "Workflow":
        return _of_node(pod, owners[-1])
    if owners[0].get("kind") == "Job":
        return retries_of_job(owners[0].get("spec") or {}, owners[1:])
    return None


def retries_of_job(spec: Mapping[str, Any], owners: Sequence[Mapping[str, Any]]) -> int | None:
    """The retries of a Job's pods. ``owners`` are those of the Job: a JobSet makes all of its Jobs again."""
    limit = spec.get("backoffLimitPerIndex", spec.get("backoffLimit"))
    if not isinstance(limit, int):
        return None
    for owner in owners:
        if owner.get("kind") == "JobSet":
            restarts = ((owner.get("spec") or {}).get("failurePolicy") or {}).get("maxRestarts") or 0
            return (limit + 1) * (int(restarts) + 1) - 1
    return limit


def _of_node(pod: Mapping[str, Any], workflow: Mapping[str, Any]) -> int | None:
    status = workflow.get("status") or {}
    node = (status.get("nodes") or {}).get((metadata(pod).get("annotations") or {}).get(_NODE_ID)) or {}
    name = node.get("templateName") or _template_name(pod)
    if not name:
        return None
    for template in _templates(workflow):
        if template.get("name") == name:
            default = ((workflow.get("spec") or {}).get("templateDefaults") or {}).get("retryStrategy")
            strategy = template.get("retryStrategy", default)
            return 0 if strategy is None else _limit(strategy, node)
    return None


def _templates(workflow: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The templates of a Workflow: its own, those of the WorkflowTemplate that it runs, and those that it refers to."""
    status = workflow.get("status") or {}
    yield from (workflow.get("spec") or {}).get("templates") or ()
    yield from (status.get("storedWorkflowTemplateSpec") or {}).get("templates") or ()
    yield from (status.get("storedTemplates") or {}).values()


def _template_name(pod: Mapping[str, Any]) -> str:
    spec = pod.get("spec") or {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        for variable in container.get("env") or ():
            if variable.get("name") == "ARGO_TEMPLATE":
                return str(_as_json(variable.get("value")).get("name", ""))
    return ""


def _as_json(text: object) -> Mapping[str, Any]:
    try:
        found = json.loads(str(text))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _limit(strategy: Mapping[str, Any], node: Mapping[str, Any]) -> int | None:
    text = str(strategy.get("limit", ""))
    found = _INPUT.fullmatch(text)
    if found:
        inputs = (node.get("inputs") or {}).get("parameters") or ()
        text = next((str(each.get("value")) for each in inputs if each.get("name") == found[1]), "")
    return int(text) if text.isdecimal() else None
