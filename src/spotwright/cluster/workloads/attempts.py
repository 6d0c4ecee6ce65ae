"""Says which attempts a pod holds and which of them have ended.

An attempt's key is the pod's UID with the restart count of its main container, because ``restartPolicy: OnFailure`` starts a
container again in its pod. Kubernetes keeps the end of the last restart only: of earlier ones nothing is known any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from spotwright.cluster.workloads.owners import metadata, uid_of

__all__ = ["PodAttempt", "attempts_of", "key_of", "main_container", "seconds"]

_FINISHED = ("Succeeded", "Failed")


class PodAttempt(NamedTuple):
    """One attempt of a pod. Times are in Unix seconds by Kubernetes' clocks, None where they are not known."""

    key: str
    restart: int
    made_at: float | None
    bound_at: float | None
    ended_at: float | None
    has_ended: bool
    is_known: bool = True  # False: a later restart has overwritten how it ended


def attempts_of(pod: Mapping[str, Any], *, is_gone: bool = False, is_cut_off: bool = False) -> Iterator[PodAttempt]:
    """The attempts of a pod, oldest first.

    ``is_gone``: the API has the pod no more. ``is_cut_off``: it is to be deleted, and its node does not report, so nothing about
    its end will come for as long as the node is away.
    """
    status = pod.get("status") or {}
    main = _main_status(pod)
    restarts = int(main.get("restartCount") or 0)
    scheduled_at = _condition_time(status, "PodScheduled")
    made_at = seconds(metadata(pod).get("creationTimestamp"))
    started: float | None = scheduled_at
    last = (main.get("lastState") or {}).get("terminated") or {}
    for restart in range(restarts):
        is_last = restart == restarts - 1
        ended_at = seconds(last.get("finishedAt")) if is_last else started
        yield PodAttempt(key_of(pod, restart), restart, made_at, started, ended_at, True, is_last and bool(last))
        started = made_at = ended_at
    has_ended = is_gone or is_cut_off or status.get("phase") in _FINISHED
    bound_at = started if (pod.get("spec") or {}).get("nodeName") else None
    ended_at = seconds(((main.get("state") or {}).get("terminated") or {}).get("finishedAt")) if has_ended else None
    yield PodAttempt(key_of(pod, restarts), restarts, made_at, bound_at, ended_at, has_ended)


def key_of(pod: Mapping[str, Any], restart: int) -> str:
    """The key of an attempt."""
    return f"{uid_of(pod)}/{restart}"


def seconds(text: object) -> float | None:
    """A time of the API in Unix seconds; None if it is missing or malformed."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None


def main_container(pod: Mapping[str, Any]) -> str:
    """The name of the container that runs the user's code: ``main`` in Argo and KFP, else the first of the spec."""
    containers: Sequence[Mapping[str, Any]] = (pod.get("spec") or {}).get("containers") or ()
    names = [str(container.get("name", "")) for container in containers]
    return "main" if "main" in names else (names or [""])[0]


def _main_status(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    statuses: Sequence[Mapping[str, Any]] = (pod.get("status") or {}).get("containerStatuses") or ()
    main = main_container(pod)
    return next((status for status in statuses if status.get("name") == main), {})


def _condition_time(status: Mapping[str, Any], kind: str) -> float | None:
    for condition in status.get("conditions") or ():
        if condition.get("type") == kind and condition.get("status") == "True":
            return seconds(condition.get("lastTransitionTime"))
    return None
