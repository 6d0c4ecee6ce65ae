"""Bounds the memory of untrusted objects: shares equal parts, enforces a quota per namespace, quarantines unreadable objects.

So ten thousand pods fit into a few dozen megabytes, and a tenant's objects cannot exhaust the shared process.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["NamespaceQuota", "Quarantine", "Sharing"]


_LOG = logging.getLogger(__name__)
_SAID = 1_000  # remembered logged objects
_LONGEST_NAME = 253  # characters of a name: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/


class Quarantine:
    """Logs unreadable objects, once for each object.

    An unexpected error is logged with its traceback the first time its line raises it, and then only counted.
    """

    def __init__(self) -> None:
        self._said: OrderedDict[tuple[str, ...], None] = OrderedDict()
        self._defects: Counter[str] = Counter()  # by the failing line

    def say(
        self,
        what: str,
        item: Any,
        why: str = "is set aside, because it cannot be read",
        *,
        because: Exception | None = None,
    ) -> None:
        """Log an object of this kind or path. ``because`` is the unexpected error, if any."""
        meta = item.get("metadata") if isinstance(item, Mapping) else None
        names = meta if isinstance(meta, Mapping) else {}
        key = (what, *(str(names.get(part, ""))[:_LONGEST_NAME] for part in ("namespace", "name", "uid")))
        if because is not None:
            self._tell(key, why, because)
        elif key not in self._said:
            _LOG.warning("%s: the object %s/%s %s", key[0], key[1], key[2], why)
        self._said[key] = None
        self._said.move_to_end(key)
        if len(self._said) > _SAID:
            self._said.popitem(last=False)

    def _tell(self, key: tuple[str, ...], why: str, error: Exception) -> None:
        place = _place_of(error)
        self._defects[place] += 1
        times = self._defects[place]
        if times == 1:
            text = "%s: the object %s/%s %s: a defect in Spotwright, further ones are only counted"
            _LOG.error(text, *key[:3], why, exc_info=error)
        elif key not in self._said:
            _LOG.warning("%s: the object %s/%s %s (%s, %d times)", *key[:3], why, place, times)


def _place_of(error: Exception) -> str:
    """The kind of an error and the line that it comes from."""
    frame = traceback.extract_tb(error.__traceback__)[-1:]
    return " ".join([type(error).__name__, *(f"in {Path(each.filename).name}:{each.lineno}" for each in frame)])


_ROOM = 96 * 1024 * 1024  # bytes, beside a limit of 768 MiB for the whole pod
_VALUE = 64  # approximate bytes of a Python value besides its characters
_NO_TEXT = sys.getsizeof("")


def _bytes_of(text: Any) -> int:
    """The bytes of a text's characters: up to four each, as the widest one requires."""
    return sys.getsizeof(text) - _NO_TEXT if isinstance(text, str) else 0


class NamespaceQuota:
    """The memory quota of each namespace's objects, so that a tenant's objects cannot exhaust the shared process.

    ``on_full`` is called with a namespace whenever one of its objects finds no room. ``limit`` is in bytes, as estimated from
    the characters and the values of objects. ``weigh`` estimates an object; by default without shared parts.
    """

    def __init__(
        self,
        on_full: Callable[[str], None] = lambda _namespace: None,
        weigh: Callable[[Mapping[str, Any]], int] | None = None,
        limit: int = _ROOM,
    ) -> None:
        self._on_full, self._weigh, self._limit = on_full, weigh or _weight, limit
        self._sizes: dict[tuple[str, str, str], int] = {}  # by path, namespace and name
        self._taken: Counter[str] = Counter()  # by namespace

    def take(self, key: tuple[str, str, str], item: Mapping[str, Any]) -> bool:
        """Reserve space for an object in place of its former state; false if there is not enough."""
        namespace, before, size = key[1], self._sizes.get(key, 0), self._weigh(item)
        if namespace and size > before and self._taken[namespace] - before + size > self._limit:
            self._on_full(namespace)
            return False
        self._sizes[key] = size
        self._taken[namespace] += size - before
        return True

    def leave(self, key: tuple[str, str, str]) -> None:
        """An object is gone."""
        self._taken[key[1]] -= self._sizes.pop(key, 0)
        if self._taken[key[1]] <= 0:
            del self._taken[key[1]]


def _weight(item: Mapping[str, Any]) -> int:
    size, rest = 0, [item]
    while rest:
        value: Any = rest.pop()
        size += _VALUE
        if isinstance(value, str):
            size += _bytes_of(value)
        elif isinstance(value, Mapping):
            size += sum(map(_bytes_of, value))
            rest.extend(value.values())
        elif isinstance(value, list):
            rest.extend(value)
    return size


_KEPT = 50_000  # remembered parts; then the table is cleared, at the cost of one more copy of each
_KEPT_TEXT = 16_000_000  # bytes of their texts: parts of deleted pods stay until the table is cleared
_FIELDS = ("spec", "status")
_METADATA = ("labels", "annotations", "ownerReferences", "finalizers")


class Sharing:
    """A table of the seen parts. For one thread."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._known: dict[Any, Any] = {}
        self._size = 0  # bytes of texts
        self._cost = 0  # bytes, of the last object

    def cost(self, _item: Mapping[str, Any]) -> int:
        """The approximate bytes of the last shared object, without parts shared with earlier ones."""
        return self._cost

    def shared(self, item: dict[str, Any]) -> dict[str, Any]:
        """Replace parts of an object by equal parts of earlier objects, in place, and return it."""
        if len(self._known) > self._kept or self._size > _KEPT_TEXT:
            self._known.clear()
            self._size = 0
        self._cost = _VALUE * len(item)
        for name in _FIELDS:
            part = item.get(name)
            if isinstance(part, dict):
                self._cost += _VALUE * len(part)
                item[name] = {key: self._of(value) for key, value in part.items()}
        metadata = item.get("metadata")
        if isinstance(metadata, dict):
            for name in _METADATA:
                if name in metadata:
                    metadata[name] = self._of(metadata[name])
        return item

    def _of(self, value: Any) -> Any:
        """The first part that was equal to this one. Equal parts have equal types: ``True`` is not 1."""
        if isinstance(value, str):
            known = self._known.setdefault(value, value)
            if known is value:
                self._size += _bytes_of(value)
                self._cost += _bytes_of(value) + _VALUE
            return known
        if isinstance(value, dict):
            value = {key: self._of(each) for key, each in value.items()}
            name = (dict, *((key, _name_of(each)) for key, each in value.items()))
            return self._first(name, value, sum(map(_bytes_of, value)))
        if isinstance(value, list):
            value = [self._of(each) for each in value]
            return self._first((list, *map(_name_of, value)), value)
        return value

    def _first(self, name: tuple[Any, ...], value: Any, keys: int = 0) -> Any:
        """The first part of this name; ``keys`` are the bytes of its keys."""
        known = self._known.setdefault(name, value)
        if known is value:
            self._size += keys
            self._cost += _VALUE * len(name) + keys
        return known


def _name_of(value: Any) -> Any:
    """The placeholder of a part in the interned name. A part in the table lives as long as that name."""
    return id(value) if isinstance(value, (str, dict, list)) else (type(value), value)
