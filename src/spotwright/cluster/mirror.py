"""Mirrors all objects of one resource: lists, watches with bookmarks, and lists again where the watch cannot go on.

After 410 Gone, and after anything else that makes a new list necessary, the mirror compares the list with what it had. An
object that is missing was deleted meanwhile: its deletion is reported with its last known state. An object whose UID has
changed was deleted and made again: both are reported. So no deletion is lost, which the watch of no Python library promises.
What is equal in many objects is kept once, so that ten thousand pods fit into a few dozen megabytes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from spotwright.cluster.api_client import Api, ApiFailed, StreamSilent, wait_before

__all__ = ["Change", "ChangeKind", "Mirror", "Resource", "Sharing", "is_served"]


_LOG = logging.getLogger(__name__)
_CHUNK = "500"  # objects a page of a list, as kubectl asks for
_LASTS = 290  # seconds: the server ends a watch then, so that connections spread over its replicas
_SHORT = 0.5  # seconds
_SILENCE = 75.0  # seconds without a byte: bookmarks come about once a minute, so the stream is dead


class Resource(NamedTuple):
    """A resource of the API: ``base`` is ``/api/v1`` or ``/apis/batch/v1``, ``plural`` such as ``pods``."""

    base: str
    plural: str

    def path(self, namespace: str = "") -> str:
        """The path of its objects in a namespace, or in all."""
        return f"{self.base}/namespaces/{namespace}/{self.plural}" if namespace else f"{self.base}/{self.plural}"


class ChangeKind(StrEnum):
    """What happened to an object, or that the mirror is complete."""

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
    makes of an object what is kept of it and reported, with its name, namespace, UID and version. ``problem`` is the last
    error while there is one: for readiness checks and for ``doctor``.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        keep: Callable[[Mapping[str, Any]], bool] | None = None,
        slim: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self._api, self._keep, self._slim = api, keep, slim or _whole
        self._path = resource.path(namespace)
        self._params = {
            **({"labelSelector": labels} if labels else {}),
            **({"fieldSelector": fields} if fields else {}),
        }
        self._version = ""
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.problem = ""

    def list_again(self) -> None:
        """Let the next :meth:`changes` begin with a list, because ``keep`` now holds for other objects."""
        self._version = ""

    def drop(self, namespace: str) -> None:
        """Forget the objects of a namespace without a word: ``keep`` does not hold for them any more."""
        for key in [key for key in self.objects if key[0] == namespace]:
            del self.objects[key]

    async def changes(self) -> AsyncIterator[Change]:
        """All changes, for ever. Errors that may pass are waited out; the others are tried again every 30 seconds."""
        failures = gone = 0
        while True:
            began = time.monotonic()
            try:
                async for change in self._list_and_watch():
                    failures, self.problem = 0, ""
                    yield change
            except _Gone:
                self._version = ""  # a new list follows at once, but not without end where each one is too old already
                gone = gone + 1 if time.monotonic() - began < _SILENCE else 0
                if gone > 1:
                    await asyncio.sleep(wait_before(gone - 1, None))
            except ApiFailed as error:
                failures += 1
                self.problem = str(error)
                _LOG.warning("%s", error)
                wait = wait_before(failures, error.retry_after) if error.may_pass else 30.0
                await asyncio.sleep(wait)

    async def _list_and_watch(self) -> AsyncIterator[Change]:
        if not self._version:
            async for change in self._list():
                yield change
        while True:
            began = time.monotonic()
            async for change in self._watch():
                yield change
            if time.monotonic() - began < _SHORT:
                await asyncio.sleep(_SHORT)  # a server that ends every watch at once must not be asked without end

    async def _list(self) -> AsyncIterator[Change]:
        """List, then report what differs from the objects before: first what is gone, then what is new or has changed."""
        listed, version = await self._list_pages()
        for key, old in list(self.objects.items()):
            if key not in listed or _uid(listed[key]) != _uid(old):
                del self.objects[key]
                yield Change(ChangeKind.DELETED, old)
        for key, new in listed.items():
            before = self.objects.get(key)
            self.objects[key] = new
            if before is None or _version(before) != _version(new):
                yield Change(ChangeKind.PUT, new)
        self._version = version
        yield Change(ChangeKind.SYNCED, {})

    async def _list_pages(self) -> tuple[dict[tuple[str, str], dict[str, Any]], str]:
        """All objects that are kept, and the version of the list. Its pages are one snapshot, which may expire: 410."""
        listed: dict[tuple[str, str], dict[str, Any]] = {}
        more = ""
        while True:
            params = {**self._params, "limit": _CHUNK, **({"continue": more} if more else {})}
            try:
                page = await self._api.get(self._path, params)
            except ApiFailed as error:
                if error.status == 410:
                    raise _Gone from error
                raise
            for item in page.get("items") or ():
                if self._keep is None or self._keep(item):
                    listed[_key(item)] = self._slim(_slim(item, page))
            metadata = page.get("metadata") or {}
            more = metadata.get("continue", "")
            if not more:
                return listed, str(metadata.get("resourceVersion", ""))

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
            _LOG.debug("%s; watching anew", error)  # from the same version: nothing is missed
        except ApiFailed as error:
            if error.status == 410:
                raise _Gone from error
            raise

    def _take(self, line: str) -> Change | None:
        """Apply one line of a watch. A line that was cut in the middle ends the watch; the next one repeats it whole."""
        try:
            event = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise ApiFailed(f"{self._path}: a line of the watch is cut off") from error
        kind, data = event.get("type"), event.get("object")
        if not isinstance(data, dict):
            raise ApiFailed(f"{self._path}: the watch holds no object")
        if kind == "ERROR":
            if data.get("code") == 410:
                raise _Gone
            raise ApiFailed(f"{self._path}: the watch ends: {data.get('message', '')}", int(data.get("code") or 0))
        self._version = _version(data)
        if kind == "BOOKMARK":
            return None
        return self._apply(str(kind), _slim(data, {}))

    def _apply(self, kind: str, data: dict[str, Any]) -> Change | None:
        if self._keep is not None and not self._keep(data):
            return None
        data = self._slim(data)
        if kind == "DELETED":
            self.objects.pop(_key(data), None)
            return Change(ChangeKind.DELETED, data)
        self.objects[_key(data)] = data
        return Change(ChangeKind.PUT, data)


async def is_served(api: Api, resource: Resource) -> bool:
    """Whether the API server knows the resource; where it does not, its controller is not installed."""
    group = await api.get_or_none(resource.base)
    return group is not None and any(each.get("name") == resource.plural for each in group.get("resources") or ())


def _whole(item: dict[str, Any]) -> dict[str, Any]:
    return item


def _slim(item: dict[str, Any], page: Mapping[str, Any]) -> dict[str, Any]:
    """An object without its managed fields, half of its size. Items of a list get the kind that the list names once."""
    item.get("metadata", {}).pop("managedFields", None)
    if "kind" not in item and page:
        item["kind"] = str(page.get("kind", "")).removesuffix("List")
        item["apiVersion"] = str(page.get("apiVersion", ""))
    return item


def _key(item: Mapping[str, Any]) -> tuple[str, str]:
    metadata = item.get("metadata", {})
    return metadata.get("namespace", ""), metadata.get("name", "")


def _uid(item: Mapping[str, Any]) -> str:
    return str(item.get("metadata", {}).get("uid", ""))


def _version(item: Mapping[str, Any]) -> str:
    return str(item.get("metadata", {}).get("resourceVersion", ""))


_KEPT = 50_000  # parts that are remembered; after that the table begins anew, and costs one more copy of each
_FIELDS = ("spec", "status")
_METADATA = ("labels", "annotations", "ownerReferences", "finalizers")


class Sharing:
    """A table of the parts that were seen. For one thread."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._known: dict[Any, Any] = {}

    def shared(self, item: dict[str, Any]) -> dict[str, Any]:
        """The same object, whose parts are those of earlier objects where they are equal. The object itself is changed."""
        if len(self._known) > self._kept:
            self._known.clear()
        for name in _FIELDS:
            part = item.get(name)
            if isinstance(part, dict):
                item[name] = {key: self._of(value) for key, value in part.items()}
        metadata = item.get("metadata")
        if isinstance(metadata, dict):
            for name in _METADATA:
                if name in metadata:
                    metadata[name] = self._of(metadata[name])
        return item

    def _of(self, value: Any) -> Any:
        """The first part that was equal to this one. Equal means of the same types too: ``True`` is no 1."""
        if isinstance(value, str):
            return self._known.setdefault(value, value)
        if isinstance(value, dict):
            value = {key: self._of(each) for key, each in value.items()}
            return self._known.setdefault((dict, *((key, _name_of(each)) for key, each in value.items())), value)
        if isinstance(value, list):
            value = [self._of(each) for each in value]
            return self._known.setdefault((list, *map(_name_of, value)), value)
        return value


def _name_of(value: Any) -> Any:
    """What stands for a part in the name of what holds it. A part that is in the table lives as long as that name."""
    return id(value) if isinstance(value, (str, dict, list)) else (type(value), value)
