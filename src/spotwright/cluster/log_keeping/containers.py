"""Chooses which containers of a pod belong to an attempt's log, and in which order they are read.

The main container is what people look for: ``main`` in Argo and KFP, which has the launcher's output too, else the pod's first.
Before it come the user's init containers. Containers that Argo, KFP and service meshes add are read only if they failed, because
their words are then the reason of the end; the same holds for every container beside the main one, after the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from spotwright.cluster.workloads.attempts import main_container

__all__ = ["Readable", "has_finished", "next_readable"]

_ADDED = frozenset(
    (
        "init",  # Argo: fetches artifacts
        "kfp-launcher",  # KFP: copies the launcher
        "istio-init",
        "istio-validation",
        "linkerd-init",
        "vault-agent-init",
    )
)


class Readable(NamedTuple):
    """A container whose log can be read now. ``is_over``: nothing more will be written to it."""

    container: str
    is_main: bool
    is_previous: bool = False  # it has been started again since
    is_over: bool = False
    is_lost: bool = False  # it has been started again twice: its log cannot be read any more
    exit_code: int | None = None


def next_readable(pod: Mapping[str, Any], restart: int, done: Iterable[str]) -> Readable | None:
    """The next container of an attempt whose log is to be read; None: none now. ``done`` are the names of those that were."""
    done = frozenset(done)
    main = main_container(pod)
    if main not in done:
        if restart == 0:
            for status in _first(pod):
                if status["name"] not in done and (found := _ended_or_running(status)) is not None:
                    return found
        return _main(pod, main, restart)
    return next((each for each in _failed_beside(pod, main) if each.container not in done), None)


def has_finished(pod: Mapping[str, Any], restart: int) -> bool:
    """Whether an attempt's pod has ended for good, or its container was started again."""
    status = pod.get("status") or {}
    main = main_container(pod)
    count = next((_count(each) for each in status.get("containerStatuses") or () if each.get("name") == main), 0)
    return status.get("phase") in ("Succeeded", "Failed") or count > restart


def _first(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The init containers whose words belong to the log."""
    specs = (pod.get("spec") or {}).get("initContainers") or ()
    beside = {each.get("name") for each in specs if each.get("restartPolicy") == "Always"}
    for status in (pod.get("status") or {}).get("initContainerStatuses") or ():
        code = _ended(status).get("exitCode")
        if status.get("name") not in beside and (status.get("name") not in _ADDED or code):
            yield status


def _main(pod: Mapping[str, Any], name: str, restart: int) -> Readable | None:
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if status.get("name") != name:
            continue
        count = _count(status)
        if count > restart + 1:
            return Readable(name, is_main=True, is_lost=True)
        if count == restart + 1:
            return Readable(name, is_main=True, is_previous=True, is_over=True)
        last = (status.get("lastState") or {}).get("terminated")
        if count == restart and last and "waiting" in (status.get("state") or {}):
            return Readable(name, is_main=True, is_over=True)  # it waits for its next start
        return _ended_or_running(status, is_main=True) if count == restart else None
    return None


def _ended_or_running(status: Mapping[str, Any], *, is_main: bool = False) -> Readable | None:
    state = status.get("state") or {}
    if state.get("terminated"):
        return Readable(
            str(status["name"]), is_main=is_main, is_over=True, exit_code=state["terminated"].get("exitCode")
        )
    return Readable(str(status["name"]), is_main=is_main) if state.get("running") else None


def _failed_beside(pod: Mapping[str, Any], main: str) -> Iterator[Readable]:
    """The containers beside the main one that failed."""
    status = pod.get("status") or {}
    for each in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
        found = _ended_or_running(each)
        if found is not None and found.container != main and found.is_over and found.exit_code not in (0, 137, 143):
            yield found


def _ended(status: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (status.get("state") or {}).get("terminated") or {}
    return found


def _count(status: Mapping[str, Any]) -> int:
    return int(status.get("restartCount") or 0)
