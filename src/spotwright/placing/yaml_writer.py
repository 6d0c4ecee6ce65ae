"""Turns edits into insertions at the parser's positions, and takes values out again.

A key is inserted before an existing key, an item before the first item, in the style of its surroundings: so comments, quoting,
order and line ends of everything else stay as they are. A replaced scalar keeps its old text for the way back. Nothing is
inserted at the end of a mapping, because the parser's end marks lie behind later comments and blank lines.

A file is split into objects, each edited in a text of its own, so that the cost does not grow with the length of the file.
From a document that another tool has reformatted, values are removed one by one.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

from spotwright.placing.document_pair import PipelinePair, objects_of
from spotwright.placing.documents import Document, ManifestError, Path, parse
from spotwright.placing.patch import STAND_IN, Edit, Splice, clone, value_at
from spotwright.yaml_composer import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

__all__ = [
    "ObjectEdit",
    "Removal",
    "apply",
    "block",
    "edit_objects",
    "flow",
    "has_directives",
    "in_brief",
    "inline",
    "is_quoted",
    "remove",
    "splices",
    "split",
    "within_block",
]


def within_block(text: str, node: Node, value: str, inner: Sequence[Splice]) -> list[Splice] | None:
    """Changes of a block's ``value`` as changes of the file's ``text``; ``None`` if the lines of the two do not correspond."""
    begin = text.find("\n", node.start_mark.index) + 1
    written, lines = text[begin : node.end_mark.index].split("\n"), value.split("\n")
    margin = _margin(written, lines)
    if not isinstance(node, ScalarNode) or node.style != "|" or margin is None:
        return None
    outer_starts = [begin, *(begin + offset for offset in accumulate(len(line) + 1 for line in written))]
    inner_starts = [0, *accumulate(len(line) + 1 for line in lines)]
    newline = "\r\n" if written[0].endswith("\r") else "\n"
    changes = []
    for change in inner:
        positions = []
        for position in (change.at, change.at + len(change.old)):
            row = bisect_right(inner_starts, position) - 1
            if row >= len(written):
                return None
            positions.append(outer_starts[row] + (len(margin) if lines[row] else 0) + position - inner_starts[row])
        start, end = positions
        changes.append(Splice(start, change.text.replace("\n", newline + margin), text[start:end]))
    return changes


def _margin(written: Sequence[str], lines: Sequence[str]) -> str | None:
    """The indentation of the block; ``None`` if its lines are not the value's lines, all indented alike."""
    for outer, line in zip(written, lines, strict=False):
        if line.strip():
            margin = " " * (len(outer.rstrip("\r")) - len(line))
            pairs = zip(written, lines, strict=False)
            return margin if all(not own or out.rstrip("\r") == margin + own for out, own in pairs) else None
    return None


_JSON = json.JSONEncoder(ensure_ascii=False)
_NOT_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def splices(document: Document, edits: Sequence[Edit]) -> list[tuple[Edit, Splice]]:
    """The changes of the text that make the edits, by position; at one position in the order of the edits."""
    writer = _Writer(document)
    pairs = [(edit, change) for edit in edits for change in writer.changes(edit)]
    pairs.sort(key=_position)
    for index, ((edit, change), (later, _)) in enumerate(pairwise(pairs)):
        if change.ends_flow and edit.path[:-1] == later.path[:-1]:
            pairs[index] = (
                edit,
                change._replace(text=f"{change.text}, "),
            )  # the next key needs a comma before it
    return pairs


def _position(pair: tuple[Edit, Splice]) -> int:
    return pair[1].at


def in_brief(change: Splice) -> Splice:
    """The change with the stand-in for its value, if it has one."""
    return Splice(change.at, change.short, change.old) if change.short else change


def apply(text: str, changes: Sequence[Splice]) -> str:
    """Apply changes, given by rising position, to a text."""
    parts, position = [], 0
    for change in changes:
        parts += [text[position : change.at], change.text]
        position = change.at + len(change.old)
    return "".join([*parts, text[position:]])


class _Writer:
    """Writes the edits of one document. Where new keys of a mapping go is looked up once per mapping."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._margins: dict[int, tuple[int, int, str]] = {}  # by the identity of a mapping

    def changes(self, edit: Edit) -> Sequence[Splice]:
        """The changes of the text that make one edit."""
        kind = edit.kind
        if kind == "add":
            return [self._into_mapping(edit)]
        if kind == "extend":
            return [self._into_list(edit)]
        if kind == "append":
            return [_appended(self._document, edit)]
        return self._replaced(edit)

    def _replaced(self, edit: Edit) -> Sequence[Splice]:
        document, node = self._document, _existing(self._document, edit.path)
        if edit.kind == "embed":
            within = within_block(document.text, node, document.get(edit.path), edit.inner)
            if within is not None:
                return within
        start, end = node.start_mark.index, node.end_mark.index
        old = document.text[start:end].rstrip()  # the end mark of a block stands behind its line end
        return [Splice(start, inline(document, edit.value), old)]

    def _into_mapping(self, edit: Edit) -> Splice:
        document, key = self._document, str(edit.path[-1])
        parent, text = _existing(document, edit.path[:-1]), document.text
        if not isinstance(parent, MappingNode):
            raise document.problem(edit.path[:-1], "expected a mapping")
        if key in parent.keys:  # a null under this very key
            existing = _existing(document, edit.path)
            start, end = existing.start_mark.index, existing.end_mark.index
            space = "" if start and text[start - 1] in " \t\n" else " "
            return Splice(start, f"{space}{inline(document, edit.value)}", text[start:end])
        if not parent.flow_style:
            return _block_splice(self._margin(parent), {key: edit.value}, f"{_scalar(key)}: {STAND_IN}")
        entry = f"{inline(document, key)}: {inline(document, edit.value)}"
        if not parent.value:
            return Splice(parent.start_mark.index + 1, entry, ends_flow=True)
        return Splice(parent.value[0][0].start_mark.index, f"{entry}, ")

    def _margin(self, parent: MappingNode) -> tuple[int, int, str]:
        margin = self._margins.get(id(parent))
        if margin is None:
            key = _uncommented(self._document, parent.value)
            margin = self._margins[id(parent)] = _margin_of(self._document.text, key)
        return margin

    def _into_list(self, edit: Edit) -> Splice:
        document, node = self._document, _existing(self._document, edit.path)
        if isinstance(node, CollectionNode) and node.flow_style:
            at = node.value[0].start_mark.index if node.value else node.start_mark.index + 1
            items = ", ".join(inline(document, item) for item in edit.value)
            return Splice(at, f"{items}, " if node.value else items)
        return _block_splice(_margin_of(document.text, node), edit.value, f"- {STAND_IN}")


def _existing(document: Document, path: Path) -> Node:
    node = document.node(path)
    if node is None:
        raise document.problem(path, "is not there")
    return node


def _uncommented(document: Document, pairs: Sequence[tuple[Node, Node]]) -> Node:
    """The key before which new keys are inserted: the first without a comment above it, so that comments stay with their keys.

    The second key is preferred to the first, so that a container still begins with its ``name``.
    """
    for key, _ in (*pairs[1:], pairs[0]):
        if not _line_above(document.text, key.start_mark.index).startswith("#"):
            return key
    return pairs[0][0]


def _line_above(text: str, position: int) -> str:
    """The last line above a position that is not blank."""
    end = text.rfind("\n", 0, position)
    while end > 0 and text[end - 1] in "\r\n":
        end -= 1
    return text[text.rfind("\n", 0, max(end, 0)) + 1 : max(end, 0)].strip()


def _newline(text: str, position: int) -> str:
    """The line end in use around a position."""
    end = text.find("\n", position)
    end = end if end >= 0 else text.rfind("\n", 0, position)
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


def _margin_of(text: str, neighbour: Node) -> tuple[int, int, str]:
    """The position and the column of a key or an item, and the line end in use there."""
    mark = neighbour.start_mark
    return mark.index, mark.column, _newline(text, mark.index)


def _block_splice(margin: tuple[int, int, str], value: Any, short: str) -> Splice:
    """Inserts lines before a key or an item, indented as it is."""
    at, column, newline = margin
    indentation = newline + " " * column
    text = newline.join(block(value, column)).lstrip(" ")  # the first line stands at the position already
    return Splice(at, text + indentation, short=short + indentation)


def _appended(document: Document, edit: Edit) -> Splice:
    """Adds a document behind the last one, in the style of the first."""
    newline = _newline(document.text, document.start)
    first = _existing(document, (0,))
    if isinstance(first, CollectionNode) and first.flow_style:
        return Splice(document.end, f"{newline}--- {inline(document, edit.value)}")
    lead = "" if document.text[: document.end].endswith("\n") else newline
    return Splice(document.end, lead + newline.join(["---", *block(edit.value, 0), ""]))


def block(value: Any, column: int) -> Sequence[str]:
    """Lines of block-style YAML for a mapping or list that is not empty, every line indented to ``column``."""
    lines: list[str] = []
    indent = " " * column
    _write(value, indent, indent, lines)
    return lines


def _write(value: Any, lead: str, indent: str, lines: list[str]) -> None:
    """Append the lines of a value: the first begins with ``lead``, the others with ``indent``."""
    inner = f"{indent}  "
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, str) and not _fits_block(item):
                lines.append(f"{lead}{_scalar(key)}: {_scalar(item)}")
            elif isinstance(item, str):
                lines.append(f"{lead}{_scalar(key)}: |")
                lines += [f"{inner}{line}" for line in item.splitlines()]
            elif item and isinstance(item, dict | list):
                lines.append(f"{lead}{_scalar(key)}:")
                below = inner if isinstance(item, dict) else indent
                _write(item, below, below, lines)
            else:
                lines.append(f"{lead}{_scalar(key)}: {flow(item)}")
            lead = indent
        return
    for item in value:
        if item and isinstance(item, dict | list):
            _write(item, f"{lead}- ", inner, lines)
        else:
            lines.append(f"{lead}- {flow(item)}")
        lead = indent


def _fits_block(text: str) -> bool:
    """Whether a text can be written as a literal block: whole lines of printable characters, the first of them not indented."""
    if not text.endswith("\n"):
        return False
    lines = text.split("\n")
    return len(lines) > 2 and text[0] != " " and all(line and line.isprintable() for line in lines[:-1])


def inline(document: Document, value: Any) -> str:
    """A value in one line: as JSON in a document that is JSON, else in flow style."""
    return _json(value) if document.is_json else flow(value)


def flow(value: Any) -> str:
    """A value as one line of flow-style YAML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return _scalar(value)


@lru_cache(maxsize=4096, typed=True)
def _scalar(value: Any) -> str:
    """A scalar that every YAML reader reads alike: plain if it looks like a word or a path, else quoted."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if isinstance(value, str) and '"' in value and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text else text.replace("e", ".0e")  # YAML 1.1 reads 1e+16 as a text
    return _json(value)


def is_quoted(scalar: str, text: str) -> bool:
    """Whether ``scalar`` is ``text`` in quotes, on one line, so that it is read as that text wherever it stands."""
    if scalar.startswith("'"):
        return text.isprintable() and scalar == "'" + text.replace("'", "''") + "'"
    return scalar.startswith('"') and bool(json.loads(scalar) == text)


def _json(value: Any) -> str:
    """JSON that is also YAML: characters that YAML does not allow are escaped."""
    return _NOT_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", _JSON.encode(value))


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
    for removal in sorted(removals, key=lambda r: _start_of(document, r.path), reverse=True):
        text = _cut_once(document, text, removal)
    if _reads_as(text, document, expected):
        return text
    written = document.serialize(expected).rstrip("\n")
    end = "" if document.is_flow else "\n"  # a block document ends behind its line end
    text = document.text[: document.start] + written + end + document.text[document.end :]
    if not _reads_as(text, document, expected):
        raise document.problem((), "cannot be unplaced: the text that is left would not have the expected values")
    return text


def _start_of(document: Document, path: Path) -> int:
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
