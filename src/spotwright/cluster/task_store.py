"""Reads and changes SpotCounter objects without undoing another replica's writes.

All waiting changes of one object are written in one patch that tests the object's version: with one write per review, nine of
ten in a burst would fail. If another replica has written meanwhile, the object is reread and all changes are redone. A change
that does not modify the object is answered from a version read after its request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from spotwright.cluster.api_client import FORBIDDEN, Api, ApiFailed, object_path
from spotwright.cluster.task_objects import API_VERSION, KIND, MOST_BYTES, WORKLOAD_LABEL, Content, Place
from spotwright.errors import StateError
from spotwright.kube.object_fields import metadata, uid_of

__all__ = ["LARGEST", "TaskStore", "read_content"]


LARGEST = 256 * 1024
"""Bytes of an object with its metadata: a larger one is not ours."""

_T = TypeVar("_T")
_LOG = logging.getLogger(__name__)
_ANSWER = 3.0  # seconds for one request: a review waits for it
_TRIES = 30  # writes of one change that may lose to others
_AT_ONCE = 10  # of them without a pause
_PAUSE = 0.01  # seconds before each of the others, on average
_KEPT = 8 * 1024 * 1024  # bytes of cached objects; others are read before a write
_ROW, _ROW_PAUSE = 3, 0.02  # consecutive writes within these seconds, until others get a turn
_LONGEST_PAUSE = 0.2  # seconds
_PROBLEMS = 20
_MEND = (
    "kubectl apply --server-side -f charts/spotwright/crds installs the kind SpotCounter, and helm upgrade grants the rights on"
    " it"
)
_CONFLICT, _NOT_FOUND, _INVALID = 409, 404, 422


class _Conflict(Exception):
    """The object was changed, created or deleted meanwhile."""


@dataclass
class _Change(Generic[_T]):
    """A change with a waiting caller."""

    make: Callable[[Content, bool], _T]
    may_be_old: Callable[[_T], bool]
    root: Mapping[str, Any] | None
    answer: asyncio.Future[_T]


@dataclass
class _Object:
    """An object as last written or read. ``version`` is empty if it does not exist, ``text`` is its spec as JSON."""

    is_known: bool = False
    version: str = ""
    in_a_row: int = 0  # consecutive writes
    took: float = 0.0  # seconds of the last write
    wrote_at: float = 0.0  # by the clock of the event loop
    text: bytes = b"{}"
    waiting: list[_Change[Any]] = field(default_factory=list)
    work: asyncio.Task[None] | None = None


class TaskStore:
    """The SpotCounters of an API server. For one event loop.

    ``problems`` has a sentence for each new, uncollected problem.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._objects: OrderedDict[Place, _Object] = OrderedDict()
        self._problem = ""
        self.problems: list[str] = []
        self.writes = self.reads = 0

    async def change(
        self,
        place: Place,
        make: Callable[[Content, bool], _T],
        *,
        root: Mapping[str, Any] | None = None,
        may_be_old: Callable[[_T], bool] = lambda _: False,
    ) -> _T:
        """Change an object, which is created if it does not exist; returns the result of ``make``.

        ``make`` gets the object's content, to change it, and whether the object is new. It is called again if another writer
        was faster. ``may_be_old``: this answer may come from the cached object, if the change leaves it as it is. ``root`` is
        the workload, with which the object is deleted. Raises :class:`StateError`, and whatever ``make`` raises.
        """
        one = self._objects.setdefault(place, _Object())
        self._objects.move_to_end(place)
        change = _Change(make, may_be_old, root, asyncio.get_running_loop().create_future())
        one.waiting.append(change)
        if one.work is None:
            one.work = asyncio.create_task(self._work(place, one), name=f"attempt numbers of {place.workload}")
        answer: _T = await change.answer
        return answer

    async def known(self, place: Place) -> tuple[Content, bool]:
        """The cached content of an object, and whether it is new; it is read if not cached."""
        one = self._objects.setdefault(place, _Object())
        if not one.is_known:
            await self.read(place, lambda _: None)
        return msgspec.json.decode(one.text, type=Content), not one.version

    async def read(self, place: Place, look: Callable[[Content], _T]) -> _T:
        """The result of ``look`` at an object's current content; a missing object is empty. Raises :class:`StateError`."""
        return await self.change(place, lambda content, _: look(content))

    async def close(self) -> None:
        """Cancel pending work."""
        tasks = [one.work for one in self._objects.values() if one.work is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, place: Place, one: _Object) -> None:
        """Make all pending changes, until there are none."""
        batch: list[_Change[Any]] = []
        try:
            while batch := _taken(one):
                try:
                    await self._together(place, one, batch)
                except StateError as error:
                    one.is_known = False
                    _fail(batch, error)
                except Exception as error:  # noqa: BLE001  # a defect must not leave reviews waiting
                    one.is_known = False
                    _LOG.exception("%s/%s: a defect in Spotwright", place.namespace, place.part)
                    _fail(batch, StateError(f"{place.namespace}: cannot assign attempt numbers ({error})"))
        finally:
            one.work = None
            for change in (*batch, *one.waiting):  # cancelled
                change.answer.cancel()
            self._forget_some()

    async def _together(self, place: Place, one: _Object, batch: list[_Change[Any]]) -> None:
        is_fresh = False
        for attempt in range(_TRIES):
            if attempt > _AT_ONCE:  # a pause after a read lets others be faster again
                await asyncio.sleep(random.uniform(0, 2 * _PAUSE))  # noqa: S311  # spreads the replicas, no secret
            is_fresh = not _joined(one, batch) and is_fresh
            if not batch:
                return
            if not one.is_known:
                await self._read(place, one)
                is_fresh = True
            text, answers = _made(place, one, batch)
            if text == one.text:
                if is_fresh or all(_may_be_old(change, answer) for change, answer in zip(batch, answers, strict=True)):
                    break
                one.is_known = False
                continue
            if await _gave_way(one):
                continue
            try:
                await self._write(place, one, text, next((each.root for each in batch if each.root), None))
                break
            except _Conflict:  # usually it has just been reread
                is_fresh = one.is_known
        else:
            raise StateError(f"{place.namespace}/{place.name}: another writer was faster in each of {_TRIES} tries")
        for change, answer in zip(batch, answers, strict=True):
            _tell(change, answer)

    async def _read(self, place: Place, one: _Object) -> None:
        self.reads += 1
        try:
            async with asyncio.timeout(_ANSWER):
                found = await self._api.get_or_none(_path(place), at_most=LARGEST)
        except (ApiFailed, TimeoutError) as error:
            raise self._failed(place, error) from error
        one.version = "" if found is None else str(metadata(found).get("resourceVersion", ""))
        one.text = b"{}" if found is None else msgspec.json.encode(read_content(found, place))
        one.is_known = True

    async def _write(self, place: Place, one: _Object, text: bytes, root: Mapping[str, Any] | None) -> None:
        spec, began = msgspec.Raw(text), asyncio.get_running_loop().time()
        self.writes += 1
        try:
            async with asyncio.timeout(_ANSWER):
                if one.version:
                    test = {"op": "test", "path": "/metadata/resourceVersion", "value": one.version}
                    patch = [test, {"op": "replace", "path": "/spec", "value": spec}]
                    made = await self._api.send("PATCH", _path(place), patch)
                else:
                    made = await self._api.send("POST", _path(place._replace(part="")), _new(place, spec, root))
        except ApiFailed as error:
            if await self._is_conflict(place, one, error):
                raise _Conflict from error
            raise self._failed(place, error) from error
        except TimeoutError as error:
            raise self._failed(place, error) from error
        kept = read_content(made, place)
        if kept != msgspec.json.decode(text, type=Content):  # lost content would be assigned twice
            why = f"this cluster's kind SpotCounter is from another version, which drops fields; {_MEND}"
            self.say(why)
            raise StateError(why)
        self._problem = ""
        one.wrote_at = asyncio.get_running_loop().time()
        one.took = one.wrote_at - began
        one.version, one.text, one.is_known = str(metadata(made).get("resourceVersion", "")), text, True

    async def _is_conflict(self, place: Place, one: _Object, error: ApiFailed) -> bool:
        """Whether another writer was faster: a patch's version is not the object's, or the object was created or deleted."""
        before, one.is_known = one.version, False
        if not before:
            return error.status == _CONFLICT
        if error.status == _INVALID:  # for a failed test, and for content that the schema refuses
            await self._read(place, one)
            return one.version != before
        return error.status in (_CONFLICT, _NOT_FOUND)

    def _failed(self, place: Place, error: Exception) -> StateError:
        """The message about a failed request: reported once as a problem, until another request succeeds."""
        why = str(error) or f"no answer within {_ANSWER:g} s"
        refused = isinstance(error, ApiFailed) and error.status in (*FORBIDDEN, _NOT_FOUND)
        mend = f"; {_MEND}" if refused else ""
        self.say(f"attempt numbers cannot be assigned, so pods are left unchanged: {why}{mend}")
        return StateError(f"{place.namespace}/{place.name}: {why}{mend}")

    def say(self, text: str) -> None:
        """Note and log a problem, unless it equals the last one."""
        kind = text.partition(":")[0]
        if kind != self._problem:
            self._problem = kind
            self.problems = [*self.problems, text][-_PROBLEMS:]
            _LOG.error("%s", text)

    def _forget_some(self) -> None:
        """Drop the least recently used objects beyond the limit."""
        size = sum(len(one.text) for one in self._objects.values())
        for place, one in list(self._objects.items()):
            if size <= _KEPT and len(self._objects) <= _KEPT // 1024:
                return
            if one.work is None and not one.waiting:
                size -= len(one.text)
                del self._objects[place]


def read_content(found: Mapping[str, Any], place: Place) -> Content:
    """The content of an object. Raises :class:`StateError` for another writer's object."""
    try:
        return msgspec.convert(found.get("spec") or {}, Content)
    except msgspec.ValidationError as error:
        raise StateError(
            f"SpotCounter {place.namespace}/{place.name}: was changed from outside ({error}); delete it, and numbering continues"
        ) from error


def _path(place: Place) -> str:
    """The path of an object; without a part, of all of its namespace."""
    try:
        return object_path(API_VERSION, KIND, place.name if place.part else None, place.namespace)
    except ApiFailed as error:
        raise StateError(str(error)) from error


def _new(place: Place, spec: msgspec.Raw, root: Mapping[str, Any] | None) -> dict[str, Any]:
    """An object that is deleted with its workload without blocking the workload's deletion."""
    meta: dict[str, Any] = {
        "name": place.name,
        "namespace": place.namespace,
        "labels": {WORKLOAD_LABEL: place.workload},
    }
    if root is not None and place.workload:
        owner = {
            "apiVersion": root.get("apiVersion"),
            "kind": root.get("kind"),
            "name": metadata(root).get("name"),
            "uid": uid_of(root),
            "blockOwnerDeletion": False,
        }
        meta["ownerReferences"] = [owner]
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": spec}


def _made(place: Place, one: _Object, batch: list[_Change[Any]]) -> tuple[bytes, list[Any]]:
    """The object's content after all changes, and each change's answer."""
    content = msgspec.json.decode(one.text, type=Content)
    with contextlib.suppress(StateError):
        answers = [change.make(content, not one.version) for change in batch]
        text = msgspec.json.encode(content)
        _require_room(place, len(one.text), len(text))
        return text, answers
    return _made_one_by_one(place, one, batch)


def _made_one_by_one(place: Place, one: _Object, batch: list[_Change[Any]]) -> tuple[bytes, list[Any]]:
    """The same if a change is refused: it is undone, and its answer is the error."""
    text, answers = one.text, []
    content = msgspec.json.decode(text, type=Content)
    for change in batch:
        try:
            answer: Any = change.make(content, not one.version)
            after = msgspec.json.encode(content)
            _require_room(place, len(text), len(after))
            text = after
        except StateError as error:
            content, answer = msgspec.json.decode(text, type=Content), error
        answers.append(answer)
    return text, answers


def _require_room(place: Place, before: int, after: int) -> None:
    if after > MOST_BYTES and after > before:
        raise StateError(f"SpotCounter {place.namespace}/{place.name} would exceed its limit of {MOST_BYTES} bytes")


async def _gave_way(one: _Object) -> bool:
    """Pause after some consecutive writes, so that another replica can write; returns whether it did.

    The last writer already knows the version, and would always be faster.
    """
    loop = asyncio.get_running_loop()
    is_next = loop.time() - one.wrote_at < max(_ROW_PAUSE, one.took)
    one.in_a_row = one.in_a_row + 1 if is_next else 0
    if one.in_a_row < _ROW:
        return False
    one.in_a_row, one.wrote_at = 0, 0.0
    await asyncio.sleep(min(3 * one.took, _LONGEST_PAUSE))
    return True


def _may_be_old(change: _Change[Any], answer: Any) -> bool:
    return not isinstance(answer, StateError) and change.may_be_old(answer)


def _tell(change: _Change[Any], answer: Any) -> None:
    if change.answer.done():
        return
    if isinstance(answer, StateError):
        change.answer.set_exception(answer)
    else:
        change.answer.set_result(answer)


def _fail(batch: list[_Change[Any]], error: StateError) -> None:
    for change in batch:
        _tell(change, error)


def _joined(one: _Object, batch: list[_Change[Any]]) -> bool:
    """Drop changes without a waiting caller from a batch, and add new ones; whether there were new ones."""
    new = _taken(one)
    batch[:] = [change for change in [*batch, *new] if not change.answer.done()]
    return bool(new)


def _taken(one: _Object) -> list[_Change[Any]]:
    taken, one.waiting = [change for change in one.waiting if not change.answer.done()], []
    return taken
