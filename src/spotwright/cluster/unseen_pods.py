"""Finds pods that were created and deleted while no recorder ran, by the numbers that webhooks assigned.

A starting recorder reads the SpotCounters before it lists the pods. So a pod that was seen by then, is not listed and has no
recorded attempt is gone, with an unknown end: it is recorded as a lost attempt.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from spotwright.cluster.api_client import Api, ApiFailed, object_path
from spotwright.cluster.bounded_json import read_as
from spotwright.cluster.task_objects import (
    API_VERSION,
    KIND,
    MOST_BYTES,
    WORKLOAD_LABEL,
    Decided,
    Record,
    key_of_path,
)

__all__ = ["UnseenPod", "UnseenPods", "path_of"]


_LOG = logging.getLogger(__name__)
_PAGE = 50  # objects
_MOST_PAGE = 2 * _PAGE * MOST_BYTES  # bytes
_MOST = 50_000  # pods that are remembered, of all namespaces
_SECONDS = 60.0  # for all of it
_LASTS = 600.0  # seconds within which each workload was looked at as a whole


class UnseenPod(NamedTuple):
    """A pod seen by a webhook: its UID, the key of its task's path (a parallel Job has slots), and its number."""

    uid: str
    task: str
    slot: int
    number: int

    @property
    def attempt(self) -> str:
        """The key of its attempt."""
        return f"{self.uid}/0"


class UnseenPods:
    """The unrecorded pods of these namespaces, or of all; await :meth:`read` before pods are listed. Empty without ``api``."""

    def __init__(
        self, api: Api | None = None, namespaces: Sequence[str] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api, self._namespaces, self._clock = api, namespaces, clock
        self._pods: defaultdict[tuple[str, str], list[UnseenPod]] = defaultdict(list)  # by namespace and workload
        self._read_at = 0.0

    async def read(self) -> None:
        """Read the seen pods. A failure is logged, and such pods stay unknown."""
        self._pods.clear()
        if self._api is None:
            return
        try:
            async with asyncio.timeout(_SECONDS):
                for namespace in self._namespaces or ("",):
                    await self._read(self._api, namespace)
        except (ApiFailed, TimeoutError) as error:
            if not isinstance(error, ApiFailed) or error.status != 404:  # the kind is not installed
                _LOG.warning(
                    "cannot tell which attempts were created and deleted unrecorded: %s", str(error) or "no answer"
                )
        self._read_at = self._clock()

    async def _read(self, api: Api, namespace: str) -> None:
        path, more, count = object_path(API_VERSION, KIND, namespace=namespace), "", 0
        while True:
            params = {"limit": str(_PAGE), **({"continue": more} if more else {})}
            page = await api.get_page(path, params, at_most=_MOST_PAGE)
            for item in page.items or ():
                count += self._take(bytes(item))
            more = (page.metadata.continue_ if page.metadata else "") or ""
            if not more or count >= _MOST:
                return

    def _take(self, content: bytes) -> int:
        try:
            found = read_as(_Counter, content)
        except msgspec.DecodeError as error:
            _LOG.warning("ignoring a SpotCounter that Spotwright did not write (%s)", error)
            return 0
        workload = (found.metadata.labels or {}).get(WORKLOAD_LABEL, "")
        pods = [
            UnseenPod(one.pod, one.task, one.slot, one.number)
            for one in found.spec.records.values()
            if one.pod and one.task and not found.spec.decided.get(one.decided, Decided()).is_refused
        ]
        if workload and pods:
            self._pods[found.metadata.namespace, workload] += pods
        return len(pods)

    def of(self, namespace: str, workload: str, known: Iterable[str]) -> Sequence[UnseenPod]:
        """The pods of a workload whose UIDs are not among the known ones, in the order of their numbers."""
        if self._clock() > self._read_at + _LASTS:
            self._pods.clear()
        found = self._pods.get((namespace, workload), ())
        there = {*known} if found else {*()}
        return sorted((one for one in found if one.uid not in there), key=lambda one: one.number)

    def drop(self, namespace: str, workload: str) -> None:
        """Draw no conclusion about a workload: an earlier record of it may have been deleted."""
        self._pods.pop((namespace, workload), None)


def path_of(one: UnseenPod, tasks: Collection[str]) -> str:
    """The path of a pod's task: one of these where they have it."""
    for path in tasks:
        if key_of_path(path) == one.task:
            return path
        base, dash, slot = path.rpartition("-")
        if dash and slot.isdecimal() and key_of_path(base) == one.task:
            return f"{base}-{one.slot}"
    return f"{one.task}-{one.slot}" if one.slot else one.task


class _Spec(msgspec.Struct):
    records: dict[str, Record] = msgspec.field(default_factory=dict)
    decided: dict[str, Decided] = msgspec.field(default_factory=dict)


class _Meta(msgspec.Struct):
    namespace: str = ""
    labels: Mapping[str, Any] | None = None


class _Counter(msgspec.Struct):
    """The fields of a SpotCounter that are read."""

    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
