"""Gives the observer the recorded decision about each pod: read once from the object that the pod's token names.

Pod annotations are untrusted; they only say where to look. The record is read in the background; until then the pod is not
recorded, because a refused pod would count as an attempt. A record is stored before its pod, so a missing one will not come.
The record is forgotten with the pod.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from spotwright.cluster.admit_objects import Admission
from spotwright.cluster.api_client import Api, ApiFailed, object_path
from spotwright.cluster.task_objects import API_VERSION, KIND, Content, Place, Token, admission_in, token_of
from spotwright.cluster.task_store import LARGEST, read_content
from spotwright.errors import StateError
from spotwright.kube.object_fields import uid_of

__all__ = ["Admissions"]


_LOG = logging.getLogger(__name__)
_AT_ONCE = 8  # requests
_AGAIN = 1.0  # seconds until a failed read is retried
_HELD = 30.0  # seconds for which a pod waits for its record; then it is recorded as unpinned
_SAME_KEPT = 1_000
_ANSWER = 10.0  # seconds for one request


class _Wanted(NamedTuple):
    """A pod whose record must be read, and since when by the monotonic clock."""

    token: Token
    since: float


class Admissions:
    """The stored decisions about pods; await :meth:`run`. For one event loop.

    ``look`` is called with the UIDs of pods whose decisions have been read since.
    """

    def __init__(self, api: Api, look: Callable[[Iterable[str]], None]) -> None:
        self._api, self._look = api, look
        self._known: dict[str, tuple[Token, Admission | None]] = {}  # by the UID of the pod
        self._same: dict[str, Admission] = {}  # by the decision's key: most pods of a task have equal ones
        self._of_token: dict[Token, str] = {}  # the UID of the pod that a token counts for
        self._wanted: dict[str, _Wanted] = {}  # by the UID of the pod
        self._news = asyncio.Event()
        self.problem = ""

    def is_known(self, pod: Mapping[str, Any], root: str) -> bool:
        """Whether the decision about a pod of this workload is known. If not, read it, and then look at the pod again."""
        uid, token = uid_of(pod), token_of(pod)
        if uid in self._known or token is None or token.place.workload not in ("", root):
            return True
        if self._of_token.get(token, uid) != uid:  # a copy
            return True
        if uid not in self._wanted:
            self._wanted[uid] = _Wanted(token, time.monotonic())
            self._news.set()
        return False

    def of(self, pod: Mapping[str, Any], _root: str) -> Admission | None:
        """The decision about a pod; None: no review of ours changed the pod."""
        known = self._known.get(uid_of(pod))
        return None if known is None else known[1]

    def forget(self, pod: str) -> None:
        """Forget a pod that is gone and fully recorded."""
        self._wanted.pop(pod, None)
        token, _ = self._known.pop(pod, (None, None))
        if token is not None and self._of_token.get(token) == pod:
            del self._of_token[token]

    async def run(self) -> None:
        """Read the records of pods until cancelled. Raises what ``look`` raises."""
        limit = asyncio.Semaphore(_AT_ONCE)
        reading: dict[tuple[str, str], asyncio.Task[None]] = {}
        try:
            while True:
                self._news.clear()
                for workload, places in self._by_workload().items():
                    if workload not in reading:
                        reading[workload] = asyncio.create_task(self._read_all(limit, places))
                news = asyncio.create_task(self._news.wait())
                await asyncio.wait((news, *reading.values()), return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
                for workload in [workload for workload, task in reading.items() if task.done()]:
                    reading.pop(workload).result()
        finally:
            for task in reading.values():
                task.cancel()

    def _by_workload(self) -> Mapping[tuple[str, str], Mapping[Place, list[str]]]:
        """The waiting pods by the objects with their records, per workload, so that workloads do not wait for each other."""
        found: dict[tuple[str, str], dict[Place, list[str]]] = {}
        for uid, wanted in self._wanted.items():
            place = wanted.token.place
            found.setdefault((place.namespace, place.workload), {}).setdefault(place, []).append(uid)
        return found

    async def _read_all(self, limit: asyncio.Semaphore, places: Mapping[Place, list[str]]) -> None:
        """Read the records of a workload's pods, and look at the pods that are known now; pause if none is."""
        found = await asyncio.gather(*(self._read(limit, *each) for each in places.items()))
        if read := [uid for each in found for uid in each]:
            self._look(read)
        else:
            await asyncio.sleep(_AGAIN)

    async def _read(self, limit: asyncio.Semaphore, place: Place, pods: list[str]) -> list[str]:
        """The pods of an object that are known now."""
        try:
            async with limit, asyncio.timeout(_ANSWER):
                path = object_path(API_VERSION, KIND, place.name, place.namespace)
                found = await self._api.get_or_none(path, at_most=LARGEST)
            content = Content() if found is None else read_content(found, place)
            self.problem = ""
        except (ApiFailed, StateError, TimeoutError) as error:
            self._tell(place, str(error) or f"no answer within {_ANSWER:g} s")
            before = time.monotonic() - _HELD
            pods = [uid for uid in pods if uid in self._wanted and self._wanted[uid].since < before]
            content = Content()
        for uid in pods:
            wanted = self._wanted.pop(uid, None)
            if wanted is not None:
                self._know(uid, wanted.token, content)
        return pods

    def _know(self, uid: str, token: Token, content: Content) -> None:
        is_first = self._of_token.setdefault(token, uid) == uid
        admission = admission_in(content, token.review, uid) if is_first else None
        if admission is not None:
            same = self._same.setdefault(content.records[token.review].decided, admission)
            admission = same._replace(number=admission.number)
        self._known[uid] = token, admission
        if len(self._same) > _SAME_KEPT:
            self._same.clear()

    def _tell(self, place: Place, why: str) -> None:
        if not self.problem:
            _LOG.warning(
                "cannot read earlier decisions about pods (%s/%s: %s); these pods wait",
                place.namespace,
                place.name,
                why,
            )
        self.problem = why
