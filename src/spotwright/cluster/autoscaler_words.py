"""What autoscalers say of pods that wait: a node is ordered, or none of the pods' pools can give one.

The cluster autoscaler says it in Events about a pod, and tells the state of its groups in a ConfigMap. Karpenter nominates a pod
for a NodeClaim, and says in Events why it has none. The latest word counts. One that says nothing of a pod, or whose word is too
old to be true, leaves the pod to the clock.

Events about a pod are of its own namespace, and whoever may write there may have made them, so they decide about this pod alone.
What decides about a pool is known from kube-system, from NodeClaims, and from the Events of NodePools in the namespace default.

Sources: kubernetes/autoscaler, ``cluster-autoscaler/processors/status/eventing_scale_up_processor.go`` and
``core/scaleup/orchestrator/skippedreasons.go`` (the sentences); kubernetes-sigs/karpenter,
``pkg/controllers/provisioning/scheduling/events.go``, ``pkg/controllers/nodeclaim/lifecycle`` (a NodeClaim that is launched and
does not register is deleted after 15 minutes).
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from spotwright.clouds.cluster_autoscaler import Group, Status, groups_of_pools
from spotwright.cluster.signals import PodWaits, mapping, seconds, text
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
_NO_CAPACITY = ("InsufficientCapacityError", "NoCompatibleInstanceTypes")  # of a NodeClaim, of a NodePool
_CAPACITY_KINDS = ("NodeClaim", "NodePool")
_CANNOT = re.compile(r"\d+ (max node group size reached|in backoff after failed scale-up)")
_GROUP = re.compile(r"\{(\S{1,500}) \d+->\d+ ")
_CLAIM = re.compile(r"nodeclaim/([a-z0-9.-]{1,253})")
_LONGEST = 2000  # characters of a message
_KEPT = 20_000
_STALE = 15.0  # seconds after an order until the status has it: one scan is 10 s
_UNAVAILABLE = 180.0  # seconds for which Karpenter leaves out an offering without capacity


class _Word(NamedTuple):
    reason: str
    message: str
    at: float


def is_word(event: Mapping[str, Any], enabled: Collection[str]) -> bool:
    """Whether an Event is a word of an autoscaler on a pod of these namespaces, or on a pool of Karpenter."""
    about = mapping(event.get("involvedObject"))
    if about.get("kind") in _CAPACITY_KINDS:
        return metadata(event).get("namespace") == NAMESPACE and event.get("reason") in _NO_CAPACITY
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

    ``can_hear``: Events about pods can be read. ``sees_claims``: every living NodeClaim is known; without that a nominated pod
    counts as one whose node is ordered until the limit.
    """

    def __init__(self, limit: float = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self.can_hear, self.sees_claims = True, False
        self._words: OrderedDict[tuple[str, str], _Word] = OrderedDict()  # by UID of the pod and source
        self._capacity: OrderedDict[str, _Word] = OrderedDict()  # by kind/name
        self._claims: dict[str, Mapping[str, Any]] = {}
        self.status: Status | None = None
        self.problem = ""

    # What is heard

    def put_event(self, event: Mapping[str, Any]) -> str:
        """Take a word. Returns the UID of the pod that it is about; empty for one about a pool of Karpenter."""
        about = mapping(event.get("involvedObject"))
        word = _Word(text(event.get("reason")), text(event.get("message")), _time_of(event))
        kind = text(about.get("kind"))
        if kind in _CAPACITY_KINDS:
            _keep(self._capacity, f"{kind}/{text(about.get('name'))}", word)
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

    def put_claim(self, claim: Mapping[str, Any]) -> None:
        """A NodeClaim was made or has changed; one that is being deleted brings no node."""
        name = text(metadata(claim).get("name"))
        if metadata(claim).get("deletionTimestamp"):
            self._claims.pop(name, None)
        else:
            self._claims[name] = claim

    def delete_claim(self, claim: Mapping[str, Any]) -> None:
        """A NodeClaim is gone."""
        self._claims.pop(text(metadata(claim).get("name")), None)

    def put_status(self, config_map: Mapping[str, Any] | None) -> bool:
        """The status has changed, or is gone. Returns whether any group has another state now."""
        before = self.status
        try:
            self.status, self.problem = (None if config_map is None else status_of(config_map)), ""
        except InputError as error:
            self.status, self.problem = None, str(error)
        return bool(_states(before) != _states(self.status))

    # What it means

    def of(
        self, pod: Mapping[str, Any], wanted: Sequence[str], pools: Mapping[str, Pool], now: float
    ) -> PodWaits | None:
        """What the autoscalers say of a pod that waits for a node of the pools ``wanted``; None: nothing that counts.

        ``now`` is the API server's clock in Unix seconds.
        """
        uid = uid_of(pod)
        known = [pools[name] for name in wanted if name in pools]
        ordered = self._ordered(uid, now) or self._nominated(uid, now)
        if ordered is not None:
            return ordered
        if not self.can_hear:
            return PodWaits(ORDERS_UNKNOWN, "nobody may read Events of autoscalers here", None)
        if known and all(pool.provider is Provider.KARPENTER for pool in known):
            return self._without_offering(uid, known, now)
        if any(pool.provider is Provider.KARPENTER for pool in known):
            return None  # each of them speaks for its own pools alone
        return self._without_group(uid, known, pools)

    def _ordered(self, uid: str, now: float) -> PodWaits | None:
        word = self._words.get((uid, SCALER))
        if word is None or word.reason != _TRIGGERED or now >= word.at + self.limit:
            return None
        groups = _GROUP.findall(word.message)
        if groups and self._is_over(groups, word.at):
            return None
        named = ", ".join(name.rpartition("/")[2] for name in groups) or "a group"
        return PodWaits(NODE_ORDERED, f"a node of {named} is ordered ({_TRIGGERED})", word.at)

    def _is_over(self, groups: Sequence[str], since: float) -> bool:
        """Whether an order is known to have ended: the groups are in backoff, or have all nodes that they shall have."""
        status = self.status
        if status is None or status.at is None or status.at < since:
            return False
        found = [status.groups[name] for name in groups if name in status.groups]
        if not found:
            return False
        is_late = status.at > since + _STALE
        return all(
            (one.is_in_backoff and (one.since or 0.0) >= since - 1.0) or (is_late and not one.is_coming)
            for one in found
        )

    def _nominated(self, uid: str, now: float) -> PodWaits | None:
        word = self._words.get((uid, KARPENTER))
        if word is None or word.reason != _NOMINATED or now >= word.at + self.limit:
            return None
        living = [name for name in _CLAIM.findall(word.message) if name in self._claims or not self.sees_claims]
        if not living:
            return None
        return PodWaits(NODE_ORDERED, f"the node of NodeClaim {', '.join(living)} is ordered ({_NOMINATED})", word.at)

    def _without_offering(self, uid: str, wanted: Sequence[Pool], now: float) -> PodWaits | None:
        word = self._words.get((uid, KARPENTER))
        if word is None:
            return None
        names = [pool.labels.get("karpenter.sh/nodepool", pool.name) for pool in wanted]
        said = [self._capacity.get(f"NodePool/{name}") for name in names]
        said += [self._capacity.get(f"NodeClaim/{name}") for name in _CLAIM.findall(word.message)]
        fresh = [
            one for one in said if one is not None and now < one.at + _UNAVAILABLE and one.at >= word.at - _UNAVAILABLE
        ]
        if fresh:
            latest = max(fresh, key=lambda one: one.at)
            return PodWaits(CANNOT_GROW, f"{_first_sentence(latest.message)} ({latest.reason})", latest.at)
        if word.reason == _FAILED:
            return PodWaits(NO_SCALE_UP, f"Karpenter: {_first_sentence(word.message)}", word.at)
        return None

    def _without_group(self, uid: str, wanted: Sequence[Pool], pools: Mapping[str, Pool]) -> PodWaits | None:
        word = self._words.get((uid, SCALER))
        reasons = _CANNOT.findall(word.message) if word is not None and word.reason == _NOT_TRIGGERED else []
        found = self._groups(wanted, pools)
        if found is not None and found:
            if all(group.obstacle for group in found):
                told = "; ".join(f"{group.name.rpartition('/')[2]} is {group.obstacle}" for group in found)
                at = self.status.at if self.status is not None else None
                return PodWaits(CANNOT_GROW, told, word.at if word is not None and reasons else at)
            if word is None or self.status is None or (self.status.at or 0.0) >= word.at:
                return None
        elif all(pool.min_nodes >= pool.max_nodes for pool in wanted):
            return None  # what the autoscaler says is about other pools
        if word is None or not reasons:
            return None
        return PodWaits(NO_SCALE_UP, f"no group that it admits can grow: {', '.join(dict.fromkeys(reasons))}", word.at)

    def _groups(self, wanted: Sequence[Pool], pools: Mapping[str, Pool]) -> list[Group] | None:
        """The groups of these pools by the status; None: there is no status."""
        if self.status is None:
            return None
        by_pool = groups_of_pools(pools.values(), self.status.groups)
        return [self.status.groups[name] for pool in wanted for name in by_pool.get(pool.name, ())]


def _source(event: Mapping[str, Any]) -> str:
    return text(mapping(event.get("source")).get("component")) or text(event.get("reportingComponent"))


def _time_of(event: Mapping[str, Any]) -> float:
    """When an Event was last seen, in Unix seconds."""
    times = (
        mapping(event.get("series")).get("lastObservedTime"),
        *(event.get(name) for name in ("lastTimestamp", "eventTime", "firstTimestamp")),
    )
    return next((at for time in times if (at := seconds(text(time))) is not None), 0.0)


def _first_sentence(message: str) -> str:
    return message.partition("; ")[0][:300]


def _states(status: Status | None) -> Any:
    """What of a status says whether groups can grow; a new moment changes nothing of it."""
    return None if status is None else {name: (one.obstacle, one.is_coming) for name, one in status.groups.items()}


def _keep(kept: OrderedDict[Any, _Word], key: Any, word: _Word) -> None:
    kept[key] = word
    kept.move_to_end(key)
    while len(kept) > _KEPT:
        kept.popitem(last=False)
