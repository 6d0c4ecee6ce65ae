"""Split files into objects: each is edited in a text of its own, so that the cost does not grow with the length of the file.

A file is split at the separators between its documents, and a ``List``, as ``kubectl get`` writes it, between its items.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from spotwright.manifests.kinds.kfp.document_pair import PipelinePair, objects_of
from spotwright.manifests.yamltext.documents import Document, Path, parse
from spotwright.manifests.yamltext.removal import Removal, remove
from spotwright.yaml_composer import MappingNode, Node, SequenceNode

__all__ = ["ObjectEdit", "edit_objects", "has_directives", "split"]

ObjectEdit = Callable[[Document], str | None]
"""Edits an object and returns the whole text around it; ``None`` if the object is removed."""

_MARKER = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_PIPELINE = "pipelineInfo"  # stands in every compiled pipeline
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


def edit_objects(text: str, objects: Sequence[Document], edit: ObjectEdit) -> str | None:
    """Edit the ``objects`` of a text; ``None`` if its only object is removed."""
    if len(objects) > 1:
        return _edit_each(text, objects, edit)
    for document in objects:
        items = _items(document)
        if items is not None:
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
        parts += [text[position:start], edit_objects(part, inner, edit) or ""]
        line += part.count("\n")
        position = document.end
    return "".join([*parts, text[position:]])


def _items(document: Document) -> Sequence[Node] | None:
    """The items of a ``List``; ``None`` for any other document."""
    if isinstance(document, PipelinePair) or not str(document.get(("kind",), "")).endswith("List"):
        return None
    items = document.node(_ITEMS)
    return items.value if isinstance(items, SequenceNode) else None


def _edit_items(text: str, document: Document, items: Sequence[Node], edit: ObjectEdit) -> str:
    """Edit the items of a list, each as a document that is indented as the item is."""
    if _is_shared(document, items):
        return _edit_shared_items(document, len(items), edit)
    parts, position, removed = [], 0, []
    for index, node in enumerate(items):
        start, end = node.start_mark.index, node.end_mark.index
        margin = "" if isinstance(node, MappingNode) and node.flow_style else " " * node.start_mark.column
        objects = parse(margin + text[start:end], document.file, document.above + node.start_mark.line)
        edited = edit_objects(margin + text[start:end], objects, edit)
        if edited is None:
            removed.append(index)
        else:
            parts += [text[position:start], edited[len(margin) :]]
            position = end
    return _without("".join([*parts, text[position:]]), document, removed)


def _without(text: str, document: Document, removed: Sequence[int]) -> str:
    """The text of a list without some of its items."""
    if not removed:
        return text
    [current] = parse(text, document.file, document.above)
    return remove(current, [Removal(_ITEMS, tuple(removed))])


@dataclass(slots=True)
class _Item(Document):
    """An item of a list that shares an anchor with another item, so that it cannot be parsed alone."""

    number: int = 0

    def reparse(self, text: str) -> Document | None:
        """Parse another version of the file's text and return this item in it."""
        document = Document.reparse(self, text)
        return None if document is None else _item(document, self.number)


def _item(document: Document, number: int) -> Document | None:
    nodes = _items(document) or ()
    if number >= len(nodes):
        return None
    node = nodes[number]
    extent = (node.start_mark.index, node.end_mark.index)
    return _Item(
        document.file, document.text, node, *extent, document.index, document.above, document.shared, number=number
    )


def _is_shared(document: Document, items: Sequence[Node]) -> bool:
    """Whether an anchor is used by two items of a list."""
    earlier: set[int] = set()
    for node in items if document.shared else ():
        shared = set(_inside(node)) & document.shared.keys()
        if shared & earlier:
            return True
        earlier |= shared
    return False


def _inside(node: Node) -> Iterator[int]:
    """The identities of a node and of all nodes inside it."""
    yield id(node)
    if isinstance(node, MappingNode):
        for _, child in node.value:
            yield from _inside(child)
    elif isinstance(node, SequenceNode):
        for child in node.value:
            yield from _inside(child)


def _edit_shared_items(document: Document, count: int, edit: ObjectEdit) -> str:
    """Edit the items of a list in its whole text, which is parsed again for each of them."""
    removed = []
    for number in range(count):
        [document] = parse(document.text, document.file, document.above)
        item = _item(document, number)
        if item is not None and isinstance(item.root, MappingNode):
            edited = edit(item)
            if edited is None:
                removed.append(number)
            else:
                document.text = edited
    return _without(document.text, document, removed)
