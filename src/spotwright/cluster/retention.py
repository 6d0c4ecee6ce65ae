"""Deletes records of ended runs from the Kubernetes API, so that they fill neither a namespace nor etcd.

They are deleted after a week, and earlier if a namespace exceeds its share, or all together exceed the total
(:mod:`spotwright.cluster.record_shares`): always the oldest of the namespace with the most. If that namespace has no ended run
left, the recording of its largest active run is cut.

With a log store, a run is archived there first (:mod:`spotwright.cluster.run_archives`). A run that cannot be archived stays
while its namespace has room; then it is deleted, and its namespace gets an Event.

A workload may outlive its record: a Job stays in the cluster after its end, and a new recorder would record it again. So before
records are deleted early, an object in their namespace stores the end time of the newest deleted run. The record of a workload
that ended earlier was deleted, because the oldest go first. A workload that outlives its cut and deleted recording is recorded
again by the next recorder, from the cluster's current state.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

import msgspec

from spotwright.cluster.api_client import Api, ApiFailed, EventWriter, about_namespace, namespace_uid
from spotwright.cluster.bounded_json import ListPage
from spotwright.cluster.record_shares import NAMESPACE_LIMIT, TOTAL_LIMIT, Shares
from spotwright.cluster.run_archives import Archive, Archiver
from spotwright.cluster.run_objects import (
    AGE,
    API_VERSION,
    DELETED_UNTIL,
    RUN,
    deleted_path,
    deleted_until,
    records_path,
)
from spotwright.cluster.run_store import WorkloadRun
from spotwright.kube.object_fields import seconds
from spotwright.model.quantities import format_bytes

__all__ = ["Going", "KeptRecord", "RecordedLogRuns", "Retention", "note_deleted", "to_delete"]


_LOOK = 300.0  # seconds between two looks
_SOON = 30.0  # seconds until the next look if too much is kept
_POLL, _MINUTE = 1.0, 60.0  # seconds
_FAILED = 60.0  # seconds until a retry
_CUTS = 20  # runs that one look cuts
_PAGE = 100
_LOG = logging.getLogger(__name__)


class KeptRecord(NamedTuple):
    """The records of a run. ``ended_at`` is in Unix seconds; None: it is active. ``size`` is in bytes."""

    namespace: str
    name: str
    ended_at: float | None
    size: int
    uid: str = ""


class Going(NamedTuple):
    """The records to delete at a time. The reasons are clauses."""

    deleted: Sequence[tuple[KeptRecord, str]]
    cut: Sequence[tuple[str, str]]
    """Namespaces whose largest run must be cut, because they have no ended runs left."""


def to_delete(
    records: Iterable[KeptRecord],
    now: float,
    *,
    of_one: int = NAMESPACE_LIMIT,
    of_all: int = TOTAL_LIMIT,
    uncut: Collection[str] = (),
    waiting: Collection[KeptRecord] = (),
) -> Going:
    """The records to delete at a time. ``uncut`` are namespaces that cannot be cut: then the next largest is.

    ``waiting`` are runs that cannot be archived: they are deleted only for lack of space.
    """
    kept = _Kept()
    for one in records:
        if one.ended_at is not None and one.ended_at < now - AGE and one not in waiting:
            kept.deleted.append((one, f"it ended more than {AGE / 86400:g} days ago"))
        else:
            kept.add(one)
    cut: dict[str, str] = {}
    for namespace in kept.sizes:
        why = f"the records of its namespace use more than {format_bytes(of_one)}"
        while kept.sizes[namespace] > of_one and namespace not in cut:
            if not kept.delete_oldest(namespace, why):
                cut[namespace] = why
    why = f"all records use more than {format_bytes(of_all)}, and this namespace uses the most"
    while kept.sizes.total() > of_all:
        paying = [
            name for name, size in kept.sizes.most_common() if size and (name not in uncut or kept.has_ended(name))
        ]
        if not paying:
            break
        namespace = paying[0]
        if not kept.delete_oldest(namespace, why):
            cut.setdefault(namespace, why)
            break
    return Going(kept.deleted, list(cut.items()))


class _Kept:
    """Records that are kept, with the bytes of each namespace."""

    def __init__(self) -> None:
        self.sizes: Counter[str] = Counter()
        self.deleted: list[tuple[KeptRecord, str]] = []
        self._ended: defaultdict[str, list[tuple[float, int, KeptRecord]]] = defaultdict(list)

    def add(self, one: KeptRecord) -> None:
        self.sizes[one.namespace] += one.size
        if one.ended_at is not None:
            ended = self._ended[one.namespace]
            heapq.heappush(ended, (one.ended_at, len(ended), one))

    def has_ended(self, namespace: str) -> bool:
        """Whether a run of a namespace has ended."""
        return bool(self._ended[namespace])

    def delete_oldest(self, namespace: str, why: str) -> bool:
        """Delete the namespace's run that ended first; false: none has ended."""
        if not self.has_ended(namespace):
            return False
        _, _, oldest = heapq.heappop(self._ended[namespace])
        self.deleted.append((oldest, why))
        self.sizes[namespace] -= oldest.size
        return True


class Retention:
    """Await :meth:`run`. ``namespaces`` are the served ones; if empty, all. ``events`` reports lost records to a namespace.

    The store also updates ``shares``. ``of_attempt`` are the bytes of each attempt in addition to its records: the end of its
    log. ``outcomes`` counts runs that were archived, could not be archived, and were deleted unarchived.
    """

    def __init__(
        self,
        api: Api,
        events: EventWriter,
        namespaces: Sequence[str] = (),
        shares: Shares | None = None,
        *,
        of_attempt: int = 0,
        outcomes: Counter[str] | None = None,
    ) -> None:
        self._api, self._events, self._namespaces, self._of_attempt = api, events, namespaces, of_attempt
        self._outcomes = Counter[str]() if outcomes is None else outcomes
        self.archiver: Archiver | None = None
        """Archives runs before they are deleted; None: no archive."""
        self.on_archived: Callable[[Archive], None] = lambda _: None
        self.shares = shares or Shares()
        self.cut: Callable[[str, str], bool] = lambda *_: False
        """Cuts the recording of the largest run of a namespace, for a reason; false: none of its runs is active."""
        self._cuts: dict[str, tuple[str, int]] = {}  # by namespace: the first unreported one, and how many
        self._reported_at: dict[str, float] = {}  # by namespace: when it heard of a cut
        self._waiting: dict[KeptRecord, str] = {}  # records not archived at the last look, each with the reason
        self._until: dict[str, float] = {}  # the times in the objects about deleted runs

    def heard(self, run: WorkloadRun) -> None:
        """Note a run whose recording was cut: its namespace gets an Event soon."""
        first, count = self._cuts.get(run.namespace, (f"run {run.folder.name}: {run.state.why}", 0))
        self._cuts[run.namespace] = first, count + 1

    async def run(self) -> None:
        """Look periodically until cancelled."""
        looked_at, pause = -_LOOK, _LOOK
        while True:
            await self.tell_cuts()
            waited = time.monotonic() - looked_at
            if waited >= pause or (self.shares.is_over and waited >= min(pause, _SOON)):
                pause = await self._looked()
                looked_at = time.monotonic()
            await asyncio.sleep(_POLL)

    async def _looked(self) -> float:
        """Look once. Returns the seconds until the next look."""
        try:
            await self.look()
        except ApiFailed as error:
            _LOG.warning("cannot delete old records now: %s", error)
            return _FAILED
        return _FAILED if self._waiting else _LOOK

    async def tell_cuts(self) -> None:
        """Write an Event about the first run that was cut since the last one, for each namespace at most once a minute."""
        now = time.monotonic()
        for namespace in [name for name in self._cuts if now >= self._reported_at.get(name, -_MINUTE) + _MINUTE]:
            first, count = self._cuts.pop(namespace)
            self._reported_at[namespace] = now
            text = first if count == 1 else f"{first} (the first of {count} runs cut short)"
            await self._events.write(about_namespace(namespace), "RecordingCut", text, is_warning=True)

    async def _archived(self, choose: Callable[..., Going]) -> Going:
        """The runs to delete now, archived except those for which there is no space to wait."""
        tried: set[KeptRecord] = set()
        self._waiting = {}
        if self.archiver is not None:
            self.archiver.away = ""
        while True:
            going = choose(waiting=self._waiting)
            new = [one for one, _ in going.deleted if one not in tried]
            if self.archiver is None or not new:
                break
            tried.update(new)
            by_namespace: defaultdict[str, dict[str, KeptRecord]] = defaultdict(dict)
            for one in new:
                by_namespace[one.namespace][one.name] = one
            for namespace, records in by_namespace.items():
                made, failed = await self.archiver.archive(namespace, list(records))
                for archive in made:
                    self.on_archived(archive)
                self._waiting |= {records[name]: why for name, why in failed.items()}
                self._outcomes["archived"] += len(made)
        return going

    async def look(self) -> None:
        """Delete the records that must go now, cut active runs that take too much, and report both. Raises :class:`ApiFailed`."""
        uncut: set[str] = set()
        for _ in range(_CUTS):
            self.shares.new.clear()
            kept = [one async for one in self._kept()]
            kept += self._untold(kept)
            of_one, of_all = self.shares.of_one, self.shares.of_all
            choose = partial(to_delete, kept, self._api.now(), of_one=of_one, of_all=of_all, uncut=uncut)
            going = await self._archived(choose)
            self.shares.ended = _sizes(kept) - _sizes([one for one, _ in going.deleted])
            await self._delete(going.deleted)
            were_cut = {namespace: self.cut(namespace, why) for namespace, why in going.cut}
            new = {namespace for namespace, was_cut in were_cut.items() if not was_cut} - uncut
            uncut |= new
            if not (new or any(were_cut.values())):
                break
        self._outcomes["failed"] += len(self._waiting)
        for namespace, why in {one.namespace: why for one, why in self._waiting.items()}.items():
            _LOG.warning("cannot archive ended runs of namespace %s, so they stay: %s", namespace, why)
        await self.tell_cuts()

    def _untold(self, kept: Iterable[KeptRecord]) -> Iterator[KeptRecord]:
        """The growth of active runs since their objects last reported it."""
        known: Counter[str] = Counter()
        for one in kept:
            known[one.namespace] += one.size if one.ended_at is None else 0
        for namespace, size in (self.shares.live - known).items():
            yield KeptRecord(namespace, "", None, size)

    async def _delete(self, going: Sequence[tuple[KeptRecord, str]]) -> None:
        week_ago = self._api.now() - AGE
        early: defaultdict[str, list[tuple[KeptRecord, str]]] = defaultdict(list)
        for one, why in going:
            if (one.ended_at or 0.0) >= week_ago:
                early[one.namespace].append((one, why))
        for namespace, gone in early.items():
            await self._write_until(namespace, max(one.ended_at or 0.0 for one, _ in gone))
        lost: defaultdict[str, list[str]] = defaultdict(list)
        for one, why in going:
            _LOG.info("deleting run %s in namespace %s: %s", one.name, one.namespace, why)
            if one in self._waiting:
                lost[one.namespace].append(f"{why}, and it could not be archived: {self._waiting.pop(one)}")
            await self._delete_one(one)
        self._outcomes["lost"] += sum(map(len, lost.values()))
        for namespace, gone in early.items():
            text = f"the records of {len(gone)} ended runs were deleted before their time: {gone[0][1]}"
            await self._events.write(about_namespace(namespace), "RunsDeleted", text, is_warning=True)
        for namespace, reasons in lost.items():
            text = f"{len(reasons)} ended runs were deleted and not archived: {reasons[0]}"
            await self._events.write(about_namespace(namespace), "RunsNotArchived", text, is_warning=True)

    async def _write_until(self, namespace: str, until: float) -> None:
        """Note the latest end of the runs to delete. A failed write does not delay the deletion: etcd may be full."""
        until = self._until[namespace] = max(until, self._until.get(namespace, 0.0))
        try:
            await note_deleted(self._api, namespace, until)
        except ApiFailed as error:
            _LOG.warning("a restarted recorder may record deleted runs of namespace %s again: %s", namespace, error)

    async def _delete_one(self, one: KeptRecord) -> None:
        """Delete a run; its tasks and attempts, which it owns, are deleted by the cluster after it."""
        body = {"propagationPolicy": "Background", "preconditions": {"uid": one.uid}}
        try:
            await self._api.send("DELETE", records_path(RUN, one.namespace, one.name), body)
        except ApiFailed as error:
            if error.status not in (404, 409):  # 409: another one has its name
                raise

    async def _kept(self) -> AsyncIterator[KeptRecord]:
        for namespace in self._namespaces or ("",):
            following = ""
            while True:
                asked = {"limit": str(_PAGE)} | ({"continue": following} if following else {})
                try:
                    page = await self._api.get_page(records_path(RUN, namespace), asked)
                except ApiFailed as error:  # delete only in the other namespaces
                    _LOG.warning("%s", error)
                    break
                for one in _records(page, self._of_attempt):
                    yield one
                following = "" if page.metadata is None else page.metadata.continue_ or ""
                if not following:
                    break


async def note_deleted(api: Api, namespace: str, until: float) -> None:
    """Note that runs of a namespace that ended by this time (Unix seconds) are deleted early: see :func:`deleted_path`.

    Without it a new recorder would record their existing workloads again. Raises :class:`ApiFailed`.
    """
    path = deleted_path(namespace)
    found = await api.get_or_none(path)
    text = datetime.fromtimestamp(until, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    if found is None:
        meta = {"name": path.rpartition("/")[2], "namespace": namespace, "annotations": {DELETED_UNTIL: text}}
        body = {"apiVersion": API_VERSION, "kind": "SpotCounter", "metadata": meta}
        await api.send("POST", path.rpartition("/")[0], body)
    elif until > deleted_until(found):
        where = f"/metadata/annotations/{DELETED_UNTIL.replace('/', '~1')}"
        await api.send("PATCH", path, [{"op": "add", "path": where, "value": text}])


class RecordedLogRuns:
    """The runs in the API, for the log store: see :class:`~spotwright.cluster.log_store.LogRuns`.

    ``owner`` is the UID of an object that outlives every controller of a release.
    """

    def __init__(self, api: Api, owner: str) -> None:
        self._api, self._owner = api, owner

    @property
    def owner(self) -> str:
        """See :attr:`LogRuns.owner`."""
        return self._owner

    async def is_gone(self, namespace: str, uid: str) -> bool:
        """See :meth:`LogRuns.is_gone`."""
        try:
            return await namespace_uid(self._api, namespace) != uid
        except ApiFailed as error:
            _LOG.warning("cannot read namespace %s, so its archives stay: %s", namespace, error)
            return False

    async def existing(self, runs: Collection[str]) -> Collection[str]:
        """See :meth:`LogRuns.existing`."""
        found = set()
        for run in runs:
            namespace, dot, _ = run.partition(".")  # the name of a run begins with it
            try:
                if not dot or await self._api.get_or_none(records_path(RUN, namespace, run)) is not None:
                    found.add(run)
            except ApiFailed as error:
                _LOG.warning("cannot read run %s, so its logs stay: %s", run, error)
                found.add(run)
        return found


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Status(msgspec.Struct, rename="camel", frozen=True):
    bytes: int = 0
    attempts: int = 0
    finished_at: str = ""


class _Run(msgspec.Struct, frozen=True):
    """The relevant fields of a SpotRun: its plan and its journal would take seconds and megabytes."""

    metadata: _Meta = _Meta()
    status: _Status = _Status()


def _records(page: ListPage, of_attempt: int) -> Iterator[KeptRecord]:
    for text in page.items or ():
        try:
            found = msgspec.json.decode(text, type=_Run)
        except msgspec.DecodeError as error:
            _LOG.warning("ignoring a SpotRun that Spotwright did not write (%s)", error)
            continue
        meta, status = found.metadata, found.status
        size = status.bytes + of_attempt * status.attempts
        yield KeptRecord(meta.namespace, meta.name, seconds(status.finished_at), size, meta.uid)


def _sizes(records: Iterable[KeptRecord]) -> Counter[str]:
    """The bytes of ended runs, by namespace."""
    found: Counter[str] = Counter()
    for one in records:
        found[one.namespace] += one.size if one.ended_at is not None else 0
    return found
