"""Files cut into objects: each is placed in a text of its own, so that it costs what it costs, however long the file is.

A file is cut at the markers between its documents, and a ``List`` between its items, which is what ``kubectl get`` writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from spotwright.manifests.documents import Document, Path, parse
from spotwright.manifests.nodes import MappingNode, Node, SequenceNode
from spotwright.manifests.pairs import Pair, units
from spotwright.manifests.removal import Removal, remove

__all__ = ["Change", "change", "directives", "pieces"]

Change = Callable[[Document], str | None]
"""Makes of a document the text that it stands in; ``None`` where it goes as a whole."""

_MARKER = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_PIPELINE = "pipelineInfo"  # stands in every compiled pipeline
_ITEMS: Path = ("items",)


def directives(text: str) -> bool:
    """Whether a text has directives, which belong to the document behind them."""
    return text.startswith("%") or "\n%" in text


def pieces(text: str) -> Iterator[tuple[int, str]]:
    """The documents of a text, each with how many lines stand above it.

    A compiled pipeline is two documents that belong together and stay so. A text with directives stays whole.
    """
    if directives(text):
        yield 0, text
        return
    starts = [0, *(found.start() for found in _MARKER.finditer(text) if found.start()), len(text)]
    parts = [text[start:end] for start, end in pairwise(starts)]
    above = position = 0
    while position < len(parts):
        length = _length(parts, position)
        piece = "".join(parts[position : position + length])
        position += length
        yield above, piece
        above += piece.count("\n")


def _length(parts: Sequence[str], first: int) -> int:
    """How many parts from ``first`` on belong together: platforms are the next document that has anything in it."""
    if _PIPELINE in parts[first]:
        for number in range(first + 1, len(parts)):
            if "platforms" in parts[number]:
                return number + 1 - first
            if any(line and not line.startswith(("#", "---")) for line in map(str.strip, parts[number].splitlines())):
                break
    return 1


def change(text: str, found: Sequence[Document], make: Change) -> str | None:
    """Change the objects of a text, which are those ``found`` in it; ``None`` where nothing is left of the only one."""
    if len(found) > 1:
        return _each(text, found, make)
    for unit in found:
        items = _items(unit)
        if items is not None:
            return _in_list(text, unit, items, make)
        return make(unit)
    return text


def _each(text: str, found: Sequence[Document], make: Change) -> str:
    """Change the documents of a text that cannot be cut, each in its own part of it."""
    parts, position, line = [], 0, 0
    for unit in found:
        start = unit.start
        line_start = text.rfind("\n", 0, start) + 1
        if not text[line_start:start].strip():
            start = line_start  # the first key's indentation belongs to the document
        part = text[start : unit.end]
        line += text.count("\n", position, start)
        own = list(units(parse(part, unit.file, unit.above + line)))
        parts += [text[position:start], change(part, own, make) or ""]
        line += part.count("\n")
        position = unit.end
    return "".join([*parts, text[position:]])


def _items(unit: Document) -> Sequence[Node] | None:
    """The items of a ``List``; ``None`` where it is none."""
    if isinstance(unit, Pair) or not str(unit.get(("kind",), "")).endswith("List"):
        return None
    items = unit.node(_ITEMS)
    return items.value if isinstance(items, SequenceNode) else None


def _in_list(text: str, unit: Document, items: Sequence[Node], make: Change) -> str:
    """Change the items of a list, each as a document that begins where it stands in its line."""
    if _is_shared(unit, items):
        return _in_whole_list(unit, len(items), make)
    parts, position, gone = [], 0, []
    for index, node in enumerate(items):
        start, end = node.start_mark.index, node.end_mark.index
        margin = "" if isinstance(node, MappingNode) and node.flow_style else " " * node.start_mark.column
        own = parse(margin + text[start:end], unit.file, unit.above + node.start_mark.line)
        changed = change(margin + text[start:end], own, make)
        if changed is None:
            gone.append(index)
        else:
            parts += [text[position:start], changed[len(margin) :]]
            position = end
    return _without("".join([*parts, text[position:]]), unit, gone)


def _without(text: str, unit: Document, gone: Sequence[int]) -> str:
    """The text of a list without some of its items."""
    if not gone:
        return text
    [again] = parse(text, unit.file, unit.above)
    return remove(again, [Removal(_ITEMS, tuple(gone))])


@dataclass(slots=True)
class _Item(Document):
    """An item of a list that shares an anchor with another: it cannot be read in a text of its own."""

    number: int = 0

    def again(self, text: str) -> Document | None:
        """The same item in another text of its file."""
        found = Document.again(self, text)
        return None if found is None else _item(found, self.number)


def _item(unit: Document, number: int) -> Document | None:
    nodes = _items(unit) or ()
    if number >= len(nodes):
        return None
    node = nodes[number]
    extent = (node.start_mark.index, node.end_mark.index)
    return _Item(unit.file, unit.text, node, *extent, unit.index, unit.above, unit.shared, number=number)


def _is_shared(unit: Document, items: Sequence[Node]) -> bool:
    """Whether two items of a list use one anchor."""
    known: set[int] = set()
    for node in items if unit.shared else ():
        own = set(_inside(node)) & unit.shared.keys()
        if own & known:
            return True
        known |= own
    return False


def _inside(node: Node) -> Iterator[int]:
    yield id(node)
    if isinstance(node, MappingNode):
        for _, child in node.value:
            yield from _inside(child)
    elif isinstance(node, SequenceNode):
        for child in node.value:
            yield from _inside(child)


def _in_whole_list(unit: Document, count: int, make: Change) -> str:
    """Change the items of a list where they stand; each is read with all the others."""
    gone = []
    for number in range(count):
        [again] = parse(unit.text, unit.file, unit.above)
        unit = again
        item = _item(unit, number)
        if item is not None and isinstance(item.root, MappingNode):
            changed = make(item)
            if changed is None:
                gone.append(number)
            else:
                unit.text = changed
    return _without(unit.text, unit, gone)
