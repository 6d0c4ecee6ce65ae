"""Taking values out of a document that another tool wrote anew: by marks where that works, else by writing it again.

Here no byte has to come back, only an equal document: comments between a value and its neighbour may go with it. Whatever
the text looks like, the result is compared with what it must mean; where cutting does not give that, the document is written
anew from its data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spotwright.manifests.documents import Document, Path
from spotwright.manifests.edits import Splice, clone, value_at
from spotwright.manifests.literal import within_block
from spotwright.manifests.nodes import CollectionNode, ManifestError, MappingNode, Node, ScalarNode, SequenceNode
from spotwright.manifests.splice import apply, inline

__all__ = ["Removal", "remove"]

_KEEP: Any = object()
"""No replacement: the value itself goes."""


@dataclass(frozen=True, slots=True)
class Removal:
    """Take out a key (``items`` empty), items of a list by index, or put ``replacement`` in the place of a value.

    ``inner`` are the changes that make ``replacement`` of a text, so that the rest of a literal block can stay as it is.
    """

    path: Path
    items: tuple[int, ...]
    replacement: Any = _KEEP
    inner: tuple[Splice, ...] = ()


def remove(document: Document, removals: Sequence[Removal]) -> str:
    """The file's text with the removals made in one document, all others untouched."""
    expected = _expected(document, removals)
    text = document.text
    for removal in sorted(removals, key=lambda r: _position(document, r.path), reverse=True):
        text = _cut_once(document, text, removal)
    if _reads_as(text, document, expected):
        return text
    written = document.written(expected).rstrip("\n")
    end = "" if document.is_flow else "\n"  # that of a block is behind its line end
    text = document.text[: document.start] + written + end + document.text[document.end :]
    if not _reads_as(text, document, expected):
        raise document.problem((), "cannot be taken apart: what is left would not read as it should")
    return text


def _position(document: Document, path: Path) -> int:
    """Where a value stands in the text, or else what it would stand in: the last is taken out first, so no index moves."""
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
    """Make one removal in a text whose earlier removals have already moved the marks, so it is parsed again."""
    try:
        now = document.again(text)
    except ManifestError:
        return text  # the comparison at the end sees it
    node = now.node(removal.path) if now is not None else None
    if now is None or node is None:
        return text
    if removal.replacement is not _KEEP:
        within = within_block(text, node, now.get(removal.path), removal.inner) if removal.inner else None
        return apply(text, within or [_replacing(document, text, node, removal.replacement)])
    if removal.items:
        return apply(text, _without_items(text, node, removal.items))
    parent = now.node(removal.path[:-1])
    if not isinstance(parent, MappingNode):
        return apply(text, [_without_document(text, node)])
    return apply(text, [_without_key(text, parent, str(removal.path[-1]))])


def _replacing(document: Document, text: str, node: Node, value: Any) -> Splice:
    start, end = node.start_mark.index, _end(node)
    is_block = isinstance(node, ScalarNode) and node.style in ("|", ">")  # whose end is behind its line end
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
    """The last document of a file with the line above it that separates it."""
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
    """A list without its items. A block list may begin in the column of its key, where nothing else may stand."""
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
    """Where the last character of a value stands: end marks of collections lie behind comments and blank lines."""
    if node.value and isinstance(node, MappingNode) and not node.flow_style:
        return _end(node.value[-1][1])
    if node.value and isinstance(node, SequenceNode) and not node.flow_style:
        return _end(node.value[-1])
    return int(node.end_mark.index)


def _reads_as(text: str, document: Document, expected: Any) -> bool:
    try:
        found = document.again(text)
    except ManifestError:
        return False
    return bool(found is not None and found.get(()) == expected)
