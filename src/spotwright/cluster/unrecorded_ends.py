"""Reads unrecorded ends of attempts from their pods, for the review that decides about the next attempt.

The recorder may be busy or failing over when the next pod is created. So the earlier pods and nodes in the API are judged by
the recorder's rules. The result decides the rung of one attempt without spending a budget: for the next attempt the record
decides.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

import msgspec

from spotwright.cluster.admit_objects import ATTEMPT_ANNOTATION
from spotwright.cluster.api_client import Api, ApiFailed, object_path
from spotwright.cluster.bounded_json import TooManyValues, read_object
from spotwright.cluster.marked_pods import pod_texts
from spotwright.cluster.signals import LastSeen, signals_of, when_asked_to_stop
from spotwright.cluster.workloads import task_name
from spotwright.kube.object_fields import controller_of, mapping, metadata, text, uid_of
from spotwright.model.attempts import Cause
from spotwright.scheduling.cause import classify

__all__ = ["Earlier", "PodEnds", "Unsettled"]


_LOG = logging.getLogger(__name__)
_LARGEST = 512 * 1024  # bytes of a pod or a node, and what they may take in memory
_MEMORY = 2_000_000
_LARGEST_LIST = 8 * 1024 * 1024  # bytes: a longer list of pods counts as unknown
_SECONDS = 2.0  # for all reads; a review then continues without them
_NUMBER = re.compile("[1-9][0-9]{0,5}")
_ENDED = ("Succeeded", "Failed")
_NOT_COUNTED = (Cause.SUCCEEDED, Cause.CANCELLED)


class Unsettled(NamedTuple):
    """An attempt that is recorded without its end: its number, the UID and the name of its pod."""

    number: int
    uid: str
    pod: str
    is_noticed: bool = False
    """It was notified of an interruption."""


class Earlier(NamedTuple):
    """The attempts of a task before the one under review whose ends are not recorded.

    ``since`` is when its review began, by the event loop's clock. ``unsettled`` are recorded; the numbers in ``unrecorded``
    are not. ``seen`` is the highest number whose pod was seen. ``uids`` are the UIDs of all recorded pods, ``selector``
    selects the sibling pods, ``path`` is the task's.
    """

    since: float
    namespace: str
    owners: Sequence[Mapping[str, Any]]
    path: str
    slots: int
    selector: str
    unsettled: Sequence[Unsettled]
    unrecorded: Sequence[int]
    seen: int
    uids: Collection[str]


class PodEnds:
    """Reads the ends of attempts from the API server: :meth:`of`."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._readings: dict[tuple[str, str], _Reading] = {}  # by namespace and selector

    async def of(self, earlier: Earlier, seconds: float) -> tuple[Mapping[int, Cause], Collection[int]]:
        """The causes by the numbers of the attempts, and the numbers of those whose pods are gone, as read within this time."""
        causes: dict[int, Cause] = {}
        gone: set[int] = set()
        try:
            async with asyncio.timeout(min(seconds, _SECONDS)):
                for one in earlier.unsettled:
                    await self._look(earlier, one, causes, gone)
                if (
                    earlier.unrecorded and earlier.selector
                ):  # without a selector all pods of the namespace would be read
                    await self._look_for(earlier, causes, gone)
        except (ApiFailed, TimeoutError) as error:
            _LOG.warning(
                "cannot tell how earlier attempts of %s ended: %s", earlier.path, str(error) or "no answer in time"
            )
        return causes, gone

    async def _look(self, earlier: Earlier, one: Unsettled, causes: dict[int, Cause], gone: set[int]) -> None:
        """Look at the pod of a recorded attempt."""
        found = await self._read("Pod", one.pod, earlier.namespace)
        if found is None or uid_of(found) != one.uid:
            gone.add(one.number)
        elif (cause := await self._cause(found, earlier.owners)) is not None:
            causes[one.number] = Cause.INTERRUPTED if one.is_noticed else cause

    async def _look_for(self, earlier: Earlier, causes: dict[int, Cause], gone: set[int]) -> None:
        """Look for the pods of unrecorded attempts, by the numbers that they carry.

        Pods of a parallel Job do not show their slot: they count only if all ended in the same way.
        """
        pods: dict[int, list[Mapping[str, Any]]] = {number: [] for number in earlier.unrecorded}
        for pod in await self._beside(earlier):
            if uid_of(pod) not in earlier.uids and _is_of(pod, earlier):
                pods.get(_number_of(pod), []).append(pod)
        for number, alike in pods.items():
            found = {await self._cause(pod, earlier.owners) for pod in alike}
            if len(found) == 1 and (cause := found.pop()) is not None:
                causes[number] = cause
            elif not alike and earlier.slots == 1 and number <= earlier.seen:
                gone.add(number)

    async def _beside(self, earlier: Earlier) -> Sequence[Mapping[str, Any]]:
        """The numbered siblings of the pod under review, read once for all reviews that had begun by then."""
        key = earlier.namespace, earlier.selector
        reading = self._readings.get(key)
        if reading is None or reading.began < earlier.since:
            task = asyncio.create_task(self._numbered(*key), name="pods with numbers")
            reading = self._readings[key] = _Reading(asyncio.get_running_loop().time(), task)
            task.add_done_callback(partial(self._has_read, key))
        return await asyncio.shield(reading.task)

    async def _numbered(self, namespace: str, selector: str) -> Sequence[Mapping[str, Any]]:
        found = []
        async with (
            asyncio.timeout(_SECONDS),
            aclosing(pod_texts(self._api, namespace, selector, most_bytes=_LARGEST_LIST)) as texts,
        ):
            async for each in texts:
                pod = _pod_of(each)
                if pod is not None and _number_of(pod):
                    found.append(pod)
        return found

    def _has_read(self, key: tuple[str, str], task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # its caller may be gone
        task.get_loop().call_later(_SECONDS, self._readings.pop, key, None)  # pods take megabytes

    async def _cause(self, pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]]) -> Cause | None:
        """Why a pod has ended, or is ending; None: it is active, or ended without spending a budget."""
        is_stopping = when_asked_to_stop(pod) is not None
        if not is_stopping and text(mapping(pod.get("status")).get("phase")) not in _ENDED:
            return None
        name = text(mapping(pod.get("spec")).get("nodeName"))
        node, is_known = None, False
        if name:
            try:
                node, is_known = await self._read("Node", name), True
            except ApiFailed as error:
                _LOG.debug("%s", error)
        is_deleted = bool(metadata(pod).get("deletionTimestamp"))
        seen = LastSeen(pod, node, owners, pod_gone=is_deleted, node_gone=is_known and node is None)
        cause = classify(signals_of(seen)).cause
        return None if cause in _NOT_COUNTED else cause

    async def _read(self, kind: str, name: str, namespace: str = "") -> Mapping[str, Any] | None:
        path = object_path("v1", kind, name, namespace)
        return await self._api.get_or_none(path, at_most=_LARGEST, memory=_MEMORY)


class _Reading(NamedTuple):
    """A reading of pods, and when it began."""

    began: float
    task: asyncio.Task[Sequence[Mapping[str, Any]]]


def _pod_of(content: bytes) -> Mapping[str, Any] | None:
    try:
        return read_object(content, _MEMORY)
    except (msgspec.DecodeError, TooManyValues):
        return None


def _number_of(pod: Mapping[str, Any]) -> int:
    """The attempt number on a pod, untrusted; 0: none."""
    number = text(mapping(metadata(pod).get("annotations")).get(ATTEMPT_ANNOTATION))
    return int(number) if _NUMBER.fullmatch(number) else 0


def _is_of(pod: Mapping[str, Any], earlier: Earlier) -> bool:
    """Whether a pod belongs to the task of the one under review."""
    place = {uid_of(owner): number for number, owner in enumerate(earlier.owners)}
    owner = controller_of(pod)
    return (
        owner is not None
        and owner.uid in place
        and (task_name({"kind": "Pod", **pod}, earlier.owners[place[owner.uid] :]).path == earlier.path)
    )
