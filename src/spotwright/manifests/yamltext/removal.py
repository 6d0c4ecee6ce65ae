"""Remove values from a document that another tool has reformatted.

The bytes of before are gone, so only an equal document is promised: comments between a removed value and its neighbour may go
with it. Values are cut out by their positions. If the text then does not have the expected values, the document is written anew
from its data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spotwright.manifests.yamltext.block_scalars import within_block
from spotwright.manifests.yamltext.documents import Document, ManifestError, Path
from spotwright.manifests.yamltext.edits import Splice, clone, value_at
from spotwright.manifests.yamltext.splice import apply, inline
from spotwright.yaml_composer import (
    CollectionNode,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
)

__all__ = ["Removal", "remove"]

_KEEP: Any = object()
"""Stands for no replacement: the value is removed."""


@dataclass(frozen=True, slots=True)
class Removal:
    """Remove a key (``items`` empty) or items of a list by index, or replace a value by ``replacement``.

    ``inner`` are the changes that turn a text into ``replacement``, so that the rest of a literal block keeps its bytes.
    """

    path: Path
    items: tuple[int, ...]
    replacement: Any = _KEEP
    inner: tuple[Splice, ...] = ()


def remove(document: Document, removals: Sequence[Removal]) -> str:
    """The file's text after the removals from one document; other documents stay as they are."""
    expected = _expected(document, removals)
    text = document.text
    for removal in sorted(removals, key=lambda r: _position(document, r.path), reverse=True):
        text = _cut_once(document, text, removal)
    if _reads_as(text, document, expected):
        return text
    written = document.serialize(expected).rstrip("\n")
    end = "" if document.is_flow else "\n"  # a block document ends behind its line end
    text = document.text[: document.start] + written + end + document.text[document.end :]
    if not _reads_as(text, document, expected):
        raise document.problem((), "cannot be unplaced: the text that is left would not have the expected values")
    return text


def _position(document: Document, path: Path) -> int:
    """The position of a value, or of its nearest ancestor. The last value is removed first, so that no index moves."""
    nodes = (document.node(path[:length]) for length in range(len(path), -1, -1))
    return next((int(node.start_mark.index) for node in nodes if node is not None), 0)


def _expected(document: Document, removals: Sequence[Removal]) -> Any:
    value = clone(document.get(()))
    for removal in sorted(removals, key=lambda r: -len(r.path)):
        parent = value_at(value, removal.path[:-1])
        if parent is None:
            continue
        key = removal.path[-1]
        if removal.replacement is not _KEEP:
            parent[key] = removal.replacement
        elif removal.items:
            parent[key] = [item for index, item in enumerate(parent[key]) if index not in removal.items]
        elif isinstance(parent, list) and isinstance(key, int):
            del parent[key]
        else:
            parent.pop(key, None)
    return value


def _cut_once(document: Document, text: str, removal: Removal) -> str:
    """Make one removal. Earlier removals have moved the positions in the text, so it is parsed again."""
    try:
        current = document.reparse(text)
    except ManifestError:
        return text  # the comparison at the end notices
    node = current.node(removal.path) if current is not None else None
    if current is None or node is None:
        return text
    if removal.replacement is not _KEEP:
        within = within_block(text, node, current.get(removal.path), removal.inner) if removal.inner else None
        return apply(text, within or [_replacing(document, text, node, removal.replacement)])
    if removal.items:
        return apply(text, _without_items(text, node, removal.items))
    parent = current.node(removal.path[:-1])
    if not isinstance(parent, MappingNode):
        return apply(text, [_without_document(text, node)])
    return apply(text, [_without_key(text, parent, str(removal.path[-1]))])


def _replacing(document: Document, text: str, node: Node, value: Any) -> Splice:
    start, end = node.start_mark.index, _end(node)
    is_block = isinstance(node, ScalarNode) and node.style in ("|", ">")  # its end mark stands behind the line end
    old = text[start:end].rstrip() if is_block else text[start:end]
    return Splice(start, "" if value is None else inline(document, value), old)


def _without_key(text: str, parent: MappingNode, key: str) -> Splice:
    entries = parent.value
    index = next(i for i, (name, _) in enumerate(entries) if name.value == key)
    if len(entries) == 1:
        start, end = parent.start_mark.index, _end(parent)
        return Splice(start, "{}", text[start:end])
    if index + 1 < len(entries):
        start, end = entries[index][0].start_mark.index, entries[index + 1][0].start_mark.index
    else:
        start, end = _end(entries[index - 1][1]), _end(entries[index][1])
    return Splice(start, "", text[start:end])


def _without_document(text: str, node: Node) -> Splice:
    """Removes the last document of a file with its separator line."""
    start, end = text.rindex("---", 0, node.start_mark.index + 1), node.end_mark.index
    return Splice(start, "", text[start:end])


def _without_items(text: str, node: Node, items: Sequence[int]) -> list[Splice]:
    children = node.value
    if len(items) == len(children):
        return [_emptied(text, node)]
    starts = [_item_start(text, node, child) for child in children]
    cuts = []
    for index in items:
        if index + 1 < len(children):
            start, end = starts[index], starts[index + 1]
        else:
            kept = max(i for i in range(len(children)) if i not in items)
            start, end = _end(children[kept]), _end(children[index])
        cuts.append(Splice(start, "", text[start:end]))
    return cuts


def _emptied(text: str, node: Node) -> Splice:
    """Empties a list. A block list may begin in the column of its key, where ``[]`` may not stand."""
    start, end = int(node.start_mark.index), _end(node)
    if isinstance(node, CollectionNode) and node.flow_style:
        return Splice(start, "[]", text[start:end])
    key = len(text[:start].rstrip())
    if text[key - 1] == ":":
        return Splice(key, " []", text[key:end])
    return Splice(start, "  []", text[start:end])


def _item_start(text: str, node: Node, child: Node) -> int:
    start = int(child.start_mark.index)
    return start if isinstance(node, CollectionNode) and node.flow_style else text.rindex("-", 0, start)


def _end(node: Node) -> int:
    """The position behind a value. The parser's end mark of a collection lies behind later comments and blank lines."""
    if node.value and isinstance(node, MappingNode) and not node.flow_style:
        return _end(node.value[-1][1])
    if node.value and isinstance(node, SequenceNode) and not node.flow_style:
        return _end(node.value[-1])
    return int(node.end_mark.index)


def _reads_as(text: str, document: Document, expected: Any) -> bool:
    try:
        current = document.reparse(text)
    except ManifestError:
        return False
    return bool(current is not None and current.get(()) == expected)
