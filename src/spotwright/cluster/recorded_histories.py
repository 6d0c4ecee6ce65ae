"""The histories of all active runs, watched by a webhook in the Kubernetes API.

A review must not wait for lists of a run's objects, so they are watched. A run's attempts are folded when a review needs them,
and their text is then dropped. For ended runs only the end is kept.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from spotwright.cluster.api_client import Api
from spotwright.cluster.mirror import Change, ChangeKind, FollowedNamespaces, Resource
from spotwright.cluster.record_gaps import events_that_fit
from spotwright.cluster.run_objects import API_VERSION, ENDED_LABEL, KINDS, RUN, WORKLOAD_LABEL, RunRows, rows_of
from spotwright.engine.events import PlanExtended, RunStatus
from spotwright.engine.fold import fold
from spotwright.engine.plan import Plan
from spotwright.engine.state import RunState
from spotwright.errors import StateError
from spotwright.kube.object_fields import metadata, uid_of
from spotwright.records.journal import decoded

__all__ = ["RecordedHistories"]


_LOG = logging.getLogger(__name__)
_ENDED_KEPT = 100_000  # UIDs of workloads whose runs have ended: some 20 MB
_WAITING = 500  # objects of a namespace that wait for their SpotRun
_LOOK = 0.02  # seconds
_PARTS = tuple(kind for kind in KINDS if kind != RUN)
_MISSING = 404  # the status of a kind that is not installed


_Workload = tuple[str, str]
"""A workload: its namespace and its UID. A UID written into one namespace cannot affect another."""


class _History:
    """The history of one workload. ``owner`` is the UID of its SpotRun, empty until that was seen."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.rows = RunRows()
        self.waiting: list[Mapping[str, Any]] = []  # objects that came before their SpotRun
        self.owner = ""
        self.state = RunState([plan])
        self.seq = 0
        self.restarts = 0

    def take(self, found: Mapping[str, Any]) -> None:
        """Add an object; of a template, only its existence: reviews do not need it, and templates take megabytes."""
        rows = (row._replace(data="{}") if row.kind == PlanExtended.kind else row for row in rows_of(found))
        self.rows.take(rows, found.get("absent") or ())

    def fold(self) -> RunState:
        """The state with everything known now. Raises :class:`StateError`."""
        events = decoded((row.journal_row for row in self.rows.after(self.seq)), "a run in the API", str)
        if self.rows.has_lost:
            for number, _ in events_that_fit(self.state, events):
                self.seq = number
        else:
            for number, event in events:
                self.seq = number
                fold(self.state, event)
        self.rows.forget(self.seq)
        return self.state


class RecordedHistories:
    """Await :meth:`follow`. ``plan`` replaces each run's plan: templates are not read."""

    def __init__(self, api: Api, plan: Plan, namespaces: Sequence[str] = ()) -> None:
        self._api, self._plan, self._namespaces = api, plan, namespaces
        self._runs = self._mirror(RUN)
        self._parts = [self._mirror(kind) for kind in _PARTS]
        self._again = asyncio.Event()  # a run's folded state is invalid: replay everything
        self._known: dict[_Workload, _History] = {}
        self._orphans: Counter[str] = Counter()  # objects that wait for their SpotRun, by namespace
        self._ended: OrderedDict[_Workload, None] = OrderedDict()
        self._over = RunState([plan])
        self._over.status = RunStatus.STOPPED
        self._lock = threading.Lock()

    def _mirror(self, kind: str) -> FollowedNamespaces:
        resource = Resource(f"/apis/{API_VERSION}", f"{kind.lower()}s")
        keep = None if kind == RUN else self._is_wanted
        return FollowedNamespaces(self._api, resource, self._namespaces, keep=keep, slim=_slim, remember=False)

    @property
    def is_complete(self) -> bool:
        """Whether all records were seen. False if the kinds are not installed."""
        return all(_is_known(each) for each in (self._runs, *self._parts))

    @property
    def problem(self) -> str:
        """Why some of it cannot be watched now; empty if all can."""
        return next((each.problem for each in (self._runs, *self._parts) if each.problem), "")

    async def follow(self) -> None:
        """Follow until cancelled: first the runs, so that ended ones are not read further."""
        async with asyncio.TaskGroup() as group:
            runs = group.create_task(self._follow(RUN, self._runs))
            while True:
                while not _is_known(self._runs):  # noqa: ASYNC110  # another stream sets it
                    await asyncio.sleep(_LOOK)
                parts = [
                    group.create_task(self._follow(kind, each)) for kind, each in zip(_PARTS, self._parts, strict=True)
                ]
                await self._again.wait()
                self._again.clear()
                for task in (runs, *parts):
                    task.cancel()
                self._runs, self._parts = self._mirror(RUN), [self._mirror(kind) for kind in _PARTS]
                runs = group.create_task(self._follow(RUN, self._runs))

    async def _follow(self, kind: str, followed: FollowedNamespaces) -> None:
        async for change in followed.changes():
            if change.kind is not ChangeKind.SYNCED:
                self._take(kind, change)

    def _is_wanted(self, found: Mapping[str, Any]) -> bool:
        """Whether a part belongs to an active run."""
        return _workload_of(found) not in self._ended

    def _take(self, kind: str, change: Change) -> None:
        found = change.data
        workload = _workload_of(found)
        if not workload[1] or workload in self._ended:
            return
        with self._lock:
            if kind == RUN:
                self._take_run(workload, change)
            elif change.kind is ChangeKind.PUT:
                self._take_part(workload, found)

    def _take_run(self, uid: _Workload, change: Change) -> None:
        found = change.data
        if change.kind is ChangeKind.DELETED:
            self._forget(uid)
            return
        if (metadata(found).get("labels") or {}).get(ENDED_LABEL) == "true":
            self._forget(uid)
            self._ended[uid] = None
            if len(self._ended) > _ENDED_KEPT:
                self._ended.popitem(last=False)
            return
        known = self._known.setdefault(uid, _History(self._plan))
        known.owner = uid_of(found)
        waiting, known.waiting = known.waiting, []
        self._orphans[uid[0]] -= len(waiting)
        for each in (found, *waiting):
            if each is found or _owner_of(each) == known.owner:
                self._add(uid, known, each)

    def _take_part(self, uid: _Workload, found: Mapping[str, Any]) -> None:
        known = self._known.setdefault(uid, _History(self._plan))
        if not known.owner:
            if self._orphans[uid[0]] >= _WAITING:  # a namespace with objects without runs
                return
            known.waiting.append(found)
            self._orphans[uid[0]] += 1
        elif _owner_of(found) == known.owner:
            self._add(uid, known, found)

    def _add(self, uid: _Workload, known: _History, found: Mapping[str, Any]) -> None:
        try:
            known.take(found)
        except StateError as error:
            _LOG.warning("%s", error)
            return
        if known.rows.restarts != known.restarts:  # the folded state is invalid, and its text is gone
            self._forget(uid)
            self._again.set()

    def _forget(self, uid: _Workload) -> None:
        known = self._known.pop(uid, None)
        if known is not None:
            self._orphans[uid[0]] -= len(known.waiting)

    def of(self, root: Mapping[str, Any]) -> RunState:
        """The records of a workload now, or empty. Raises :class:`StateError`."""
        uid = str(metadata(root).get("namespace", "")), uid_of(root)
        with self._lock:
            if uid in self._ended:
                return self._over
            known = self._known.get(uid)
            return RunState([self._plan]) if known is None else known.fold()


def _is_known(followed: FollowedNamespaces) -> bool:
    return followed.is_complete or followed.status == _MISSING


def _workload_of(found: Mapping[str, Any]) -> _Workload:
    meta = metadata(found)
    return str(meta.get("namespace", "")), str((meta.get("labels") or {}).get(WORKLOAD_LABEL, ""))


def _owner_of(found: Mapping[str, Any]) -> str:
    return next((str(each.get("uid")) for each in metadata(found).get("ownerReferences") or ()), "")


def _slim(found: dict[str, Any]) -> dict[str, Any]:
    """An object without its plan and its status for people."""
    return {key: value for key, value in found.items() if key not in ("plan", "status", "spec")}
