"""A stand-in for the Cluster Autoscaler: small, and of our own. The real one is in no registry from which tests could build it.

It does what version 1.35 does as far as placement sees it: each scan it looks at the pods that no node takes, packs them on the
nodes that are on their way, and grows one group for those that are left, chosen by an expander. It says what it does in the same
events, texts and ConfigMap: ``TriggeredScaleUp``, ``NotTriggerScaleUp`` with counts by reason, ``ScaledUpGroup``,
``FailedToScaleUpGroup``, ``ScaleUpFailed``, ``ScaleUpTimedOut``; groups that failed are in backoff; empty nodes are removed.

Its habits that readers stumble over are kept. An event is written once in five minutes for each reason and object, whatever
its text (``utils/kubernetes/factory.go``). After an order it scans again at once (``loop/trigger.go``). Pods are packed in
another order on nodes that are to come than when these were ordered. Groups at their maximum and in backoff are counted for
every pod, also for those that do not admit them. What it remembers of orders and failures is lost when it ends; what it
ordered is not.

Not modelled: nodes that are only little used, and draining them; balancing between groups that are alike; DaemonSets;
limits of the whole cluster; ProvisioningRequests; nodes that are not Ready; ``scale-down-delay-after-add``.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import IO, Any

from tests.cluster.live.autoscaling.expanders import EXPANDER_MAP, Option, best
from tests.cluster.live.autoscaling.fitting import Room, asks_for_gpu, pack, room_of
from tests.cluster.live.autoscaling.machines import Cloud, Group, Machine, RefusedError
from tests.cluster.live.autoscaling.requests import Requests
from tests.cluster.live.autoscaling.status_text import GroupState, StatusText
from tests.cluster.live.kube import Kube, Object

__all__ = ["STATUS_MAP", "Autoscaler", "Times"]

STATUS_MAP = "cluster-autoscaler-status"
_SYSTEM = "/api/v1/namespaces/kube-system/configmaps"
_COMPONENT = "cluster-autoscaler"
_LONGEST_BACKOFF = 6  # times the first one: 30 minutes are the limit of 5


@dataclass(frozen=True)
class Times:
    """Its times in seconds, by default those of the real one."""

    scan: float = 10.0
    fresh: float = 2.0  # pods younger than this wait for a later scan
    fresh_gpu: float = 30.0  # with a GPU
    backoff: float = 300.0  # of a group that failed; twice as long the next time
    provision: float = 900.0  # max-node-provision-time
    unneeded: float = 600.0  # until an empty node is removed
    repeat: float = 300.0  # until an event with the same reason is written again for an object


@dataclass
class _Order:
    """A group that was grown, until its machines are there."""

    at: float
    count: int


@dataclass
class _Backoff:
    until: float
    seconds: float
    code: str
    message: str


@dataclass
class _Memory:
    """The state that it loses when it ends."""

    orders: dict[str, _Order] = field(default_factory=dict)
    backoffs: dict[str, _Backoff] = field(default_factory=dict)
    unregistered: dict[str, float] = field(default_factory=dict)  # machine -> first seen without a Node
    empty: dict[str, float] = field(default_factory=dict)  # node -> first seen empty
    said: dict[tuple[str, ...], float] = field(default_factory=dict)  # key of an event -> when it was written
    text: StatusText = field(default_factory=StatusText)


class Autoscaler:
    """Watches a cluster and orders machines of a cloud, until :meth:`end`."""

    def __init__(
        self,
        kube: Kube,
        api: Requests,
        cloud: Cloud,
        times: Times = Times(),
        *,
        expander: str = "random",
        status_map: str = STATUS_MAP,
    ) -> None:
        self._kube, self._api, self._cloud, self._times = kube, api, cloud, times
        self._expander, self._status_map = expander, status_map
        self._memory = _Memory()
        self._over, self._wake = threading.Event(), threading.Event()
        self._watch = _watch_of_waiting_pods(kube)
        assert self._watch.stdout is not None
        self._threads = ThreadPoolExecutor(2)
        self._work = [self._threads.submit(self._run), self._threads.submit(self._hear, self._watch.stdout)]

    def end(self) -> None:
        """Stop it, as a restart does: its state is lost. Raise its errors."""
        self._over.set()
        self._wake.set()
        self._watch.terminate()
        self._watch.wait(30)
        self._threads.shutdown()
        for work in self._work:
            work.result()

    def _hear(self, stream: IO[bytes]) -> None:
        """Scan at once where a pod begins to wait."""
        with stream:
            for line in stream:
                pod = json.loads(line)["object"]
                if _is_waiting(pod) and time.time() - _created(pod) < self._times.scan:
                    self._wake.set()

    def _run(self) -> None:
        while not self._over.is_set():
            self._wake.clear()
            has_ordered = self._scan()
            if not has_ordered:
                self._wake.wait(self._times.scan)

    def _scan(self) -> bool:
        """Look at everything once, and say whether machines were ordered or given up."""
        pods, nodes = self._api.items("/api/v1/pods"), self._api.items("/api/v1/nodes")
        by_node: dict[str, list[Object]] = {}
        for pod in pods:
            by_node.setdefault(pod["spec"].get("nodeName") or "", []).append(pod)
        ready = {str(node["metadata"]["name"]): node for node in nodes if _is_ready(node)}
        self._see_failures(ready)
        rooms = {name: room_of(node, by_node.get(name, ())) for name, node in ready.items() if _is_open(node)}
        has_ordered = self._scale_up([pod for pod in by_node.get("", ()) if _is_waiting(pod)], rooms, ready)
        used = {*by_node, *(name for name, room in rooms.items() if room.is_awaited)}
        has_removed = not has_ordered and self._scale_down(used, ready)
        self._write_status(ready)
        return has_ordered or has_removed

    def _see_failures(self, ready: Mapping[str, Object]) -> None:
        """Machines that report an error, orders that take too long, and machines that never come."""
        now = time.monotonic()
        for group in list(self._cloud.groups):
            machines = self._cloud.machines(group)
            failed = [machine for machine in machines if machine.has_failed]
            order = self._memory.orders.get(group)
            if failed:
                why = failed[0].error
                text = f"Failed adding {len(failed)} nodes to group {group} due to OutOfResource.AllocationFailed;"
                self._say_status("ScaleUpFailed", f"{text} source errors: {why}", "Warning")
                self._back_off(group, "AllocationFailed", why)
                for machine in failed:
                    self._cloud.cancel(group, machine)
            waiting = [one for one in machines if one not in failed and one.name not in ready]
            if order is not None and not waiting:
                del self._memory.orders[group]
            elif order is not None and now - order.at > self._times.provision:
                took = f"{now - order.at:.9f}s"
                text = f"Nodes added to group {group} failed to register within {took}"
                self._say_status("ScaleUpTimedOut", text, "Warning")
                self._back_off(group, "timeout", f"Scale-up timed out for node group {group} after {took}")
                del self._memory.orders[group]
            for machine in waiting:
                since = self._memory.unregistered.setdefault(machine.name, now)
                if now - since > self._times.provision:
                    self._cloud.cancel(group, machine)

    def _scale_up(self, waiting: list[Object], rooms: Mapping[str, Room], ready: Mapping[str, Object]) -> bool:
        """Grow one group for the pods that fit nowhere, and say so; or say why not."""
        coming = [
            room_of(group.node(f"{name}-to-come"))
            for name, group in list(self._cloud.groups.items())
            for _ in self._coming(name, ready)
        ]
        left = pack(sorted(waiting, key=lambda pod: str(pod["metadata"]["uid"])), [*rooms.values(), *coming])
        if not left or self._are_fresh(left):
            return False
        skipped, options, refusals = self._options(left)
        if not options:
            for pod in left:
                self._say_not_triggered(pod, [*skipped, *refusals[str(pod["metadata"]["uid"])]])
            return False
        chosen = best(self._expander, options, self._priorities(), self._warn_of_expander)
        return self._grow(chosen)

    def _options(self, pods: Sequence[Object]) -> tuple[list[str], list[Option], dict[str, list[str]]]:
        """Why groups are left out, those that could be grown, and by the UID of a pod the reasons against the others."""
        skipped, options = [], []
        refusals: dict[str, list[str]] = {str(pod["metadata"]["uid"]): [] for pod in pods}
        for name, group in list(self._cloud.groups.items()):
            target, backoff = self._cloud.target(name), self._memory.backoffs.get(name)
            if target >= group.max:
                skipped.append("max node group size reached")
                continue
            if backoff is not None and backoff.until > time.monotonic():
                skipped.append("in backoff after failed scale-up")
                continue
            fitting = []
            for pod in pods:
                against = room_of(group.node("template")).reasons_against(pod)
                refusals[str(pod["metadata"]["uid"])] += against
                if not against:
                    fitting.append(pod)
            if option := _estimate(group, fitting, group.max - target):
                options.append(option)
        return skipped, options, refusals

    def _grow(self, option: Option) -> bool:
        name, most = option.group.name, option.group.max
        before = self._cloud.target(name)
        after = before + option.count
        sizes = f"{after} instead of {before} (max: {most})"
        self._say_status("ScaledUpGroup", f"Scale-up: setting group {name} size to {sizes}")
        try:
            self._cloud.order(name, option.count)
        except RefusedError as error:
            self._say_status("FailedToScaleUpGroup", f"Scale-up failed for group {name}: {error}", "Warning")
            self._back_off(name, "cloudProviderError", f"failed to increase node group size: {error}")
            return False
        known = self._memory.orders.get(name)
        count = option.count + (known.count if known else 0)
        self._memory.orders[name] = _Order(time.monotonic(), count)
        self._say_status("ScaledUpGroup", f"Scale-up: group {name} size set to {sizes}")
        for pod in option.pods:
            text = f"pod triggered scale-up: [{{{name} {before}->{after} (max: {most})}}]"
            self._say("TriggeredScaleUp", text, _reference(pod, "Pod"))
        return True

    def _scale_down(self, used: Collection[str], ready: Mapping[str, Object]) -> bool:
        """Mark the nodes that are not used, and remove those that have not been used for long enough."""
        now, has_removed = time.monotonic(), False
        for name, group in list(self._cloud.groups.items()):
            for machine in self._cloud.machines(name):
                node = ready.get(machine.name)
                if node is None:
                    continue
                if machine.name in used:
                    if self._memory.empty.pop(machine.name, None) is not None:
                        self._taint(node, [])
                    continue
                since = self._memory.empty.setdefault(machine.name, now)
                if since == now:
                    self._taint(node, ["DeletionCandidateOfClusterAutoscaler"])
                if now - since >= self._times.unneeded and self._cloud.target(name) > group.min:
                    self._remove(name, machine, node)
                    has_removed = True
        return has_removed

    def _remove(self, group: str, machine: Machine, node: Object) -> None:
        self._taint(node, ["DeletionCandidateOfClusterAutoscaler", "ToBeDeletedByClusterAutoscaler"])
        self._say("ScaleDown", "marked the node as toBeDeleted/unschedulable", _reference(node, "Node"))
        self._say_status("ScaleDownEmpty", f'Scale-down: removing empty node "{machine.name}"')
        self._cloud.cancel(group, machine)
        self._say_status("ScaleDownEmpty", f"Scale-down: empty node {machine.name} removed")

    def _taint(self, node: Object, keys: Sequence[str]) -> None:
        """Set these taints of its own on a node, and remove its others."""
        kept = [taint for taint in node["spec"].get("taints") or () if not taint["key"].endswith(_COMPONENT_OF_TAINTS)]
        effects = {"DeletionCandidateOfClusterAutoscaler": "PreferNoSchedule"}
        own = [{"key": key, "value": str(int(time.time())), "effect": effects.get(key, "NoSchedule")} for key in keys]
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        self._api.send("PATCH", path, {"spec": {"taints": kept + own}})

    def _are_fresh(self, pods: Sequence[Object]) -> bool:
        oldest = min(map(_created, pods))
        with_gpu = [_created(pod) for pod in pods if asks_for_gpu(pod)]
        now = time.time()
        return oldest + self._times.fresh > now or bool(with_gpu and min(with_gpu) + self._times.fresh_gpu > now)

    def _coming(self, group: str, ready: Mapping[str, Object]) -> list[Machine]:
        return [one for one in self._cloud.machines(group) if one.name not in ready and not one.has_failed]

    def _back_off(self, group: str, code: str, message: str) -> None:
        now, known = time.monotonic(), self._memory.backoffs.get(group)
        seconds = self._times.backoff
        if known is not None:
            longest = self._times.backoff * _LONGEST_BACKOFF
            seconds = min(2 * known.seconds, longest) if known.until < now else known.seconds
        self._memory.backoffs[group] = _Backoff(now + seconds, seconds, code, message)

    def _priorities(self) -> str | None:
        found = self._api.send("GET", f"{_SYSTEM}/{EXPANDER_MAP}")
        return (found.get("data") or {}).get("priorities") if found else None

    def _warn_of_expander(self, reason: str, text: str) -> None:
        self._say(reason, text, _of_map(EXPANDER_MAP), "Warning")

    def _write_status(self, ready: Mapping[str, Object]) -> None:
        now, states = time.monotonic(), []
        for name, group in list(self._cloud.groups.items()):
            machines = self._cloud.machines(name)
            there = [machine for machine in machines if machine.name in ready]
            backoff = self._memory.backoffs.get(name)
            error = (backoff.code, backoff.message) if backoff and backoff.until > now else None
            in_progress = name in self._memory.orders and len(there) < len(machines)
            candidates = sum(machine.name in self._memory.empty for machine in there)
            missing = sum(not machine.is_made for machine in machines)
            state = GroupState(
                name, len(machines), len(there), missing, group.min, group.max, in_progress, error, candidates
            )
            states.append(state)
        data = {"status": self._memory.text.write(states, time.time())}
        if self._api.send("PATCH", f"{_SYSTEM}/{self._status_map}", {"data": data}) is None:
            meta = {"name": self._status_map, "namespace": "kube-system"}
            self._api.send("POST", _SYSTEM, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})

    def _say_not_triggered(self, pod: Object, reasons: Iterable[str]) -> None:
        counts: dict[str, int] = {}
        for reason in reasons:
            counts[reason] = counts.get(reason, 0) + 1
        text = ", ".join(f"{count} {reason}" for reason, count in counts.items())
        self._say("NotTriggerScaleUp", f"pod didn't trigger scale-up: {text}", _reference(pod, "Pod"))

    def _say_status(self, reason: str, text: str, kind: str = "Normal") -> None:
        self._say(reason, text, _of_map(self._status_map), kind, key=(text,))

    def _say(
        self, reason: str, text: str, about: Mapping[str, Any], kind: str = "Normal", key: tuple[str, ...] = ()
    ) -> None:
        """Write an event, unless one of this key was written just now."""
        key = key or (reason, *(str(about[name]) for name in ("kind", "namespace", "name", "uid")))
        now = time.monotonic()
        if now - self._memory.said.get(key, float("-inf")) < self._times.repeat:
            return
        self._memory.said[key] = now
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        namespace = about["namespace"] or "default"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{about['name']}.{uuid.uuid4().hex[:16]}", "namespace": namespace},
            "involvedObject": {name: value for name, value in about.items() if value},
            "reason": reason,
            "message": text,
            "type": kind,
            "source": {"component": _COMPONENT},
            "reportingComponent": _COMPONENT,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        self._api.send("POST", f"/api/v1/namespaces/{namespace}/events", event)


_COMPONENT_OF_TAINTS = "ClusterAutoscaler"


def _estimate(group: Group, pods: Sequence[Object], most: int) -> Option | None:
    """How many machines of a group these pods take, and which of the pods are then on them."""
    rooms = [room_of(group.node("template"))]
    placed = []
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"])):
        room = next((room for room in rooms if not room.reasons_against(pod)), None)
        if room is None and len(rooms) < most:
            room = room_of(group.node("template"))
            rooms.append(room)
        if room is not None:
            room.take(pod)
            placed.append(pod)
    return Option(group, len(rooms), placed) if placed else None


def _watch_of_waiting_pods(kube: Kube) -> subprocess.Popen[bytes]:
    path = "/api/v1/pods?watch=true&fieldSelector=spec.nodeName%3D"
    command = [str(kube.program), f"--kubeconfig={kube.kubeconfig}", "get", "--raw", path]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def _is_waiting(pod: Object) -> bool:
    """Whether the scheduler has found no node for it."""
    if pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = pod["status"].get("conditions") or ()
    return any(one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions)


def _created(item: Object) -> float:
    return datetime.fromisoformat(item["metadata"]["creationTimestamp"]).timestamp()


def _is_ready(node: Object) -> bool:
    """Whether it is Ready, and no longer keeps pods off because it was not (``utils/kubernetes/ready.go``)."""
    if any(taint["key"] == "node.kubernetes.io/not-ready" for taint in node["spec"].get("taints") or ()):
        return False
    conditions = node.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _is_open(node: Object) -> bool:
    return not node["spec"].get("unschedulable")


def _reference(item: Object, kind: str) -> Mapping[str, Any]:
    meta = item["metadata"]
    about = {"apiVersion": "v1", "kind": kind, "name": meta["name"], "namespace": meta.get("namespace", "")}
    return {**about, "uid": meta["uid"]}


def _of_map(name: str) -> Mapping[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "namespace": "kube-system", "uid": ""}
