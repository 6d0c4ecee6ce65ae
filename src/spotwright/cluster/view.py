"""The watcher's view of the cluster: pods by workload, nodes, owners, events about nodes, and recent deletions.

It keeps only the history that causes need: the first finished state of each pod, and the last states of deleted nodes and
owners. A node belongs to the configured pool whose labels it has, else to the pool that its provider's label names.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from spotwright.clouds import node_signs, providers
from spotwright.cluster.autoscaler_status import AutoscalerStatus
from spotwright.cluster.signals import PodWaits, as_gone, has_not_started, is_held_up, read_pod, transition, waits_for
from spotwright.cluster.workloads import Lineage, lineage
from spotwright.kinds.kind import run_kinds
from spotwright.kube.object_fields import mapping, mappings, metadata, seconds, text, uid_of
from spotwright.model.pools import Pool
from spotwright.model.quantities import parse_resource
from spotwright.notices.kubernetes_node import KubernetesSource
from spotwright.notices.node_event import NAMESPACE, NodeNotice, notice_in, withdrawal_in
from spotwright.notices.notice import Notice

__all__ = [
    "ClusterView",
    "LastLine",
    "NodePool",
    "SeenPod",
    "node_of_event",
    "offers_of",
    "pool_of_node",
    "slim_node_event",
    "strange_pools",
]


_KEPT = 2_000  # remembered deleted objects
_KEPT_EVENTS = 20  # a node
_LONGEST_NAME, _LONGEST_TEXT = 253, 2_000  # characters of a node's name, and of an Event's message
_READ_OF_EVENT = ("reason", "firstTimestamp", "lastTimestamp", "eventTime")
_NOTES = "spotwright.dev/"  # annotations of the node agent's Events
_GANGS = [(kind.pods_label, kind.restart_label) for kind in run_kinds().values() if kind.restart_label]  # end together
_NEWS = 60.0
"""Seconds until Kubernetes reports a silent node: ``node-monitor-grace-period`` (50), a look every 5, and 5 more.

Source: Kubernetes, ``kube-controller-manager`` (1.32 and later; 40 before).
"""
_SETTLING = 0.7  # seconds in which the streams of owners and nodes catch up with that of pods


LastLine = Callable[[str], float | None]
"""When the last line of a log was written, in Unix seconds by its node's clock; None: no line, or unknown."""


class SeenPod(NamedTuple):
    """A pod with its owners, nearest first. ``is_gone``: the API no longer has it, and this is its last state."""

    pod: Mapping[str, Any]
    owners: Sequence[Mapping[str, Any]]
    is_gone: bool = False


class ClusterView:
    """Objects by UID and name. ``clock`` is monotonic, and decides when the streams have caught up.

    ``last_line`` gives the time of the last line of an attempt's log, by the attempt's key.
    """

    def __init__(self, last_line: LastLine = lambda _key: None) -> None:
        self.last_line = last_line
        self._owners: dict[_OwnerKey, Mapping[str, Any]] = {}
        self._nodes: dict[str, Mapping[str, Any]] = {}
        self._gone_nodes: OrderedDict[str, Mapping[str, Any]] = OrderedDict()
        self._gone_owners: OrderedDict[_OwnerKey, Mapping[str, Any]] = OrderedDict()
        self._events: OrderedDict[str, list[Mapping[str, Any]]] = OrderedDict()  # by node
        self._notices: dict[str, KubernetesSource] = {}
        self._on_node: dict[str, set[str]] = {}  # node -> UIDs of its existing pods
        self._starting: dict[
            str, Mapping[str, Any]
        ] = {}  # pod UID -> a pod that has its node and has not started there
        self._held_up: dict[str, PodWaits] = {}  # pod UID -> the kubelet's reason in events
        self._waited: dict[str, Mapping[str, Any]] = {}  # pod UID -> its last state in which a container was held up
        self._ended_at: dict[str, float] = {}  # pod UID -> when its end was first seen, by the monotonic clock
        self._renewed_at: dict[str, float] = {}  # node -> when it last renewed its Lease before it fell silent
        # gang -> the UIDs of its pods without a known end, with their nodes
        self._unheard: dict[_GangKey, dict[str, str]] = {}
        self._going: set[str] = set()  # namespaces that are being deleted
        self.pods: dict[str, Mapping[str, Any]] = {}  # by UID; of a finished pod the first finished state
        self.gone_pods: dict[str, Mapping[str, Any]] = {}  # deleted, and not recorded yet
        self.clock = 0.0
        self.nodes_are_complete = False
        self.words = AutoscalerStatus()

    # Changes

    def put_pod(self, pod: Mapping[str, Any]) -> None:
        """Store a new or changed pod."""
        uid = uid_of(pod)
        before = self.pods.get(uid)
        if before is not None and is_finished(before):
            return  # later states only show its cleanup
        if before is not None and _node_of(before) != _node_of(pod):
            self._leave_node(before)
        self.pods[uid] = pod
        self._on_node.setdefault(_node_of(pod), set()).add(uid)
        if is_held_up(pod):
            self._waited[uid] = pod
        if has_not_started(pod):
            self._starting[uid] = pod
        else:
            self._starts_no_more(uid)
        if is_finished(pod) or is_stopped(pod):
            self._ended_at.setdefault(uid, self.clock)
        self._hear(pod, is_over=is_finished(pod))

    def _hear(self, pod: Mapping[str, Any], *, is_over: bool) -> None:
        """Note whether the node of a gang's pod has yet to report its end."""
        gang = _gang_of(pod)
        if gang is None:
            return
        if not is_over and _node_of(pod):
            self._unheard.setdefault(gang, {})[uid_of(pod)] = _node_of(pod)
        elif uid_of(pod) in (unheard := self._unheard.get(gang, {})):
            del unheard[uid_of(pod)]
            if not unheard:
                del self._unheard[gang]

    def delete_pod(self, pod: Mapping[str, Any]) -> None:
        """Note that a pod has left the API."""
        uid = uid_of(pod)
        self._starts_no_more(uid)
        before = self.pods.pop(uid, None)
        self._hear(pod, is_over=True)
        for known in (before, pod):  # only the last state may have the node
            if known is not None:
                self._leave_node(known)
        self.gone_pods[uid] = before if before is not None and is_finished(before) else pod
        self._ended_at.setdefault(uid, self.clock)

    def _leave_node(self, pod: Mapping[str, Any]) -> None:
        """Remove a pod from its node. Pods may name nodes that do not exist, so an unknown empty node is dropped."""
        name = _node_of(pod)
        there = self._on_node.get(name, set())
        there.discard(uid_of(pod))
        if not there:
            self._on_node.pop(name, None)

    def hold_up(self, pod: Mapping[str, Any], waits: PodWaits) -> bool:
        """Note why a pod does not start on its node, if so. Returns whether that changed."""
        uid = uid_of(pod)
        if uid not in self._starting or self._held_up.get(uid, PodWaits()).kind == waits.kind:
            return False
        if waits.kind:
            self._held_up[uid] = waits
        else:
            del self._held_up[uid]
        return True

    def _starts_no_more(self, uid: str) -> None:
        self._starting.pop(uid, None)
        self._held_up.pop(uid, None)

    def settle_pod(self, uid: str) -> None:
        """Note that a pod's end is recorded: skip it until it changes."""
        self._ended_at.pop(uid, None)

    def forget_pod(self, uid: str) -> None:
        """Drop a deleted pod, once its end is recorded."""
        self.gone_pods.pop(uid, None)
        self._waited.pop(uid, None)
        self._starts_no_more(uid)
        self._ended_at.pop(uid, None)
        self.words.forget_pod(uid)

    def put_namespace(self, namespace: Mapping[str, Any]) -> str:
        """Store a new, changed or deleted namespace. Returns its name."""
        meta = metadata(namespace)
        (self._going.add if meta.get("deletionTimestamp") else self._going.discard)(meta["name"])
        return str(meta["name"])

    def forget_namespace(self, name: str) -> None:
        """Forget a deleted namespace, whose last changes have come."""
        self._going.discard(name)

    def is_going(self, namespace: str) -> bool:
        """Whether a namespace is being or was deleted, which ends everything in it."""
        return namespace in self._going

    def drop_namespace(self, namespace: str) -> list[str]:
        """Forget the pods and the owners of a namespace that is no longer watched.

        Returns the UIDs of the pods.
        """
        dropped = []
        for kept in (self.pods, self.gone_pods):
            for uid in [uid for uid, pod in kept.items() if metadata(pod).get("namespace") == namespace]:
                pod = kept.pop(uid)
                self._leave_node(pod)
                self._hear(pod, is_over=True)
                self.forget_pod(uid)
                dropped.append(uid)
        for owners in (self._owners, self._gone_owners):
            for key in [key for key in owners if key.namespace == namespace]:
                del owners[key]
        self.words.forget_namespace(namespace)
        return dropped

    def put_owner(self, owner: Mapping[str, Any]) -> None:
        """Store a new or changed Job, JobSet, TrainJob or Workflow."""
        self._owners[_key_of(owner)] = owner

    def delete_owner(self, owner: Mapping[str, Any]) -> None:
        """Note that an owner has left the API."""
        key = _key_of(owner)
        self._owners.pop(key, None)
        _remember(self._gone_owners, key, as_gone(owner))

    def put_node(self, node: Mapping[str, Any]) -> bool:
        """Note that a node was added or changed. Returns whether the change shows how its pods ended."""
        name = str(metadata(node).get("name", ""))
        before = self._nodes.get(name)
        self._nodes[name] = node
        self._gone_nodes.pop(name, None)
        return before is None or _signs(before) != _signs(node)

    def delete_node(self, node: Mapping[str, Any]) -> None:
        """Note that a Node object was deleted."""
        name = str(metadata(node).get("name", ""))
        self._nodes.pop(name, None)
        for forgotten in _remember(self._gone_nodes, name, node):
            of_nodes = (self._events, self._notices, self._on_node, self._renewed_at)
            for kept in of_nodes:  # spot nodes keep getting new names
                kept.pop(forgotten, None)

    def put_lease(self, node: str, renewed_at: float) -> None:
        """Note when a silent or deleted node last renewed its Lease, in Unix seconds."""
        if node in self._nodes or node in self._gone_nodes:
            self._renewed_at[node] = renewed_at

    def put_node_event(self, event: Mapping[str, Any]) -> None:
        """Store an Event about a node.

        Only Events of the namespace ``default`` count, where the kubelet, the cloud's controller and the node agent write them:
        a team with the right to create Events in its namespace must not announce the end of a node.
        """
        name = node_of_event(event)
        if not name:
            return
        events = self._events.setdefault(name, [])
        self._events.move_to_end(name)
        others = [each for each in events if uid_of(each) != uid_of(event)]
        events[:] = [*others[-_KEPT_EVENTS + 1 :], event]
        if len(self._events) > _KEPT + len(self._nodes):  # of nodes that do not exist
            self._events.popitem(last=False)

    def drop_node_events(self) -> None:
        """Forget Events about nodes: they are no longer trusted."""
        self._events.clear()

    # Questions

    def waiting(self) -> Sequence[str]:
        """The UIDs of the pods without a node."""
        return self.pods_on("")

    @property
    def starting(self) -> Sequence[Mapping[str, Any]]:
        """The pods that have a node, and have not started there."""
        return tuple(self._starting.values())

    def waits_of(self, pod: Mapping[str, Any]) -> PodWaits:
        """Why a pod has no node yet, or does not start on it, by its status or the kubelet's events."""
        waits = waits_for(pod)
        return waits if waits.kind else self._held_up.get(uid_of(pod), waits)

    def waited(self, uid: str) -> Mapping[str, Any] | None:
        """The last state of a pod in which a container was held up: the kubelet forgets why when it ends the pod."""
        return self._waited.get(uid)

    def lineage(self, pod: Mapping[str, Any]) -> Lineage:
        """The owners of a pod, including recently deleted ones."""
        return lineage(pod, self._find)

    def owner(self, kind: str, namespace: str, uid: str) -> Mapping[str, Any] | None:
        """An owner that the API has."""
        return self._owners.get(_OwnerKey(kind, namespace, uid))

    def workload(self, uid: str) -> Mapping[str, Any]:
        """An owner or a pod with this UID, of any kind; empty: the API has none."""
        return self.pods.get(uid) or next((each for key, each in self._owners.items() if key.uid == uid), {})

    def last_of_owner(self, kind: str, namespace: str, uid: str) -> Mapping[str, Any] | None:
        """The last state of a deleted owner; None: it still exists, or its deletion was not seen."""
        return self._gone_owners.get(_OwnerKey(kind, namespace, uid))

    def node(self, name: str) -> Mapping[str, Any] | None:
        """The state of a node, or its last one."""
        return self._nodes.get(name) or self._gone_nodes.get(name)

    def nodes(self) -> Sequence[Mapping[str, Any]]:
        """All nodes that the API has."""
        return tuple(self._nodes.values())

    def is_node_gone(self, name: str) -> bool:
        """Whether the API has no Node object of this name."""
        return self.nodes_are_complete and name not in self._nodes

    def is_ready(self, name: str) -> bool:
        """Whether the API has a node of this name that reports and is well."""
        return _ready(self._nodes.get(name)) == "True"

    def is_lost(self, name: str) -> bool:
        """Whether a node is silent: it does not report, or the API has no Node object of this name."""
        return self.is_node_gone(name) or _ready(self._nodes.get(name)) == "Unknown"

    def silent_since(self, name: str) -> float | None:
        """Since when a node does not report (Unix seconds); None if it does or that is unknown."""
        node = self.node(name)
        if _ready(node) != "Unknown":
            return None
        conditions = mappings(mapping((node or {}).get("status")).get("conditions"))
        return next(
            (seconds(each.get("lastTransitionTime")) for each in conditions if each.get("type") == "Ready"), None
        )

    def renewed_at(self, name: str) -> float | None:
        """When a node last renewed its Lease before it became silent, in Unix seconds; None if unknown."""
        return self._renewed_at.get(name)

    def heartbeat(self, name: str) -> float | None:
        """When a silent or deleted node last reported its status, in Unix seconds; None for others, and if unknown."""
        if self.is_ready(name):
            return None
        conditions = mappings(mapping((self.node(name) or {}).get("status")).get("conditions"))
        return next(
            (seconds(each.get("lastHeartbeatTime")) for each in conditions if each.get("type") == "Ready"), None
        )

    def is_cut_off(self, pod: Mapping[str, Any]) -> bool:
        """Whether a pod is being deleted on a silent node, so that its object does not change."""
        name = _node_of(pod)
        if not name or not metadata(pod).get("deletionTimestamp"):
            return False
        return self.is_lost(name)

    def is_settled(self, pod: Mapping[str, Any]) -> bool:
        """Whether everything that explains a pod's end has had time to arrive.

        A pod that was asked to stop needs its owners' update, a pod with an unreported container end its node's. A pod that
        ended by itself needs neither. If it failed in a gang, it may have lost a peer, whose node's state arrives later.
        """
        return self.clock >= self._settles_at(pod)

    def unsettled_until(self) -> float | None:
        """When the next pod settles, by the monotonic clock."""
        return min((at for at in map(self._ending_settles_at, self._ended_at) if at > self.clock), default=None)

    def ending(self) -> Sequence[str]:
        """The UIDs of stopping or deleted pods whose end may now be recorded."""
        return [uid for uid in self._ended_at if self.clock >= self._ending_settles_at(uid)]

    def _ending_settles_at(self, uid: str) -> float:
        """When a pod settles or gets another look: a pod that ended by itself needs one only for its peers."""
        pod = self.pods.get(uid) or self.gone_pods.get(uid)
        return self._ended_at[uid] + (_NEWS if pod is not None and self._may_have_lost_a_peer(pod) else _SETTLING)

    def _settles_at(self, pod: Mapping[str, Any]) -> float:
        seen_at = self._ended_at.get(uid_of(pod), 0.0)
        if self._may_have_lost_a_peer(pod):
            return seen_at + _NEWS
        ended_by_itself = is_finished(pod) and not is_stopped(pod) and not read_pod(pod).main.is_untold
        return seen_at if ended_by_itself else seen_at + _SETTLING

    def _may_have_lost_a_peer(self, pod: Mapping[str, Any]) -> bool:
        """Whether a pod failed in a gang while a peer's end on another node is still unreported.

        The peer's node may have fallen silent before, which Kubernetes reports only later. A set that restarts deletes the peers,
        and a live node reports their ends within their grace period, so an error of the code is known after seconds.
        """
        if mapping(pod.get("status")).get("phase") != "Failed" or transition(pod, "DisruptionTarget") is not None:
            return False
        gang = _gang_of(pod)
        peers = {} if gang is None else self._unheard.get(gang, {})
        return any(node != _node_of(pod) and not self._is_end_reported(uid) for uid, node in peers.items())

    def _is_end_reported(self, uid: str) -> bool:
        """Whether a running pod must end while its node is silent: no more updates will come."""
        pod = self.pods.get(uid)
        return pod is None or (self.is_cut_off(pod) and self.is_settled(pod))

    def pods_on(self, node: str) -> Sequence[str]:
        """The UIDs of the pods on a node that the API has."""
        return tuple(self._on_node.get(node, ()))

    def events_of(self, node: str) -> Sequence[Mapping[str, Any]]:
        """The latest events about a node."""
        return self._events.get(node, ())

    def notice(self, name: str) -> Notice | None:
        """The notice in a node's conditions and taints.

        A sign that the machine shuts down or is gone is not a notice.
        """
        if self.node(name) is None:
            return None
        source = self._notices.setdefault(name, KubernetesSource(lambda: _announcing(self.node(name))))
        return source.poll(0.0)

    def notice_of(self, name: str) -> NodeNotice | None:
        """The latest notice from a node's agent, unless it was withdrawn.

        None for notices about an earlier node of the same name.
        """
        made_at = seconds(metadata(self.node(name) or {}).get("creationTimestamp"))
        withdrawn = self.withdrawn(name)
        found = [notice for event in self.events_of(name) if (notice := notice_in(event)) is not None]
        valid = (notice for notice in found if made_at is None or notice.at >= made_at)
        return max(
            (notice for notice in valid if notice.id not in withdrawn), key=lambda notice: notice.at, default=None
        )

    def withdrawn(self, name: str) -> Collection[str]:
        """The ids of the notices of a node that were withdrawn."""
        found = (withdrawal_in(event) for event in self.events_of(name))
        return {withdrawal[0] for withdrawal in found if withdrawal is not None}

    def _find(self, kind: str, namespace: str, uid: str) -> Mapping[str, Any] | None:
        key = _OwnerKey(kind, namespace, uid)
        return self._owners.get(key) or self._gone_owners.get(key)


class _GangKey(NamedTuple):
    """The pods of one restart of a JobSet."""

    namespace: str
    name: str
    restart: str


def _gang_of(pod: Mapping[str, Any]) -> _GangKey | None:
    labels = mapping(metadata(pod).get("labels"))
    pairs = [(text(labels.get(name)), text(labels.get(restart))) for name, restart in _GANGS]
    return next((_GangKey(str(metadata(pod).get("namespace", "")), *pair) for pair in pairs if all(pair)), None)


class _OwnerKey(NamedTuple):
    """The object of an owner reference: the UID alone may belong to another namespace's object."""

    kind: str
    namespace: str
    uid: str


def _key_of(owner: Mapping[str, Any]) -> _OwnerKey:
    return _OwnerKey(str(owner.get("kind")), str(metadata(owner).get("namespace", "")), uid_of(owner))


def node_of_event(event: Mapping[str, Any]) -> str:
    """The node that an Event of the namespace ``default`` is about; empty for other Events, and for one without a name."""
    about = mapping(event.get("involvedObject"))
    if metadata(event).get("namespace") != NAMESPACE or about.get("kind", "Node") != "Node":
        return ""
    return text(about.get("name"))[:_LONGEST_NAME]


def slim_node_event(event: dict[str, Any]) -> dict[str, Any]:
    """The relevant fields of an Event about a node."""
    meta = metadata(event)
    kept = {
        key: meta[key] for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp") if key in meta
    }
    notes = {
        key: text(value)[:_LONGEST_TEXT]
        for key, value in mapping(meta.get("annotations")).items()
        if key.startswith(_NOTES)
    }
    return {
        **{key: text(event.get(key))[:_LONGEST_TEXT] for key in (*_READ_OF_EVENT, "message") if event.get(key)},
        "metadata": {**kept, "annotations": notes},
        "involvedObject": {"kind": "Node", "name": node_of_event(event)},
        "series": {"lastObservedTime": mapping(event.get("series")).get("lastObservedTime")},
    }


def is_finished(pod: Mapping[str, Any]) -> bool:
    """Whether all containers of a pod have ended for good."""
    return mapping(pod.get("status")).get("phase") in ("Succeeded", "Failed")


def is_stopped(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is being deleted."""
    return bool(metadata(pod).get("deletionTimestamp"))


def _node_of(pod: Mapping[str, Any]) -> str:
    return text(mapping(pod.get("spec")).get("nodeName"))


def _signs(node: Mapping[str, Any]) -> tuple[object, ...]:
    """The parts of a node that show how its pods end, without heartbeats."""
    conditions = mappings(mapping(node.get("status")).get("conditions"))
    spec = mapping(node.get("spec"))
    states = [(each.get("type"), each.get("status"), each.get("reason")) for each in conditions]
    return states, spec.get("taints"), spec.get("unschedulable"), metadata(node).get("labels")


def _ready(node: Mapping[str, Any] | None) -> str:
    conditions = mappings(mapping((node or {}).get("status")).get("conditions"))
    return next((str(each.get("status")) for each in conditions if each.get("type") == "Ready"), "")


def _announcing(node: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """A node without the signs that appear only once its machine shuts down or is gone."""
    if node is None:
        return None
    spec, status = mapping(node.get("spec")), mapping(node.get("status"))
    taints = [each for each in mappings(spec.get("taints")) if text(each.get("key")) not in node_signs.GONE_TAINTS]
    conditions = [each for each in mappings(status.get("conditions")) if each.get("type") != "Ready"]
    return {**node, "spec": {**spec, "taints": taints}, "status": {**status, "conditions": conditions}}


def _remember(kept: OrderedDict[Any, Mapping[str, Any]], key: Any, value: Mapping[str, Any]) -> list[Any]:
    """Keep an object among the latest. Returns the keys of the dropped ones."""
    kept[key] = value
    return [kept.popitem(last=False)[0] for _ in range(len(kept) - _KEPT)]


_NO_NAME = "other-nodes"


class NodePool(NamedTuple):
    """The pool of a node. ``is_configured``: the configuration has it."""

    name: str
    is_spot: bool
    is_configured: bool


def pool_of_node(node: Mapping[str, Any] | None, pools: Mapping[str, Pool]) -> NodePool:
    """The pool of a node. ``None``: the node is unknown."""
    labels = {key: text(value) for key, value in mapping(metadata(node or {}).get("labels")).items()}
    pool = providers.pool_of(labels, pools)
    if pool is not None:
        return NodePool(pool.name, pool.is_spot, is_configured=True)
    taints = tuple(text(taint.get("key")) for taint in mappings(mapping((node or {}).get("spec")).get("taints")))
    is_spot = bool(providers.is_spot_node(labels, taints))
    name = next((labels[label] for label in providers.POOL_LABELS if labels.get(label)), _NO_NAME)
    return NodePool(_unused(name.lower(), pools, is_spot=is_spot), is_spot, is_configured=False)


def strange_pools(nodes: Iterable[Mapping[str, Any]], pools: Mapping[str, Pool]) -> tuple[NodePool, ...]:
    """The pools of these nodes that the configuration does not have, each once."""
    found = (pool_of_node(node, pools) for node in nodes)
    return tuple({pool.name: pool for pool in found if not pool.is_configured}.values())


def offers_of(node: Mapping[str, Any] | None, pool: Pool) -> dict[str, int]:
    """The node's capacity of the billed resources, if its pool's configuration does not give it."""
    allocatable = mapping(mapping((node or {}).get("status")).get("allocatable"))
    offers: dict[str, int] = {}
    for name, amount in allocatable.items():
        if name in (pool.node or {}) or not (name in ("cpu", "memory") or providers.is_accelerator(name)):
            continue
        with contextlib.suppress(ValueError):  # an unreadable amount counts as unknown
            offers[name] = parse_resource(name, amount)
    return {name: amount for name, amount in offers.items() if amount > 0}


def _unused(name: str, pools: Mapping[str, Pool], *, is_spot: bool) -> str:
    """The name, or another one where the configuration means other nodes by it."""
    taken = pools.get(name)
    return name if taken is None or taken.is_spot is is_spot else f"{name}-{'spot' if is_spot else 'on-demand'}"
