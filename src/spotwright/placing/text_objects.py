"""Split a text into its objects and edit each in a separate text, so that an edit's cost does not grow with the file.

The items of a ``List`` are edited as documents too. The text of an item that aliases values outside it begins with their
anchors, so each item is placed beside the values that the anchors have after the edits of earlier items.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from spotwright.placing.aliases import MAX_WRITTEN_OUT, as_written, remedy
from spotwright.placing.document_pair import PipelinePair, objects_of
from spotwright.placing.documents import MISSING, Document, ManifestError, Path, parse
from spotwright.placing.patch import is_same
from spotwright.placing.yaml_writer import Removal, flow, remove
from spotwright.yaml_composer import MappingNode, Node, SequenceNode, anchored, data_of

__all__ = ["ObjectEdit", "edit_objects", "has_directives", "split"]


ObjectEdit = Callable[[Document], str | None]
"""Edits an object and returns the whole text around it; ``None`` if the object is removed."""

_MARKER = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_PIPELINE = "pipelineInfo"  # every compiled pipeline has it
_ITEMS: Path = ("items",)


def has_directives(text: str) -> bool:
    """Whether a text has YAML directives (``%YAML``), which belong to the document behind them."""
    return text.startswith("%") or "\n%" in text


def split(text: str) -> Iterator[tuple[int, str]]:
    """The documents of a text, each after the number of lines above it.

    The two documents of a compiled pipeline stay together. A text with directives stays whole.
    """
    if has_directives(text):
        yield 0, text
        return
    starts = [0, *(match.start() for match in _MARKER.finditer(text) if match.start()), len(text)]
    parts = [text[start:end] for start, end in pairwise(starts)]
    above = position = 0
    while position < len(parts):
        length = _length(parts, position)
        piece = "".join(parts[position : position + length])
        position += length
        yield above, piece
        above += piece.count("\n")


def _length(parts: Sequence[str], first: int) -> int:
    """How many parts from ``first`` on are one object: the platform document is the next one that is not empty."""
    if _PIPELINE in parts[first]:
        for number in range(first + 1, len(parts)):
            if "platforms" in parts[number]:
                return number + 1 - first
            if any(line and not line.startswith(("#", "---")) for line in map(str.strip, parts[number].splitlines())):
                break
    return 1


_ALIAS = re.compile(r"[\s\[{,]\*\S")


def edit_objects(text: str, objects: Sequence[Document], edit: ObjectEdit) -> str | None:
    """Edit the ``objects`` of a text; ``None`` if its only object is removed."""
    edited = _edit(text, objects, edit)
    if edited is not None and edited != text and any(map(_items, objects)) and _ALIAS.search(edited):
        try:
            parse(edited, objects[0].file, objects[0].above)
        except ManifestError as error:  # an item has its original bytes, but its anchor is in another item
            text = "cannot be edited, because an anchor was changed since it was placed"
            raise objects[0].problem(_ITEMS, f"{text}: {error}") from error
    return edited


def _edit(text: str, objects: Sequence[Document], edit: ObjectEdit) -> str | None:
    if len(objects) > 1:
        return _edit_each(text, objects, edit)
    for document in objects:
        items = _items(document)
        if items:
            return _edit_items(text, document, items, edit)
        return edit(document)
    return text


def _edit_each(text: str, objects: Sequence[Document], edit: ObjectEdit) -> str:
    """Edit the documents of a text that cannot be split, each in its own part of it."""
    parts, position, line = [], 0, 0
    for document in objects:
        start = document.start
        line_start = text.rfind("\n", 0, start) + 1
        if not text[line_start:start].strip():
            start = line_start  # the first key's indentation belongs to the document
        part = text[start : document.end]
        line += text.count("\n", position, start)
        inner = list(objects_of(parse(part, document.file, document.above + line)))
        parts += [text[position:start], _edit(part, inner, edit) or ""]
        line += part.count("\n")
        position = document.end
    return "".join([*parts, text[position:]])


def _items(document: Document) -> Sequence[Node] | None:
    """The items of a ``List``, if it has any; ``None`` for any other document."""
    if isinstance(document, PipelinePair) or not str(document.get(("kind",), "")).endswith("List"):
        return None
    items = document.node(_ITEMS)
    return items.value if isinstance(items, SequenceNode) else None


def _edit_items(text: str, document: Document, items: Sequence[Node], edit: ObjectEdit) -> str:
    """Edit the items of a list, each as a document that is indented as the item is."""
    parts, position, removed = [], 0, []
    ties = _ties(document, items)
    for index, node in enumerate(items):
        if index in ties.repeated:
            continue
        start, end = node.start_mark.index, node.end_mark.index
        is_flow = isinstance(node, MappingNode) and node.flow_style
        margin = "" if is_flow else " " * node.start_mark.column
        frame = _frame(document, ties, index, is_flow=is_flow)
        body = f"{frame.head}{margin}{text[start:end]}{frame.tail}"
        above = document.above + node.start_mark.line - frame.head.count("\n")
        objects = parse(body, document.file, above)
        if frame.head:
            objects = [_last_item(objects[0], frame)]
        edited = _edit(body, objects, edit)
        if edited is None:
            removed.append(index)
            continue
        if edited != body and index in ties.named:
            _renew(document, ties, index, edited)
        if frame.is_broken:
            _refuse_broken(document, index, objects[0], edited)
        parts += [text[position:start], edited[len(frame.head) + len(margin) : len(edited) - len(frame.tail)]]
        position = end
    return _without("".join([*parts, text[position:]]), document, removed)


def _without(text: str, document: Document, removed: Sequence[int]) -> str:
    """The text of a list without some of its items."""
    current = document.reparse(text) if removed else None
    return text if current is None else remove(current, [Removal(_ITEMS, tuple(removed))])


@dataclass(slots=True)
class _Ties:
    """How aliases tie the items of a list to values outside them, by the items' indexes.

    ``repeated`` are items that are aliases of other items, which they follow. ``outside`` has the anchors outside an item that
    its aliases name. ``named`` has the anchors inside an item that aliases outside it name, each with the alias and whether
    that stands in another item. ``now`` has the values of anchors that edits have changed, by the identity of their nodes;
    :data:`MISSING` for an anchor that is gone.
    """

    repeated: set[int] = field(default_factory=set)
    outside: dict[int, dict[str, Node]] = field(default_factory=dict)
    named: dict[int, list[tuple[Node, Any, bool]]] = field(default_factory=dict)
    now: dict[int, Any] = field(default_factory=dict)
    length: int = 0  # of the anchors repeated so far


def _ties(document: Document, items: Sequence[Node]) -> _Ties:
    ties = _Ties(now=dict(document.foreign))
    if not document.shared:
        return ties
    extents = _extents(document, items, ties)
    starts = [start for start, _, _ in extents]

    def item_at(position: int) -> int | None:
        place = bisect_right(starts, position) - 1
        return extents[place][2] if place >= 0 and position < extents[place][1] else None

    for node, aliases in document.shared.values():
        home = item_at(node.start_mark.index)
        for alias in aliases:
            user = item_at(alias.start_mark.index)
            if user is not None and user != home:
                ties.outside.setdefault(user, {})[alias.anchor] = node
            is_item = user is None and home is not None and node is items[home]  # it follows the other one
            if home is not None and user != home and not is_item:
                ties.named.setdefault(home, []).append((node, alias, user is not None))
    return ties


def _extents(document: Document, items: Sequence[Node], ties: _Ties) -> list[tuple[int, int, int]]:
    """The extents of the items with their indexes. An item that is an alias has the position of its anchor."""
    found: dict[int, tuple[int, int, int]] = {}
    whole = document.node(_ITEMS)
    last = -1 if whole is None else whole.start_mark.index - 1
    for index, node in enumerate(items):
        if node.start_mark.index > last:
            last = node.start_mark.index
            found[id(node)] = (last, node.end_mark.index, index)
        elif id(node) in found:
            ties.repeated.add(index)
        else:
            raise document.problem(
                (*_ITEMS, index), f"this item is an alias of something outside the list; {remedy(document.file)}"
            )
    return [*found.values()]


class _Frame(NamedTuple):
    """The text before and behind an item that makes it the last one of a list, whose other items are the anchors it names.

    ``now`` is ``head`` with the ``values`` that the anchors have now, and as long. ``lines`` are their lines in the file.
    """

    head: str = ""
    now: str = ""
    tail: str = ""
    lines: tuple[int, ...] = ()
    values: tuple[Any, ...] = ()
    is_broken: bool = False  # an anchor is gone


def _frame(document: Document, ties: _Ties, index: int, *, is_flow: bool) -> _Frame:
    if index not in ties.outside:
        return _Frame()
    head, now, values = [], [], []
    nodes = ties.outside[index]
    for name, node in nodes.items():
        values.append(ties.now.get(id(node), data_of(node)))
        old = f"&{name} {flow(as_written(document.text, node))}"
        new = old if id(node) not in ties.now else "0" if values[-1] is MISSING else f"&{name} {flow(values[-1])}"
        width = max(len(old), len(new))
        head.append(old.ljust(width))
        now.append(new.ljust(width))
    ties.length += sum(map(len, head))
    if ties.length > MAX_WRITTEN_OUT:
        text = "the items of this list share too much by aliases"
        raise document.problem((*_ITEMS, index), f"{text}; {remedy(document.file)}")
    if is_flow:
        texts = ["[" + "".join(f"{one},\n" for one in those) for those in (head, now)]
    else:
        texts = ["".join(f"- {one}\n" for one in those) + "-\n" for those in (head, now)]
    lines = tuple(document.above + int(node.start_mark.line) + 1 for node in nodes.values())
    return _Frame(texts[0], texts[1], "]" if is_flow else "", lines, tuple(values), MISSING in values)


def _refuse_broken(document: Document, index: int, item: Document, edited: str) -> None:
    """Refuse an item with an alias whose anchor is gone: unplacing had to rewrite the item with the anchor."""
    try:
        item.reparse(edited)
    except ManifestError as error:
        text = f"an alias here names an anchor of an item that had to be written anew; {remedy(document.file)}"
        raise document.problem((*_ITEMS, index), text) from error


@dataclass(slots=True)
class _TiedItem(Document):
    """An item in a text that begins with the anchors it names, one on a line."""

    frame: _Frame = field(default_factory=_Frame)

    def reparse(self, text: str) -> Document | None:
        """Parse another version of the text and return this item in it, beside the values that the anchors have now."""
        [whole] = parse(self.frame.now + text[len(self.frame.now) :], self.file, self.above)
        return _last_item(whole, self.frame)

    def _line(self, node: Node) -> int:
        row = int(node.start_mark.line)
        return self.frame.lines[row] if row < len(self.frame.lines) else row + 1 + self.above


def _last_item(whole: Document, frame: _Frame) -> Document:
    """The item of a document that is framed."""
    *others, node = whole.root.value
    extent = (node.start_mark.index, node.end_mark.index)
    foreign = {id(other): value for other, value in zip(others, frame.values, strict=True)}
    return _TiedItem(
        whole.file, whole.text, node, *extent, whole.index, whole.above, whole.shared, foreign, frame=frame
    )


def _renew(document: Document, ties: _Ties, index: int, edited: str) -> None:
    """Note the values that an edited item gives to anchors which aliases outside it name."""
    try:
        anchors = {name: node for one in parse(edited, document.file) for name, node in anchored(one.root)}
    except ManifestError:
        return  # an alias of an outside anchor is back; later items write out what they need
    for node, alias, is_item in ties.named[index]:
        value = data_of(anchors[alias.anchor]) if alias.anchor in anchors else MISSING
        if is_same(value, data_of(node)):
            continue
        if not is_item:
            line = document.above + int(alias.start_mark.line) + 1
            text = f"the alias *{alias.anchor} stands outside the items, one of which is changed at this anchor"
            raise ManifestError(f"{document.file}:{line}: {text}; {remedy(document.file)}")
        ties.now[id(node)] = value
