"""Reads the end of one pod: its containers, the moment at which it was told to stop, and whether its end is its own.

Kubernetes writes times in whole seconds, and deletes some pods in the second in which they ended by themselves (a JobSet that
restarts). In that second an exit code other than 0, 137 and 143 counts as the end of the work, because these three are the usual
answers to SIGTERM and SIGKILL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spotwright.cluster.evidence.fields import mapping, mappings, seconds, text, transition
from spotwright.model.attempts import ContainerEnd

__all__ = ["PodEnd", "read_pod"]

_MAIN = "main"  # the user's container in KFP and Argo
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_NO_ERROR = ("ContainerCreating", "PodInitializing")  # reasons of a container that waits for its turn
_SIGNALS = (137, 143)  # exit codes after SIGKILL and SIGTERM, whoever sent them
_ANSWERS_TO_A_STOP = (0, *_SIGNALS)
_NO_COMMAND = (64, "failed to find name in PATH")  # Argo's emissary where the command does not exist (Argo 3.7.3)
_STATUS_UNKNOWN = "ContainerStatusUnknown"  # the kubelet lost the container, and its exit code 137 is invented


@dataclass(frozen=True, slots=True)
class PodEnd:
    """What the last state of a pod tells about its end. Times are in Unix seconds."""

    containers: tuple[ContainerEnd, ...]
    exit_code: int | None  # of the container that runs the user's code; None: it has none, or the kubelet invented it
    start_error: str = ""  # why its work never began, although a container ran
    never_started: bool = False  # a container waits for its image or configuration
    has_node: bool = True
    is_earlier: bool = False  # an end of an earlier restart: what the pod's status says now does not belong to it
    is_marked: bool = False  # Kubernetes marked it for disruption, which tells who ended it
    is_deleted: bool = False  # its object is being deleted, or gone
    told_at: float | None = None  # the moment at which Kubernetes told it to stop; None: not told, or not known
    is_stopped: bool = False  # it ended because it was told to stop, or it had not ended when its object went

    @property
    def is_its_own(self) -> bool:
        """True if the code itself ended: nobody had told it to stop, and no signal ended it."""
        return self.exit_code not in (None, *_SIGNALS) and not self.is_stopped


def read_pod(
    pod: Mapping[str, Any],
    *,
    gone: bool = False,
    restart: int | None = None,
    waited: Mapping[str, Any] | None = None,
) -> PodEnd:
    """Read the end of a pod, or of one of its restarts in place.

    ``gone``: the API has the pod no more. ``restart``: the restart count of the main container in the attempt; None: the last.
    ``waited``: an earlier state in which a container waited; the kubelet forgets the reason when it ends the pod.
    """
    status = mapping(pod.get("status"))
    statuses = mappings(status.get("containerStatuses"))
    main = _main(pod, statuses)
    if restart is not None and _restarts(main) > restart:
        return _earlier_restart(main)
    ended = mapping(mapping(main.get("state")).get("terminated"))
    is_deleted = gone or bool(mapping(pod.get("metadata")).get("deletionTimestamp"))
    told_at = _told_at(pod)
    code = _code(ended)
    init = tuple(_init_statuses(pod, status))
    containers = tuple(map(_container, statuses)) + tuple(end for each in init if (end := _container(each)).waiting)
    if waited is not None and ended.get("reason") == _STATUS_UNKNOWN and not ended.get("startedAt"):
        containers = read_pod(waited).containers
    return PodEnd(
        containers=containers,
        exit_code=None if ended.get("reason") == _STATUS_UNKNOWN else code,
        start_error=_no_command(ended) or next((error for each in init if (error := _init_error(each))), ""),
        never_started=any(container.waiting for container in containers),
        has_node=bool(mapping(pod.get("spec")).get("nodeName")),
        is_marked=transition(pod, "DisruptionTarget") is not None,
        is_deleted=is_deleted,
        told_at=told_at,
        is_stopped=_is_stopped(pod, told_at, seconds(ended.get("finishedAt")), code)
        if ended
        else is_deleted or told_at is not None,
    )


def _earlier_restart(main: Mapping[str, Any]) -> PodEnd:
    """The end of a container that was started again in the same pod: nobody told the pod to stop."""
    ended = mapping(mapping(main.get("lastState")).get("terminated"))
    container = ContainerEnd(
        text(main.get("name")),
        _code(ended),
        _whole(ended.get("signal")),
        text(ended.get("reason")),
        text(ended.get("message")),
    )
    return PodEnd((container,), container.exit_code, is_earlier=True)


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
    """The end of a container, or the error for which it waits. A container that is started again shows its last end."""
    state = mapping(status.get("state"))
    waiting = text(mapping(state.get("waiting")).get("reason"))
    ended = mapping(state.get("terminated")) or mapping(mapping(status.get("lastState")).get("terminated"))
    return ContainerEnd(
        name=text(status.get("name")),
        exit_code=_code(ended),
        signal=_whole(ended.get("signal")),
        reason=text(ended.get("reason")),
        message=text(ended.get("message")),
        waiting="" if waiting in _NO_ERROR else waiting,
    )


def _code(ended: Mapping[str, Any]) -> int | None:
    return _whole(ended.get("exitCode"))


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _init_statuses(pod: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The init containers that must end before the work begins; sidecars, which run beside it, are left out."""
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
    """What Argo says where it found no such command; without Argo the runtime says so by the reason ``StartError``."""
    code, beginning = _NO_COMMAND
    message = text(ended.get("message"))
    return f"its command was not found: {message}" if _code(ended) == code and message.startswith(beginning) else ""


def _told_at(pod: Mapping[str, Any]) -> float | None:
    """The moment at which the pod was told to stop: marked for disruption, or deleted (its deadline less its grace period)."""
    metadata = mapping(pod.get("metadata"))
    deadline = seconds(metadata.get("deletionTimestamp"))
    grace = metadata.get("deletionGracePeriodSeconds")
    deleted_at = deadline - grace if deadline is not None and isinstance(grace, int) else deadline
    times = (transition(pod, "DisruptionTarget"), deleted_at)
    return min((time for time in times if time is not None), default=None)


def _is_stopped(pod: Mapping[str, Any], told_at: float | None, ended_at: float | None, code: int | None) -> bool:
    """True if a pod with an exit code ended because it was told to stop."""
    if told_at is None or ended_at is None or ended_at != told_at:
        return told_at is not None and (ended_at is None or ended_at > told_at)
    return code in _ANSWERS_TO_A_STOP or transition(pod, "DisruptionTarget") is not None
