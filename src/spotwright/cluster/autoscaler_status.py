"""The autoscalers' status of waiting pods: a node is on its way, or none of the pods' pools can provide one.

The state of pools takes precedence: the cluster autoscaler publishes in a ConfigMap each group's target and actual size and its
backoff; Karpenter's NodeClaims are its ordered nodes. Events about a pod count only if that is unknown. They are in the pod's
own namespace, so tenants can forge them, and they come late: the cluster autoscaler writes one of a kind about a pod in five
minutes, and none about a pod whose node is already on its way; Karpenter nominates a pod once in two minutes. Neither binds a
node to a pod: another pod may get it.

Sources: kubernetes/autoscaler, ``cluster-autoscaler/utils/kubernetes/factory.go`` (events),
``processors/status/eventing_scale_up_processor.go`` and ``core/scaleup/orchestrator/skippedreasons.go`` (their sentences;
groups in backoff and at their maximum are counted before the pod's constraints are checked); kubernetes-sigs/karpenter,
``pkg/controllers/provisioning/scheduling/events.go``, ``pkg/controllers/nodeclaim/lifecycle`` (a NodeClaim that does not
register is deleted after 15 minutes).
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from spotwright.clouds.cluster_autoscaler import Group, Status, groups_of_pools
from spotwright.clouds.providers import NODE_POOL_LABEL, node_pool_of
from spotwright.cluster.signals import PodWaits, event_time
from spotwright.engine.waits import CANNOT_GROW, NO_SCALE_UP, NODE_ORDERED, ORDERS_UNKNOWN
from spotwright.errors import InputError
from spotwright.kube.object_fields import mapping, mappings, metadata, seconds, text, uid_of
from spotwright.model.pools import Pool
from spotwright.notices.node_event import NAMESPACE
from spotwright.pools.autoscaler_config_maps import status_of
from spotwright.visible_text import visible

__all__ = [
    "DEFAULT_LIMIT",
    "NODE_POOL",
    "NO_OFFERING",
    "PROVISIONER",
    "SCALER",
    "AutoscalerStatus",
    "is_word",
    "slim_claim",
    "slim_word",
]


DEFAULT_LIMIT = 900.0
"""Seconds after which an ordered node will never come: ``--max-node-provision-time`` of the cluster autoscaler."""

SCALER, PROVISIONER = "cluster-autoscaler", "karpenter"
"""The sources of Events."""

_TRIGGERED, _NOT_TRIGGERED = "TriggeredScaleUp", "NotTriggerScaleUp"
_NOMINATED, _FAILED = "Nominated", "FailedScheduling"
_OF_PODS = {SCALER: (_TRIGGERED, _NOT_TRIGGERED), PROVISIONER: (_NOMINATED, _FAILED)}
_CAPACITY_TYPE = "karpenter.sh/capacity-type"
NODE_POOL, NO_OFFERING = "NodePool", "NoCompatibleInstanceTypes"
"""Karpenter's kind of a pool, and the reason of its Event about a pool that cannot provide nodes."""

_CANNOT = re.compile(r"\d{1,9} (max node group size reached|in backoff after failed scale-up)")
_TOO_FEW = re.compile("exceed limits for nodepool|filtered out all available instance types")
_GROUP = re.compile(r"\{(\S{1,500}) \d+->\d+ ")
_LONGEST = 2000  # characters of a message
_KEPT = 20_000  # words on pools
_KEPT_OF_NAMESPACE = 5_000  # words on the pods of one namespace: tenants can write any number
_LONGEST_NAME = 253  # characters of a name or a UID
_SAID = 400  # characters of a message
_SCAN = 15.0  # seconds from an order to its status: one scan is 10 s
_TWO_SCANS = 25.0  # seconds
_LOOKED = (
    45.0  # seconds: the cluster autoscaler ignores new pods with GPUs for 30 s, and others with them; then comes a scan
)
_BINDS = 15.0  # seconds after a node's arrival until the scheduler has tried every pod on it
_UNAVAILABLE = 90.0  # seconds: Karpenter repeats every minute that a NodePool has no offering
_REPEATED = 360.0  # seconds: autoscalers repeat every five minutes that they add no node for a pod
_TURN = 1.0  # seconds: API times are whole, and one turn of Karpenter both orders nodes and reports pods without one


class _Word(NamedTuple):
    reason: str
    message: str
    at: float


class _Claim(NamedTuple):
    node_pool: str
    at: float
    is_spot: bool | None = None  # unknown before its launch

    def is_of(self, pool: Pool) -> bool:
        """Whether its node may belong to a pool."""
        return self.node_pool == node_pool_of(pool) and self.is_spot in (None, pool.is_spot)


class _Lately(NamedTuple):
    group: Group
    at: float | None


def is_word(event: Mapping[str, Any], enabled: Collection[str]) -> bool:
    """Whether an Event comes from an autoscaler, about a pod of these namespaces or a pool of Karpenter."""
    about = mapping(event.get("involvedObject"))
    if about.get("kind") == NODE_POOL:
        return metadata(event).get("namespace") == NAMESPACE and event.get("reason") == NO_OFFERING
    is_known = event.get("reason") in _OF_PODS.get(_source(event), ())
    return about.get("kind") == "Pod" and is_known and str(metadata(event).get("namespace", "")) in enabled


def slim_word(event: dict[str, Any]) -> dict[str, Any]:
    """The relevant fields of an Event."""
    kept = ("reason", "reportingComponent", "lastTimestamp", "eventTime", "firstTimestamp")
    about = mapping(event.get("involvedObject"))
    meta = {
        key: metadata(event)[key]
        for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if key in metadata(event)
    }
    series = {"lastObservedTime": mapping(event.get("series")).get("lastObservedTime")}
    message = text(event.get("message"))[:_LONGEST]
    return {
        **{key: text(event[key])[:_LONGEST_NAME] for key in kept if key in event},
        "metadata": meta,
        "involvedObject": {key: text(about.get(key))[:_LONGEST_NAME] for key in ("kind", "name", "uid")},
        "source": {"component": _source(event)[:_LONGEST_NAME]},
        "series": series,
        "message": message,
    }


def slim_claim(claim: dict[str, Any]) -> dict[str, Any]:
    """The relevant fields of a NodeClaim: its requirements may name hundreds of instance types."""
    kept = ("name", "uid", "resourceVersion", "labels", "creationTimestamp", "deletionTimestamp")
    meta = {key: metadata(claim)[key] for key in kept if key in metadata(claim)}
    return {"metadata": meta, "status": {"conditions": mapping(claim.get("status")).get("conditions")}}


class AutoscalerStatus:
    """The latest status. ``can_hear``: Events about pods can be read. ``sees_claims``: every NodeClaim is known."""

    def __init__(self) -> None:
        self.can_hear, self.sees_claims = True, False
        self.problem = ""  # why the status cannot be understood
        self._words: dict[
            str, OrderedDict[tuple[str, str], _Word]
        ] = {}  # by namespace; then by UID of the pod and source
        self._refusals: OrderedDict[str, _Word] = OrderedDict()  # by name of the NodePool
        self._claims: dict[str, _Claim] = {}
        self._status: Status | None = None
        self._coming_since: dict[str, float] = {}  # by group, while nodes of it are on their way
        self._lately: dict[str, _Lately] = {}  # groups by name, as last seen in a status
        self._came_at: dict[str, float] = {}  # by group or NodePool: when its last node became ready

    # What is heard

    def put_event(self, event: Mapping[str, Any], now: float = math.inf) -> str:
        """Store an Event. Returns its pod's UID; empty for an Event about a NodePool.

        An Event cannot come from the future: ``now`` is the API server's clock.
        """
        about = mapping(event.get("involvedObject"))
        namespace = text(metadata(event).get("namespace"))
        at = min(event_time(event), now)
        word = _Word(text(event.get("reason")), text(event.get("message")), at)
        if about.get("kind") == NODE_POOL:
            _keep(self._refusals, text(about.get("name"))[:_LONGEST_NAME], word, _KEPT)
            return ""
        uid = text(about.get("uid"))[:_LONGEST_NAME]
        _keep(self._words.setdefault(namespace, OrderedDict()), (uid, _source(event)), word, _KEPT_OF_NAMESPACE)
        return uid

    def forget_pod(self, uid: str) -> None:
        """Drop the status of a pod."""
        for words in self._words.values():
            for source in _OF_PODS:
                words.pop((uid, source), None)

    def forget_namespace(self, namespace: str) -> None:
        """Drop the status of all pods of a namespace."""
        self._words.pop(namespace, None)

    def put_claim(self, claim: Mapping[str, Any], *, is_gone: bool = False) -> bool:
        """Store a new, changed or deleted NodeClaim. Returns whether the set of NodePools with nodes on their way changed.

        A NodeClaim that is being deleted will bring no node, and an initialized one has brought it.
        """
        before, meta = self._claimed_pools, metadata(claim)
        name, node_pool = text(meta.get("name")), text(mapping(meta.get("labels")).get(NODE_POOL_LABEL))
        came_at = next(
            (
                seconds(one.get("lastTransitionTime")) or 0.0
                for one in mappings(mapping(claim.get("status")).get("conditions"))
                if one.get("type") == "Initialized" and one.get("status") == "True"
            ),
            None,
        )
        if came_at is not None:
            self._came_at[node_pool] = max(came_at, self._came_at.get(node_pool, 0.0))
        if is_gone or meta.get("deletionTimestamp") or came_at is not None:
            self._claims.pop(name, None)
        else:
            capacity = text(mapping(meta.get("labels")).get(_CAPACITY_TYPE))
            at = seconds(meta.get("creationTimestamp")) or 0.0
            self._claims[name] = _Claim(node_pool, at, capacity == "spot" if capacity else None)
        return self._claimed_pools != before

    @property
    def _claimed_pools(self) -> set[tuple[str, bool | None]]:
        return {(claim.node_pool, claim.is_spot) for claim in self._claims.values()}

    def put_status(self, config_map: Mapping[str, Any] | None) -> bool:
        """Store a changed or deleted status. Returns whether any group's state changed."""
        before = self._status
        try:
            self._status, self.problem = (None if config_map is None else status_of(config_map)), ""
        except InputError as error:
            self._status, self.problem = None, str(error)
        self._note_orders({} if before is None else before.groups)
        if self._status is None:
            self._lately.clear()
        else:
            fresh = {name: _Lately(group, self._status.at) for name, group in self._status.groups.items()}
            at = self._status.at or 0.0
            self._lately = {
                name: one for name, one in self._lately.items() if at < (one.at or 0.0) + _TWO_SCANS
            } | fresh
        return bool(_states(before) != _states(self._status))

    def _note_orders(self, earlier: Mapping[str, Group]) -> None:
        """Note since when each group's nodes are on their way, and when the last one came."""
        status = self._status or Status({})
        at, groups = status.at or 0.0, status.groups
        for name in [name for name in self._coming_since if name not in groups or not groups[name].is_coming]:
            del self._coming_since[name]
        for name, group in groups.items():
            if group.is_coming and name not in self._coming_since:
                self._coming_since[name] = (group.since if group.scale_up == "InProgress" else None) or at
            if name in earlier and group.ready > earlier[name].ready:
                self._came_at[name] = at

    # What it means

    def of(
        self, pod: Mapping[str, Any], wanted: Sequence[str], pools: Mapping[str, Pool], now: float
    ) -> PodWaits | None:
        """The autoscalers' status of a pod that waits for a node of the pools ``wanted``; None: nothing relevant.

        ``now`` is the API server's clock in Unix seconds. Without a UID, only the status of the pools counts.
        """
        known = [pools[name] for name in wanted if name in pools]
        of_karpenter = [pool for pool in known if node_pool_of(pool)]
        of_groups = [pool for pool in known if not node_pool_of(pool)]
        by_pool = self._groups(of_groups, pools, now)
        found = [group for groups in by_pool.values() for group in groups]
        coming = self._claimed(pod, of_karpenter, now) or self._ordered(pod, of_groups, found, pools, now)
        if coming is not None:
            return coming
        if not self.can_hear and not found:
            return _waits(ORDERS_UNKNOWN, "Events of autoscalers cannot be read here")
        if not known or (of_karpenter and of_groups):
            return None  # each autoscaler reports only on its own pools
        if of_karpenter:
            return self._without_offering(pod, of_karpenter, now)
        return self._without_group(pod, of_groups, by_pool, now)

    def _word(self, pod: Mapping[str, Any], source: str) -> _Word | None:
        """The latest status of a pod, by an Event of its namespace."""
        of_namespace = self._words.get(text(metadata(pod).get("namespace")))
        return None if of_namespace is None else of_namespace.get((uid_of(pod), source))

    def _claimed(self, pod: Mapping[str, Any], wanted: Sequence[Pool], now: float) -> PodWaits | None:
        """Whether Karpenter ordered a node of these pools and has not reported since that none fits this pod."""
        names = {node_pool_of(pool) for pool in wanted}
        word = self._word(pod, PROVISIONER)
        failed_at = word.at if word is not None and word.reason == _FAILED else 0.0
        living = [
            one
            for one in self._claims.values()
            if failed_at < one.at + _TURN and any(one.is_of(pool) for pool in wanted)
        ]
        if living:
            claim = min(living, key=lambda one: one.at)
            return _waits(NODE_ORDERED, f"a node of NodePool {claim.node_pool} is on its way", claim.at)
        if (just_came := self._just_came(names, now)) is not None:
            return just_came
        if self.sees_claims or word is None or word.reason != _NOMINATED or now >= word.at + DEFAULT_LIMIT:
            return None
        return _waits(NODE_ORDERED, f"a node is ordered ({_NOMINATED})", word.at)

    def _just_came(self, names: Iterable[str], now: float) -> PodWaits | None:
        """Whether a node has just come: the scheduler has not yet tried every pod on it."""
        found = [(self._came_at[name], name) for name in names if now < self._came_at.get(name, 0.0) + _BINDS]
        return (
            _waits(NODE_ORDERED, f"a node of {_short(max(found)[1])} has just come", max(found)[0]) if found else None
        )

    def _ordered(
        self,
        pod: Mapping[str, Any],
        wanted: Sequence[Pool],
        found: Sequence[Group],
        pools: Mapping[str, Pool],
        now: float,
    ) -> PodWaits | None:
        """Whether the cluster autoscaler has ordered a node of these pools."""
        for group in found:
            if group.is_coming:
                since = self._coming_since.get(group.name, now)
                return _waits(NODE_ORDERED, f"a node of {_short(group.name)} is on its way", since)
        if (just_came := self._just_came([group.name for group in found], now)) is not None:
            return just_came
        word = self._word(pod, SCALER)
        if not wanted or word is None or word.reason != _TRIGGERED or now >= word.at + DEFAULT_LIMIT:
            return None
        if found and self._status is not None and (self._status.at or 0.0) > word.at + _SCAN:
            return None  # the status had time to show it and does not
        groups = _GROUP.findall(word.message)
        by_pool = groups_of_pools(pools.values(), groups)
        if any(by_pool.values()) and not any(by_pool.get(pool.name) for pool in wanted):
            return None  # a node of another pool
        named = ", ".join(map(_short, groups)) or "a group"
        return _waits(NODE_ORDERED, f"a node of {named} is ordered ({_TRIGGERED})", word.at)

    def _without_offering(self, pod: Mapping[str, Any], wanted: Sequence[Pool], now: float) -> PodWaits | None:
        """Why Karpenter orders no node for these pools. A status older than the pod may be over."""
        word = self._word(pod, PROVISIONER)
        has_failed = word is not None and word.reason == _FAILED and now < word.at + _REPEATED
        made_at = seconds(metadata(pod).get("creationTimestamp")) or 0.0
        refusals = [self._refusals.get(node_pool_of(pool)) for pool in wanted]
        fresh = [
            one
            for one in refusals
            if one is not None and now < one.at + _UNAVAILABLE and (has_failed or one.at >= made_at)
        ]
        if fresh and len(fresh) == len(wanted):
            return _waits(CANNOT_GROW, f"Karpenter: {fresh[0].message} ({fresh[0].reason})", fresh[0].at)
        if word is not None and has_failed and _TOO_FEW.search(word.message):
            return _waits(NO_SCALE_UP, f"Karpenter: {word.message}", word.at)
        return None

    def _without_group(
        self, pod: Mapping[str, Any], wanted: Sequence[Pool], by_pool: Mapping[str, Sequence[Group]], now: float
    ) -> PodWaits | None:
        """The cluster autoscaler's status of pools for which no node is being provisioned.

        That a pool cannot grow applies to every namespace, so every pool must be reported: a namespace chooses which pools an
        attempt waits for together.
        """
        found = [group for groups in by_pool.values() for group in groups]
        if found:
            if not all(group.obstacle for group in found):
                return self._not_looked_yet(pod, now)
            words = "; ".join(f"{_short(group.name)} is {group.obstacle}" for group in found)
            refused_at = [group.since or 0.0 for group in found if group.is_in_backoff]
            is_of_each = all(any(group.is_in_backoff for group in by_pool.get(pool.name, ())) for pool in wanted)
            return _waits(CANNOT_GROW if is_of_each else NO_SCALE_UP, words, max(refused_at, default=None))
        word = self._word(pod, SCALER)
        if word is None or word.reason != _NOT_TRIGGERED or now >= word.at + _REPEATED:
            return None
        reasons = _CANNOT.findall(word.message)
        if not reasons or all(pool.min_nodes >= pool.max_nodes for pool in wanted):
            return None  # it does not report pools of a fixed size
        words = f"no node group that fits it can grow: {', '.join(dict.fromkeys(reasons))}"
        return _waits(NO_SCALE_UP, words, word.at)

    def _not_looked_yet(self, pod: Mapping[str, Any], now: float) -> PodWaits | None:
        """Whether a pod is so new that a working autoscaler has not had time to order a node for it."""
        made_at = seconds(metadata(pod).get("creationTimestamp"))
        if made_at is None or now >= made_at + _LOOKED or self._status is None or self._status.at is None:
            return None
        return _waits(NODE_ORDERED, "the cluster autoscaler has not considered it yet", made_at)

    def _groups(self, wanted: Sequence[Pool], pools: Mapping[str, Pool], now: float) -> Mapping[str, Sequence[Group]]:
        """The groups of each of these pools from an up-to-date status; empty without such a status or group."""
        if self._status is None or not self._status.is_kept(now):
            return {}
        groups = {**self._missing(now), **self._status.groups}
        by_pool = groups_of_pools(pools.values(), groups)
        return {pool.name: [groups[name] for name in by_pool.get(pool.name, ())] for pool in wanted}

    def _missing(self, now: float) -> dict[str, Group]:
        """The groups of a recent status that are missing from the newest one: two autoscalers may write it in turn."""
        return {
            name: one.group for name, one in self._lately.items() if one.at is not None and now < one.at + _TWO_SCANS
        }


def _waits(kind: str, words: str, since: float | None = None) -> PodWaits:
    """The status in one line of bounded length, because parts of it come from others."""
    return PodWaits(kind, visible(words[:_SAID]), since)


def _short(group: str) -> str:
    """The name of a group for people: on GKE it is the last part of an address."""
    return group.rpartition("/")[2]


def _source(event: Mapping[str, Any]) -> str:
    return text(mapping(event.get("source")).get("component")) or text(event.get("reportingComponent"))


def _states(status: Status | None) -> Any:
    """The part of a status that says whether groups can grow, without its time."""
    return None if status is None else {name: (one.obstacle, one.is_coming) for name, one in status.groups.items()}


def _keep(kept: OrderedDict[Any, _Word], key: Any, word: _Word, at_most: int) -> None:
    """Store a status, unless a later one is known."""
    before = kept.get(key)
    if before is not None and word.at < before.at:
        return
    kept[key] = word
    kept.move_to_end(key)
    while len(kept) > at_most:
        kept.popitem(last=False)
