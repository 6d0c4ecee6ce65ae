"""A real cluster as tests use it: kubectl, waiting for a condition, and small objects whose pods run anywhere."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from testbed.suite import PATIENCE

Object = dict[str, Any]
T = TypeVar("T")

_POLL = 0.2  # seconds
_PATIENCE = float(os.environ.get(PATIENCE) or 1)
LOST_NODE_SECONDS = 3
"""After how many seconds pods of these tests leave a node that is lost; by default Kubernetes waits 300."""


@dataclass(frozen=True)
class Kube:
    """A cluster by its kubeconfig, and an image with a shell that its nodes can run."""

    program: Path
    kubeconfig: Path
    image: str
    awaited: Callable[[str], str] = lambda part: ""
    """Waits for a controller or tool that is still being built beside a test bed. Returns why it is missing, or ""."""

    def lacks(self, crd: str) -> str:
        """Why a test that needs this kind is skipped, or "" where the cluster has it."""
        why = self.awaited(crd)
        if why:
            return f"this cluster has no {crd}: {why}"
        return "" if self.get("crd", crd) else f"this cluster has no {crd}"

    def run(self, *arguments: str, text: str | None = None) -> str:
        """Run kubectl and return its output."""
        command = [str(self.program), f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def apply(self, *objects: Object) -> None:
        """Create or change objects."""
        document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.run("apply", "--server-side", "-f", "-", text=json.dumps(document))

    def get(self, kind: str, name: str, namespace: str = "default") -> Object | None:
        """An object, or None if it does not exist."""
        text = self.run("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        return json.loads(text) if text.strip() else None

    def list(self, kind: str, namespace: str = "default", selector: str = "") -> list[Object]:
        """The objects of a kind."""
        text = self.run("get", kind, "-n", namespace, "-o", "json", "-l", selector)
        items: list[Object] = json.loads(text)["items"]
        return items

    def pod(self, name: str, namespace: str) -> Object:
        """A pod that must be there."""
        pod = self.get("pod", name, namespace)
        assert pod is not None, f"there is no pod {name}"
        return pod

    def wait(self, condition: Callable[[], T | None], what: str, seconds: float) -> T:
        """Wait until a condition gives something, and return it; in CI longer than so many seconds."""
        seconds *= _PATIENCE
        ends = time.monotonic() + seconds
        while not (result := condition()):
            assert time.monotonic() < ends, f"not within {seconds:.0f} s: {what}"
            time.sleep(_POLL)
        return result

    def wait_for_phase(self, pod: str, namespace: str, *phases: str, seconds: float = 60) -> Object:
        """Wait until a pod is in one of the phases, and return it."""

        def reached() -> Object | None:
            found = self.get("pod", pod, namespace)
            return found if found and found["status"].get("phase") in phases else None

        return self.wait(reached, f"{pod} is {' or '.join(phases)}", seconds)

    def container(self, script: str) -> Object:
        """A container that runs a shell script."""
        return {
            "name": "main",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", script],
            "resources": {"requests": {"cpu": "10m", "memory": "8Mi"}},
        }


def has_condition(item: Object | None, kind: str, status: str = "True") -> bool:
    """Whether an object has a condition with this status."""
    conditions = (item or {}).get("status", {}).get("conditions", [])
    return any(condition["type"] == kind and condition["status"] == status for condition in conditions)


def reason_of(item: Object, kind: str) -> str:
    """The reason of a condition; empty without the condition."""
    conditions = item.get("status", {}).get("conditions", [])
    return next((str(condition.get("reason", "")) for condition in conditions if condition["type"] == kind), "")


def pod_spec(container: Object, node: str | None = None, **more: object) -> Object:
    """A pod that runs once, also on spot nodes, and leaves a lost node soon; on one node if it is named."""
    lost = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": LOST_NODE_SECONDS}
    spot = [
        {"key": "kubernetes.azure.com/scalesetpriority", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "cloud.google.com/gke-spot", "operator": "Exists", "effect": "NoSchedule"},
    ]
    tolerations = [{"key": f"node.kubernetes.io/{key}", **lost} for key in ("unreachable", "not-ready")] + spot
    selector: Mapping[str, str] = {"kubernetes.io/hostname": node} if node else {}
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "tolerations": tolerations,
        "nodeSelector": selector,
        "containers": [container],
        **more,
    }


def pod(name: str, namespace: str, spec: Object) -> Object:
    """A pod."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def job(name: str, namespace: str, spec: Object, **metadata: object) -> Object:
    """A Job with one pod."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"backoffLimit": 0, "template": {"spec": spec}},
    }
