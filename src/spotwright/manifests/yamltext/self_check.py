"""The self-check of ``place``: read the edited text again and compare it, event by event, with the document before the edits.

Every event of the old document must come again, and at the place of each edit exactly what was added, nothing else. Equal events
mean equal documents, so neither nodes nor values have to be built: reading costs little more than libyaml's own time. The check
does not trust the splices. It looks up the place of an edit by its path in the old document.

Where this check cannot tell (an edit whose position is not among the events, text with hidden surrogates),
the caller parses the text and compares the values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple

import yaml

from spotwright.manifests.yamltext.documents import Document, Path
from spotwright.manifests.yamltext.edits import STAND_IN, Edit, Editor, Splice
from spotwright.yaml_composer import (
    DOCUMENT_BREAK,
    MAY_MEAN_MORE,
    Extent,
    MappingNode,
    SequenceNode,
    events,
    value_of,
)

__all__ = ["reads_as_edited"]

_SCALAR: Any = yaml.ScalarEvent  # the parser's events carry no useful types
_ALIAS: Any = yaml.AliasEvent
_MAPPING: Any = yaml.MappingStartEvent
_MAPPING_END: Any = yaml.MappingEndEvent
_SEQUENCE: Any = yaml.SequenceStartEvent
_SEQUENCE_END: Any = yaml.SequenceEndEvent


_STAND_IN = str(STAND_IN)


class _UnprovenError(Exception):
    """The text does not read as it should, or this check cannot tell."""


class _Expected(NamedTuple):
    """The addition of one edit before the old event with a ``number``, or instead of it (``replaces``).

    ``key`` is that of a mapping's new entry. ``rest`` leads to the record in the last value, if it is there.
    """

    number: int
    key: str | int | None
    values: Sequence[Any]
    replaces: bool = False
    rest: Path | None = None
    is_document: bool = False


def reads_as_edited(
    editor: Editor, text: str, pairs: Sequence[tuple[Edit, Splice]], at: Path
) -> tuple[Extent, Extent] | None:
    """The extents of the edited document and of its record in ``text``; ``None`` if the text may read otherwise.

    ``pairs`` are all edits with their splices, by position; a splice that has a ``short`` form stands in ``text`` with
    :data:`STAND_IN` as its value, but for that of the record, whose path is ``at``.
    """
    document, parser = editor.document, events(text)
    try:
        expected = _expected(document, pairs, at)
        if len(expected) != len(editor.edits):
            return None
        return _Comparison(parser.get_event, anchored=bool(document.shared)).run(document, expected)
    except (_UnprovenError, yaml.YAMLError, RecursionError):
        return None
    finally:
        parser.dispose()


def _expected(document: Document, pairs: Sequence[tuple[Edit, Splice]], at: Path) -> list[_Expected]:
    """The additions, by rising number of the old event that they precede."""
    numbers = dict(zip(map(id, document.events), count()))
    additions: list[_Expected] = []
    previous = None
    for edit, splice in pairs:
        if edit is previous:
            continue  # a text that is YAML itself: one edit, a splice for each of its changed lines
        previous = edit
        path = edit.path
        rest = at[len(path) :] if at[: len(path)] == path else None
        value: Any = STAND_IN if splice.short and rest is None else edit.value
        parent = document.node(path[:-1]) if edit.kind == "add" else None
        if isinstance(parent, MappingNode) and path[-1] not in parent.keys:
            additions.append(_Expected(_place_of_key(numbers, parent, splice.at), path[-1], (value,), False, rest))
        elif edit.kind == "extend":
            node = document.node(path)
            if not isinstance(node, SequenceNode):
                raise _UnprovenError
            values = [STAND_IN] if splice.short else edit.value
            additions.append(_Expected(numbers[id(node.start)] + 1, None, values))
        elif edit.kind == "append":
            additions.append(_Expected(len(document.events), None, [value], rest=rest, is_document=True))
        else:
            old: Any = document.node(path)
            if old.__class__ is not _SCALAR or old.anchor is not None:
                raise _UnprovenError
            additions.append(_Expected(numbers[id(old)], None, [value], replaces=True, rest=rest))
    return additions


def _place_of_key(numbers: dict[int, int], parent: MappingNode, at: int) -> int:
    """The number of the event before which a new key of a mapping comes that is written at a position of the text."""
    for key, _ in parent.value:
        if key.start_mark.index == at:
            return numbers[id(key)]
    if parent.value:
        raise _UnprovenError
    return numbers[id(parent.start)] + 1


class _Comparison:
    """One reading of the new text, compared with the events of the old one."""

    def __init__(self, get: Callable[[], Any], *, anchored: bool) -> None:
        self._get = get
        self._anchored = anchored  # an anchor that no alias names means nothing
        self._record: Extent | None = None
        self._start: int | None = None
        self._end = 0  # of the collection that ended last

    def run(self, document: Document, expected: Sequence[_Expected]) -> tuple[Extent, Extent] | None:
        """Compare the whole document. Raises :class:`_UnprovenError` at the first difference."""
        self._skip_to(document.index)
        old, position = document.events, 0
        for addition in expected:
            if addition.number < position:
                raise _UnprovenError
            self._compare(old[position : addition.number])
            self._read_addition(addition)
            position = addition.number + addition.replaces
        self._compare(old[position:])
        if self._get().__class__ is not yaml.DocumentEndEvent or self._record is None or self._start is None:
            return None
        return Extent(self._start, self._end), self._record

    def _skip_to(self, index: int) -> None:
        """Pass over everything up to the start of a document, counted from 0."""
        get = self._get
        left = index + 1
        while left:
            event = get()
            if event.__class__ is yaml.StreamEndEvent:
                raise _UnprovenError
            left -= event.__class__ is yaml.DocumentStartEvent

    def _compare(self, old: Iterable[Any]) -> None:
        """Read as many events as there are old ones, and require them to be equal."""
        get, anchored, end = self._get, self._anchored, None
        for before in old:
            now = get()
            kind = now.__class__
            if kind is not before.__class__:
                self._compare_break(before, now)
            elif kind is _SCALAR:
                if now.value != before.value or now.implicit != before.implicit or now.tag != before.tag:
                    raise _UnprovenError
                if anchored and now.anchor != before.anchor:
                    raise _UnprovenError
            elif kind is _MAPPING_END or kind is _SEQUENCE_END:
                end = now
            elif now.anchor != before.anchor or (kind is not _ALIAS and now.tag != before.tag):
                raise _UnprovenError
            elif self._start is None:
                self._start = now.start_mark.index
        if end is not None:
            self._end = end.end_mark.index

    def _compare_break(self, before: Any, now: Any) -> None:
        """Read the border between two documents, where the old ones have one."""
        if before is not DOCUMENT_BREAK or now.__class__ is not yaml.DocumentEndEvent:
            raise _UnprovenError
        self._read_document_start()

    def _read_document_start(self) -> None:
        if self._get().__class__ is not yaml.DocumentStartEvent:
            raise _UnprovenError

    def _read_addition(self, addition: _Expected) -> None:
        get = self._get
        if addition.is_document:
            self._compare_break(DOCUMENT_BREAK, get())
        if addition.key is not None:
            key = get()
            if (
                key.__class__ is not _SCALAR
                or key.value != addition.key
                or key.tag is not None
                or key.anchor is not None
            ):
                raise _UnprovenError
        for value in addition.values:
            event = get()
            if (
                value is not STAND_IN
                or event.__class__ is not _SCALAR
                or event.value != _STAND_IN
                or not event.implicit[0]
            ):
                self._read_value(event, value, addition.rest)
            elif event.anchor is not None:
                raise _UnprovenError

    def _read_value(self, event: Any, expected: Any, rest: Path | None) -> None:
        """Require the value that begins with an event to be the expected one; ``rest`` leads on to the record in it."""
        kind = event.__class__
        if kind is _ALIAS or event.tag is not None or event.anchor is not None:
            raise _UnprovenError
        if kind is _SCALAR:
            text = event.value
            value = value_of(event) if text[:1] in MAY_MEAN_MORE else text
            if value != expected or value.__class__ is not expected.__class__:
                raise _UnprovenError
            if rest == ():
                self._record = Extent(event.start_mark.index, event.end_mark.index)
        elif kind is _MAPPING and isinstance(expected, dict):
            self._read_mapping(expected, rest)
        elif kind is _SEQUENCE and isinstance(expected, list):
            self._read_sequence(expected)
        else:
            raise _UnprovenError

    def _read_mapping(self, expected: dict[str, Any], rest: Path | None) -> None:
        get = self._get
        left = dict(expected)
        while (key := get()).__class__ is _SCALAR:
            name = key.value
            if name not in left or name == "<<" or not any(key.implicit) or key.anchor is not None:
                raise _UnprovenError
            self._read_value(get(), left.pop(name), rest[1:] if rest and rest[0] == name else None)
        if left or key.__class__ is not _MAPPING_END:
            raise _UnprovenError
        self._end = key.end_mark.index

    def _read_sequence(self, expected: Sequence[Any]) -> None:
        for value in expected:
            self._read_value(self._get(), value, None)
        end = self._get()
        if end.__class__ is not _SEQUENCE_END:
            raise _UnprovenError
        self._end = end.end_mark.index
