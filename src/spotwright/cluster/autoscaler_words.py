"""What autoscalers say of pods that wait: a node is on its way, or none of the pods' pools can give one.

What counts first is known of pools: the cluster autoscaler tells in a ConfigMap how many nodes each group shall have and has, and
which group is in backoff; Karpenter's NodeClaims are the nodes that it has ordered. Events about a pod count only where that is
not known. They are of the pod's own namespace, so whoever may write there may have made them, and they come late: the cluster
autoscaler writes one of a kind about a pod in five minutes, and none about a pod for which a node is on its way already;
Karpenter nominates a pod once in two minutes. Neither binds a node to a pod: another pod may get it.

Sources: kubernetes/autoscaler, ``cluster-autoscaler/utils/kubernetes/factory.go`` (events),
``processors/status/eventing_scale_up_processor.go`` and ``core/scaleup/orchestrator/skippedreasons.go`` (their sentences; groups
in backoff and at their maximum are counted before it is asked whether the pod admits them); kubernetes-sigs/karpenter,
``pkg/controllers/provisioning/scheduling/events.go``, ``pkg/controllers/nodeclaim/lifecycle`` (a NodeClaim that does not register
is deleted after 15 minutes).
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from spotwright.clouds.cluster_autoscaler import Group, Status, groups_of_pools
from spotwright.clouds.providers import KARPENTER as KARPENTER_FACTS
from spotwright.clouds.providers import pool_name
from spotwright.cluster.signals import PodWaits, mapping, mappings, seconds, text
from spotwright.cluster.workloads import metadata, uid_of
from spotwright.engine.waits import CANNOT_GROW, NO_SCALE_UP, NODE_ORDERED, ORDERS_UNKNOWN
from spotwright.errors import InputError
from spotwright.model.pools import Pool, Provider
from spotwright.notices.node_event import NAMESPACE
from spotwright.pools.autoscaler_config_maps import status_of

__all__ = ["DEFAULT_LIMIT", "KARPENTER", "SCALER", "AutoscalerWords", "is_word", "slim_word"]


DEFAULT_LIMIT = 900.0
"""Seconds after which an ordered node counts as one that never comes: ``--max-node-provision-time`` of the cluster autoscaler."""

SCALER, KARPENTER = "cluster-autoscaler", "karpenter"
"""The sources of Events."""

_TRIGGERED, _NOT_TRIGGERED = "TriggeredScaleUp", NO_SCALE_UP
_NOMINATED, _FAILED = "Nominated", "FailedScheduling"
_OF_PODS = {SCALER: (_TRIGGERED, _NOT_TRIGGERED), KARPENTER: (_NOMINATED, _FAILED)}
_NODE_POOL, _NO_OFFERING = "NodePool", "NoCompatibleInstanceTypes"
_CANNOT = re.compile(r"\d+ (max node group size reached|in backoff after failed scale-up)")
_GROUP = re.compile(r"\{(\S{1,500}) \d+->\d+ ")
_LONGEST = 2000  # characters of a message
_KEPT = 20_000
_SAID = 300  # characters of a message that are told
_SCAN = 15.0  # seconds after an order until the status has it: one scan is 10 s
_SILENT = 120.0  # seconds after which a status that has not changed is that of an autoscaler which is away
_UNAVAILABLE = 90.0  # seconds: Karpenter says again each minute that a NodePool has no offering
_TURN = 1.0  # seconds: times of the API are whole, and one turn of Karpenter orders nodes and says who gets none
_REPEATED = 360.0  # seconds: it says again every five minutes that a pod fits none


class _Word(NamedTuple):
    reason: str
    message: str
    at: float


class _Claim(NamedTuple):
    node_pool: str
    at: float


def is_word(event: Mapping[str, Any], enabled: Collection[str]) -> bool:
    """Whether an Event is a word of an autoscaler on a pod of these namespaces, or on a pool of Karpenter."""
    about = mapping(event.get("involvedObject"))
    if about.get("kind") == _NODE_POOL:
        return metadata(event).get("namespace") == NAMESPACE and event.get("reason") == _NO_OFFERING
    is_known = event.get("reason") in _OF_PODS.get(_source(event), ())
    return about.get("kind") == "Pod" and is_known and str(metadata(event).get("namespace", "")) in enabled


def slim_word(event: dict[str, Any]) -> dict[str, Any]:
    """An Event with what is read of it."""
    kept = ("involvedObject", "reason", "source", "reportingComponent", "lastTimestamp", "eventTime", "firstTimestamp")
    meta = {
        key: metadata(event)[key] for key in ("name", "namespace", "uid", "resourceVersion") if key in metadata(event)
    }
    series = {"lastObservedTime": mapping(event.get("series")).get("lastObservedTime")}
    message = text(event.get("message"))[:_LONGEST]
    return {**{key: event[key] for key in kept if key in event}, "metadata": meta, "series": series, "message": message}


class AutoscalerWords:
    """The latest words. ``limit`` is in seconds.

    ``can_hear``: Events about pods can be read. ``sees_claims``: every NodeClaim is known.
    """

    def __init__(self, limit: float = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self.can_hear, self.sees_claims = True, False
        self.problem = ""  # why the status cannot be understood
        self._words: OrderedDict[tuple[str, str], _Word] = OrderedDict()  # by UID of the pod and source
        self._refusals: OrderedDict[str, _Word] = OrderedDict()  # by name of the NodePool
        self._claims: dict[str, _Claim] = {}
        self._status: Status | None = None
        self._coming_since: dict[str, float] = {}  # by group, while nodes of it are on their way

    # What is heard

    def put_event(self, event: Mapping[str, Any]) -> str:
        """Take a word. Returns the UID of the pod that it is about; empty for one about a NodePool."""
        about = mapping(event.get("involvedObject"))
        word = _Word(text(event.get("reason")), text(event.get("message")), _time_of(event))
        if about.get("kind") == _NODE_POOL:
            _keep(self._refusals, text(about.get("name")), word)
            return ""
        key = text(about.get("uid")), _source(event)
        before = self._words.get(key)
        if before is None or word.at >= before.at:
            _keep(self._words, key, word)
        return key[0]

    def forget_pod(self, uid: str) -> None:
        """Drop what was said of a pod."""
        for source in _OF_PODS:
            self._words.pop((uid, source), None)

    def put_claim(self, claim: Mapping[str, Any], *, is_gone: bool = False) -> bool:
        """A NodeClaim was made, has changed or is gone. Returns whether another set of NodePools has nodes on their way now.

        A NodeClaim that is being deleted brings no node, and one that is initialized has brought it.
        """
        before, meta = self._claimed_pools, metadata(claim)
        has_node = any(
            one.get("type") == "Initialized" and one.get("status") == "True"
            for one in mappings(mapping(claim.get("status")).get("conditions"))
        )
        name = text(meta.get("name"))
        if is_gone or meta.get("deletionTimestamp") or has_node:
            self._claims.pop(name, None)
        else:
            node_pool = text(mapping(meta.get("labels")).get(KARPENTER_FACTS.pool_label))
            self._claims[name] = _Claim(node_pool, seconds(meta.get("creationTimestamp")) or 0.0)
        return self._claimed_pools != before

    @property
    def _claimed_pools(self) -> set[str]:
        return {claim.node_pool for claim in self._claims.values()}

    def put_status(self, config_map: Mapping[str, Any] | None) -> bool:
        """The status has changed, or is gone. Returns whether any group has another state now."""
        before = self._status
        try:
            self._status, self.problem = (None if config_map is None else status_of(config_map)), ""
        except InputError as error:
            self._status, self.problem = None, str(error)
        self._note_orders(before)
        return bool(_states(before) != _states(self._status))

    def _note_orders(self, before: Status | None) -> None:
        """Note since when nodes of each group are on their way; another order begins anew."""
        groups = self._status.groups if self._status is not None else {}
        at = (self._status.at if self._status is not None else None) or 0.0
        earlier = before.groups if before is not None else {}
        for name in [name for name in self._coming_since if name not in groups or not groups[name].is_coming]:
            del self._coming_since[name]
        for name, group in groups.items():
            if group.is_coming and (name not in self._coming_since or group.target > earlier.get(name, group).target):
                started = group.since if group.scale_up == "InProgress" and name not in self._coming_since else None
                self._coming_since[name] = started or at

    # What it means

    def of(
        self, pod: Mapping[str, Any], wanted: Sequence[str], pools: Mapping[str, Pool], now: float
    ) -> PodWaits | None:
        """What the autoscalers say of a pod that waits for a node of the pools ``wanted``; None: nothing that counts.

        ``now`` is the API server's clock in Unix seconds.
        """
        uid = uid_of(pod)
        known = [pools[name] for name in wanted if name in pools]
        of_karpenter = [pool for pool in known if pool.provider is Provider.KARPENTER]
        of_groups = [pool for pool in known if pool.provider is not Provider.KARPENTER]
        found = self._groups(of_groups, pools, now)
        ordered = self._claimed(uid, of_karpenter, now) or self._ordered(uid, of_groups, found, pools, now)
        if ordered is not None:
            return ordered
        if not self.can_hear and not found:
            return PodWaits(ORDERS_UNKNOWN, "nobody may read Events of autoscalers here")
        if not known or (of_karpenter and of_groups):
            return None  # each autoscaler speaks for its own pools alone
        return (
            self._without_offering(pod, of_karpenter, now)
            if of_karpenter
            else self._without_group(uid, of_groups, found)
        )

    def _claimed(self, uid: str, wanted: Sequence[Pool], now: float) -> PodWaits | None:
        """Whether Karpenter has ordered a node of these pools, which it has not found to be too few for this pod."""
        names = {pool_name(pool) or pool.name for pool in wanted}
        word = self._words.get((uid, KARPENTER))
        failed_at = word.at if word is not None and word.reason == _FAILED else 0.0
        living = [
            claim
            for claim in self._claims.values()
            if claim.node_pool in names and failed_at < claim.at + _TURN and now < claim.at + self.limit
        ]
        if living:
            claim = min(living, key=lambda one: one.at)
            return PodWaits(NODE_ORDERED, f"a node of NodePool {claim.node_pool} is on its way", claim.at)
        if self.sees_claims or word is None or word.reason != _NOMINATED or now >= word.at + self.limit:
            return None
        return PodWaits(NODE_ORDERED, f"a node is ordered ({_NOMINATED})", word.at)

    def _ordered(
        self, uid: str, wanted: Sequence[Pool], found: Sequence[Group], pools: Mapping[str, Pool], now: float
    ) -> PodWaits | None:
        """Whether the cluster autoscaler has ordered a node of these pools."""
        for group in found:
            since = self._coming_since.get(group.name, now)
            if group.is_coming and now < since + self.limit:
                return PodWaits(NODE_ORDERED, f"a node of {_short(group.name)} is on its way", since)
        word = self._words.get((uid, SCALER))
        if not wanted or word is None or word.reason != _TRIGGERED or now >= word.at + self.limit:
            return None
        if found and self._status is not None and (self._status.at or 0.0) > word.at + _SCAN:
            return None  # the status has had the time to show it, and shows nothing
        groups = _GROUP.findall(word.message)
        by_pool = groups_of_pools(pools.values(), groups)
        if any(by_pool.values()) and not any(by_pool.get(pool.name) for pool in wanted):
            return None  # a node of another pool
        named = ", ".join(map(_short, groups)) or "a group"
        return PodWaits(NODE_ORDERED, f"a node of {named} is ordered ({_TRIGGERED})", word.at)

    def _without_offering(self, pod: Mapping[str, Any], wanted: Sequence[Pool], now: float) -> PodWaits | None:
        """What Karpenter says of pools for which it orders nothing. A word that is older than the pod may be over."""
        word = self._words.get((uid_of(pod), KARPENTER))
        has_failed = word is not None and word.reason == _FAILED and now < word.at + _REPEATED
        made_at = seconds(metadata(pod).get("creationTimestamp")) or 0.0
        refusals = [self._refusals.get(pool_name(pool) or pool.name) for pool in wanted]
        fresh = [
            one
            for one in refusals
            if one is not None and now < one.at + _UNAVAILABLE and (has_failed or one.at >= made_at)
        ]
        if fresh and len(fresh) == len(wanted):
            return PodWaits(CANNOT_GROW, f"Karpenter: {fresh[0].message[:_SAID]} ({fresh[0].reason})", fresh[0].at)
        if word is not None and has_failed:
            return PodWaits(NO_SCALE_UP, f"Karpenter: {word.message[:_SAID]}", word.at)
        return None

    def _without_group(self, uid: str, wanted: Sequence[Pool], found: Sequence[Group]) -> PodWaits | None:
        """What the cluster autoscaler says of pools for which no node is on its way."""
        word = self._words.get((uid, SCALER))
        if found:
            if not all(group.obstacle for group in found):
                return None
            told = "; ".join(f"{_short(group.name)} is {group.obstacle}" for group in found)
            return PodWaits(
                CANNOT_GROW, told, max((group.since or 0.0 for group in found if group.is_in_backoff), default=None)
            )
        reasons = _CANNOT.findall(word.message) if word is not None and word.reason == _NOT_TRIGGERED else []
        if word is None or not reasons or all(pool.min_nodes >= pool.max_nodes for pool in wanted):
            return None  # of pools with a fixed size it says nothing
        return PodWaits(NO_SCALE_UP, f"no group that it admits can grow: {', '.join(dict.fromkeys(reasons))}", word.at)

    def _groups(self, wanted: Sequence[Pool], pools: Mapping[str, Pool], now: float) -> list[Group]:
        """The groups of these pools by a status that is kept up to date; none if there is no such status, or no such group."""
        if self._status is None or now > (self._status.at or now) + _SILENT:
            return []
        by_pool = groups_of_pools(pools.values(), self._status.groups)
        return [self._status.groups[name] for pool in wanted for name in by_pool.get(pool.name, ())]


def _short(group: str) -> str:
    """The name of a group for people: on GKE it is the last part of an address."""
    return group.rpartition("/")[2]


def _source(event: Mapping[str, Any]) -> str:
    return text(mapping(event.get("source")).get("component")) or text(event.get("reportingComponent"))


def _time_of(event: Mapping[str, Any]) -> float:
    """When an Event was last seen, in Unix seconds."""
    times = (
        mapping(event.get("series")).get("lastObservedTime"),
        *(event.get(name) for name in ("lastTimestamp", "eventTime", "firstTimestamp")),
    )
    return next((at for time in times if (at := seconds(text(time))) is not None), 0.0)


def _states(status: Status | None) -> Any:
    """What of a status says whether groups can grow; a new moment changes nothing of it."""
    return None if status is None else {name: (one.obstacle, one.is_coming) for name, one in status.groups.items()}


def _keep(kept: OrderedDict[Any, _Word], key: Any, word: _Word) -> None:
    kept[key] = word
    kept.move_to_end(key)
    while len(kept) > _KEPT:
        kept.popitem(last=False)
