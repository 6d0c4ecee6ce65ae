"""What Kubernetes shows of the pods of a run and of their nodes, while somebody looks and has a kubeconfig that may read them.

Argo's messages do not say why a pod was deleted, and KFP knows no pools. The pods, their conditions and their nodes tell both
while they are there, so each look keeps the last state of each. Nothing is believed of a cluster that has no pod of this run: the
kubeconfig may be that of another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from spotwright.clouds import providers
from spotwright.cluster.api.requests import ApiFailed
from spotwright.cluster.evidence import LastSeen, signals_of
from spotwright.cluster.evidence.waiting import bound_at, events_of_pod, has_not_started, why_not_started
from spotwright.cluster.workloads.tasks import workflow_task
from spotwright.errors import SpotwrightError
from spotwright.model.attempts import Signals
from spotwright.model.pools import Pool

__all__ = ["PodsSeen", "Read"]

_RUN = "pipeline/runid"
_NODE_NAME = "workflows.argoproj.io/node-name"
_FINISHED = ("Succeeded", "Failed")

Read = Callable[[str, Mapping[str, str]], dict[str, Any]]
"""Reads a path of the Kubernetes API. Raises :class:`ApiFailed` and :class:`InputError`."""


@dataclass(slots=True)
class _Pod:
    last: Mapping[str, Any]
    is_gone: bool = False


class PodsSeen:
    """The pods of one run. ``trouble`` says why they cannot be read, if so; then nobody asks for ``pause`` seconds."""

    def __init__(self, read: Read, run_id: str, pools: Mapping[str, Pool], *, pause: float = 30.0) -> None:
        self._read, self._run_id, self._pools = read, run_id, pools
        self._pause, self._again_at = pause, 0.0
        self._pods: dict[str, _Pod] = {}  # by the name of Argo's node
        self._replaced: dict[
            str, list[_Pod]
        ] = {}  # pods that Argo has made again under the same name, until they are taken
        self._nodes: dict[str, Mapping[str, Any]] = {}
        self._gone: set[str] = set()  # nodes that were there before
        self._no_nodes = ""  # why nodes may not be read
        self._events_again_at: dict[str, float] = {}  # by the pod's uid
        self.trouble = ""

    @property
    def are_any(self) -> bool:
        """Whether a pod of the run has been seen."""
        return bool(self._pods)

    def look(self, namespace: str) -> None:
        """Read the pods of the run and the nodes on which they are. A look that fails is lost, and ``trouble`` says why."""
        if not namespace or time.monotonic() < self._again_at:
            return
        try:
            found = self._read(f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": f"{_RUN}={self._run_id}"})
            self._take(found.get("items") or ())
            pods = (*self._pods.values(), *chain.from_iterable(self._replaced.values()))
            self.trouble = self._no_nodes
            for name in {host for pod in pods if (host := _host(pod.last))} if not self._no_nodes else ():
                self._look_at_node(name)
        except (ApiFailed, SpotwrightError) as error:
            self.trouble = str(error)
            self._again_at = time.monotonic() + self._pause

    def _take(self, pods: Any) -> None:
        there = set()
        for pod in pods:
            name = str((pod["metadata"].get("annotations") or {}).get(_NODE_NAME, ""))
            there.add(name)
            known = self._pods.get(name)
            is_another = known is not None and _uid(known.last) != _uid(pod)
            if known is not None and is_another:
                known.is_gone = True
                self._replaced.setdefault(name, []).append(known)
            if known is None or is_another or not _has_finished(known.last):
                self._pods[name] = _Pod(pod)
        for name, known in self._pods.items():
            known.is_gone = name not in there

    def _look_at_node(self, name: str) -> None:
        try:
            self._nodes[name] = self._read(f"/api/v1/nodes/{name}", {})
            self._gone.discard(name)
        except ApiFailed as error:
            if error.status == 403:  # who may read pods of a namespace may often not read nodes, which belong to none
                self.trouble = self._no_nodes = str(error)
                return
            if error.status != 404:
                raise
            if name in self._nodes:
                self._gone.add(name)

    def held_up(self, now: float, after: float) -> Iterator[str]:
        """Sentences about pods that have not started on their nodes ``after`` seconds; ``now`` is a moment of the nodes' clock.

        A volume that cannot be mounted is told in events alone. Each pod's are read every ``pause`` seconds.
        """
        for name, pod in self._pods.items():
            since = bound_at(pod.last)
            if pod.is_gone or not has_not_started(pod.last) or since is None or now - since < after:
                continue
            if time.monotonic() < self._events_again_at.get(_uid(pod.last), 0.0):
                continue
            self._events_again_at[_uid(pod.last)] = time.monotonic() + self._pause
            try:
                why = why_not_started(pod.last, self._read(*events_of_pod(pod.last)).get("items") or ())
            except (ApiFailed, SpotwrightError) as error:
                why = f"its events may say why, and they cannot be read: {error}"
            if why:
                yield f"{workflow_task(name, is_kfp=True).path} has not started on {_host(pod.last)}: {why}"

    def signals(self, node_name: str) -> Signals | None:
        """The signals of the pod of a node of Argo's that has ended badly; ``None`` where its pod was never seen."""
        pod = self._pods.get(node_name)
        return None if pod is None else self._signals_of(pod)

    def take_replaced(self, node_name: str) -> list[Signals]:
        """The signals of the pods that Argo has made again since the last call, oldest first: it counts no try for them."""
        return [self._signals_of(pod) for pod in self._replaced.pop(node_name, ())]

    def host(self, node_name: str) -> str:
        """The machine of the pod of a node of Argo's; empty where it has none, or was never seen."""
        pod = self._pods.get(node_name)
        return "" if pod is None else _host(pod.last)

    def _signals_of(self, pod: _Pod) -> Signals:
        host = _host(pod.last)
        last = LastSeen(pod.last, self._nodes.get(host), pod_gone=pod.is_gone, node_gone=host in self._gone)
        pool = self._pools.get(self.pool(host))
        return signals_of(last, spot=None if pool is None else pool.is_spot)

    def pool(self, host: str) -> str:
        """The configured pool of a machine; empty where it fits none, or cannot be read."""
        if host not in self._nodes:
            return ""
        pool = providers.pool_of((self._nodes[host].get("metadata") or {}).get("labels") or {}, self._pools)
        return pool.name if pool is not None else ""


def _uid(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"].get("uid", ""))


def _host(pod: Mapping[str, Any]) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def _has_finished(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in _FINISHED
