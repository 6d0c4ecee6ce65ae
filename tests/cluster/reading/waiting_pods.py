"""A pod that waits for a node, as a watcher has recorded it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import pod

IGNORES = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}


def waiting_pod(tmp_path: Path, train: dict[str, Any], **annotations: str) -> dict[str, Any]:
    """The only pod of a Job, which waits for a node of the spot pool, as it is recorded."""
    cluster = Cluster(tmp_path / "state")
    made = pod("two", train, annotations=annotations)
    made["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
    made["status"]["conditions"] = [UNSCHEDULABLE]
    labels = {"spotwright.dev/spot": "prefer"}
    train["spec"]["template"]["metadata"] = {"labels": labels}
    cluster.look(train, made)
    cluster.store.close()
    return made
