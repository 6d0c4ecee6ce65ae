"""Whether a text reads as it is meant, seen while it is parsed: the self-check of ``place`` keeps nothing of what it reads.

A manifest of 10 MB is a million nodes. Only a plain yes counts: what is not known here (aliases, tags, merge keys, broken text)
is left to :class:`~spotwright.manifests.documents.Document`, which knows everything and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import yaml

from spotwright.manifests.documents import Path
from spotwright.manifests.nodes import MAY_MEAN_MORE, Extent, events, is_null, value_of

__all__ = ["read_as"]

_SCALAR: Any = yaml.ScalarEvent  # the parser's events carry no useful types
_MAPPING: Any = yaml.MappingStartEvent
_MAPPING_END: Any = yaml.MappingEndEvent
_SEQUENCE: Any = yaml.SequenceStartEvent
_SEQUENCE_END: Any = yaml.SequenceEndEvent


class _UnknownError(Exception):
    """Something that only a document can read."""


def read_as(text: str, index: int, expected: Sequence[Any], at: Path) -> tuple[Extent, Extent] | None:
    """The extent of the documents from ``index`` on, and of the value at ``at`` in them, where they are the ``expected`` values.

    Empty documents are left out. The first step of ``at`` is the index of an expected value. ``None``: not sure, or not equal.
    """
    parser = events(text)
    try:
        return _Reader(parser.get_event).documents(index, expected, at)
    except (_UnknownError, yaml.YAMLError, RecursionError):
        return None
    finally:
        parser.dispose()


class _Reader:
    def __init__(self, get: Callable[[], Any]) -> None:
        self._get = get
        self._end = 0  # of the collection that ended last
        self._found: Extent | None = None

    def documents(self, index: int, expected: Sequence[Any], at: Path) -> tuple[Extent, Extent] | None:
        left = list(enumerate(expected))
        start = number = 0
        while left:
            event = self._get()
            if event.__class__ is yaml.StreamEndEvent:
                return None
            if event.__class__ is not yaml.DocumentStartEvent:
                continue
            first = self._get()
            if number < index or (first.__class__ is _SCALAR and is_null(first)):
                self._skip(first)
            else:
                place, value = left.pop(0)
                start = first.start_mark.index if place == 0 else start
                if not self._is(first, value, at[1:] if at[0] == place else None):
                    return None
            number += 1
        return None if self._found is None else (Extent(start, self._end), self._found)

    def _skip(self, event: Any) -> None:
        """Pass over a value."""
        depth = 0
        while True:
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if not depth:
                return
            event = self._get()

    def _is(self, event: Any, expected: Any, rest: Path | None) -> bool:
        """Whether the value that begins with an event is the expected one; ``rest`` leads on to what is looked for."""
        kind = event.__class__
        if kind is _SCALAR and event.tag is None:
            if rest == ():
                self._found = Extent(event.start_mark.index, event.end_mark.index)
            return bool(value_of(event) == expected)
        if kind is _MAPPING and event.tag is None and isinstance(expected, dict):
            return self._is_mapping(expected, rest)
        if kind is _SEQUENCE and event.tag is None and isinstance(expected, list):
            return self._is_sequence(expected, rest)
        raise _UnknownError

    def _is_mapping(self, expected: dict[str, Any], rest: Path | None) -> bool:
        seen = set()
        get = self._get
        while (key := get()).__class__ is _SCALAR:
            name = key.value
            if name == "<<" or key.tag is not None:
                raise _UnknownError
            if name in seen or name not in expected:
                return False
            seen.add(name)
            event, inside = get(), rest[1:] if rest and rest[0] == name else None
            if inside is None and event.__class__ is _SCALAR and event.tag is None:
                text = event.value  # most of what there is, so without a call of its own
                if (value_of(event) if text[:1] in MAY_MEAN_MORE else text) != expected[name]:
                    return False
            elif not self._is(event, expected[name], inside):
                return False
        if key.__class__ is not _MAPPING_END:
            raise _UnknownError
        self._end = key.end_mark.index
        return len(seen) == len(expected)

    def _is_sequence(self, expected: list[Any], rest: Path | None) -> bool:
        get = self._get
        for index, value in enumerate(expected):
            event = get()
            if event.__class__ is _SEQUENCE_END:
                return False
            if not self._is(event, value, rest[1:] if rest and rest[0] == index else None):
                return False
        event = get()
        self._end = event.end_mark.index
        return bool(event.__class__ is _SEQUENCE_END)
