"""Writes Events about what people should know: unplaced pods, kinds and logs without record, a second controller."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from spotwright.cluster.admit_objects import admitted_by
from spotwright.cluster.admit_unplaced import noted_unplaced, why_unplaced
from spotwright.cluster.api_client import EventWriter, about_namespace
from spotwright.cluster.run_store import WorkloadRun
from spotwright.cluster.served_kinds import NOT_SERVED
from spotwright.cluster.unavailable_pools import Tally
from spotwright.cluster.view import SeenPod
from spotwright.cluster.watched import WATCHED
from spotwright.kube.object_fields import metadata, seconds, uid_of

__all__ = ["ConflictingControllers", "Defects", "Troubles", "Unplaced", "UnreadKinds"]


_LOG = logging.getLogger(__name__)
_TELLS = 1.0  # seconds between checks for news
_NEWS, _MINUTE = 600.0, 60.0  # seconds
_LASTS = 30.0  # seconds until a failed read is reported: a starting API server does not have everything at once
_SEEN_KEPT = 10_000  # UIDs of pods


class _ByNamespace:
    """Reports objects to their namespaces, at most once a minute: the first one, and how many more there are.

    ``reason`` is the Event's, ``now`` the API server's clock.
    """

    def __init__(self, events: EventWriter, now: Callable[[], float], reason: str) -> None:
        self._events, self._now, self._reason = events, now, reason
        self._new: dict[str, list[tuple[Mapping[str, Any], str]]] = {}  # each with its clause
        self._reported_at: dict[str, float] = {}

    def put(self, about: Mapping[str, Any], why: str) -> None:
        """Add an object to report. ``why`` is the end of a sentence that begins with its kind and name."""
        self._new.setdefault(str(metadata(about).get("namespace", "")), []).append((about, why))

    async def tell(self) -> None:
        """Write an Event about the first of them, until cancelled."""
        while True:
            for namespace in [each for each in self._new if self._now() >= self._reported_at.get(each, 0.0) + _MINUTE]:
                objects = self._new.pop(namespace)
                self._reported_at[namespace] = self._now()
                more = f", and {len(objects) - 1} more" if len(objects) > 1 else ""
                about, why = objects[0]
                kind = str(about.get("kind", ""))
                named = kind.lower() if kind == "Pod" else kind
                text = f"{named} {metadata(about).get('name', '')}{more} {why}"
                _LOG.warning("namespace %s: %s", namespace, text)
                await self._events.write(about, self._reason, text, is_warning=True)
            await asyncio.sleep(_TELLS)


class Defects:
    """Reports to each namespace its workloads that are not recorded because of a defect of Spotwright. ``tally`` counts them.

    Await :meth:`tell`.
    """

    def __init__(self, events: EventWriter, now: Callable[[], float], tally: Tally) -> None:
        self._tally, self._reported = tally, _ByNamespace(events, now, "NotRecorded")
        self.tell = self._reported.tell

    def heard(self, workload: Mapping[str, Any]) -> None:
        """Note a workload that is set aside; empty: it is gone."""
        self._tally.defects += 1
        if not workload:
            return
        why = (
            "is no longer recorded, because of a defect in Spotwright: the recorder's log has the error; please report it. "
            "It goes on and is placed as before; a restarted recorder will try to record it"
        )
        self._reported.put(workload, why)


class Unplaced:
    """Reports to each namespace its pods that started unplaced; await :meth:`tell`. ``tally`` counts them.

    ``now`` is the API server's clock: older pods are not reported.
    """

    def __init__(self, events: EventWriter, now: Callable[[], float], tally: Tally) -> None:
        self._now, self._tally = now, tally
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._reported = _ByNamespace(events, now, "StartedUnplaced")
        self.tell = self._reported.tell

    def look(self, run: WorkloadRun, seen: SeenPod, _is_cut_off: bool) -> None:
        """Note a recorded pod."""
        pod = seen.pod
        made_at = seconds(metadata(pod).get("creationTimestamp")) or 0.0
        if uid_of(pod) in self._seen or made_at < self._now() - _NEWS:
            return
        why = why_unplaced(pod) or noted_unplaced(run.state.notes, pod)
        if not why:
            return
        self._seen[uid_of(pod)] = None
        if len(self._seen) > _SEEN_KEPT:
            self._seen.popitem(last=False)
        self._tally.unplaced += 1
        self._reported.put(pod, f"started unplaced: {why}")


class UnreadKinds:
    """Reports kinds that the API server serves but Spotwright cannot read, by Events in the controller's namespace ``home``.

    ``tally`` gets by kind whether it is read. Await :meth:`tell`.
    """

    def __init__(self, events: EventWriter, home: str, tally: Tally) -> None:
        self._events, self._home, self._tally = events, home, tally
        self._reported: set[tuple[str, str]] = set()
        self._before: set[tuple[str, str]] = set()
        self._now: set[tuple[str, str]] = set()

    def hear(self, kinds: Mapping[str, str]) -> None:
        """Note by kind that it is watched, or why it is not."""
        there = {kind: state for kind, state in kinds.items() if state not in ("", NOT_SERVED)}
        self._tally.kinds = {kind: state == WATCHED for kind, state in there.items()}
        self._now = {(kind, state) for kind, state in there.items() if state != WATCHED}

    async def tell(self) -> None:
        """Write an Event about each that lasts, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_LASTS)

    async def look(self) -> None:
        """Write an Event about each problem that the last look showed too and that is not reported yet."""
        now = set(self._now)
        self._reported &= now
        for kind, why in sorted((now & self._before) - self._reported):
            event = about_namespace(self._home)
            await self._events.write(event, "KindNotRead", f"{kind} cannot be read: {why}", is_warning=True)
            self._reported.add((kind, why))
        self._before = now


class Troubles:
    """Writes an Event in the controller's own namespace about what fails now; await :meth:`tell`."""

    def __init__(self, events: EventWriter, home: str) -> None:
        self._events, self._home = events, home
        self._new = asyncio.Queue[tuple[str, str]]()

    def heard(self, text: str, reason: str = "LogsNotKept") -> None:
        """Note a problem, by default of the log store."""
        self._new.put_nowait((reason, text))

    async def tell(self) -> None:
        """Write, until cancelled."""
        about = about_namespace(self._home)
        while True:
            reason, text = await self._new.get()
            await self._events.write(about, reason, text, is_warning=True)


_NAME = re.compile(r"[-.a-z0-9]{1,63}/[-.a-z0-9]{1,253}")  # of a controller
_MOST_RIVALS = 3  # of one namespace: makers of objects choose the names
_MOST_WAITING = 100
_MADE_AFTER = 2.0  # seconds after its review until an object exists


class FindObject(Protocol):
    """Finds an object of the cluster, as :meth:`spotwright.cluster.attempt_lookup.Lookups.find_object` does."""

    async def __call__(self, api_version: str, kind: str, name: str, namespace: str, /) -> Mapping[str, Any] | None:
        """The object; None if it does not exist or cannot be read."""


class ConflictingControllers:
    """The rivals found so far. ``name`` is this controller's: NAMESPACE/NAME.

    Any client of the webhook's port may send reviews of objects that do not exist, so a rival is reported only after its
    object was found in the cluster with its mark.
    """

    def __init__(self, events: EventWriter, name: str, find_object: FindObject) -> None:
        self._events, self.name, self._find = events, name, find_object
        self._known: dict[str, set[str]] = {}  # by namespace
        self._new: asyncio.Queue[tuple[tuple[str, ...], str]] = asyncio.Queue(_MOST_WAITING)

    def found(self, where: tuple[str, ...], rival: str) -> None:
        """Note an object placed by the controller ``rival``, by its API version, kind, name and namespace.

        Each pair of a namespace and a controller is reported once; an excess of simultaneous ones is dropped.
        """
        known = self._known.get(where[-1], set())
        if rival not in known and len(known) < _MOST_RIVALS and _NAME.fullmatch(rival) and not self._new.full():
            self._new.put_nowait((where, rival))

    async def tell(self) -> None:
        """Write a line and an Event about each until cancelled."""
        while True:
            where, rival = await self._new.get()
            namespace = where[-1]
            if rival in self._known.get(namespace, ()):
                continue
            await asyncio.sleep(_MADE_AFTER)
            version, kind, name, _ = where
            found = await self._find(version, kind, name, namespace) if name else None
            if found is None or admitted_by(found) != rival:
                continue
            self._known.setdefault(namespace, set()).add(rival)
            text = (
                f"{rival} also serves namespace {namespace}, beside {self.name}: the one asked first places new objects, and"
                " both record and evict pods; stop one of them with spotwright controller unregister"
            )
            _LOG.warning("%s", text)
            event = about_namespace(namespace)
            await self._events.write(event, "TwoControllers", text, is_warning=True)
