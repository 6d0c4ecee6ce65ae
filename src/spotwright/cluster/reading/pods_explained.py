"""Why a pod that waits is moved or stays, and what to do about a pod whose node does not report.

Owners and nodes are read with the caller's own rights. What the caller may not read is taken from the run, or left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spotwright.clouds.providers import commands_to_free
from spotwright.cluster.api.requests import ApiFailed
from spotwright.cluster.evidence.waiting import events_of_pod, has_not_started, why_not_started
from spotwright.cluster.moving.free_moves import why_not_moved
from spotwright.cluster.moving.lost_nodes import NodeSeen, not_ready_since, why_gone
from spotwright.cluster.reading.kubernetes import Kubernetes
from spotwright.cluster.workloads.owners import controller_reference, metadata
from spotwright.engine.decide import in_vain_at, next_pools, why_it_stays
from spotwright.engine.state import AttemptState, RunState, TaskState
from spotwright.scheduling.budgets import Pause

__all__ = ["lost_node", "move_of", "not_started"]

_OWNERS = {"Job": "jobs", "JobSet": "jobsets", "TrainJob": "trainjobs", "Workflow": "workflows"}


def move_of(
    kubernetes: Kubernetes,
    pod: Mapping[str, Any],
    state: RunState | None,
    task: TaskState | None,
    attempt: AttemptState | None,
    left_out: Sequence[Mapping[str, Any]],
    now: float,
) -> dict[str, Any] | None:
    """What becomes of a pod that waits for a node: ``at`` (Unix seconds) it is taken back, ``to`` the pools of the next one.

    ``stays`` says why it is not; None for a pod that waits for nothing, or for something else.
    """
    due = None if task is None or attempt is None else in_vain_at(task, attempt)
    if state is None or task is None or attempt is None or due is None:
        return None
    pauses = {str(one["pool"]): Pause(int(one["times"]), one["since"], one["until"]) for one in left_out}
    stays = why_not_moved(pod, _owners(kubernetes, pod)) or why_it_stays(state, task, attempt, pauses, now)
    to = [] if stays else list(next_pools(state, task, attempt, pauses, now))
    return {"at": None if stays else due, "to": to, "stays": stays}


def lost_node(
    kubernetes: Kubernetes, pod: Mapping[str, Any], attempt: AttemptState | None, now: float
) -> dict[str, Any] | None:
    """What is known of a node that does not report: ``node``, ``since``, ``gone`` (why its machine is), and ``commands``.

    These are for people, to free the node. None for a pod whose node reports.
    """
    name = str((pod.get("spec") or {}).get("nodeName") or "")
    if not name:
        return None
    held = None if attempt is None else attempt.held
    try:
        node: Mapping[str, Any] | None = kubernetes.get(f"/api/v1/nodes/{name}")
    except ApiFailed as error:
        if error.status == 404:
            return {"node": name, "since": None, "gone": f"the Node object {name} was deleted", "commands": []}
        if held is None:
            return None
        return {"node": name, "since": held.since, "gone": "", "commands": list(commands_to_free(name))}
    since = not_ready_since(node)
    if since is None:
        return None
    gone = why_gone(NodeSeen(name, node), now)
    return {"node": name, "since": since, "gone": gone, "commands": [] if gone else list(commands_to_free(name))}


def not_started(kubernetes: Kubernetes, pod: Mapping[str, Any]) -> str:
    """What holds up a pod that has its node; empty for one that has begun, or that nothing holds up."""
    if not has_not_started(pod):
        return ""
    try:
        events = kubernetes.get(*events_of_pod(pod)).get("items") or ()
    except ApiFailed as error:
        return why_not_started(pod, ()) or f"its events may say why, and they cannot be read: {error}"
    return why_not_started(pod, events)


def _owners(kubernetes: Kubernetes, pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The owners of a pod, nearest first; of one that cannot be read only its kind is known."""
    owners: list[Mapping[str, Any]] = []
    here = pod
    while (reference := controller_reference(here)) is not None and reference.get("kind") in _OWNERS:
        where = f"/apis/{reference.get('apiVersion')}/namespaces/{metadata(pod).get('namespace')}"
        if any(
            reference["name"] == metadata(each).get("name") and reference["kind"] == each["kind"] for each in owners
        ):
            break  # owners that own each other
        try:
            here = kubernetes.get(f"{where}/{_OWNERS[str(reference['kind'])]}/{reference['name']}")
        except ApiFailed:
            here = {"metadata": {"name": reference["name"]}}
        owners.append({**here, "kind": reference["kind"]})
    return owners
