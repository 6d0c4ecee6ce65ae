"""Deletes the records of runs that have ended from the Kubernetes API, so that they fill neither a namespace nor etcd.

They go after a week, and earlier where a namespace has more than its share, or all have more than fits: always the oldest of
whoever has the most. Those of runs that go on stay; what they may take is limited where they are recorded
(:mod:`spotwright.cluster.run_store`). etcd has 2 GiB unless it is told otherwise, for the whole cluster, and refuses every write
when they are full: https://etcd.io/docs/latest/op-guide/maintenance/#space-quota.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spotwright.cluster.api_client import Api, ApiFailed, EventWriter
from spotwright.cluster.run_objects import AGE, RUN, records_path
from spotwright.kube.object_fields import metadata, seconds
from spotwright.model.quantities import format_bytes

__all__ = ["NAMESPACE_LIMIT", "TOTAL_LIMIT", "KeptRecord", "RecordedLogRuns", "Retention", "to_delete"]


NAMESPACE_LIMIT = 64 << 20
"""Bytes of the records of one namespace."""

TOTAL_LIMIT = 384 << 20
"""Bytes of all records: a fifth of what etcd has by default."""

_LOOK = 300.0  # seconds between two looks
_FAILED = 60.0  # seconds until it is tried again
_PAGE = 100
_LOG = logging.getLogger(__name__)


class KeptRecord(NamedTuple):
    """The records of a run. ``ended_at`` is in Unix seconds; None: it goes on. ``size`` is in bytes."""

    namespace: str
    name: str
    ended_at: float | None
    size: int


def to_delete(
    records: Iterable[KeptRecord], now: float, *, of_one: int = NAMESPACE_LIMIT, of_all: int = TOTAL_LIMIT
) -> list[tuple[KeptRecord, str]]:
    """The records that go at a moment, each with the reason, a clause."""
    found: list[tuple[KeptRecord, str]] = []
    sizes: Counter[str] = Counter()
    ended: defaultdict[str, list[KeptRecord]] = defaultdict(list)
    for one in records:
        if one.ended_at is not None and one.ended_at < now - AGE:
            found.append((one, f"it ended more than {AGE / 86400:g} days ago"))
            continue
        sizes[one.namespace] += one.size
        if one.ended_at is not None:
            ended[one.namespace].append(one)
    for each in ended.values():
        each.sort(key=lambda one: one.ended_at or 0.0, reverse=True)
    while ended:
        namespace, size = max(((name, sizes[name]) for name in ended), key=lambda pair: pair[1])
        if size > of_one:
            why = f"the records of its namespace take more than {format_bytes(of_one)}"
        elif sizes.total() > of_all:
            why = f"all records take more than {format_bytes(of_all)}, and those of its namespace the most of it"
        else:
            break
        oldest = ended[namespace].pop()
        found.append((oldest, why))
        sizes[namespace] -= oldest.size
        if not ended[namespace]:
            del ended[namespace]
    return found


class Retention:
    """Await :meth:`run`. ``namespaces`` are those that are served; none: all. ``events`` tells a namespace what it has lost.

    ``of_attempt`` are the bytes that each attempt takes beside what is recorded: the end of its log.
    """

    def __init__(self, api: Api, events: EventWriter, namespaces: Sequence[str] = (), *, of_attempt: int = 0) -> None:
        self._api, self._events, self._namespaces, self._of_attempt = api, events, namespaces, of_attempt

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            try:
                await self.look()
            except ApiFailed as error:
                _LOG.warning("old records are not deleted now: %s", error)
                await asyncio.sleep(_FAILED)
                continue
            await asyncio.sleep(_LOOK)

    async def look(self) -> None:
        """Delete what has to go now, and tell of what went before its time. Raises :class:`ApiFailed`."""
        kept = [one async for one in self._kept()]
        early: dict[str, tuple[str, int]] = {}
        for one, why in to_delete(kept, self._api.now()):
            _LOG.info("run %s in namespace %s is deleted: %s", one.name, one.namespace, why)
            await self._delete(one)
            if (one.ended_at or 0.0) >= self._api.now() - AGE:
                first, count = early.get(one.namespace, (why, 0))
                early[one.namespace] = first, count + 1
        for namespace, (why, count) in early.items():
            text = f"the records of {count} ended runs were deleted before their time: {why}"
            about = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "namespace": namespace}}
            await self._events.write(about, "RunsDeleted", text, is_warning=True)

    async def _delete(self, one: KeptRecord) -> None:
        """Delete a run; its tasks and attempts, which it owns, are deleted by the cluster after it."""
        try:
            await self._api.send(
                "DELETE", records_path(RUN, one.namespace, one.name), {"propagationPolicy": "Background"}
            )
        except ApiFailed as error:
            if error.status != 404:
                raise

    async def _kept(self) -> AsyncIterator[KeptRecord]:
        for namespace in self._namespaces or ("",):
            following = ""
            while True:
                asked = {"limit": str(_PAGE)} | ({"continue": following} if following else {})
                try:
                    page = await self._api.get(records_path(RUN, namespace), asked)
                except ApiFailed as error:  # nothing is deleted there; of others is
                    _LOG.warning("%s", error)
                    break
                for one in _records(page.get("items") or (), self._of_attempt):
                    yield one
                following = str(metadata(page).get("continue") or "")
                if not following:
                    break


class RecordedLogRuns:
    """The runs in the API, as what keeps logs knows them: see :class:`~spotwright.cluster.log_store.LogRuns`.

    ``owner`` is the UID of an object that outlives every controller of a release.
    """

    def __init__(self, api: Api, owner: str) -> None:
        self._api, self._owner = api, owner

    @property
    def owner(self) -> str:
        """See :attr:`LogRuns.owner`."""
        return self._owner

    async def existing(self, runs: Collection[str]) -> Collection[str]:
        """See :meth:`LogRuns.existing`."""
        found = set()
        for run in runs:
            namespace, dot, _ = run.partition(".")  # the name of a run begins with it
            try:
                if not dot or await self._api.get_or_none(records_path(RUN, namespace, run)) is not None:
                    found.add(run)
            except ApiFailed as error:
                _LOG.warning("run %s: its logs stay, because it cannot be read: %s", run, error)
                found.add(run)
        return found


def _records(items: Iterable[Mapping[str, Any]], of_attempt: int) -> Iterator[KeptRecord]:
    for found in items:
        status = found.get("status") or {}
        size = int(status.get("bytes") or 0) + of_attempt * int(status.get("attempts") or 0)
        name, namespace = str(metadata(found).get("name")), str(metadata(found).get("namespace"))
        yield KeptRecord(namespace, name, seconds(status.get("finishedAt")), size)
