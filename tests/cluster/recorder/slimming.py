"""Takes out of recorded objects what no reader of an ending needs, and what tells of the machine.

Field managers, image lists and identities of the machine go, templates of pods inside their owners, and the environment and
volumes of pods: Argo keeps a whole template in the environment of each container.
"""

from __future__ import annotations

import copy
from typing import Any

__all__ = ["slim"]

_ANNOTATIONS = ("kubectl.kubernetes.io/last-applied-configuration", "spotwright.dev/placed")
_NODE_STATUS = ("images", "volumesInUse", "volumesAttached", "runtimeHandlers", "features", "daemonEndpoints")
_NODE_INFO = ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage")
_CONTAINERS = ("initContainers", "containers")
_CONTAINER = ("env", "volumeMounts", "terminationMessagePath", "terminationMessagePolicy")


def slim(value: dict[str, Any]) -> dict[str, Any]:
    """A copy of an object without data that identifies the machine, or only fills the file."""
    slimmed = copy.deepcopy(value)
    metadata = slimmed["metadata"]
    metadata.pop("managedFields", None)
    for name in _ANNOTATIONS:
        metadata.get("annotations", {}).pop(name, None)
    _SLIMMERS.get(slimmed["kind"], _nothing)(slimmed)
    return slimmed


def _node(node: dict[str, Any]) -> None:
    """Heartbeats go too, so that a node that did not change is one object."""
    node["metadata"].pop("resourceVersion", None)
    for name in _NODE_STATUS:
        node["status"].pop(name, None)
    for name in _NODE_INFO:
        node["status"].get("nodeInfo", {}).pop(name, None)
    for condition in node["status"].get("conditions", ()):
        condition.pop("lastHeartbeatTime", None)


def _pod(pod: dict[str, Any]) -> None:
    pod["spec"].pop("volumes", None)
    for part in _CONTAINERS:
        for container in pod["spec"].get(part, ()):
            for name in _CONTAINER:
                container.pop(name, None)
        for status in pod["status"].get(f"{part[:-1]}Statuses", ()):
            status.pop("volumeMounts", None)


def _job(job: dict[str, Any]) -> None:
    job["spec"].pop("template", None)


def _jobset(jobset: dict[str, Any]) -> None:
    for each in jobset["spec"].get("replicatedJobs", ()):
        each.pop("template", None)


def _trainjob(trainjob: dict[str, Any]) -> None:
    for name in ("runtimePatches", "trainer"):
        trainjob["spec"].pop(name, None)


def _workflow(workflow: dict[str, Any]) -> None:
    workflow["spec"].pop("templates", None)
    status = workflow.get("status", {})
    status.pop("storedTemplates", None)
    for node in status.get("nodes", {}).values():
        node.pop("inputs", None)


def _nothing(_: dict[str, Any]) -> None:
    """Leave an object of another kind as it is."""


_SLIMMERS = {
    "Node": _node,
    "Pod": _pod,
    "Job": _job,
    "JobSet": _jobset,
    "TrainJob": _trainjob,
    "Workflow": _workflow,
}
