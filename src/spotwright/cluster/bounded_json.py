"""Reads an API server's objects within bounded memory, by estimating each object's size before decoding it.

Authors of objects are untrusted, and 1 MB of empty lists takes 20 MB as Python lists. So the characters that begin values are
counted in the bytes, which takes milliseconds per megabyte. A too large object is not read as a whole; the recorder can still
read the fields that identify it and show its progress.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

__all__ = [
    "MOST_MEMORY",
    "ListMetadata",
    "ListPage",
    "TooManyValues",
    "WatchEvent",
    "decode",
    "identity",
    "is_large",
    "main_fields",
    "most_memory",
    "read_as",
    "read_object",
]


_T = TypeVar("_T")

MOST_MEMORY = 4_000_000
"""Bytes that an object may take, as estimated: a Workflow with 800 steps in its status."""

_DEEPEST = 100  # levels: real objects have fewer than a tenth of it
_MARKS = re.compile(
    rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL
)  # texts, and the characters that begin or end a value
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,\[{]', re.DOTALL)  # texts, and the characters before a value
_LIST, _MAPPING, _VALUE = 104, 208, 56
_BYTES = {ord("["): _LIST, ord("{"): _MAPPING, ord(","): _VALUE, ord('"'): 0}
"""Bytes of a list with one item, of a mapping with up to five, and of a value behind a comma (``sys.getsizeof`` of CPython 3.11,
and what its garbage collector adds). The characters of texts are counted beside, each with the bytes of the widest one."""
_WIDEST, _WIDE = 4, 2  # bytes of a character that UTF-8 has in four bytes, and of one beyond Latin-1


class TooManyValues(ValueError):
    """An object would take too much memory; the text is a clause for its author."""


def decode(content: bytes | str) -> dict[str, Any]:
    """Decode a JSON object of the API server, however large. Values that are nested too deeply become null.

    Objects of a custom resource may hold anything, ten thousand levels deep, and arrive in one list with others. Raises
    :class:`msgspec.DecodeError`.
    """
    return read_as(dict[str, Any], content.encode() if isinstance(content, str) else content)


def read_as(wanted: type[_T], content: bytes) -> _T:
    """:func:`decode` into a type of msgspec, whose fields of type Raw stay text. Raises :class:`msgspec.DecodeError`."""
    try:
        return msgspec.json.decode(content, type=wanted)
    except RecursionError:
        return msgspec.json.decode(_shallow(content), type=wanted)


def most_memory(text: bytes) -> int:
    """A quick upper bound of the bytes that a JSON text takes as Python objects."""
    marks = text.count(b"[") * _LIST + text.count(b"{") * _MAPPING + text.count(b",") * _VALUE
    return marks + len(text) * (1 if text.isascii() else _WIDEST)


def is_large(text: bytes, most: int = MOST_MEMORY) -> bool:
    """Whether a JSON text would take more than ``most`` bytes as Python objects. Characters inside texts do not count."""
    if most_memory(text) <= most:
        return False
    left, is_narrow = most - len(text), text.isascii()
    for token in _TOKEN.finditer(text):
        left -= _BYTES[text[token.start()]]
        if not is_narrow and not token[0].isascii():
            left -= (_bytes_of_each(token[0]) - 1) * len(token[0])
        if left < 0:
            return True
    return False


def _bytes_of_each(text: bytes) -> int:
    """The bytes that each character of a UTF-8 text takes in memory, by the widest of them."""
    first = max(text)
    return _WIDEST if first >= 0xF0 else _WIDE if first >= 0xC4 else 1


def read_object(text: bytes, most: int = MOST_MEMORY) -> dict[str, Any]:
    """An object of the API server; a large one without its managed fields. Too deeply nested values are null.

    Raises :class:`TooManyValues` for an object that would take more than ``most`` bytes, :class:`msgspec.DecodeError` for no
    object.
    """
    if not is_large(text, most):
        return decode(text)
    try:
        text = msgspec.json.encode(read_as(_Parts, text))
    except msgspec.ValidationError:  # it has other parts too
        raise _too_many(most) from None
    if is_large(text, most):
        raise _too_many(most)
    return decode(text)


def main_fields(text: bytes) -> dict[str, Any]:
    """The fields that identify an object and show its progress. Raises :class:`TooManyValues` if they alone are too large."""
    try:
        text = msgspec.json.encode(read_as(_MainParts, text))
    except msgspec.ValidationError:
        raise _too_many() from None
    if is_large(text):
        raise _too_many()
    return decode(text)


def identity(text: bytes) -> dict[str, Any]:
    """The name, namespace, UID and version of an object, for messages; empty if unreadable."""
    try:
        return dict(msgspec.to_builtins(read_as(_Identified, text)))
    except msgspec.DecodeError:
        return {}


def _too_many(most: int = MOST_MEMORY) -> TooManyValues:
    return TooManyValues(f"it would need more than {most // 1_000_000} MB of memory")


class WatchEvent(msgspec.Struct):
    """One line of a watch. The object stays text until its size is known."""

    type: str = ""
    object: Raw = Raw(b"null")


class ListMetadata(msgspec.Struct, rename="camel"):
    """The position of a page in a list."""

    resource_version: str | None = None
    continue_: str | None = msgspec.field(default=None, name="continue")


class ListPage(msgspec.Struct, rename="camel"):
    """A page of a list. Its objects stay text until their sizes are known."""

    kind: str | None = None
    api_version: str | None = None
    metadata: ListMetadata | None = None
    items: list[Raw] | None = None


class _Fields(msgspec.Struct, rename="camel"):
    """Some fields of an object, as text; all others are omitted."""


class _Metadata(_Fields):
    name: Raw | UnsetType = UNSET
    namespace: Raw | UnsetType = UNSET
    uid: Raw | UnsetType = UNSET
    resource_version: Raw | UnsetType = UNSET
    creation_timestamp: Raw | UnsetType = UNSET
    deletion_timestamp: Raw | UnsetType = UNSET
    deletion_grace_period_seconds: Raw | UnsetType = UNSET
    labels: Raw | UnsetType = UNSET
    annotations: Raw | UnsetType = UNSET
    owner_references: Raw | UnsetType = UNSET
    finalizers: Raw | UnsetType = UNSET


class _Parts(_Fields, kw_only=True, forbid_unknown_fields=True):
    """An object that has these parts and no other; ``managedFields`` may be half of its text, and are left out."""

    api_version: Raw | UnsetType = UNSET
    kind: Raw | UnsetType = UNSET
    metadata: _Metadata
    spec: Raw | UnsetType = UNSET
    status: Raw | UnsetType = UNSET


class _MainSpec(_Fields):
    suspend: Raw | UnsetType = UNSET
    run_policy: Raw | UnsetType = UNSET
    shutdown: Raw | UnsetType = UNSET
    active_deadline_seconds: Raw | UnsetType = UNSET
    node_name: Raw | UnsetType = UNSET


class _MainStatus(_Fields):
    phase: Raw | UnsetType = UNSET
    reason: Raw | UnsetType = UNSET
    message: Raw | UnsetType = UNSET
    conditions: Raw | UnsetType = UNSET
    started_at: Raw | UnsetType = UNSET
    finished_at: Raw | UnsetType = UNSET
    completion_time: Raw | UnsetType = UNSET


class _MainParts(_Fields, kw_only=True):
    """The fields that identify an object and show its progress."""

    api_version: Raw | UnsetType = UNSET
    kind: Raw | UnsetType = UNSET
    metadata: _Metadata
    spec: _MainSpec | UnsetType | None = UNSET
    status: _MainStatus | UnsetType | None = UNSET


class _Names(_Fields):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Identified(_Fields):
    metadata: _Names


def _shallow(content: bytes) -> bytes:
    """The same JSON text, with null for each value that is nested deeper than :data:`_DEEPEST` levels."""
    parts, depth, kept = [], 0, 0
    for found in _MARKS.finditer(content):
        mark = found[0]
        if mark in (b"[", b"{"):
            depth += 1
            if depth == _DEEPEST + 1:
                parts += [content[kept : found.start()], b"null"]
        elif mark in (b"]", b"}"):
            if depth == _DEEPEST + 1:
                kept = found.end()
            depth -= 1
    return b"".join([*parts, content[kept:]])
