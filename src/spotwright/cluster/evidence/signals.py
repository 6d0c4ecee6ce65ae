"""Puts the evidence of one ended attempt together: pod, node, owners and notice become the model's signals.

What Kubernetes cannot tell stays unknown: no declared outputs exist, so an exit code of 0 counts as complete only where nobody
had told the pod to stop. A process that answers SIGTERM with 0 may have finished or given up, and its Job counts it as a success.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spotwright.clouds import node_signs
from spotwright.cluster.evidence.fields import conditions, mapping, text, transition
from spotwright.cluster.evidence.nodes import events_of, is_spot, taints_of
from spotwright.cluster.evidence.owners import OwnersWord, read_owners
from spotwright.cluster.evidence.pods import PodEnd, read_pod
from spotwright.model.attempts import Signals
from spotwright.notices.notice import Notice

__all__ = ["LastSeen", "signals_of"]

_TAINT_MANAGER = "DeletionByTaintManager"  # reason of a pod's DisruptionTarget, for any taint with the effect NoExecute


@dataclass(frozen=True, slots=True)
class LastSeen:
    """The last states of a pod and of the objects around it, as the API wrote them.

    ``pod``: its first state in which it is finished (phase Succeeded or Failed), else the last state before it vanished
    (``pod_gone``). ``node``: the state of its node at that time, or the last one that was seen; None: it never had a node, or
    its node was not observed. ``node_gone``: the API has the Node object no more. ``owners``: the pod's owner first, then the
    owner's owner (Job, JobSet, TrainJob; or the Workflow). ``node_events``: events about the node. ``waited``: a state in which
    the pod waited for an image or its configuration, because the kubelet forgets the reason when the pod is deleted.
    """

    pod: Mapping[str, Any]
    node: Mapping[str, Any] | None = None
    owners: Sequence[Mapping[str, Any]] = ()
    pod_gone: bool = False
    node_gone: bool = False
    node_events: Sequence[Mapping[str, Any]] = ()
    waited: Mapping[str, Any] | None = None


def signals_of(
    seen: LastSeen, *, notice: Notice | None = None, restart: int | None = None, spot: bool | None = None
) -> Signals:
    """The signals of an ended attempt.

    ``notice``: the agent's latest notice for the node before the end. ``restart``: for an attempt that was started again in the
    same pod (``restartPolicy: OnFailure``), the restart count of the main container while it ran; None: the last. ``spot``: the
    kind of the node's pool where the configuration knows it; None: read it off the node.
    """
    end = read_pod(seen.pod, gone=seen.pod_gone, restart=restart, waited=seen.waited)
    asked = end.is_stopped and not end.is_marked  # a mark on the pod says more than what its owners did next
    word = read_owners(seen.owners, seen.pod, end.told_at) if asked else OwnersWord()
    node = seen.node or {}
    pod = {} if end.is_earlier else seen.pod
    status = mapping(pod.get("status"))
    is_stopped_by_owner = word.timed_out or word.cancelled or bool(word.moved)
    return Signals(
        exit_code=end.exit_code,
        outputs_complete=_outputs_complete(end),
        accepted_by_controller=_may_be_accepted(seen.pod, end),
        noticed=notice is not None and notice.kind == "interruption",
        node_gone=seen.node_gone and end.has_node and not end.is_its_own,
        timed_out=word.timed_out,
        cancelled=word.cancelled,
        moved=word.moved or _never_bound(end),
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
        spot=spot if spot is not None else is_spot(node),
    )


def _unreachable_before(pod: Mapping[str, Any], node: Mapping[str, Any]) -> Iterator[str]:
    """The taint of a node that came back: it reports again only since after its pod was deleted for a taint."""
    marked_at = transition(pod, "DisruptionTarget", reason=_TAINT_MANAGER)
    ready_since = transition(node, "Ready")
    if marked_at is not None and ready_since is not None and ready_since > marked_at:
        yield from sorted(node_signs.UNREACHABLE_TAINTS)


def _outputs_complete(end: PodEnd) -> bool | None:
    """True if the code exited with 0 although nobody had told it to stop; None: not known."""
    return True if end.exit_code == 0 and not end.is_stopped else None


def _may_be_accepted(pod: Mapping[str, Any], end: PodEnd) -> bool:
    """True if a pod was told to stop, ended in the phase Succeeded, and has a controller that counts such pods."""
    has_owner = bool(mapping(pod.get("metadata")).get("ownerReferences"))
    return (
        has_owner and end.exit_code == 0 and end.is_stopped and mapping(pod.get("status")).get("phase") == "Succeeded"
    )


def _never_bound(end: PodEnd) -> str:
    """Why a pod without a node ended: its object was deleted while it waited."""
    return "deleted before it had a node" if end.is_deleted and not end.has_node else ""
