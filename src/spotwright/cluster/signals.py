"""Translates the last states of a pod, its node and its owners into the signals that the classifier judges.

Pure functions on objects as the API writes them. A missing or wrong value reads as empty, so that no object stops the watcher.
A controller that stops a pod on purpose marks itself, not the pod, so its owners are read too.
:mod:`spotwright.scheduling.cause` alone decides what the signals mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from spotwright.clouds import node_signs
from spotwright.clouds.providers import is_spot_node
from spotwright.kinds.kind import Retry, run_kind
from spotwright.kube.object_fields import ARGO_NODE_ID, mapping, mappings, seconds, text
from spotwright.model.attempts import ContainerEnd, Signals, StatusCondition
from spotwright.notices.early_exit import progress_in
from spotwright.notices.notice import Notice
from spotwright.placing.context import QUEUE_LABEL
from spotwright.placing.patch import value_at

__all__ = [
    "GOOD_ENDS",
    "KUBELET_STARTS",
    "REBOOTED",
    "LastSeen",
    "OwnersWord",
    "PodEnd",
    "PodWaits",
    "as_gone",
    "boot_of",
    "bound_at",
    "conditions",
    "event_time",
    "events_of",
    "events_of_pod",
    "given_up_at",
    "has_lost_node",
    "has_not_started",
    "how_cancelled",
    "how_shut_down",
    "how_suspended",
    "is_gone",
    "is_held_up",
    "is_spot",
    "lost_its_sandbox",
    "read_owners",
    "read_pod",
    "signals_of",
    "started_at",
    "taints_of",
    "transition",
    "untold_until",
    "waits_for",
    "was_suspended",
    "when_asked_to_stop",
    "why_never_starts",
]


def event_time(event: Mapping[str, Any]) -> float:
    """When an Event was last seen, in Unix seconds; 0 if unknown."""
    times = (
        mapping(event.get("series")).get("lastObservedTime"),
        *(event.get(name) for name in ("lastTimestamp", "eventTime", "firstTimestamp")),
    )
    return next((at for time in times if (at := seconds(time)) is not None), 0.0)


def conditions(of_object: Mapping[str, Any]) -> tuple[StatusCondition, ...]:
    """The conditions in the status of an object."""
    return tuple(
        StatusCondition(
            text(each.get("type")), text(each.get("status")), text(each.get("reason")), text(each.get("message"))
        )
        for each in mappings(mapping(of_object.get("status")).get("conditions"))
    )


def transition(of_object: Mapping[str, Any], kind: str, reason: str = "", *, status: str = "True") -> float | None:
    """When a condition got this status, in Unix seconds; None if it has another status or reason."""
    for each in mappings(mapping(of_object.get("status")).get("conditions")):
        if each.get("type") == kind and each.get("status") == status and reason in ("", each.get("reason")):
            return seconds(each.get("lastTransitionTime"))
    return None


def taints_of(node: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys of the node's taints, each once."""
    keys = (text(taint.get("key")) for taint in mappings(mapping(node.get("spec")).get("taints")))
    return tuple(dict.fromkeys(key for key in keys if key))


def is_spot(node: Mapping[str, Any]) -> bool | None:
    """True for a spot node, False for an on-demand node, None if its labels and taints do not tell."""
    labels = mapping(mapping(node.get("metadata")).get("labels"))
    return is_spot_node({name: text(value) for name, value in labels.items()}, taints_of(node))


def events_of(events: Iterable[Mapping[str, Any]]) -> tuple[StatusCondition, ...]:
    """Events about the node, as the API writes them (``v1`` Event), in the shape of a condition."""
    return tuple(
        StatusCondition(text(event.get("reason")), "True", text(event.get("reason")), text(event.get("message")))
        for event in events
    )


_FAILING = ("FailureTarget", "Failed")
GOOD_ENDS = ("Complete", "Completed", "Succeeded")
"""The conditions by which controllers report success."""

_DONE = ("SuccessCriteriaMet", *GOOD_ENDS)
_DEADLINE = "exceeded its deadline"  # Argo's message after the Workflow's own time limit


@dataclass(frozen=True, slots=True)
class OwnersWord:
    """Why the owners of a pod stopped it; empty if they did not. ``is_restart``: they recreate its work."""

    timed_out: bool = False
    cancelled: str = ""  # how the user ended it: "its Job was deleted"
    moved: str = ""
    message: str = ""  # Argo's message about the pod's step
    step: str = ""  # Argo's phase of it: Succeeded | Failed | Error | ...
    is_restart: bool = False


def read_owners(
    owners: Sequence[Mapping[str, Any]],
    pod: Mapping[str, Any],
    stop_asked_at: float | None,
    *,
    is_deleted: bool = False,
) -> OwnersWord:
    """Read the owners of a pod, nearest first. ``stop_asked_at``: when the pod was asked to stop; later changes are irrelevant.

    None: not through the API. Argo stops a pod by a signal to its containers, so its status counts then too. ``is_deleted``:
    the pod was deleted, perhaps at an unknown time.
    """
    made_at = seconds(mapping(pod.get("metadata")).get("creationTimestamp"))
    stopped_at = stop_asked_at if stop_asked_at is not None or not is_deleted else made_at or 0.0
    for index, owner in enumerate(owners):
        word = (
            _workflow(owner, pod)
            if run_kind(owner).retry is Retry.STEP
            else _controller(owner, owners[index + 1 :], stop_asked_at, stopped_at)
        )
        if word != OwnersWord():
            return word
    return OwnersWord()


def _controller(
    owner: Mapping[str, Any], above: Sequence[Mapping[str, Any]], stop_asked_at: float | None, stopped_at: float | None
) -> OwnersWord:
    """The status of a Job, JobSet or TrainJob: its conditions, its deletion, its suspension."""
    kind = text(owner.get("kind")) or "owner"
    for condition in mappings(mapping(owner.get("status")).get("conditions")):
        if condition.get("status") != "True" or not _was_before(condition.get("lastTransitionTime"), stop_asked_at):
            continue
        if condition.get("type") in _FAILING:
            reason = text(condition.get("reason"))
            return (
                OwnersWord(timed_out=True)
                if reason == "DeadlineExceeded"
                else OwnersWord(moved=f"its {kind} failed", is_restart=True)
            )
        if condition.get("type") in _DONE:
            return OwnersWord(moved=f"its {kind} had succeeded")
    if is_gone(owner) or _was_before(_deleted_at(owner), stop_asked_at):
        return _deleted(kind, above)
    how = "" if stopped_at is None else how_suspended((owner, *above), stopped_at)
    return OwnersWord(cancelled=how)


def _deleted_at(owner: Mapping[str, Any]) -> Any:
    return mapping(owner.get("metadata")).get("deletionTimestamp")


def _deleted(kind: str, above: Sequence[Mapping[str, Any]]) -> OwnersWord:
    """A deleted owner was cancelled by its user, unless its own owner exists and replaces it."""
    for owner in above:
        if not is_gone(owner) and not _deleted_at(owner):
            if how := how_suspended(above, math.inf):
                return OwnersWord(cancelled=how)
            return OwnersWord(moved=f"its {text(owner.get('kind'))} replaced its {kind}", is_restart=True)
    return OwnersWord(cancelled=f"its {text(above[-1].get('kind')) if above else kind} was deleted")


_GONE = "spotwright.dev/gone"  # in an object's metadata, where servers do not write: the API no longer has it


def as_gone(owner: Mapping[str, Any]) -> Mapping[str, Any]:
    """The last state of an object that has left the API, marked as such.

    An object deleted in the background leaves at once, without a ``deletionTimestamp``, and its pods are deleted afterwards
    (Kubernetes documentation, "Garbage Collection", background cascading deletion).
    """
    return {**owner, "metadata": {**mapping(owner.get("metadata")), _GONE: True}}


def is_gone(owner: Mapping[str, Any]) -> bool:
    """Whether this is the last state of an object that has left the API."""
    return mapping(owner.get("metadata")).get(_GONE) is True


def _is_suspended(owner: Mapping[str, Any]) -> bool:
    """Whether an owner is suspended: its pods are deleted until it is resumed."""
    return value_at(owner, run_kind(owner).suspended_by) is True


def was_suspended(owner: Mapping[str, Any], since: float) -> bool:
    """Whether an owner is suspended, or was resumed after ``since``: Kueue resumes a Job within seconds.

    Jobs, JobSets, TrainJobs and the training operator's jobs all report it by the condition ``Suspended``, which becomes False
    on resumption (Kubernetes documentation, "Suspending a Job").
    """
    if _is_suspended(owner):
        return True
    for each in mappings(mapping(owner.get("status")).get("conditions")):
        if each.get("type") == "Suspended" and each.get("status") == "False":
            gone_on = seconds(each.get("lastTransitionTime"))
            return gone_on is not None and gone_on >= since
    return False


def how_suspended(owners: Sequence[Mapping[str, Any]], since: float) -> str:
    """How the outermost of these owners (nearest first) was suspended, as in ``its Job was suspended``; empty if none was.

    A suspension does not end a run or spend a budget: the user resumes it, or Kueue, which suspends preempted workloads.
    """
    found = [each for each in owners if was_suspended(each, since)]
    if not found:
        return ""
    by_kueue = any(QUEUE_LABEL in mapping(mapping(each.get("metadata")).get("labels")) for each in owners)
    return f"its {text(found[-1].get('kind')) or 'owner'} was suspended{' by Kueue' if by_kueue else ''}"


def _was_before(time: Any, stop_asked_at: float | None) -> bool:
    at = seconds(time)
    return stop_asked_at is not None and at is not None and at <= stop_asked_at


def _workflow(owner: Mapping[str, Any], pod: Mapping[str, Any]) -> OwnersWord:
    """The status of an Argo Workflow: whether it was stopped, and the message and phase of the pod's step."""
    node_id = text(mapping(mapping(pod.get("metadata")).get("annotations")).get(ARGO_NODE_ID))
    step = mapping(mapping(mapping(owner.get("status")).get("nodes")).get(node_id))
    message = text(step.get("message"))
    ended = how_cancelled(owner)
    is_late = _DEADLINE in message and not ended
    return OwnersWord(timed_out=is_late, cancelled=ended, message=message, step=text(step.get("phase")))


def how_cancelled(root: Mapping[str, Any]) -> str:
    """How the user ended a workload before its own end, as in ``its Job was deleted``; empty if not ended so."""
    if is_gone(root) or _deleted_at(root):
        return f"its {text(root.get('kind')) or 'owner'} was deleted"
    return how_shut_down(root)


def how_shut_down(root: Mapping[str, Any]) -> str:
    """How the user ended a Workflow that still exists, as in ``its Workflow was shut down``; empty if not ended so.

    Kubeflow Pipelines ends a run by ``activeDeadlineSeconds: 0`` (``execution_spec.go``, ``GetTerminatePatch``; seen on 2.16.1
    and 2.17.0).
    """
    spec = mapping(root.get("spec"))
    if run_kind(root).retry is not Retry.STEP:
        return ""
    if spec.get("shutdown"):
        return "its Workflow was shut down"
    return "its run was terminated through KFP" if spec.get("activeDeadlineSeconds") == 0 else ""


_MAIN = "main"  # the user's container in KFP and Argo
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_NO_ERROR = ("ContainerCreating", "PodInitializing")  # reasons of a container that waits for its turn
_SIGNALS = (137, 143)  # exit codes after SIGKILL and SIGTERM, from any sender
_ANSWERS_TO_A_STOP = (0, *_SIGNALS)
_NO_COMMAND = (64, "failed to find name in PATH")  # Argo's emissary for a missing command (Argo 3.7.3)


@dataclass(frozen=True, slots=True)
class PodEnd:
    """A pod's end by its last state. Times are in Unix seconds."""

    containers: tuple[ContainerEnd, ...]
    main: ContainerEnd  # the container that runs the user's code
    began_at: float | None = None  # when that began
    finished_at: float | None = None  # when that ended
    progress: float | None = None  # the share of its work that its code left in its termination message
    start_error: str = ""  # why its work never started, although a container ran
    never_started: bool = False  # a container waits for its image or configuration
    has_node: bool = True
    is_earlier: bool = False  # an end of an earlier restart: the pod's current status does not apply to it
    is_marked: bool = False  # Kubernetes marked it for disruption, which says who ended it
    is_deleted: bool = False  # its object is being deleted, or gone
    stop_asked_at: float | None = None  # when Kubernetes asked it to stop; None: not asked, or unknown
    is_stopped: bool = False  # it ended because it was asked to stop, or was running when its object went

    @property
    def exit_code(self) -> int | None:
        """The exit code of the user's container; None if it has no end or its end was not reported."""
        return None if self.main.is_untold else self.main.exit_code

    @property
    def is_its_own(self) -> bool:
        """True if the code itself ended: it was not asked to stop, and no signal ended it."""
        return self.exit_code not in (None, *_SIGNALS) and not self.is_stopped


def read_pod(
    pod: Mapping[str, Any],
    *,
    gone: bool = False,
    restart: int | None = None,
    waited: Mapping[str, Any] | None = None,
) -> PodEnd:
    """Read the end of a pod, or of one of its restarts in place.

    ``gone``: the API no longer has the pod. ``restart``: the restart count of the main container in the attempt; None: the
    last. ``waited``: an earlier state in which a container waited; the kubelet forgets the reason when it ends the pod.
    """
    status = mapping(pod.get("status"))
    statuses = mappings(status.get("containerStatuses"))
    main = _main(pod, statuses)
    if restart is not None and _restarts(main) > restart:
        return _earlier_restart(main)
    ended = mapping(mapping(main.get("state")).get("terminated"))
    is_deleted = gone or bool(mapping(pod.get("metadata")).get("deletionTimestamp"))
    stop_asked_at = when_asked_to_stop(pod)
    code, finished_at = _code(ended), seconds(ended.get("finishedAt"))
    end_of_main = _end_of(main, ended)
    init = tuple(_init_statuses(pod, status))
    containers = tuple(map(_container, statuses)) + tuple(end for each in init if (end := _container(each)).waiting)
    if waited is not None and end_of_main.is_untold and not ended.get("startedAt"):
        containers = read_pod(waited).containers
    return PodEnd(
        containers=containers,
        main=end_of_main,
        began_at=seconds(ended.get("startedAt")),
        finished_at=finished_at,
        progress=progress_in(text(ended.get("message"))),
        start_error=_no_command(ended) or next((error for each in init if (error := _init_error(each))), ""),
        never_started=any(container.waiting for container in containers),
        has_node=bool(mapping(pod.get("spec")).get("nodeName")),
        is_marked=transition(pod, "DisruptionTarget") is not None,
        is_deleted=is_deleted,
        stop_asked_at=stop_asked_at,
        is_stopped=_is_stopped(pod, stop_asked_at, finished_at, code)
        if ended
        else is_deleted or stop_asked_at is not None,
    )


def _earlier_restart(main: Mapping[str, Any]) -> PodEnd:
    """The end of a container restarted in the same pod, without a request to stop the pod."""
    ended = mapping(mapping(main.get("lastState")).get("terminated"))
    end = _end_of(main, ended)
    began_at, finished_at = seconds(ended.get("startedAt")), seconds(ended.get("finishedAt"))
    return PodEnd((end,), end, began_at, finished_at, progress_in(end.message), is_earlier=True)


def _end_of(status: Mapping[str, Any], ended: Mapping[str, Any]) -> ContainerEnd:
    name, reason, message = text(status.get("name")), text(ended.get("reason")), text(ended.get("message"))
    return ContainerEnd(name, _code(ended), _whole(ended.get("signal")), reason, message)


def _main(pod: Mapping[str, Any], statuses: tuple[Mapping[str, Any], ...]) -> Mapping[str, Any]:
    """The status of the container that runs the user's code: ``main``, else the pod's default container, else its first."""
    annotations = mapping(mapping(pod.get("metadata")).get("annotations"))
    first = next(iter(mappings(mapping(pod.get("spec")).get("containers"))), {})
    for name in (_MAIN, annotations.get(_DEFAULT_CONTAINER), first.get("name")):
        for status in statuses:
            if status.get("name") == name:
                return status
    return {}


def _restarts(status: Mapping[str, Any]) -> int:
    count = status.get("restartCount")
    return count if isinstance(count, int) else 0


def _container(status: Mapping[str, Any]) -> ContainerEnd:
    """The end of a container, or the error for which it waits. A restarted container shows its last end."""
    state = mapping(status.get("state"))
    waiting = text(mapping(state.get("waiting")).get("reason"))
    ended = mapping(state.get("terminated")) or mapping(mapping(status.get("lastState")).get("terminated"))
    return _end_of(status, ended)._replace(waiting="" if waiting in _NO_ERROR else waiting)


def _code(ended: Mapping[str, Any]) -> int | None:
    return _whole(ended.get("exitCode"))


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _init_statuses(pod: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The init containers that must end before the work starts, without sidecars."""
    sidecars = {
        each.get("name")
        for each in mappings(mapping(pod.get("spec")).get("initContainers"))
        if each.get("restartPolicy") == "Always"
    }
    return (each for each in mappings(status.get("initContainerStatuses")) if each.get("name") not in sidecars)


def _init_error(status: Mapping[str, Any]) -> str:
    code = _code(mapping(mapping(status.get("state")).get("terminated")))
    return f"its init container {text(status.get('name'))} exited with {code}" if code else ""


def _no_command(ended: Mapping[str, Any]) -> str:
    """Argo's message if it did not find the command; without Argo, the runtime reports it by the reason ``StartError``."""
    code, beginning = _NO_COMMAND
    message = text(ended.get("message"))
    return f"its command was not found: {message}" if _code(ended) == code and message.startswith(beginning) else ""


def when_asked_to_stop(pod: Mapping[str, Any]) -> float | None:
    """When the pod was asked to stop: marked for disruption, or deleted (its deadline less its grace period)."""
    metadata = mapping(pod.get("metadata"))
    deadline = seconds(metadata.get("deletionTimestamp"))
    grace = metadata.get("deletionGracePeriodSeconds")
    deleted_at = deadline - grace if deadline is not None and isinstance(grace, int) else deadline
    times = (transition(pod, "DisruptionTarget"), deleted_at)
    return min((time for time in times if time is not None), default=None)


def _is_stopped(pod: Mapping[str, Any], stop_asked_at: float | None, ended_at: float | None, code: int | None) -> bool:
    """True if a pod with an exit code ended because it was asked to stop."""
    if stop_asked_at is None or ended_at is None or ended_at != stop_asked_at:
        return stop_asked_at is not None and (ended_at is None or ended_at > stop_asked_at)
    return code in _ANSWERS_TO_A_STOP or transition(pod, "DisruptionTarget") is not None


_TAINT_MANAGER = "DeletionByTaintManager"  # reason of a pod's DisruptionTarget, for any taint with the effect NoExecute


@dataclass(frozen=True, slots=True)
class LastSeen:
    """The last states of a pod and of the objects around it, as the API wrote them.

    ``pod``: its first finished state (phase Succeeded or Failed), else the last state before it vanished (``pod_gone``).
    ``node``: the state of its node at that time, or the last one seen; None: it never had a node, or its node was not observed.
    ``node_gone``: the API no longer has the Node object. ``owners``: the pod's owner first, then the owner's owner (Job,
    JobSet, TrainJob; or the Workflow). ``node_events``: events about the node. ``waited``: a state in which the pod waited for
    an image or its configuration, because the kubelet forgets the reason when the pod is deleted. ``boot``: the boot ID of its
    node when the pod came there, or its first characters; empty: it was not seen.
    """

    pod: Mapping[str, Any]
    node: Mapping[str, Any] | None = None
    owners: Sequence[Mapping[str, Any]] = ()
    pod_gone: bool = False
    node_gone: bool = False
    node_events: Sequence[Mapping[str, Any]] = ()
    waited: Mapping[str, Any] | None = None
    boot: str = ""


def signals_of(
    seen: LastSeen, *, notice: Notice | None = None, restart: int | None = None, spot: bool | None = None
) -> Signals:
    """The signals of an ended attempt.

    ``notice``: the agent's latest notice for the node before the end. ``restart``: for an attempt that was started again in the
    same pod (``restartPolicy: OnFailure``), the restart count of the main container while it ran; None: the last. ``spot``: the
    kind of the node's pool if the configuration knows it; None: read it from the node.
    """
    end = read_pod(seen.pod, gone=seen.pod_gone, restart=restart, waited=seen.waited)
    was_stopped = end.is_stopped or end.exit_code in _SIGNALS
    asked = was_stopped and not end.is_marked  # the pod's mark takes precedence over its owners' later actions
    word = OwnersWord()
    if asked and not end.is_earlier:
        word = read_owners(seen.owners, seen.pod, end.stop_asked_at, is_deleted=end.is_deleted)
    node = seen.node or {}
    if word.is_restart and end.exit_code is None and (seen.node_gone or _is_silent(node)):
        word = (
            OwnersWord()
        )  # the order never reached its node, which was already lost: its peers failed because of that
    pod = {} if end.is_earlier else seen.pod
    status = mapping(pod.get("status"))
    is_stopped_by_owner = word.timed_out or bool(word.cancelled or word.moved)
    return Signals(
        exit_code=end.exit_code,
        outputs_complete=_outputs_complete(end),
        progress=end.progress,
        accepted_by_controller=_may_be_accepted(seen.pod, end),
        noticed=notice is not None and notice.kind == "interruption",
        node_gone=seen.node_gone and end.has_node and not end.is_its_own,
        timed_out=word.timed_out,
        cancelled=bool(word.cancelled),
        moved=word.cancelled or word.moved or _never_bound(end),
        start_error=end.start_error,
        phase=text(status.get("phase")),
        reason=text(status.get("reason")),
        message=text(status.get("message")) or word.message,
        conditions=conditions(pod),
        containers=end.containers,
        node_conditions=conditions(node),
        node_taints=(*taints_of(node), *_unreachable_before(pod, node)),
        node_events=events_of(seen.node_events),
        pod_deleted=end.is_deleted and end.is_stopped and not end.never_started and not is_stopped_by_owner,
        node_restarted=_restart_of_node(seen, end),
        spot=spot if spot is not None else is_spot(node),
    )


def boot_of(node: Mapping[str, Any] | None) -> str:
    """The first characters of a node's boot ID, which distinguish boots; empty if unknown."""
    return text(mapping(mapping((node or {}).get("status")).get("nodeInfo")).get("bootID"))[:_BOOT_LENGTH]


REBOOTED = "Rebooted"
"""The reason of the kubelet's Event about a node with a new boot ID."""

KUBELET_STARTS = "Starting kubelet"
"""The beginning of the kubelet's message when it starts."""

_BOOT_LENGTH = 8
_TELLS_LATE = 15.0  # most seconds between a kubelet's start and its status of the former pods
_LOST_POWER = (255, *_SIGNALS)  # possible exit codes of a container that ended with its machine


def _restart_of_node(seen: LastSeen, end: PodEnd) -> str:
    """The evidence that a pod's container ended because its node restarted, as a clause, or empty.

    If the container's end was not reported, any sign of a later kubelet start counts. The container's own exit code counts as
    an end by the restart if it may be one (CRI-O and cri-dockerd write 255 with the reason ``Error``; a shutdown ends processes
    by signals), the restart itself is certain, and the kubelet reported the end only afterwards.
    """
    began = bound_at(seen.pod) if end.began_at is None else end.began_at
    is_untold = end.main.is_untold or _has_no_sandbox(seen.pod)
    if began is None or not seen.node or (end.stop_asked_at is not None and not is_untold):
        return ""
    certain = dict(_certain_restarts(seen, began))
    if is_untold:
        return next((clause for clause in (*certain, *_likely_restarts(seen, began))), "")
    reported_at = transition(seen.pod, "Ready", status="False")
    if end.exit_code not in _LOST_POWER or end.main.reason == "OOMKilled" or end.finished_at is None:
        return ""
    known = ((clause, at) for clause, at in certain.items() if reported_at is not None)
    return next((clause for clause, at in known if end.finished_at <= at <= (reported_at or at) + _TELLS_LATE), "")


def _certain_restarts(seen: LastSeen, began: float) -> Iterator[tuple[str, float]]:
    """The signs that a node certainly restarted after a time, each with the time of the restart."""
    node = seen.node or {}
    booted = [event_time(event) for event in seen.node_events if text(event.get("reason")) == REBOOTED]
    rebooted_at = max((at for at in booted if at > began), default=None)
    ready_at = transition(node, "Ready") or began
    now = boot_of(node)
    if seen.boot and now and not now.startswith(seen.boot[:_BOOT_LENGTH]):
        yield "the boot ID of its node changed", ready_at if rebooted_at is None else rebooted_at
    if rebooted_at is not None:
        yield "the kubelet reported a reboot", rebooted_at
    created_at = seconds(mapping(node.get("metadata")).get("creationTimestamp"))
    if created_at is not None and created_at > began:
        yield "its Node object was created again", created_at


def _likely_restarts(seen: LastSeen, began: float) -> Iterator[str]:
    """The signs that the kubelet restarted since a time, or was silent in between."""
    starts = (event for event in seen.node_events if text(event.get("message")).startswith(KUBELET_STARTS))
    if any(event_time(event) > began for event in starts):
        yield "its kubelet started again"
    changed = (transition(seen.node or {}, "Ready", status=status) for status in ("True", "False", "Unknown"))
    if any(at is not None and at > began for at in changed):
        yield "its node was not ready in between"


def why_never_starts(seen: LastSeen, now: float) -> str:
    """Why a pod waits forever on a reporting node; empty if it does not. ``now`` is the API server's clock.

    A node that restarts between the creation and the start of a container has lost the sandbox. For a pod with a container and
    ``restartPolicy: Never`` the kubelet does not create a second one, and reports the container as waiting, without a reason.
    This was seen on Kubernetes 1.35.4.
    """
    came_at = bound_at(seen.pod)
    if came_at is None or not seen.node or not lost_its_sandbox(seen.pod):
        return ""
    restarted = next(
        (clause for clause in (*dict(_certain_restarts(seen, came_at)), *_likely_restarts(seen, came_at))), ""
    )
    starts = (event_time(each) for each in seen.node_events if text(each.get("message")).startswith(KUBELET_STARTS))
    reports_since = max(transition(seen.node, "Ready") or came_at, *starts, came_at)
    return restarted if now >= reports_since + _TELLS_LATE else ""


def lost_its_sandbox(pod: Mapping[str, Any]) -> bool:
    """Whether a pod waits on its node with a container that did not start, has no sandbox, and will not get one."""
    return has_not_started(pod) and _has_no_sandbox(pod)


def _has_no_sandbox(pod: Mapping[str, Any]) -> bool:
    """Whether a pod with ``restartPolicy: Never`` has a created container that did not start and has no sandbox."""
    if mapping(pod.get("spec")).get("restartPolicy") != "Never":
        return False
    containers = mappings(mapping(pod.get("status")).get("containerStatuses"))
    is_made = any(each.get("containerID") and _waits_for_nothing(each) for each in containers)
    return is_made and transition(pod, "PodReadyToStartContainers", status="False") is not None


def _waits_for_nothing(container: Mapping[str, Any]) -> bool:
    state = mapping(container.get("state"))
    return set(state) == {"waiting"} and not text(mapping(state["waiting"]).get("reason"))


def _is_silent(node: Mapping[str, Any]) -> bool:
    return any(each.type == "Ready" and each.status == "Unknown" for each in conditions(node))


def _unreachable_before(pod: Mapping[str, Any], node: Mapping[str, Any]) -> Iterator[str]:
    """The taint of a node that came back after its pod was deleted for a taint."""
    marked_at = transition(pod, "DisruptionTarget", reason=_TAINT_MANAGER)
    ready_since = transition(node, "Ready")
    if marked_at is not None and ready_since is not None and ready_since > marked_at:
        yield from sorted(node_signs.UNREACHABLE_TAINTS)


def _outputs_complete(end: PodEnd) -> bool | None:
    """True if the code exited with 0 without being asked to stop; None: unknown."""
    return True if end.exit_code == 0 and not end.is_stopped else None


def _may_be_accepted(pod: Mapping[str, Any], end: PodEnd) -> bool:
    """True if a pod was asked to stop, ended in the phase Succeeded, and has a controller that counts such pods."""
    has_owner = bool(mapping(pod.get("metadata")).get("ownerReferences"))
    return (
        has_owner and end.exit_code == 0 and end.is_stopped and mapping(pod.get("status")).get("phase") == "Succeeded"
    )


def _never_bound(end: PodEnd) -> str:
    """Why a pod without a node ended: its object was deleted while it waited."""
    return "deleted before it had a node" if end.is_deleted and not end.has_node else ""


_SAME = {"ErrImagePull": "ImagePullBackOff"}  # the kubelet writes both in turn for one reason
_VOLUMES = (
    "persistentvolumeclaim"  # in the scheduler's message if no node would help: a claim is unbound, deleted or missing
)
_USUAL = ("", "ContainerCreating", "PodInitializing")  # reasons of a container that waits for its turn


class PodWaits(NamedTuple):
    """Why a pod waits. ``kind`` is Kubernetes' reason (``Unschedulable``, ``ImagePullBackOff``), empty if it does not wait.

    A pod that is unschedulable because of its volume claims has the kind ``VolumeNotReady``: no other node would help.
    ``since`` is the time (Unix seconds) since when the scheduler has found no node; None if it waits for something else.
    """

    kind: str = ""
    words: str = ""
    since: float | None = None

    def __str__(self) -> str:
        return f"{self.kind}: {self.words}" if self.words else self.kind


def waits_for(pod: Mapping[str, Any]) -> PodWaits:
    """Why a pod has no node yet, or does not start on it; empty if it does not wait."""
    status = mapping(pod.get("status"))
    if not mapping(pod.get("spec")).get("nodeName"):
        for condition in mappings(status.get("conditions")):
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return _unscheduled(text(condition.get("reason")), text(condition.get("message")), condition)
        return PodWaits()
    return next(_containers(status), PodWaits())


def _unscheduled(reason: str, message: str, condition: Mapping[str, Any]) -> PodWaits:
    if reason == "Unschedulable" and _VOLUMES in message.lower():
        return PodWaits("VolumeNotReady", message)
    return PodWaits(reason, message, seconds(condition.get("lastTransitionTime")))


def is_held_up(pod: Mapping[str, Any]) -> bool:
    """Whether a container of the pod waits for its image or configuration because of an error."""
    return next(_containers(mapping(pod.get("status"))), None) is not None


def _containers(status: Mapping[str, Any]) -> Iterator[PodWaits]:
    for each in (*mappings(status.get("initContainerStatuses")), *mappings(status.get("containerStatuses"))):
        waiting = mapping(mapping(each.get("state")).get("waiting"))
        if text(waiting.get("reason")) not in _USUAL:
            reason = text(waiting.get("reason"))
            yield PodWaits(_SAME.get(reason, reason), text(waiting.get("message")))


def has_not_started(pod: Mapping[str, Any]) -> bool:
    """Whether a pod has its node, and none of its containers has started there."""
    has_node = bool(mapping(pod.get("spec")).get("nodeName"))
    return has_node and mapping(pod.get("status")).get("phase") == "Pending"


_GIVEN_UP = (
    "DeletionByPodGC",
    "DeletionByTaintManager",
)  # reasons of a pod's DisruptionTarget: its node is gone or silent


def given_up_at(pod: Mapping[str, Any]) -> float | None:
    """When Kubernetes gave up a pod because its node was gone, silent or tainted, in Unix seconds; None: it did not."""
    times = (transition(pod, "DisruptionTarget", reason) for reason in _GIVEN_UP)
    return next((at for at in times if at is not None), None)


def has_lost_node(pod: Mapping[str, Any]) -> bool:
    """Whether garbage collection has ended a pod, because its Node object was gone."""
    return transition(pod, "DisruptionTarget", "DeletionByPodGC") is not None


def untold_until(pod: Mapping[str, Any], restart: int | None = None) -> float | None:
    """When a pod's container was found ended without a report of how, in Unix seconds; None: there was a report.

    containerd writes the time of its own start as the container's end, which was earlier; the kubelet writes none. The kubelet
    knows the end of a pod that it ended itself, for lack of memory, for example.
    """
    end = read_pod(pod, restart=restart)
    if not end.main.is_untold or text(mapping(pod.get("status")).get("reason")):
        return None
    return transition(pod, "Ready", status="False") if end.finished_at is None else end.finished_at


def started_at(pod: Mapping[str, Any]) -> float | None:
    """When a pod's first container started, without init containers, in Unix seconds; None before that.

    For a restarted container, its last start counts.
    """
    found = []
    for each in mappings(mapping(pod.get("status")).get("containerStatuses")):
        state = mapping(each.get("state"))
        at = seconds(mapping(state.get("running") or state.get("terminated")).get("startedAt"))
        if at is not None:
            found.append(at)
    return min(found, default=None)


def bound_at(pod: Mapping[str, Any]) -> float | None:
    """When (Unix seconds) a pod was assigned to a node; None if it was not."""
    for condition in mappings(mapping(pod.get("status")).get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "True":
            return seconds(condition.get("lastTransitionTime"))
    return None


def events_of_pod(pod: Mapping[str, Any]) -> tuple[str, Mapping[str, str]]:
    """The API path and query of the events about a pod."""
    meta = mapping(pod.get("metadata"))
    query = {"fieldSelector": f"involvedObject.kind=Pod,involvedObject.uid={text(meta.get('uid'))}"}
    return f"/api/v1/namespaces/{text(meta.get('namespace'))}/events", query
