"""Implements :mod:`spotwright.cluster.run_records` by objects of the Kubernetes API, beside their workloads.

Records there survive a node loss, are readable by ``kubectl`` with the caller's rights, and are deleted with their namespace.
:mod:`spotwright.cluster.run_objects` defines how events are stored in objects.

The watcher uses synchronous functions, so a commit blocks until the API server answers, as on a disk. An object changed or
deleted by others ends the record with :class:`StateError`: it is reread before the next write.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from spotwright.cluster.api_client import Api, ApiFailed
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.parts import all_end
from spotwright.cluster.record_gaps import events_that_fit, note_of_gap
from spotwright.cluster.run_objects import (
    AGE,
    API_VERSION,
    ATTEMPT,
    ENDED_LABEL,
    PAGE,
    RUN,
    TASK,
    WORKLOAD_LABEL,
    Home,
    ListedParts,
    RunRows,
    StoredRow,
    deleted_path,
    deleted_until,
    object_name,
    owner_of,
    packed,
    records_path,
    rows_of,
    stored_rows,
    unpacked,
)
from spotwright.cluster.run_records import (
    SHORT,
    WHOLE,
    Facts,
    Glance,
    RecordGone,
    RunRecord,
    TooLarge,
    facts_of,
    run_name,
)
from spotwright.cluster.shown_runs import (
    Conditions,
    LogsKept,
    complete,
    conditions,
    known_conditions,
    part_status,
    recorded,
    run_status,
)
from spotwright.engine.events import Event, RunCreated, RunFinished
from spotwright.engine.state import RunState
from spotwright.errors import SpotwrightError, StateError
from spotwright.kube.object_fields import metadata, seconds, uid_of
from spotwright.model.quantities import format_bytes
from spotwright.records.journal import decoded
from spotwright.records.state_folder import RunFolder
from spotwright.records.stored_plan import Look, PlanVersions, StoredPlan, plan_document

__all__ = ["ApiRecord", "ApiRecords", "ApiRun", "ReadLog"]


_T = TypeVar("_T")
_LOG = logging.getLogger(__name__)

ReadLog = Callable[[str, int, str, int, int], bytes]
"""Reads a log; the arguments are those of :meth:`RunSource.read_log`."""

_OBJECT, _RUN = (
    1_300,
    1_100,
)  # bytes of an object besides its events, and of a SpotRun besides that and its plan (seen on 1.35)
_KNOWN_FOR = 60.0  # seconds for which a namespace's deletions are cached
_LISTED = 100  # objects in a page of a list: at most 6 MB
AT_ONCE = 200
"""Events of one commit: the API server creates some hundred objects a second, and a late commit is repeated."""

_MANY = 2  # runs of a namespace whose objects are listed together
_AT_ONCE = 16  # concurrent writes of a commit
_PATIENCE = 10.0  # seconds for which a commit waits: other records wait meanwhile
_TRIES, _PAUSE = 4, 0.02  # of one write, and seconds before the second, twice as long each time
_CONFLICT = 409
_NEXT_LINE = "/journal/-"
_READS = 20.0  # seconds for which a reading waits
_AGAIN = 0.3  # seconds until missing objects are listed again: lists of several kinds are not atomic
_LONGEST_PLAN = 256 << 10  # characters of a packed plan: more than a megabyte of configuration and templates


def get_soon(kubernetes: Kubernetes, path: str, params: Mapping[str, str] | None) -> dict[str, Any]:
    """Read from the API within the time of a look. Raises :class:`ApiFailed`."""
    return _soon(kubernetes, path, kubernetes.api.get(path, params))


def get_page_soon(kubernetes: Kubernetes, path: str, params: Mapping[str, str]) -> tuple[Sequence[bytes], str]:
    """Read a page of a list in the same way: its objects as text, and the token of the next page."""
    page = _soon(kubernetes, path, kubernetes.api.get_page(path, params))
    following = "" if page.metadata is None else page.metadata.continue_ or ""
    return [bytes(each) for each in page.items or ()], following


def _soon(kubernetes: Kubernetes, path: str, asking: Coroutine[Any, Any, _T]) -> _T:
    async def within_time() -> _T:
        async with asyncio.timeout(_READS):
            return await asking

    try:
        return kubernetes.call(within_time())
    except TimeoutError as error:
        raise ApiFailed(f"{path}: the API server did not answer within {_READS:g} s") from error


def _no_log(*_: object) -> bytes:
    return b""


def _no_parts(_workload: str) -> Sequence[dict[str, Any]] | None:
    return None


class ApiRun:
    """A run as stored in the API. It is a :class:`~spotwright.records.stored_plan.RunSource`, and never writes.

    ``get`` reads from the API and raises :class:`~spotwright.cluster.api_client.ApiFailed`. ``read_log`` reads logs, which are
    stored elsewhere. ``plan`` is the packed plan if it is not stored yet. ``parts`` has the objects of a workload's run if
    they were listed with others.
    """

    def __init__(
        self,
        get: Callable[[str, Mapping[str, str] | None], dict[str, Any]],
        namespace: str,
        name: str,
        *,
        read_log: ReadLog = _no_log,
        others: Callable[[str], ApiRun | None] = lambda _: None,
        plan: str = "",
        parts: Callable[[str], Sequence[dict[str, Any]] | None] = _no_parts,
    ) -> None:
        self._parts = parts
        self._get, self.namespace, self.name = get, namespace, name
        self._read_log, self._others = read_log, others
        self._run: dict[str, Any] | None = {"plan": plan} if plan else None
        self.rows = RunRows()
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        """All objects of the run as last read, without their journals, by kind and name."""
        self.sizes: dict[tuple[str, str], int] = {}
        """The bytes of events in each object."""
        self.versions: dict[str, str] = {}
        """The read versions of the SpotRun and of the lists of its tasks and attempts, by kind."""
        self.missing: list[int] = []
        """The numbers of deleted events that the run does not mention yet."""
        self._said = 0  # the number of them in a note

    @property
    def place(self) -> str:
        """The run, for messages."""
        return f"run {self.name} in namespace {self.namespace}"

    def read(self) -> dict[str, Any] | None:
        """Read the SpotRun itself; None if it does not exist. Raises :class:`StateError`."""
        try:
            self._run = self._get(records_path(RUN, self.namespace, self.name), None)
        except ApiFailed as error:
            if error.status != 404:
                raise self.failed(error) from error
            self._run = None
        return self._run

    def failed(self, error: ApiFailed) -> StateError:
        """The error for people, from the API server's."""
        return StateError(f"{self.place}: its records cannot be read ({error})")

    def forget(self) -> None:
        """Drop everything except its plan: the recorder has folded the rest."""
        self._run = {"plan": self.packed_plan}
        self.rows = RunRows()
        self.objects, self.sizes = {}, {}

    @property
    def packed_plan(self) -> str:
        """Its plan, as stored in its object."""
        return str((self._run or {}).get("plan", ""))

    @property
    def absent(self) -> list[int]:
        """The numbers of events known to be lost."""
        return list((self._run or {}).get("absent") or ())

    def _known(self) -> dict[str, Any]:
        if self._run is None and self.read() is None:
            raise RecordGone(f"{self.place}: its SpotRun was deleted")
        assert self._run is not None  # noqa: S101
        return self._run

    def read_all(self) -> None:
        """Read every object of the run. Raises :class:`StateError`."""
        self._read_all()
        if self.rows.lost():
            time.sleep(_AGAIN)
            self._read_all()
        lost = self.rows.lost()
        self.missing = sorted({*self.missing, *lost}.difference(self.absent))
        self.rows.take((), lost)

    def _read_all(self) -> None:
        run = self.read()
        if run is None:
            raise RecordGone(f"{self.place}: its SpotRun was deleted")
        self.objects.clear()
        self.sizes.clear()
        self.versions = {RUN: str(metadata(run).get("resourceVersion", ""))}
        self._take(run)
        for found in self._parts_of(_label(run, WORKLOAD_LABEL)):
            self._take(found)

    def _parts_of(self, workload: str) -> Iterator[dict[str, Any]]:
        """The tasks and attempts with the label of a workload."""
        try:
            parts = self._parts(workload)
        except ApiFailed as error:
            raise self.failed(error) from error
        if parts is not None:
            yield from parts
            return
        for kind in (ATTEMPT, TASK):
            for found in self.listed(kind, {"labelSelector": f"{WORKLOAD_LABEL}={workload}"}):
                yield {"kind": kind, **found}

    def hear(self, found: dict[str, Any]) -> None:
        """Apply a changed object."""
        if found["kind"] == RUN:
            self._run = found
        self._take(found)

    @property
    def workload(self) -> str:
        """The UID of its workload, once it was read."""
        return _label(self._run or {}, WORKLOAD_LABEL)

    def _take(self, found: dict[str, Any]) -> None:
        if found["kind"] != RUN and not _is_of(found, self._known()):
            return  # another writer's, under our label
        key = found["kind"], str(metadata(found).get("name", ""))
        self.rows.take(rows_of(found), found.get("absent") or ())
        self.sizes[key] = sum(map(len, found.get("journal") or ()))
        self.objects[key] = {name: value for name, value in found.items() if name not in ("journal", "plan")}

    def listed(self, kind: str, params: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """The objects of a kind in its namespace, page by page. Raises :class:`StateError`."""
        path, following = records_path(kind, self.namespace), ""
        while True:
            asked = {**params, "limit": str(_LISTED)} | ({"continue": following} if following else {})
            try:
                page = self._get(path, asked)
            except ApiFailed as error:
                raise self.failed(error) from error
            self.versions.setdefault(kind, str(metadata(page).get("resourceVersion", "")))
            yield from page.get("items") or ()
            following = str(metadata(page).get("continue") or "")
            if not following:
                return

    # As a RunSource

    def made_at(self) -> int:
        """See :meth:`RunSource.made_at`."""
        made = seconds(metadata(self._known()).get("creationTimestamp")) or 0.0
        return int(made * 1e9) + self.rows.restarts

    @contextmanager
    def look(self, after: int, only_of: str = "") -> Iterator[Look]:  # noqa: ARG002  # all of it is read in any case
        """See :meth:`RunSource.look`."""
        self.read_all()
        has_ended = _label(self._known(), ENDED_LABEL) == "true"
        yield Look(not has_ended, self._events(after))

    def _events(self, after: int) -> Iterator[tuple[int, Event]]:
        """The events after a number. If the run lost some, the events that fit the rest, and a note if it has none yet."""
        if not self.rows.has_lost:
            yield from decoded((row.journal_row for row in self.rows.after(after)), self.place, str)
            return
        state = RunState([*PlanVersions(RunFolder(Path(self.name)), self)])
        last = 0
        for number, event in events_that_fit(
            state, decoded((row.journal_row for row in self.rows.after(0)), self.place, str)
        ):
            last = number
            if number > after:
                yield number, event
        unsaid = len(self.missing) - (self._said if after else 0)
        if unsaid:
            self._said = len(self.missing)
            yield max(after, last), note_of_gap(state.last_at, unsaid)

    def pause(self, seconds: float) -> None:
        """See :meth:`RunSource.pause`."""
        time.sleep(max(seconds, 1.0))  # list the objects again

    def now(self) -> float:
        """See :meth:`RunSource.now`."""
        return time.time()

    def plan_count(self) -> int:
        """See :meth:`~spotwright.records.stored_plan.PlanTexts.plan_count`."""
        return 1

    def plan_text(self, version: int) -> tuple[str, str]:
        """See :meth:`~spotwright.records.stored_plan.PlanTexts.plan_text`."""
        return f"{self.place}, plan {version}", unpacked(str(self._known().get("plan", "")))

    def read_log(self, task: str, attempt: int, environment: str, offset: int, at_most: int = -1) -> bytes:
        """See :meth:`RunSource.read_log`."""
        return self._read_log(task, attempt, environment, offset, at_most)

    def other_run(self, name: str) -> ApiRun | None:
        """See :meth:`RunSource.other_run`."""
        return self._others(name)


def _is_of(found: Mapping[str, Any], run: Mapping[str, Any]) -> bool:
    """Whether an object belongs to a run: its first owner is that SpotRun."""
    return any(each.get("uid") == uid_of(run) for each in metadata(found).get("ownerReferences") or ())


class ApiRecords:
    """The runs of these namespaces, or of all. ``kubernetes`` is logged in as the recorder.

    ``logs`` describes the stored logs for people, ``recorder`` is the Lease for readers: NAMESPACE/NAME.
    """

    kept: float | None = AGE

    def __init__(
        self,
        kubernetes: Kubernetes,
        namespaces: Sequence[str] = (),
        logs: LogsKept = LogsKept.NONE,
        recorder: str = "",
    ) -> None:
        self._kubernetes, self._namespaces, self._logs, self._recorder = kubernetes, namespaces, logs, recorder
        self._deleted: dict[str, tuple[float, float]] = {}  # by namespace: until when it is valid, and the time

    def _get(self, path: str, params: Mapping[str, str] | None) -> dict[str, Any]:
        """Read, for no longer than a look may take. Raises :class:`ApiFailed`."""
        return get_soon(self._kubernetes, path, params)

    def all(self, is_wanted: Callable[[str], bool] = lambda _: True) -> Iterable[RunRecord]:
        """The unfinished runs. The runs of a namespace are read together."""
        return self._together(
            found
            for found in self._listed({"labelSelector": f"{ENDED_LABEL}!=true"})
            if is_wanted(str(metadata(found).get("namespace", "")))
        )

    def _together(self, runs: Iterable[dict[str, Any]]) -> Iterable[RunRecord]:
        """The records of SpotRuns; the other objects of a namespace with many of them are listed once."""
        known: defaultdict[str, list[ApiRecord]] = defaultdict(list)
        for found in runs:
            namespace = str(metadata(found).get("namespace", ""))
            record = self._record(namespace, str(metadata(found).get("name", "")))
            record.uid = _label(found, WORKLOAD_LABEL)
            record.know(found)
            known[namespace].append(record)
        for namespace, records in known.items():
            parts = ListedParts(partial(get_page_soon, self._kubernetes), namespace, [each.uid for each in records])
            for record in records:
                record.parts = parts.take if len(records) >= _MANY else record.parts
                yield record

    def of(self, root: Mapping[str, Any]) -> RunRecord:
        """See :meth:`RunRecords.of`."""
        namespace = str(metadata(root).get("namespace", ""))
        for digits in (SHORT, WHOLE):
            record = self._record(namespace, run_name(root, digits))
            known = record.glance()
            if known is None or known.uid in ("", uid_of(root)):
                record.uid = uid_of(root)
                return record
        raise SpotwrightError(
            f"SpotRun {record.folder.name} in namespace {namespace} belongs to another workload: have a member of the group"
            " spotwright:repair delete it"
        )

    def recent(self, since: float) -> Iterable[RunRecord]:
        """See :meth:`RunRecords.recent`."""

        def is_recent(found: Mapping[str, Any]) -> bool:
            ended = seconds((found.get("status") or {}).get("finishedAt"))
            return ended is None or ended >= since

        return self._together(found for found in self._listed({}) if is_recent(found))

    def deleted_until(self, namespace: str) -> float:
        """See :meth:`RunRecords.deleted_until`."""
        believed, until = self._deleted.get(namespace, (0.0, 0.0))
        if time.monotonic() >= believed:
            try:
                until = deleted_until(self._get(deleted_path(namespace), None))
            except ApiFailed as error:
                if error.status != 404:
                    raise StateError(
                        f"namespace {namespace}: its list of deleted runs cannot be read ({error})"
                    ) from error
                until = 0.0
            self._deleted[namespace] = time.monotonic() + _KNOWN_FOR, until
        return until

    def _listed(self, params: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """The SpotRuns of all readable namespaces. A skipped one is found when its workload is looked at."""
        for namespace in self._namespaces or ("",):
            try:
                yield from ApiRun(self._get, namespace, "all").listed(RUN, params)
            except StateError as error:
                cause = error.__cause__
                if not isinstance(cause, ApiFailed) or cause.status not in (403, 404):
                    raise
                _LOG.warning("%s", error)

    def _record(self, namespace: str, name: str) -> ApiRecord:
        return ApiRecord(self._kubernetes, RunFolder(Path(name)), namespace, self._logs, self._recorder)


@dataclass
class _Object:
    """An object to write: a page of its home. ``version`` is empty until the object exists."""

    name: str
    kind: str
    home: Home
    page: int = 1
    version: str = ""
    size: int = 0
    lines: list[str] = field(default_factory=list)  # that are to be added


class ApiRecord:
    """A run in the API. See :class:`~spotwright.cluster.run_records.RunRecord`."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        folder: RunFolder,
        namespace: str,
        logs: LogsKept = LogsKept.NONE,
        recorder: str = "",
    ) -> None:
        self._kubernetes, self.folder, self._namespace, self._logs = kubernetes, folder, namespace, logs
        self._recorder = recorder
        self._known: Glance | None = None  # from a list
        self._incomplete = "", ""  # why the run is not fully recorded: a reason and a sentence
        self._conditions: Conditions = ()  # as they were shown last
        self._read: ApiRun | None = None  # its content until it is open
        self.uid = ""  # of its workload
        self.parts: Callable[[str], Sequence[dict[str, Any]] | None] = _no_parts
        """Has its objects, if they were listed with other runs."""
        self._plan = ""
        self._epoch = self._last = self._size = 0
        self._is_taken = False  # whether a write succeeded since it was opened
        self._objects = 1  # existing ones, and ones to create
        self._run = _Object(folder.name, RUN, Home())
        self._pages: dict[Home, _Object] = {}  # the last one of each home
        self.at_once = AT_ONCE
        self._changed: list[_Object] = []  # with lines to add
        self._owner: dict[str, Any] = {}
        self.lost: Sequence[int] = ()

    @property
    def epoch(self) -> int:
        """See :attr:`RunRecord.epoch`."""
        return self._epoch

    @property
    def size(self) -> int:
        """See :attr:`RunRecord.size`."""
        return self._size + len(self._plan)

    @property
    def stored(self) -> int:
        """See :attr:`RunRecord.stored`."""
        return self.size + _OBJECT * self._objects + _RUN

    @property
    def _place(self) -> str:
        return f"run {self.folder.name} in namespace {self._namespace}"

    def glance(self) -> Glance | None:
        """See :meth:`RunRecord.glance`."""
        if self._known is not None:
            known, self._known = self._known, None
            return known
        found = self.source().read()
        return None if found is None else self._glance(found)

    def know(self, found: Mapping[str, Any]) -> None:
        """Use the SpotRun from a list, so that the next glance need not read it."""
        with suppress(StateError):  # the glance reports it
            self._known = self._glance(found)

    def _glance(self, found: Mapping[str, Any]) -> Glance:
        first = next(
            (event for _, event in decoded((row.journal_row for row in rows_of(found)), self._place, str)), None
        )
        arguments = self._believed(first)
        return Glance(arguments, _label(found, ENDED_LABEL) == "true")

    def _believed(self, first: Event | None) -> Mapping[str, Any]:
        """The arguments of a run from its first event; empty if they name another namespace than its object is in."""
        if not isinstance(first, RunCreated) or first.meta.arguments.get("namespace") != self._namespace:
            return {}
        return first.meta.arguments

    def create(self, stored: StoredPlan) -> None:
        """See :meth:`RunRecord.create`: it is written with the first events."""
        plan = packed(json.dumps(plan_document(stored), separators=(",", ":")))
        if len(plan) > _LONGEST_PLAN:
            raise TooLarge(
                f"{self._place}: its configuration and its templates take {format_bytes(len(plan))} packed, and the limit is"
                f" {format_bytes(_LONGEST_PLAN)}: make them smaller"
            )
        self._plan = plan

    def source(self) -> ApiRun:
        """See :meth:`RunRecord.source`."""
        get = partial(get_soon, self._kubernetes)
        self._read = ApiRun(get, self._namespace, self.folder.name, plan=self._plan, parts=self.parts)
        return self._read

    def facts(self, kinds: Collection[str], since: float) -> Facts | None:
        """See :meth:`RunRecord.facts`."""
        read = self.source()
        read.read_all()
        self._read = None
        rows = [row.journal_row for row in read.rows.after(0)]
        wanted = [row for row in rows if row[2] in kinds and row[1] > since]
        first = next((event for _, event in decoded(rows[:1], self._place, str)), None)
        if not self._believed(first):
            return None
        return facts_of(first, wanted, self.folder, read)

    def open(self) -> bool:
        """See :meth:`RunRecord.open`."""
        read, self._read, self._is_taken = self._read, None, False
        if read is None or not read.objects:
            read = self.source()
            if read.read() is None:
                self._epoch = 1
                return False
            read.read_all()
        self._read, self.parts = None, _no_parts
        self.lost = read.missing
        rows = read.rows.after(0)
        self._last = max([row.seq for row in rows[-1:]] + self.lost[-1:], default=0)
        self._epoch = 1 + max((row.epoch for row in rows), default=0)
        found = read.objects[RUN, self.folder.name]
        self.uid = _label(found, WORKLOAD_LABEL)
        self._owner, self._plan, self._size = owner_of(found), read.packed_plan, sum(read.sizes.values())
        self._objects = len(read.objects)
        self._conditions = known_conditions(found)
        absent = sorted({*read.absent, *self.lost})
        self._incomplete = (
            ("EventsDeleted", f"{len(absent)} recorded events were deleted from outside") if absent else ("", "")
        )
        self._find_pages(read)
        read.forget()
        if self.lost:
            self._mark_absent(absent)
        return bool(rows)

    def _find_pages(self, read: ApiRun) -> None:
        """Find the last page of each home among the read objects."""
        self._pages.clear()
        self._changed.clear()
        for (kind, name), found in read.objects.items():
            spec = found.get("spec") or {}
            home = Home(str(spec.get("task", "")), int(spec.get("attempt") or 0))
            version = str(metadata(found).get("resourceVersion", ""))
            one = _Object(name, kind, home, int(spec.get("page") or 1), version, read.sizes[kind, name])
            if kind == RUN:
                self._run = one
            if home not in self._pages or one.page > self._pages[home].page:
                self._pages[home] = one

    def _mark_absent(self, lost: Sequence[int]) -> None:
        """Record the lost events, so that readers do not wait for them."""

        async def write(api: Api) -> None:
            await self._patch(api, self._run, [{"op": "add", "path": "/absent", "value": lost}])

        self._do(write)

    def append(self, events: Sequence[Event], state: RunState) -> None:
        """See :meth:`RunRecord.append`."""
        rows = stored_rows(events, self._last, self._epoch)
        for _, row in rows:
            self._require_room(row)
        for home, row in rows:
            self._put(home, row)
        changed, self._changed = self._changed, []
        ends = any(isinstance(event, RunFinished) for event in events)

        async def write(api: Api) -> None:
            gate = asyncio.Semaphore(_AT_ONCE)

            async def one(each: _Object) -> None:
                async with gate:
                    await self._write(api, each, state, ends=ends)

            run, others = ([each for each in changed if (each is self._run) is wanted] for wanted in (True, False))
            owns = [run, others]  # the run's object is the owner of the others ...
            ended = [others, run]  # ... and says that the run has ended
            for together in owns if not self._owner else ended if ends else [changed]:
                await all_end(map(one, together))

        self._do(write)
        self._last = rows[-1][1].seq if rows else self._last

    def tell(self, state: RunState, now: float) -> None:
        """See :meth:`RunRecord.tell`."""
        status = self._run_status(state, now)

        async def write(api: Api) -> None:
            await self._patch(api, self._run, [{"op": "add", "path": "/status", "value": status}])

        self._do(write)

    def _run_status(self, state: RunState, now: float) -> dict[str, Any]:
        wanted = [recorded(self._conditions, self._incomplete), self._logs.condition, complete(state)]
        self._conditions = conditions(self._conditions, wanted, now)
        shown = {**run_status(state, self.folder.name, now), "bytes": self.stored, "conditions": self._conditions}
        return {**shown, "recordedBy": self._recorder} if self._recorder else shown

    def note_incomplete(self, reason: str, why: str) -> None:
        """See :meth:`RunRecord.note_incomplete`."""
        self._incomplete = reason, why

    def close(self) -> None:
        """See :meth:`RunRecord.close`: there is no open file, and only the Lease decides who records."""

    def _require_room(self, row: StoredRow) -> None:
        """Raise :class:`TooLarge` for an event that fits into no object."""
        size = len(row.to_text())
        if size > PAGE:
            raise TooLarge(
                f"{self._place}: an event ({row.kind} of {row.task or 'the run'}) has {format_bytes(size)}, and the limit is"
                f" {format_bytes(PAGE)}"
            )

    def _put(self, home: Home, row: StoredRow) -> None:
        """Append a row to the last page of its home, or to a new one. A run's end is stored in the SpotRun itself."""
        text = row.to_text()
        page = self._pages.get(home) or (self._run if home == Home() else None)
        if page is None:
            page = _Object(object_name(self.folder.name, home), home.kind, home)
        if row.kind == RunFinished.kind:
            page = self._run
        elif page.size + len(text) > PAGE:
            kind, number = TASK if home == Home() else home.kind, page.page + 1
            page = _Object(object_name(self.folder.name, home, number), kind, home, number)
        if row.kind != RunFinished.kind:
            self._pages[home] = page
        if not page.size and page is not self._run:
            self._objects += 1
        if not page.lines:
            self._changed.append(page)
        page.lines.append(text)
        page.size += len(text)
        self._size += len(text)

    async def _write(self, api: Api, page: _Object, state: RunState, *, ends: bool) -> None:
        lines, page.lines = page.lines, []
        is_run = page.kind == RUN
        status = None
        if not is_run:
            status = part_status(state, page.home)
        elif ends or not page.version:
            status = self._run_status(state, state.last_at)
        if not page.version:
            body = self._new(page, lines, status or {})
            answer = await self._send(api, page, "POST", body, lambda found: found.get("journal") == lines)
            page.version = str(metadata(answer).get("resourceVersion", ""))
            self._owner = owner_of(answer) if is_run else self._owner
            return
        operations: list[dict[str, Any]] = [{"op": "add", "path": _NEXT_LINE, "value": line} for line in lines]
        if status is not None:
            operations += _status_operations(page.kind, status)
        if ends and is_run:
            operations.append(
                {"op": "add", "path": f"/metadata/labels/{ENDED_LABEL.replace('/', '~1')}", "value": "true"}
            )
        try:
            await self._patch(api, page, operations)
        except ApiFailed as error:
            if page.kind != ATTEMPT or error.status not in (409, 422):
                raise
            found = await api.get(records_path(page.kind, self._namespace, page.name))
            if sum(map(len, found.get("journal") or ())) != page.size - sum(map(len, lines)):
                raise
            page.version = str(
                metadata(found).get("resourceVersion", "")
            )  # the end of its log was written concurrently
            await self._patch(api, page, operations)

    async def _patch(self, api: Api, page: _Object, operations: Sequence[Mapping[str, Any]]) -> None:
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": page.version}
        lines = [each["value"] for each in operations if each["path"] == _NEXT_LINE]

        def has_lines(found: Mapping[str, Any]) -> bool:
            return bool(lines) and (found.get("journal") or [])[-len(lines) :] == lines

        answer = await self._send(api, page, "PATCH", [test, *operations], has_lines)
        page.version = str(metadata(answer).get("resourceVersion", ""))

    async def _send(
        self, api: Api, page: _Object, method: str, body: object, is_done: Callable[[Mapping[str, Any]], bool]
    ) -> dict[str, Any]:
        """Write an object, and retry after a transient failure, unless it was written or has changed.

        Without retries a look with many objects would never be recorded while some writes fail, because all would be repeated.
        The first write since the record was opened shows whether the API server accepts writes; callers do not wait for it.
        """
        path = records_path(page.kind, self._namespace, page.name)
        where = path if page.version else records_path(page.kind, self._namespace)
        for attempt in range(1, _TRIES + 1):
            try:
                answer = await api.send(method, where, body)
            except ApiFailed as error:
                may_pass = self._is_taken and (error.may_pass or error.status == _CONFLICT)
                if attempt == _TRIES or not may_pass:
                    raise
                await asyncio.sleep(_PAUSE * 2.0**attempt)
                found = await api.get_or_none(path)
                if found is not None and is_done(found):
                    return found
                if str(metadata(found or {}).get("resourceVersion", "")) != page.version:
                    raise
            else:
                self._is_taken = True
                return answer
        raise AssertionError("the last try returns or raises")

    def _new(self, page: _Object, lines: list[str], status: Mapping[str, Any]) -> dict[str, Any]:
        meta: dict[str, Any] = {"name": page.name, "namespace": self._namespace, "labels": {WORKLOAD_LABEL: self.uid}}
        body: dict[str, Any] = {"apiVersion": API_VERSION, "kind": page.kind, "metadata": meta}
        if page.kind == RUN:
            return {**body, "plan": self._plan, "status": status, "journal": lines}
        meta["ownerReferences"] = [self._owner]
        spec: dict[str, Any] = {"run": self.folder.name}
        spec |= {"task": page.home.task} if page.home.task else {}
        spec |= {"attempt": page.home.attempt} if page.home.attempt else {}
        spec |= {"page": page.page} if page.page > 1 else {}
        return {**body, "spec": spec, "status": status, "journal": lines}

    def _do(self, write: Callable[[Api], Coroutine[Any, Any, None]]) -> None:
        """Write and wait for the result. After :class:`StateError` it is unknown what was written."""

        async def within_time() -> None:
            async with asyncio.timeout(_PATIENCE):
                await write(self._kubernetes.api)

        try:
            self._kubernetes.call(within_time())
        except TimeoutError as error:
            raise StateError(f"{self._place}: the API server did not answer within {_PATIENCE:g} s") from error
        except ApiFailed as error:
            raise StateError(f"{self._place}: its records cannot be written ({error})") from error


def _label(found: Mapping[str, Any], label: str) -> str:
    return str((metadata(found).get("labels") or {}).get(label, ""))


def _status_operations(kind: str, status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The operations that set a status. An attempt keeps the stored end of its log."""
    if kind != ATTEMPT:
        return [{"op": "add", "path": "/status", "value": status}]
    return [
        {"op": "add", "path": f"/status/{name}", "value": value} for name, value in {"message": "", **status}.items()
    ]
