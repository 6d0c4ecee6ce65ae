"""Mirrors all objects of one resource: lists, watches with bookmarks, and lists again if the watch cannot continue.

After 410 Gone, or anything else that requires a new list, the mirror compares the list with its objects. A missing object was
deleted meanwhile: its deletion is reported with its last known state. An object with a new UID was deleted and recreated: both
are reported. So no deletion is lost, which the watches of Python libraries do not guarantee: lightkube's starts again without a
version (https://github.com/gtsystem/lightkube/pull/153), kubernetes_asyncio's ends
(https://github.com/tomplus/kubernetes_asyncio/pull/327).

Authors of objects are untrusted: an unreadable object is set aside with a log line, and its stream continues.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from spotwright.cluster.api_client import FORBIDDEN, TOO_LARGE, Api, ApiFailed, StreamSilent, wait_before
from spotwright.cluster.bounded_json import (
    ListMetadata,
    ListPage,
    TooManyValues,
    WatchEvent,
    identity,
    main_fields,
    read_as,
    read_object,
)
from spotwright.cluster.kept_objects import NamespaceQuota, Quarantine
from spotwright.kube.object_fields import metadata, uid_of

__all__ = [
    "Change",
    "ChangeKind",
    "FollowedNamespaces",
    "Mirror",
    "Resource",
]


_LOG = logging.getLogger(__name__)
_CHUNK = 500  # objects per page of a list, as in kubectl
_PAGE = 8 * 1024 * 1024  # bytes of a page; 500 objects of the largest size would be 700 MB
_LASTS = 290  # seconds: the server ends a watch then, so that connections spread over its replicas
_SHORT = 0.5  # seconds
_REFUSED = 5.0, 30.0  # seconds until a refused request is retried: a Role may be bound a moment later
_REFUSALS = 6  # in a row, until the longer wait
_SILENCE = 75.0  # seconds without a byte: bookmarks come about once a minute, so the stream is dead


class Resource(NamedTuple):
    """A resource of the API: ``base`` is ``/api/v1`` or ``/apis/batch/v1``, ``plural`` such as ``pods``."""

    base: str
    plural: str

    def path(self, namespace: str = "") -> str:
        """The path of its objects in a namespace, or in all."""
        return f"{self.base}/namespaces/{namespace}/{self.plural}" if namespace else f"{self.base}/{self.plural}"


class ChangeKind(StrEnum):
    """The kind of a change of an object, or of the mirror."""

    PUT = "put"  # added or modified
    DELETED = "deleted"  # with its last known state
    SYNCED = "synced"  # a list is complete; the object is empty


class Change(NamedTuple):
    """One change of one object."""

    kind: ChangeKind
    data: Mapping[str, Any]


class _Gone(Exception):
    """The version from which to watch is too old."""


class Mirror:
    """The objects of a resource in one namespace, or in all. ``objects`` is complete after the first ``SYNCED``.

    ``labels`` and ``fields`` are selectors for the server; objects for which ``keep`` is false are dropped here. ``slim``
    reduces an object to its kept and reported part, with its name, namespace, UID and version. ``problem`` is the current
    error, for readiness checks; ``status`` is its HTTP status. A mirror that does not ``remember`` reports existing and new
    objects, keeps none, and never reports deletions. If its namespace has no ``room``, an object keeps its former state and
    version, or stays unknown. So does an object that alone would take too much memory (:mod:`spotwright.cluster.bounded_json`),
    unless the mirror ``shortens`` it to its main fields.
    """

    def __init__(  # noqa: PLR0913  # what is asked for, and what is kept of it
        self,
        api: Api,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        keep: Callable[[Mapping[str, Any]], bool] | None = None,
        slim: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        remember: bool = True,
        room: NamespaceQuota | None = None,
        shortens: bool = False,
    ) -> None:
        self._api, self._keep, self._slim, self._remembers = api, keep, slim or _whole, remember
        self._room, self._shortens = room, shortens
        self._resource, self._path = resource, resource.path(namespace)
        self._aside = Quarantine()
        self._params = {
            **({"labelSelector": labels} if labels else {}),
            **({"fieldSelector": fields} if fields else {}),
        }
        self._version, self._chunk = "", _CHUNK
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.problem, self.status = "", 0
        self._untaken: Change | None = None  # the last change, if the follower ended while taking it
        self._entered = 0  # how often a namespace was added to the kept ones
        self._gone: list[
            set[tuple[tuple[str, str], str]]
        ] = []  # keys and UIDs of objects deleted while a namespace is listed

    def list_again(self) -> None:
        """Let the next :meth:`changes` begin with a list, because ``keep`` has changed."""
        self._version = ""

    def drop(self, namespace: str) -> None:
        """Forget the objects of a namespace without reporting deletions: ``keep`` no longer holds for them."""
        for key in [key for key in self.objects if key[0] == namespace]:
            self._forget(key)

    async def changes(self) -> AsyncIterator[Change]:
        """Yield all changes, forever; after a cancellation, first the change that may not have been consumed.

        Temporary errors are retried; so are others, eventually every 30 seconds.
        """
        failures = gone = 0
        if self._untaken is not None:
            yield self._untaken
        while True:
            began = time.monotonic()
            try:
                async for change in self._list_and_watch():
                    failures, self.problem, self.status = 0, "", 0
                    self._untaken = None if change.kind is ChangeKind.SYNCED else change
                    yield change
                    self._untaken = None
            except _Gone:
                self._version = ""  # a new list follows at once, but not endlessly if each is already too old
                gone = gone + 1 if time.monotonic() - began < _SILENCE else 0
                if gone > 1:
                    await asyncio.sleep(wait_before(gone - 1, None))
            except ApiFailed as error:
                failures += 1
                if str(error) != self.problem:
                    _LOG.warning("%s", error)
                self.problem, self.status = str(error), error.status
                refused = _REFUSED[failures > _REFUSALS]
                await asyncio.sleep(wait_before(failures, error.retry_after) if error.may_pass else refused)

    async def catch_up(self, namespace: str) -> AsyncIterator[Change]:
        """The current objects of a newly kept namespace; :meth:`changes` yields later ones.

        Never older than a change already yielded. Retries errors; an unreadable resource counts as absent.
        """
        self._entered += 1
        gone: set[tuple[tuple[str, str], str]] = set()
        self._gone.append(gone)
        try:
            for key, new in (await self._listed_in(namespace)).items():
                if (key, uid_of(new)) in gone or not _is_older(self._known(new), new):
                    continue
                if self._remembers:
                    self.objects[key] = new
                yield Change(ChangeKind.PUT, new)
        finally:
            self._gone.remove(gone)

    async def _listed_in(self, namespace: str) -> dict[tuple[str, str], dict[str, Any]]:
        failures = 0
        while True:
            try:
                return (await self._list_pages(self._resource.path(namespace)))[0]
            except _Gone:
                failures += 1
                await asyncio.sleep(wait_before(failures, None))
            except ApiFailed as error:
                failures += 1
                if not error.may_pass:
                    return {}
                await asyncio.sleep(wait_before(failures, error.retry_after))

    def is_current(self, change: Change) -> bool:
        """Whether a change is still the remembered state of its object."""
        return not self._remembers or self.objects.get(_key(change.data)) is change.data

    async def _list_and_watch(self) -> AsyncIterator[Change]:
        if not self._version:
            async for change in self._list():
                yield change
        while True:
            began = time.monotonic()
            async for change in self._watch():
                yield change
            if time.monotonic() - began < _SHORT:
                await asyncio.sleep(_SHORT)  # do not flood a server that ends every watch at once

    async def _list(self) -> AsyncIterator[Change]:
        """List, then report the differences from the previous objects: first deletions, then additions and changes."""
        entered = -1
        while entered != self._entered:  # a part of a namespace entered meanwhile may be missing
            entered = self._entered
            listed, version = await self._list_pages(self._path)
        for key, old in list(self.objects.items()):
            if key not in listed or uid_of(listed[key]) != uid_of(old):
                self._note_gone(old)
                yield Change(ChangeKind.DELETED, old)
        for key, new in listed.items():
            before = self.objects.get(key)
            if self._remembers:
                self.objects[key] = new
            if before is None or _version(before) != _version(new):
                yield Change(ChangeKind.PUT, new)
        self._version = version
        yield Change(ChangeKind.SYNCED, {})

    async def _list_pages(self, path: str) -> tuple[dict[tuple[str, str], dict[str, Any]], str]:
        """All kept objects, and the version of the list. Its pages are one snapshot, which may expire (410)."""
        listed: dict[tuple[str, str], dict[str, Any]] = {}
        more = ""
        while True:
            params = {**self._params, "limit": str(self._chunk), **({"continue": more} if more else {})}
            try:
                page = await self._api.get_page(path, params, at_most=_PAGE if self._chunk > 1 else None)
            except ApiFailed as error:
                if error.status == TOO_LARGE and self._chunk > 1:
                    self._chunk = max(1, self._chunk // 8)
                    continue
                if error.status == 410:
                    raise _Gone from error
                raise
            for item in page.items or ():
                kept = self._kept(self._read(bytes(item)), page)
                if kept is not None and not self._has_room(kept):
                    kept = self._known(kept)
                if kept is not None:
                    listed[_key(kept)] = kept
            position = page.metadata or ListMetadata()
            more = position.continue_ or ""
            if not more:
                return listed, position.resource_version or ""

    async def _watch(self) -> AsyncIterator[Change]:
        """One watch from the last version on, until the server ends it."""
        params = {
            **self._params,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(_LASTS),
        }
        try:
            async with self._api.lines(self._path, params, silence=_SILENCE) as lines:
                async for line in lines:
                    change = self._take(line)
                    if change is not None:
                        yield change
        except StreamSilent as error:
            _LOG.debug("%s; restarting the watch", error)  # from the same version, without missing changes
        except ApiFailed as error:
            if error.status == 410:
                raise _Gone from error
            raise

    def _take(self, line: bytes) -> Change | None:
        """Apply one line of a watch. A cut line ends the watch; the next watch repeats it."""
        try:
            event = read_as(WatchEvent, line)
        except msgspec.DecodeError as error:
            raise ApiFailed(f"{self._path}: a line of the watch is truncated") from error
        text = bytes(event.object)
        if not text.startswith(b"{"):
            raise ApiFailed(f"{self._path}: the watch event has no object")
        data = self._read(text)
        if data is None or data is self._known(data):  # unread or known: not a change
            self._version = _version(identity(text)) or self._version
            return self._apply(event.type, data) if data is not None and event.type == "DELETED" else None
        if event.type == "ERROR":
            code = data.get("code")
            if code == 410:
                raise _Gone
            words = f"{self._path}: the watch ended: {data.get('message', '')}"
            raise ApiFailed(words, code if isinstance(code, int) else 0)
        self._version = _version(data) or self._version
        if event.type == "BOOKMARK":
            return None
        kept = self._kept(data, ListPage())
        if kept is None:
            return None
        known = self._known(kept)
        is_news = kept is not known and (known is None or not _is_older(kept, known))
        if event.type != "DELETED" and not (is_news and self._has_room(kept)):
            return None
        return self._apply(event.type, kept)

    def _known(self, item: Mapping[str, Any]) -> dict[str, Any] | None:
        """The former state of an object, unless it was recreated under its name."""
        before = self.objects.get(_key(item))
        return before if before is not None and uid_of(before) == uid_of(item) else None

    def _read(self, text: bytes) -> dict[str, Any] | None:
        """Decode an object. If it would take too much memory: its main fields if they are wanted, else its former state."""
        try:
            return read_object(text)
        except msgspec.DecodeError:
            return {}
        except TooManyValues as error:
            item = identity(text)
            if self._keep is not None and not self._keep(item):
                return None
            if self._shortens:
                with suppress(TooManyValues):
                    shortened = main_fields(text)
                    self._aside.say(self._path, item, f"is read without its steps, because {error}")
                    return shortened
            self._aside.say(self._path, item, f"is set aside, because {error}")
            return self._known(item)

    def _apply(self, kind: str, data: dict[str, Any]) -> Change:
        if kind == "DELETED":
            self._note_gone(data)
            return Change(ChangeKind.DELETED, data)
        if self._remembers:
            self.objects[_key(data)] = data
        return Change(ChangeKind.PUT, data)

    def _has_room(self, kept: Mapping[str, Any]) -> bool:
        return self._room is None or self._room.take((self._path, *_key(kept)), kept)

    def _note_gone(self, data: Mapping[str, Any]) -> None:
        self._forget(_key(data))
        for gone in self._gone:
            gone.add((_key(data), uid_of(data)))

    def _forget(self, key: tuple[str, str]) -> None:
        self.objects.pop(key, None)
        if self._room is not None:
            self._room.leave((self._path, *key))

    def _kept(self, item: dict[str, Any] | None, page: ListPage) -> dict[str, Any] | None:
        """The stored part of an object, or None. An unreadable object keeps its former state."""
        if item is None:
            return None
        if not _is_readable(item):
            self._aside.say(self._path, item)
            return None
        try:
            item = _slim(item, page)
            return self._slim(item) if self._keep is None or self._keep(item) else None
        except Exception as error:  # noqa: BLE001  # one unforeseen object must not end the stream of all others
            self._aside.say(self._path, item, because=error)
            return self._known(item)


class FollowedNamespaces:
    """A resource in some namespaces, with a stream each; without namespaces, in all with one stream.

    ``selectors`` as in :class:`Mirror`. An unreadable namespace counts as empty until it is readable.
    """

    def __init__(self, api: Api, resource: Resource, namespaces: Sequence[str], **selectors: Any) -> None:
        self._mirrors = [
            Mirror(api, resource, namespace, **selectors) for namespace in (dict.fromkeys(namespaces) or ("",))
        ]
        self._incomplete = {*self._mirrors}

    @property
    def is_complete(self) -> bool:
        """Whether all readable objects are known."""
        return all(mirror.status in FORBIDDEN for mirror in self._incomplete) and (
            len(self._mirrors) > 1 or not self._incomplete
        )

    @property
    def status(self) -> int:
        """The HTTP status of the last error of an incompletely known namespace; 0 without one."""
        return next((mirror.status for mirror in self._incomplete if mirror.status), 0)

    @property
    def problem(self) -> str:
        """Why some of it cannot be read now; empty if all can."""
        return next((mirror.problem for mirror in self._mirrors if mirror.problem), "")

    async def changes(self) -> AsyncIterator[Change]:
        """All changes, forever, one after the other."""
        queue: asyncio.Queue[tuple[Mirror, Change | Exception]] = asyncio.Queue(_AHEAD)
        tasks = [asyncio.ensure_future(_into(queue, mirror)) for mirror in self._mirrors]
        try:
            while True:
                mirror, change = await queue.get()
                if isinstance(change, Exception):
                    raise change
                if change.kind is ChangeKind.SYNCED:
                    self._incomplete.discard(mirror)
                yield change
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _into(queue: asyncio.Queue[tuple[Mirror, Change | Exception]], mirror: Mirror) -> None:
    try:
        async for change in mirror.changes():
            await queue.put((mirror, change))
    except Exception as error:  # noqa: BLE001  # the queue's reader raises it
        await queue.put((mirror, error))


_AHEAD = 100  # queued changes


def _is_readable(item: Any) -> bool:
    """Whether an object has the fields that the API server gives every object, in their types."""
    meta = item.get("metadata") if isinstance(item, dict) else None
    if not isinstance(meta, dict) or not meta.get("name"):
        return False
    texts = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
    return (
        all(isinstance(meta.get(key), str | None) for key in texts)
        and all(_is_texts(meta.get(key)) for key in ("labels", "annotations"))
        and _is_objects(meta.get("ownerReferences"))
        and all(isinstance(item.get(key), dict | None) for key in ("spec", "status"))
    )


def _is_texts(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and all(isinstance(each, str) for each in value.values()))


def _is_objects(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(each, dict) for each in value))


def _whole(item: dict[str, Any]) -> dict[str, Any]:
    return item


def _slim(item: dict[str, Any], page: ListPage) -> dict[str, Any]:
    """An object without its managed fields, which are half of its size. Items of a list get the list's kind."""
    item.get("metadata", {}).pop("managedFields", None)
    if "kind" not in item and page.items is not None:
        item["kind"] = (page.kind or "").removesuffix("List")
        item["apiVersion"] = page.api_version or ""
    return item


def _key(item: Mapping[str, Any]) -> tuple[str, str]:
    names = metadata(item)
    return names.get("namespace") or "", names.get("name", "")


def _is_older(item: Mapping[str, Any] | None, other: Mapping[str, Any]) -> bool:
    """Whether a state of an object is older than another one; a missing one is.

    Versions are numbers that grow: Kubernetes documentation, "Kubernetes API Concepts", "Comparing resource versions".
    """
    if item is None:
        return True
    versions = _version(item), _version(other)
    return all(map(str.isdecimal, versions)) and int(versions[0]) < int(versions[1])


def _version(item: Mapping[str, Any]) -> str:
    return str(metadata(item).get("resourceVersion", ""))
