"""Reads the runs that a controller recorded in the Kubernetes API, with the caller's login and rights.

Only whole logs and archived runs come from the controller, which reads them from its store. Unreadable parts are reported as
unknown: without access to the pools, the answer is not "no pool is unavailable".
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from spotwright.cluster.api_client import FORBIDDEN, ApiFailed
from spotwright.cluster.api_run_records import ApiRun, ReadLog
from spotwright.cluster.followed_run import ArchivedRun, FollowedRun
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.lease import lease_path
from spotwright.cluster.log_client import (
    CONFIG_MAP,
    LOG_AT_ONCE,
    NAMESPACE,
    TRIES,
    Controller,
    NotAllowed,
    delete_archive,
    find_controller,
    list_archives,
    read_archive,
    read_log,
)
from spotwright.cluster.retention import note_deleted
from spotwright.cluster.run_archives import Archive, objects_in, run_in
from spotwright.cluster.run_names import NamedRun, find_run, named_run
from spotwright.cluster.run_objects import API_VERSION, ENDED_LABEL, RUN, recorder_of, records_path
from spotwright.cluster.shown_runs import line_at
from spotwright.cluster.spot_pools import KIND, findings_in
from spotwright.cluster.unavailable_pools import PoolsLeftOut
from spotwright.cluster.watched import WATCHED_KEY, watched_of
from spotwright.errors import InputError, SpotwrightError, UnknownRun
from spotwright.kube.object_fields import metadata, seconds, uid_of
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import RunFolder
from spotwright.records.trash import Item, Sort
from spotwright.views.text import age_text

__all__ = ["RecordedPruning", "RecordedRuns", "archive_note", "open_runs"]


_TAKEOVER = 30.0  # the most seconds until another replica takes an expired Lease
_LISTED = 100  # the newest archived runs whose lines are read
_KNOWN = 5.0  # seconds for which "a recorder runs" stays known
_NOT_THERE, _ANOTHER = 404, 409  # statuses of a missing object, and of a new object with its name


def require_kinds(kubernetes: Kubernetes) -> None:
    """Raise :class:`InputError` if the cluster lacks the kinds of records or is unreachable."""
    try:
        kubernetes.get(f"/apis/{API_VERSION}")
    except ApiFailed as error:
        if error.status in FORBIDDEN:
            return  # the next read reports missing rights
        if error.status == _NOT_THERE:
            raise InputError(
                f"context {kubernetes.context}: SpotRuns are not installed there: install Spotwright's chart, or name another"
                " context with --context"
            ) from error
        raise InputError(f"context {kubernetes.context}: {error}") from error


@contextmanager
def open_runs(kubernetes: Kubernetes, controller: str = "", *, tries: int | None = None) -> Iterator[RecordedRuns]:
    """The runs recorded in a cluster.

    ``controller`` is as for :func:`~spotwright.cluster.log_client.find_controller`. ``tries`` limits the tries of a request to
    it. Raises :class:`InputError`.
    """
    require_kinds(kubernetes)
    runs = RecordedRuns(kubernetes, controller, TRIES if tries is None else tries)
    try:
        yield runs
    finally:
        runs.close()


class _Forbidden(InputError):
    """The caller may not list the records."""


class RecordedRuns:
    """The runs that the caller may read. ``controller`` names the controller, which is only used for logs."""

    def __init__(self, kubernetes: Kubernetes, controller: str = "", tries: int = TRIES) -> None:
        self._kubernetes, self._named, self._tries = kubernetes, controller, tries
        self._controller: Controller | None = None
        self._recorded: dict[
            tuple[str, str], tuple[float, bool]
        ] = {}  # by Lease: until when it is known, and whether it is held
        self.left_out: list[dict[str, Any]] = []
        """The unavailable pools, after :meth:`look_at_pools`."""
        self.pools_unknown = ""
        """Why the pools are unknown, after :meth:`look_at_pools`; empty if they are known."""
        self.namespaces: dict[str, str] = {}
        """Problems with single runs, after :meth:`lines`."""

    def lines(self, namespace: str = "") -> tuple[list[dict[str, Any]], list[str]]:
        """The lines of all runs, oldest first, and a sentence for each run that cannot be read."""
        lines: list[dict[str, Any]] = []
        problems: list[str] = []
        self.namespaces = {}
        for found in self.listed(namespace):
            name = str(metadata(found).get("name"))
            try:
                now = self._kubernetes.api.now() if self._is_recorded(recorder_of(found)) else None
                lines.append({**line_at(json.loads(found["status"]["line"]), now), "run": name})
                self.namespaces[name] = str(metadata(found).get("namespace"))
            except (KeyError, TypeError, ValueError) as error:
                problems.append(f"run {name} is left out: its SpotRun cannot be read ({error!r})")
        return lines, problems

    def listed(self, namespace: str = "") -> list[dict[str, Any]]:
        """The SpotRuns of a namespace, or of all that the caller may list, oldest first."""
        return sorted(self._listed(namespace), key=_made_at)

    def _listed(self, namespace: str) -> Iterator[dict[str, Any]]:
        """The SpotRuns of a namespace, or of all; of the login's own namespace if the caller may not list all."""
        run = ApiRun(self._kubernetes.get, namespace, "all")
        try:
            yield from run.listed(RUN, {})
        except SpotwrightError as error:
            cause = error.__cause__
            if not isinstance(cause, ApiFailed) or cause.status != 403:
                raise
            own = self._kubernetes.namespace
            if namespace or not own:
                where = f"in namespace {namespace}" if namespace else "in all namespaces: name one with -n"
                raise _Forbidden(
                    f"context {self._kubernetes.context}: you may not list SpotRuns {where}; the role view allows it"
                ) from error
            yield from self._listed(own)

    def look_at_pools(self, namespaces: Collection[str] | None = None) -> list[dict[str, Any]]:
        """The pools that new attempts skip now, each with ``until``, ``since`` and the number of consecutive ``times``.

        ``namespaces`` limits whose pool names are listed; None: all. ``pool`` is empty if none of them found it unavailable.
        """
        try:
            found = findings_in(ApiRun(self._kubernetes.get, "", "all").listed(KIND, {}))
        except SpotwrightError as error:
            cause = error.__cause__
            status = cause.status if isinstance(cause, ApiFailed) else 0
            if status not in (*FORBIDDEN, _NOT_THERE):
                raise
            why = "the cluster has none" if status == _NOT_THERE else "you may not list them, which takes a ClusterRole"
            self.left_out, self.pools_unknown = (
                [],
                f"cannot tell which pools new attempts skip: SpotPools: {why}",
            )
            return []
        pauses = PoolsLeftOut(lambda: found).all(self._kubernetes.api.now(), namespaces)
        self.pools_unknown = ""
        self.left_out = [
            {
                "pool": one.pool,
                "namespace": one.namespace,
                "key": one.key,
                "until": one.pause.until,
                "times": one.pause.times,
                "since": one.pause.since,
            }
            for one in pauses
        ]
        return self.left_out

    def look_at_watched(self, namespace: str) -> Mapping[str, Any]:
        """The controller's scope: ``kinds``, each ``watched`` or why it is not, and ``is_served``: this namespace is.

        ``unknown`` says why it is unknown, or is empty.
        """
        home = self._home
        if not home:
            return {"unknown": "name the controller's namespace with --controller, in place of its URL"}
        path = f"/api/v1/namespaces/{quote(home, safe='')}/configmaps/{CONFIG_MAP}"
        try:
            text = str((self._kubernetes.get(path).get("data") or {}).get(WATCHED_KEY, ""))
        except ApiFailed as error:
            if error.status in FORBIDDEN:
                right = f"you may not get ConfigMap {CONFIG_MAP} in namespace {home}: ask for the Role spotwright-reader there"
                return {"unknown": right}
            if error.status != _NOT_THERE:
                raise InputError(f"context {self._kubernetes.context}: {error}") from error
            return {"unknown": f"no controller in namespace {home}; name its namespace with --controller"}
        if not text:
            return {
                "unknown": f"ConfigMap {CONFIG_MAP} in namespace {home} has no entry for the recorder; check that it runs"
            }
        watched = watched_of(text, path)
        return {"kinds": dict(watched.kinds), "is_served": namespace in watched.namespaces, "unknown": ""}

    @property
    def _home(self) -> str:
        """The namespace of the controller; empty if it is named by its URL."""
        return "" if "://" in self._named else self._named or NAMESPACE

    def _is_recorded(self, recorder: tuple[str, str] | None) -> bool:
        """Whether a recorder runs now; assumed if the caller may not read it.

        ``recorder`` is the Lease named by the run; None: the chart's Lease is used.
        """
        if recorder is None:
            if not self._home:
                return True
            recorder = self._home, _lease_name(self._home)
        until, is_recorded = self._recorded.get(recorder, (0.0, True))
        if time.monotonic() >= until:
            is_recorded = self._has_lease(*recorder)
            self._recorded[recorder] = time.monotonic() + _KNOWN, is_recorded
        return is_recorded

    def _has_lease(self, home: str, name: str) -> bool:
        """Whether a Lease was renewed in time; true if it may not be read."""
        try:
            found = self._kubernetes.get(lease_path(quote(home, safe=""), quote(name, safe="")))
        except ApiFailed:
            return True
        until = _holds_until(found.get("spec") or {})
        return until is None or until + _TAKEOVER > self._kubernetes.api.now()

    def _asked(self) -> Controller:
        if self._controller is None:
            self._controller = find_controller(self._kubernetes, self._named)
            self._controller.tries = self._tries
        return self._controller

    def close(self) -> None:
        """Close the connection to the controller, if there is one."""
        if self._controller is not None:
            self._controller.close()

    def open(self, name: str, namespace: str = "") -> RunReader:
        """A reader of the run of this name, which may be archived. Raises :class:`UnknownRun`."""
        known = [one for found in reversed(self.listed(namespace)) if (one := named_run(found)) is not None]
        try:
            chosen = find_run(name, known, namespace)
        except UnknownRun as error:
            if any(_is_meant(one, name) for one in known):
                raise
            return self._open_archived(name, namespace, error)
        return RunReader(RunFolder(Path(chosen.run)), self._source(chosen.namespace, chosen.run))

    def _open_archived(self, name: str, namespace: str, unknown: UnknownRun) -> RunReader:
        begin, dot, _ = name.partition(".")  # a run's name begins with its namespace
        where = namespace or (begin if dot and "/" not in name else "")
        try:
            newest = {one.run: one for one in reversed(self.archives(where)) if _is_meant(one, name)}
        except NotAllowed:
            raise unknown from None  # unreadable runs are reported as missing
        except SpotwrightError as error:
            raise UnknownRun(f"{unknown}; cannot tell whether it is archived: {error}") from error
        if not newest:
            raise unknown
        chosen = find_run(name, [*reversed(newest.values())], where)
        objects = objects_in(read_archive(self._asked(), chosen), chosen.run)
        read, others, space = self._log_reader(chosen.run), self._others(chosen.namespace), chosen.namespace
        source = ArchivedRun(self._kubernetes, space, chosen.run, objects, read_log=read, others=others)
        return RunReader(RunFolder(Path(chosen.run)), source)

    def archives(self, namespace: str = "") -> list[Archive]:
        """The archived runs of a namespace, by default the login's, newest first. Raises :class:`SpotwrightError`."""
        return list_archives(self._asked(), namespace or self._kubernetes.namespace)

    def archived_lines(self, namespace: str = "") -> tuple[list[dict[str, Any]], list[str]]:
        """The lines of the newest archived runs, oldest first, and a sentence for each unreadable or omitted one."""
        lines: list[dict[str, Any]] = []
        archives = self.archives(namespace)
        problems = [f"{len(archives) - _LISTED} older archived runs are left out"] if len(archives) > _LISTED else []
        for one in reversed(archives[:_LISTED]):
            try:
                found = run_in(read_archive(self._asked(), one, LOG_AT_ONCE), one.run)
                lines.append({**line_at(json.loads(found["status"]["line"]), None), "run": one.run})
            except (SpotwrightError, KeyError, TypeError, ValueError) as error:
                problems.append(f"run {one.run} is left out: its archive cannot be read ({error})")
        return lines, problems

    def delete_archive(self, archive: Archive) -> None:
        """Delete an archive. Raises :class:`SpotwrightError`."""
        delete_archive(self._asked(), archive)

    def _source(self, namespace: str, run: str) -> ApiRun:
        read, others = self._log_reader(run), self._others(namespace)
        return FollowedRun(
            self._kubernetes, namespace, run, read_log=read, others=others, is_recorded=self._is_recorded
        )

    def _log_reader(self, run: str) -> ReadLog:
        def read(task: str, attempt: int, _environment: str, offset: int, at_most: int) -> bytes:
            return read_log(self._asked(), run, task, attempt, offset, at_most)

        return read

    def _others(self, namespace: str) -> Callable[[str], ApiRun | None]:
        def other(name: str) -> ApiRun | None:
            one = self._source(namespace, quote(name, safe="-._"))
            return None if one.read() is None else one

        return other


def _is_meant(one: NamedRun, name: str) -> bool:
    """Whether a name, or the beginning of one, may mean a run."""
    return one.is_called(name) or bool(name and one.run.startswith(name))


def archive_note(reader: RunReader) -> str:
    """A clause for people about a run that was read from its archive; empty for any other."""
    return "its records are archived" if isinstance(reader.source, ArchivedRun) else ""


def _lease_name(home: str) -> str:
    """The chart's name of the Lease for a release in this namespace."""
    return NAMESPACE if home == NAMESPACE else f"{NAMESPACE}-{home}"[:63].removesuffix("-")


def _holds_until(spec: Mapping[str, Any]) -> float | None:
    """The expiry of a Lease, in Unix seconds; None if it has none."""
    try:
        renewed = datetime.fromisoformat(str(spec["renewTime"])).timestamp()
        return renewed + int(spec["leaseDurationSeconds"])
    except (KeyError, ValueError, TypeError):
        return None


def _made_at(found: Mapping[str, Any]) -> tuple[float, str]:
    return seconds(metadata(found).get("creationTimestamp")) or 0.0, str(metadata(found).get("name"))


class RecordedPruning:
    """Deletes run records of a namespace, or of all, with the caller's rights, and archives of the namespace or the login's.

    The runs ended at least ``age`` seconds ago. Runs in ``keep``, the ``keep_last`` newest and all active ones stay. A run's
    objects are deleted with it, and its logs in a store within the hour. ``problem`` says why archives are unknown, or is
    empty.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        runs: RecordedRuns,
        namespace: str,
        *,
        age: float,
        keep: Sequence[str] = (),
        keep_last: int | None = None,
    ) -> None:
        """Raises :class:`UnknownRun` for a name in ``keep`` that no run has."""
        if keep_last is not None and keep_last < 0:
            raise InputError(f"--keep-last {keep_last}: expected a number from 0")
        self._kubernetes, self._runs, self._namespace = kubernetes, runs, namespace
        self._age, self._keep_last = age, keep_last
        self._uids: dict[str, str] = {}  # of SpotRuns, by namespace and name
        self._archives: dict[str, Archive] = {}  # by their name
        self.problem = ""
        named: list[NamedRun] = [
            one for each in reversed(runs.listed(namespace)) if (one := named_run(each)) is not None
        ]
        named += self._archived() if keep else []
        self._keep = {find_run(name, named, namespace).run for name in keep}

    def _archived(self) -> list[Archive]:
        """The archives, newest first."""
        try:
            found, self.problem = self._runs.archives(self._namespace), ""
        except SpotwrightError as error:
            found, self.problem = [], f"archived runs stay, because only the recorder can delete them: {error}"
        self._archives = {each.key: each for each in found}
        return found

    def take_stock(self, now: float) -> list[Item]:
        """All runs, oldest first, each with the reason why it stays."""
        items = [*map(partial(self._item_of_archive, now), reversed(self._archived()))]
        items += [self._item(each, now) for each in self._runs.listed(self._namespace)]
        newest = {item.path for item in items[len(items) - (self._keep_last or 0) :]}
        why = f"one of the {self._keep_last} newest"
        return [replace(item, kept=why) if item.path in newest and not item.kept else item for item in items]

    def _item_of_archive(self, now: float, one: Archive) -> Item:
        return Item(
            Sort.RUN, one.run, Path(one.key), one.ended_at, one.size, self._kept(one.run, now, one.ended_at), "archived"
        )

    def _item(self, found: Mapping[str, Any], now: float) -> Item:
        name, namespace = str(metadata(found).get("name")), str(metadata(found).get("namespace"))
        status = found.get("status") or {}
        ended_at = seconds(status.get("finishedAt"))
        has_ended = (metadata(found).get("labels") or {}).get(ENDED_LABEL) == "true"
        kept = self._kept(name, now, ended_at if has_ended else None)
        path = Path(namespace, name)
        self._uids[str(path)] = uid_of(found)
        used_at = ended_at or seconds(metadata(found).get("creationTimestamp")) or now
        return Item(Sort.RUN, name, path, used_at, int(status.get("bytes") or 0), kept, str(status.get("phase", "")))

    def _kept(self, name: str, now: float, ended_at: float | None) -> str:
        """Why a run stays, apart from ``keep_last``; empty if it does not."""
        if name in self._keep:
            return "named by --keep"
        if ended_at is None:
            return "under way"
        return f"used in the last {age_text(self._age)}" if now - ended_at < self._age else ""

    def delete(self, items: Iterable[Item]) -> Iterator[tuple[Item, str]]:
        """Delete runs; each with the reason why it could not be, empty if it was.

        First their latest end is noted, so that recorders do not record existing workloads again.
        """
        wanted = list(items)
        noted = self._note_deleted([item for item in wanted if str(item.path) not in self._archives])
        for item in wanted:
            if str(item.path) in self._archives:
                yield item, self._delete_archive(self._archives[str(item.path)])
                continue
            namespace, _, name = str(item.path).partition("/")
            if noted[namespace]:
                yield item, f"run {name} in namespace {namespace} stays: {noted[namespace]}"
                continue
            conditions = {"uid": self._uids[str(item.path)]}
            body = {"propagationPolicy": "Background", "preconditions": conditions}
            try:
                api = self._kubernetes.api
                self._kubernetes.call(api.send("DELETE", records_path(RUN, namespace, name), body))
            except ApiFailed as error:
                yield item, "" if error.status in (_NOT_THERE, _ANOTHER) else _why_not(error, namespace, name)
            else:
                yield item, ""

    def _delete_archive(self, archive: Archive) -> str:
        try:
            self._runs.delete_archive(archive)
        except UnknownRun:
            return ""  # already deleted
        except SpotwrightError as error:
            return f"archived run {archive.run} stays: {error}"
        return ""

    def _note_deleted(self, items: Sequence[Item]) -> Mapping[str, str]:
        """Note in each namespace that these runs are deleted. Returns by namespace why that failed; empty if it succeeded."""
        ends: dict[str, float] = {}
        for item in items:
            namespace = str(item.path).partition("/")[0]
            ends[namespace] = max(item.used_at, ends.get(namespace, 0.0))
        noted = dict.fromkeys(ends, "")
        for namespace, until in ends.items():
            try:
                self._kubernetes.call(note_deleted(self._kubernetes.api, namespace, until))
            except ApiFailed as error:
                noted[namespace] = (
                    "its deletion cannot be noted in SpotCounter deleted-runs, so a recorder would record it again; you need"
                    f" the rights to get, create and patch SpotCounters there ({error})"
                )
        return noted


def _why_not(error: ApiFailed, namespace: str, name: str) -> str:
    if error.status not in FORBIDDEN:
        return f"run {name} in namespace {namespace} stays: {error}"
    return (
        f"run {name} in namespace {namespace} stays: only a member of the group spotwright:repair (records.repairGroup of the "
        f"chart) who also has the right to delete SpotRuns there may delete it ({error})"
    )
