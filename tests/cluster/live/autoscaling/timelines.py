"""A cluster's timeline after work was sent to it, second by second: its pods, its nodes, and the autoscaler's messages.

Watches are ``kubectl get --raw``, which prints each change as one line.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import IO, Any

from tests.cluster.live.kube import Kube, Object

__all__ = ["Timeline", "group_by_name"]

_AUTOSCALERS = ("cluster-autoscaler", "karpenter")
_OF_CLUSTERS = ("kube-system", "default")
"""The namespaces of events of the cluster autoscaler's ConfigMap, and of cluster-wide objects: NodeClaims, NodePools."""


def group_by_name(node: Object) -> str:
    """The node group by the node's name, which is the group's with a dash and a few letters more."""
    return str(node["metadata"]["name"]).rpartition("-")[0]


class Timeline:
    """Records a namespace and all nodes from its making to :meth:`end`. Times are seconds since :meth:`begin`.

    ``group_of`` says of which group a node is. Nodes that are there at the beginning are not counted as made.
    """

    def __init__(self, kube: Kube, namespace: str, group_of: Callable[[Object], str] = group_by_name) -> None:
        self.lines: list[str] = []
        self.pods: dict[str, Object] = {}  # by UID; those that are gone are left out
        self.nodes: dict[str, Object] = {}  # by name
        self.events: list[Object] = []  # of pods of the namespace, and of what is in no namespace
        self.ran: dict[str, float] = {}  # UID of a pod -> when it was first seen to run
        self.taken_back: set[str] = set()  # UIDs of pods that were to go while no node had them
        self.ended: set[str] = set()  # UIDs of pods that were to go while a node had them
        self.made: Counter[str] = Counter()  # nodes by group
        self.removed: Counter[str] = Counter()
        self.last_node = 0.0  # when the last node that was made was Ready
        self._group_of = group_of
        self._before = set(kube.run("get", "nodes", "-o", "name").split())
        self._began = time.monotonic()
        self._is_on = False
        self._lock = threading.Lock()
        self._shown: dict[str, str] = {}
        self._watches: list[subprocess.Popen[bytes]] = []
        self._threads: list[threading.Thread] = []
        for path, note in (
            (f"/api/v1/namespaces/{namespace}/pods", self._note_pod),
            ("/api/v1/nodes", self._note_node),
            (f"/api/v1/namespaces/{namespace}/events", self._note_event),
            *((f"/api/v1/namespaces/{name}/events", self._note_event) for name in _OF_CLUSTERS),
        ):
            self._watch(kube, path, note)

    def begin(self) -> None:
        """Start the clock: the work is applied now."""
        with self._lock:
            self._began, self._is_on = time.monotonic(), True

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def running(self) -> list[Object]:
        """The pods that run and are not to go."""
        with self._lock:
            pods = list(self.pods.values())
        return [pod for pod in pods if pod["status"].get("phase") == "Running" and not _is_to_go(pod)]

    def running_by_group(self) -> Counter[str]:
        """How many pods run in each group."""
        names = [str(pod["spec"]["nodeName"]) for pod in self.running()]
        with self._lock:
            return Counter(self._group_of(self.nodes[name]) if name in self.nodes else name for name in names)

    def note(self, text: str) -> None:
        """Add a line of the test's own."""
        self._add(text)

    def end(self) -> None:
        """Stop watching."""
        for watch in self._watches:
            watch.terminate()
        for watch in self._watches:
            watch.wait(30)
        for thread in self._threads:
            thread.join(30)

    def _watch(self, kube: Kube, path: str, note: Callable[[str, Object], None]) -> None:
        command = [str(kube.program), f"--kubeconfig={kube.kubeconfig}", "get", "--raw", f"{path}?watch=true"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        thread = threading.Thread(target=self._read, args=(process.stdout, note), daemon=True)
        thread.start()
        self._watches.append(process)
        self._threads.append(thread)

    def _read(self, stream: IO[bytes], note: Callable[[str, Object], None]) -> None:
        with stream:
            for line in stream:
                change: dict[str, Any] = json.loads(line)
                with self._lock:
                    note(change["type"], change["object"])

    def _note_pod(self, kind: str, pod: Object) -> None:
        meta, node = pod["metadata"], pod["spec"].get("nodeName")
        uid = str(meta["uid"])
        if kind == "DELETED":
            self.pods.pop(uid, None)
            self._add(f"  pod {meta['name']} gone")
            return
        self.pods[uid] = pod
        phase = str(pod["status"].get("phase"))
        if _is_to_go(pod):
            (self.ended if node else self.taken_back).add(uid)
        elif phase == "Running":
            self.ran.setdefault(uid, self.now)
        rung = (meta.get("annotations") or {}).get("spotwright.dev/rung")
        self._say(uid, f"  pod {meta['name']} {phase}{' deleting' * _is_to_go(pod)} on {node} rung={rung}")

    def _note_node(self, kind: str, node: Object) -> None:
        name = str(node["metadata"]["name"])
        is_new = name not in self.nodes
        if kind == "DELETED":
            gone = self.nodes.pop(name, None)
            if self._is_on and gone is not None:
                self.removed[self._group_of(gone)] += 1
                self._add(f"- node {name} of {self._group_of(gone)}")
            return
        self.nodes[name] = node
        group = self._group_of(node)
        if is_new and f"node/{name}" not in self._before:
            self.made[group] += 1
            self._add(f"+ node {name} of {group}")
        if _is_ready(node) and f"node/{name}" not in self._before and f"ready {name}" not in self._shown:
            self._shown[f"ready {name}"] = ""
            self.last_node = self.now
        taints = sorted(str(taint["key"]) for taint in node["spec"].get("taints") or ())
        if not is_new and self._is_on:
            self._say(f"node {name}", f"~ node {name} taints {taints}")
        else:
            self._shown[f"node {name}"] = f"~ node {name} taints {taints}"

    def _note_event(self, kind: str, event: Object) -> None:
        source = str((event.get("source") or {}).get("component") or event.get("reportingComponent") or "")
        if kind == "DELETED" or not self._is_on or source not in _AUTOSCALERS:
            return
        self.events.append(event)
        about = event["involvedObject"]
        self._add(f"  event {event['reason']} {about['kind']}/{about.get('name', '')}: {event['message']}")

    def _say(self, key: str, text: str) -> None:
        if self._shown.get(key) != text:
            self._shown[key] = text
            self._add(text)

    def _add(self, text: str) -> None:
        self.lines.append(f"{self.now:6.1f} {text}")


def _is_to_go(pod: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
