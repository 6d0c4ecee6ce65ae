"""Evicts unschedulable pods and force-deletes pods of dead nodes. It works beside the watcher of the leading replica.

A pod is evicted only if recreating it costs its workload nothing. It is force-deleted in three cases: its machine is certainly
gone, not merely silent; its node has restarted and will never start it; or its Job would already have replaced it without our
``podFailurePolicy``, with which Kubernetes lets a Job replace a pod only once it has failed.

The watcher asks it about the newest attempt of each pod (:meth:`Descheduler.decide`), and records the answer with its
observation. The eviction follows once that is in the journal (:meth:`Descheduler.recorded`), so the next leader can continue
from there. The descheduler keeps timers for changes by time, at which the watcher looks again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from spotwright.clouds import node_signs
from spotwright.cluster.api_client import Api, ApiFailed, object_path
from spotwright.cluster.signals import LastSeen, event_time, lost_its_sandbox, why_never_starts
from spotwright.cluster.unavailable_pools import CapacityBackoff, Tally
from spotwright.engine.decide import take_back
from spotwright.engine.events import AttemptBound, AttemptRecalled, AttemptReleased, Event, PodStuckTerminating
from spotwright.engine.state import AttemptState, RunState, TaskState
from spotwright.engine.waits import NODE_ORDERED, in_vain_at, waited_in_vain
from spotwright.kinds.job import REPLACEMENT_ANNOTATION, is_own_rule
from spotwright.kinds.kind import Retry, run_kind
from spotwright.kube.object_fields import Owner, controller_of, mapping, mappings, metadata, seconds, text, uid_of
from spotwright.model.attempts import Cause
from spotwright.model.pools import Pool
from spotwright.notices.node_event import NodeNotice
from spotwright.placing.context import QUEUE_LABEL

__all__ = [
    "Descheduler",
    "Eviction",
    "EvictionJournal",
    "NodeSeen",
    "backoff_after",
    "backoff_of_job",
    "not_ready_since",
    "why_gone",
    "why_many_stay",
    "why_not_made_again",
    "why_not_moved",
    "why_replaced",
    "worth_moving_at",
]


_LOG = logging.getLogger(__name__)
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0  # seconds between two tries
_DONE = (404,)  # the pod is gone
_CHANGED = 409  # its version or UID changed: the watcher's next look decides


@dataclass(slots=True)
class Eviction:
    """An action on a pod. ``not_before`` is by the monotonic clock."""

    what: Literal["evict", "delete"]
    namespace: str
    name: str
    uid: str
    version: str
    why: str
    tries: int = 0
    not_before: float = 0.0
    is_done: bool = False
    fails_first: bool = False  # its Job counts a pod only once its phase is Failed


class EvictionJournal:
    """The pending evictions, by the pod's UID. ``done`` is called after each."""

    def __init__(self, api: Api, done: Callable[[Literal["evicted", "deleted"]], None] = lambda _: None) -> None:
        self._api, self._done = api, done
        self._open: dict[str, Eviction] = {}

    def want(self, eviction: Eviction) -> None:
        """Schedule an eviction; if it is already scheduled, update it to the pod's newest version."""
        known = self._open.get(eviction.uid)
        if known is not None and known.what == eviction.what:
            if known.version != eviction.version:
                known.version, known.not_before = eviction.version, known.not_before if known.is_done else 0.0
        else:
            self._open[eviction.uid] = eviction

    def forget(self, uid: str) -> None:
        """Drop all plans for a pod."""
        self._open.pop(uid, None)

    async def do(self, clock: float) -> None:
        """Try the actions that are due."""
        for eviction in [each for each in self._open.values() if each.not_before <= clock]:
            await self._try(eviction, clock)

    async def _try(self, eviction: Eviction, clock: float) -> None:
        try:
            if eviction.fails_first:
                await self._api.send(*_failure(eviction))
                eviction.fails_first = False
            await self._api.send(*_request(eviction))
        except ApiFailed as error:
            if error.status in _DONE:
                self._open.pop(eviction.uid, None)
                return
            eviction.tries += 1
            eviction.not_before = clock + min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(eviction.tries - 1, 10))
            if error.status != _CHANGED:
                _LOG.warning(
                    "pod %s/%s: cannot %s it, retrying: %s", eviction.namespace, eviction.name, eviction.what, error
                )
            return
        eviction.not_before = clock + _LONGEST_WAIT  # its object may stay until its finalizers are removed
        if eviction.is_done:
            return
        eviction.is_done = True
        done: Literal["evicted", "deleted"] = "evicted" if eviction.what == "evict" else "deleted"
        self._done(done)
        _LOG.info("pod %s/%s is %s: %s", eviction.namespace, eviction.name, done, eviction.why)


def _request(eviction: Eviction) -> tuple[str, str, dict[str, Any]]:
    """The method, path and body of the request. Raises :class:`ApiFailed` for a name that no pod has."""
    path = object_path("v1", "Pod", eviction.name, eviction.namespace)
    if eviction.what == "delete":
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        return "DELETE", path, {**options, "preconditions": {"uid": eviction.uid}}
    options = {"preconditions": {"uid": eviction.uid, "resourceVersion": eviction.version}}
    meta = {"name": eviction.name, "namespace": eviction.namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}
    return "POST", f"{path}/eviction", body


def _failure(eviction: Eviction) -> tuple[str, str, dict[str, Any]]:
    """The request that sets a pod's phase to Failed, as Kubernetes' pod garbage collector does on nodes that are gone.

    Source: Kubernetes, ``pkg/controller/podgc`` (``markFailedAndDeletePod``). The version is a precondition: the node may have
    just reported the pod's end.
    """
    path = f"{object_path('v1', 'Pod', eviction.name, eviction.namespace)}/status"
    seen = {"uid": eviction.uid, "resourceVersion": eviction.version}
    return "PATCH", path, {"metadata": seen, "status": {"phase": "Failed", "message": eviction.why}}


def why_not_moved(pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]], *, is_admitted: bool) -> str:
    """Why a waiting pod is left alone; empty if it may be evicted. ``owners`` are the pod's owners, nearest first.

    ``is_admitted``: our webhook chose its rung, by the record of its attempt; the pod itself is untrusted.
    """
    labelled = [metadata(each).get("labels") or {} for each in (pod, *owners)]
    if any(labels.get(QUEUE_LABEL) for labels in labelled):
        return "Kueue chooses its flavor, and with it its nodes"
    if controller_of(pod) is not None and not is_admitted:
        return "it was not pinned to a rung by the webhook, so the next pod would wait for the same nodes"
    return why_not_made_again(pod, owners)


def why_not_made_again(pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]]) -> str:
    """Why an eviction of a pod would cost its workload something; empty if the pod is recreated free of charge."""
    if (owner := controller_of(pod)) is None:
        return "a pod without a controller is not recreated"
    said = [rule for owner in owners if (rule := run_kind(owner).why_not_evicted) is not None]
    if said:
        return said[-1](owners)  # the outermost controller recreates everything below it
    kind = text(owners[0].get("kind")) if owners else owner.kind or "controller"
    return f"its {kind} would count it as a failure"


_FIRST_BACKOFF, _LONGEST_BACKOFF = (
    10.0,
    600.0,
)  # seconds: kubernetes, pkg/controller/job (DefaultJobPodFailureBackOff, Max...)


def backoff_after(failed: int) -> float:
    """The seconds for which a Job creates no pods after this many consecutive failures (at least one)."""
    return min(_LONGEST_BACKOFF, _FIRST_BACKOFF * 2.0 ** min(failed - 1, 10))


_WORTH = 120.0  # seconds of a Job's backoff that are always acceptable: four pods at once


def why_many_stay(owners: Sequence[Mapping[str, Any]]) -> str:
    """Why a Job's pods should avoid a pool from which they may have to be evicted; empty if they may use it.

    All pods that wait there would be evicted at once, and the Job would then create none for ten minutes.
    """
    if not _waits_to_make_pods(owners):
        return ""
    spec = mapping(owners[0].get("spec"))
    parallelism = spec.get("parallelism", 1)
    if spec.get("backoffLimitPerIndex") is not None or not isinstance(parallelism, int):
        return ""
    cost = backoff_after(max(1, parallelism))
    if cost <= _WORTH:
        return ""
    return f"its Job creates no pods for {cost:g} s after {parallelism} of them are evicted at once"


def _waits_to_make_pods(owners: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a pod's controller waits before the next pod; a pod of a set is recreated with the set."""
    kinds = [run_kind(owner) for owner in owners]
    return bool(kinds) and kinds[0].makes_pods_later and all(kind.retry is not Retry.SET for kind in kinds)


def backoff_of_job(state: RunState, task: TaskState, owners: Sequence[Mapping[str, Any]]) -> float:
    """The seconds for which a pod's Job creates no pods after its eviction; 0 if another controller recreates it at once.

    The Job controller counts every pod that failed since the last success, including those that ``podFailurePolicy`` ignores,
    and doubles its wait with each. A Job with a limit per index counts them by index. The pod itself counts once, whether or
    not it is already being evicted. Source: Kubernetes 1.35.4, ``pkg/controller/job/backoff_utils.go``.
    """
    if not _waits_to_make_pods(owners):
        return 0.0
    is_by_index = mapping(owners[0].get("spec")).get("backoffLimitPerIndex") is not None
    alike = [one for one in state.tasks.values() if one.plan.spec.name == task.plan.spec.name]
    attempts = [attempt for one in ([task] if is_by_index else alike) for attempt in one.attempts]
    succeeded = max((one.ended_at or 0.0 for one in attempts if one.cause is Cause.SUCCEEDED), default=0.0)
    others = [one for one in attempts if one is not task.last]
    failed = sum(1 for one in others if one.cause is not Cause.SUCCEEDED and _failed_at(one) > succeeded)
    return backoff_after(failed + 1)


def _failed_at(attempt: AttemptState) -> float:
    """When an attempt ended or was recalled; 0 for an active one."""
    return attempt.ended_at or (attempt.taken_back.at if attempt.taken_back is not None else 0.0)


def worth_moving_at(
    state: RunState, task: TaskState, attempt: AttemptState, owners: Sequence[Mapping[str, Any]], now: float
) -> float:
    """The time from which an eviction costs no more than waiting.

    The cost is the time for which the Job creates no pods, for this and all its other pods: so only as many waiting pods are
    evicted at once as are worth it. The wait is worth ``pending_timeout``, or the time already waited. A few are always evicted
    together: one by one, their waits would add up.
    """
    cost = backoff_of_job(state, task, owners)
    if cost <= _WORTH or cost < task.plan.policy.pending_timeout:
        return now
    return now + max(0.0, cost - waited_in_vain(attempt, now))


_AFTER_NOTICE = 30.0  # seconds after the announced end, within which the machine is reclaimed
_BEFORE_END = 180.0  # seconds before that end: a node silent for longer has another problem


class NodeSeen(NamedTuple):
    """The known state of a node. ``state`` is its object, or the last one seen; ``is_deleted``: the API no longer has it."""

    name: str
    state: Mapping[str, Any] | None
    events: Sequence[Mapping[str, Any]] = ()
    notice: NodeNotice | None = None
    is_deleted: bool = False


def why_gone(node: NodeSeen, now: float) -> str:
    """Why the machine of a node is certainly gone; empty if that is not certain. ``now`` is the API server's clock."""
    if node.state is None or _ready(node.state).get("status") == "True":
        return ""
    if node.is_deleted:
        return f"the Node object {node.name} was deleted"
    for taint in mappings(mapping(node.state.get("spec")).get("taints")):
        if taint.get("key") in node_signs.GONE_TAINTS:
            return f"node {node.name} does not report and has the taint {taint['key']}"
    made_at = seconds(metadata(node.state).get("creationTimestamp")) or 0.0
    for event in node.events:
        if event.get("reason") in node_signs.GONE_EVENTS and event_time(event) >= made_at:
            return f"the provider no longer has a machine for node {node.name} (event {event['reason']})"
    return _taken_after_notice(node, now)


def why_replaced(pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]], node: NodeSeen) -> str:
    """Why the Job of a pod on a silent node may create its next pod once this one is being deleted; empty if it must wait.

    Without a ``podFailurePolicy`` a Job replaces a pod as soon as it is being deleted. Ours must not delay that, unless the
    author wants it, as placement notes on the pods (:data:`~spotwright.kinds.job.REPLACEMENT_ANNOTATION`).
    """
    is_silent = _ready(node.state).get("status") == "Unknown"
    if (
        not is_silent
        or not metadata(pod).get("deletionTimestamp")
        or not (owners and run_kind(owners[0]).retry is Retry.JOB)
    ):
        return ""
    if REPLACEMENT_ANNOTATION in mapping(metadata(pod).get("annotations")):
        return ""
    rules = mappings(mapping(mapping(owners[0].get("spec")).get("podFailurePolicy")).get("rules"))
    if not any(map(is_own_rule, rules)):
        return ""
    return f"node {node.name} does not report, and its Job, which lacks our podFailurePolicy, would not wait for it"


def not_ready_since(node: Mapping[str, Any] | None) -> float | None:
    """Since when a node is not Ready, in Unix seconds; None if it is, or if that is unknown."""
    ready = _ready(node)
    return None if ready.get("status") in (None, "True") else seconds(ready.get("lastTransitionTime"))


def _taken_after_notice(node: NodeSeen, now: float) -> str:
    announced, silent_since = node.notice, not_ready_since(node.state)
    if (
        announced is None
        or announced.notice.kind != "interruption"
        or not announced.notice.certain
        or silent_since is None
    ):
        return ""
    ends_at = announced.notice.ends_at
    if now < ends_at + _AFTER_NOTICE or silent_since < ends_at - _BEFORE_END:
        return ""
    return f"the provider announced the end of node {node.name}, which has not reported since"


def _ready(node: Mapping[str, Any] | None) -> Mapping[str, Any]:
    conditions = mappings(mapping((node or {}).get("status")).get("conditions"))
    return next((each for each in conditions if each.get("type") == "Ready"), {})


_PAUSE = 0.5  # seconds between two looks at what is due
_AT_ONCE = 200  # pods looked at in one turn, so that streams and the Lease get theirs
_LOOK_AGAIN = 5.0  # seconds until the next look at a pod whose wait or node may have changed
_ORDER_AGAIN = 15.0  # seconds until the next look at a pod with an ordered node: the order may end silently
_FINISHED = ("Succeeded", "Failed")


class _Seen(Protocol):
    """A pod as the watcher shows it."""

    @property
    def pod(self) -> Mapping[str, Any]: ...
    @property
    def owners(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def is_gone(self) -> bool: ...


class _View(Protocol):
    """The watcher's knowledge of nodes."""

    def node(self, name: str) -> Mapping[str, Any] | None: ...
    def is_node_gone(self, name: str) -> bool: ...
    def is_ready(self, name: str) -> bool: ...
    def events_of(self, node: str) -> Sequence[Mapping[str, Any]]: ...
    def notice_of(self, name: str) -> NodeNotice | None: ...


class Descheduler:
    """Decides and acts for one leader. ``clock`` is monotonic; ``tally`` is for metrics."""

    def __init__(
        self,
        api: Api,
        pauses: CapacityBackoff,
        clock: Callable[[], float] = time.monotonic,
        tally: Tally | None = None,
    ) -> None:
        self._pauses, self._clock, self._tally = pauses, clock, tally or Tally()
        self._deeds = EvictionJournal(api, self._tally.moved)
        # pod UID -> its attempt with the pools of its run, from decision to record, where a eviction may follow
        self._attempts: dict[str, tuple[AttemptState, Mapping[str, Pool]]] = {}
        self._due: dict[str, float] = {}  # pod UID -> when to look again, by the monotonic clock

    async def run(self, look_at: Callable[[Iterable[str]], None]) -> None:
        """Work until cancelled. ``look_at`` makes the watcher look at pods again, by UID."""
        while True:
            clock = self._clock()
            due = [uid for uid, at in self._due.items() if at <= clock][:_AT_ONCE]
            for uid in due:
                del self._due[uid]
            if due:
                look_at(due)
            await self._deeds.do(clock)
            await asyncio.sleep(_PAUSE)

    def decide(
        self, view: _View, state: RunState, seen: _Seen, task: TaskState, attempt: AttemptState, now: float
    ) -> Iterator[Event]:
        """The decisions about a pod's newest attempt, before they are in the journal. ``now`` is the API server's clock."""
        node = str((seen.pod.get("spec") or {}).get("nodeName") or "")
        if seen.is_gone or node or _is_finished(seen.pod):
            self._tally.waits_no_more(uid_of(seen.pod))
        is_over = _is_finished(seen.pod) and not (attempt.released and metadata(seen.pod).get("deletionTimestamp"))
        if seen.is_gone or is_over:
            if attempt.held is not None:
                yield PodStuckTerminating(now, task.path, attempt.number)
        elif node:
            yield from self._about_its_node(view, node, state, seen, task, attempt, now)
        elif attempt.is_live and attempt.bound_at is None:
            yield from self._while_it_waits(state, seen, task, attempt, now)

    def recorded(self, pod: Mapping[str, Any], *, is_gone: bool) -> None:
        """Note that the decision about a pod is in the journal, so that it may be executed."""
        uid = uid_of(pod)
        attempt, pools = self._attempts.pop(uid, (None, {}))
        if is_gone or attempt is None:
            self._deeds.forget(uid)
            if is_gone:
                self._due.pop(uid, None)
            return
        if attempt.taken_back is not None:
            self._pauses.take(_namespace(pod), pools, attempt.taken_back)
            self._want("evict", pod, attempt.taken_back.why)
        elif attempt.released:
            self._want("delete", pod, attempt.released)

    def forget(self, uid: str) -> None:
        """Drop all plans and counts for a pod that is gone."""
        self._attempts.pop(uid, None)
        self._due.pop(uid, None)
        self._deeds.forget(uid)
        self._tally.waits_no_more(uid)

    def _while_it_waits(
        self, state: RunState, seen: _Seen, task: TaskState, attempt: AttemptState, now: float
    ) -> Iterator[Event]:
        uid = uid_of(seen.pod)
        reason = attempt.waits.partition(":")[0]
        namespace, pools = _namespace(seen.pod), state.plan.config.pools
        self._tally.waits(uid, namespace, reason)
        if attempt.taken_back is None:
            due = in_vain_at(task, attempt)
            if due is None and attempt.waits.startswith(NODE_ORDERED):
                self._due[uid] = self._clock() + _ORDER_AGAIN
                return
            if due is None or why_not_moved(seen.pod, seen.owners, is_admitted=attempt.why != ""):
                self._due.pop(uid, None)
                return
            due = max(due, worth_moving_at(state, task, attempt, seen.owners, now))
            self._due[uid] = self._clock() + (due - now if due > now else _LOOK_AGAIN)
            if due > now:
                return
            pauses, taken = self._pauses.of(namespace, pools), self._pauses.taken(namespace, pools)
            own = self._pauses.own(namespace, pools)
            for event in take_back(state, task, attempt, pauses, taken, now, own):
                if isinstance(event, AttemptRecalled):
                    self._tally.moved("taken-back")
                yield event
        self._attempts[uid] = attempt, pools

    def _about_its_node(
        self,
        view: _View,
        name: str,
        state: RunState,
        seen: _Seen,
        task: TaskState,
        attempt: AttemptState,
        now: float,
    ) -> Iterator[Event]:
        uid, pools = uid_of(seen.pod), state.plan.config.pools
        if attempt.bound_at is not None and attempt.pool is not None:
            bound = AttemptBound(attempt.bound_at, node=name, pool=attempt.pool)
            self._pauses.take(_namespace(seen.pod), pools, bound)
        node = NodeSeen(name, view.node(name), view.events_of(name), view.notice_of(name), view.is_node_gone(name))
        if view.is_ready(name):
            if attempt.held is not None:
                yield PodStuckTerminating(now, task.path, attempt.number)
            if attempt.is_live and lost_its_sandbox(seen.pod):
                yield from self._while_it_never_starts(node, seen.pod, task, attempt, pools, now)
            return
        self._attempts[uid] = attempt, pools
        self._due[uid] = self._clock() + _LOOK_AGAIN
        why = why_gone(node, now) or why_replaced(seen.pod, seen.owners, node)
        if why:
            if not attempt.released:
                yield AttemptReleased(now, task.path, attempt.number, why=why)
        elif metadata(seen.pod).get("deletionTimestamp") and attempt.held is None and not attempt.released:
            yield PodStuckTerminating(now, task.path, attempt.number, node=name, since=not_ready_since(node.state))

    def _while_it_never_starts(
        self,
        node: NodeSeen,
        pod: Mapping[str, Any],
        task: TaskState,
        attempt: AttemptState,
        pools: Mapping[str, Pool],
        now: float,
    ) -> Iterator[Event]:
        self._due[uid_of(pod)] = self._clock() + _LOOK_AGAIN
        restarted = why_never_starts(LastSeen(pod, node.state, node_events=node.events, boot=attempt.boot), now)
        if not restarted:
            return
        self._attempts[uid_of(pod)] = attempt, pools
        if not attempt.released:
            why = f"node {node.name} restarted before it began, and its kubelet will not start it: {restarted}"
            yield AttemptReleased(now, task.path, attempt.number, why=why)

    def _want(self, what: Any, pod: Mapping[str, Any], why: str) -> None:
        meta = metadata(pod)
        version, namespace = str(meta.get("resourceVersion", "")), str(meta.get("namespace", ""))
        fails = what == "delete" and _is_of_a_job(pod) and not _is_finished(pod)
        self._deeds.want(Eviction(what, namespace, str(meta["name"]), uid_of(pod), version, why, fails_first=fails))


def _is_finished(pod: Mapping[str, Any]) -> bool:
    return mapping(pod.get("status")).get("phase") in _FINISHED


def _is_of_a_job(pod: Mapping[str, Any]) -> bool:
    return run_kind({"kind": (controller_of(pod) or Owner()).kind}).retry is Retry.JOB


def _namespace(pod: Mapping[str, Any]) -> str:
    return str(metadata(pod).get("namespace", ""))
