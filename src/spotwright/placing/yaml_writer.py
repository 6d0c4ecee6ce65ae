"""Turn edits into insertions at the parser's positions, and remove values again.

A key is inserted before an existing key, an item before the first item, in the style of its surroundings: so all other
comments, quoting, order and line ends stay. A replaced scalar's old text is kept for the undo. Keys are never inserted at the
end of a mapping, because the parser's end marks lie behind later comments and blank lines.

Values are removed one by one from a document that another tool has reformatted.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

from spotwright.placing.aliases import MAX_WRITTEN_OUT, AsWritten, InLine, WriteOut, content_start, sharing
from spotwright.placing.documents import Document, ManifestError, Path
from spotwright.placing.patch import STAND_IN, Edit, RemarkedNumber, RemarkedText, Splice, clone, value_at
from spotwright.yaml_composer import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode, anchor_of

__all__ = [
    "Removal",
    "apply",
    "block",
    "flow",
    "in_brief",
    "inline",
    "is_quoted",
    "remove",
    "splices",
    "within_block",
]


def within_block(text: str, node: Node, value: str, inner: Sequence[Splice]) -> list[Splice] | None:
    """Changes of a block's ``value`` as changes of the file's ``text``; ``None`` if the lines of the two do not correspond."""
    begin = text.find("\n", content_start(text, node)) + 1
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
    """The changes of the text that make the edits, by position; at one position insertions in the order of the edits.

    A document with aliases also has changes without an edit, which write values out (with edits of kind ``write``), and edits
    that other edits cover, whose changes are empty.
    """
    writer = _Writer(document)
    if document.shared:
        pairs = _shared_splices(writer, document, edits)
    else:
        pairs = [(edit, change) for edit in edits for change in writer.changes(edit)]
    pairs.sort(key=_position)
    for index, ((edit, change), (later, _)) in enumerate(pairwise(pairs)):
        if change.ends_flow and edit.path[:-1] == later.path[:-1]:
            pairs[index] = (
                edit,
                change._replace(text=f"{change.text}, "),
            )  # the next key needs a comma before it
    return pairs


def _shared_splices(writer: _Writer, document: Document, edits: Sequence[Edit]) -> list[tuple[Edit, Splice]]:
    """The changes of a document with aliases. None has a short form, because an alias repeats the value at its anchor."""
    shared = sharing(document, edits)
    pairs = [(edit, change) for edit in shared.edits for change in writer.changes(edit)]
    pairs += [(edit, Splice(document.start, "")) for edit in shared.silent]
    length = 0
    for one in shared.written:
        written = list(writer.write_out(one))
        length += sum(len(change.text) for _, change in written)
        if length > MAX_WRITTEN_OUT:
            raise document.problem(
                one.path, f"more than {MAX_WRITTEN_OUT:,} characters that aliases share would be written out"
            )
        pairs += written
    return [(edit, change._replace(short="")) for edit, change in pairs]


def _position(pair: tuple[Edit, Splice]) -> tuple[int, bool]:
    return pair[1].at, bool(pair[1].old)


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
    """Writes the edits of one document. The position of new keys is looked up once per mapping."""

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
        old = document.text[start:end].rstrip()  # a block's end mark is behind its line end
        return [Splice(start, f"{_before(node)}{inline(document, edit.value)}", old)]

    def _into_mapping(self, edit: Edit) -> Splice:
        document, key = self._document, str(edit.path[-1])
        parent, text = _existing(document, edit.path[:-1]), document.text
        if not isinstance(parent, MappingNode):
            raise document.problem(edit.path[:-1], "expected a mapping")
        if key in parent.keys:  # a null under this key
            existing = _existing(document, edit.path)
            start, end = existing.start_mark.index, existing.end_mark.index
            space = "" if start and text[start - 1] in " \t\n" else " "
            return Splice(start, f"{space}{_before(existing)}{inline(document, edit.value)}", text[start:end])
        return self._new_key(parent, key, edit.value)

    def _new_key(self, parent: MappingNode, key: str, value: Any) -> Splice:
        document = self._document
        if not parent.flow_style:
            return _block_splice(self._margin(parent), {key: value}, f"{_scalar(key)}: {STAND_IN}")
        entry = f"{inline(document, key)}: {inline(document, value)}"
        if not parent.value:
            return Splice(content_start(document.text, parent) + 1, entry, ends_flow=True)
        return Splice(parent.value[0][0].start_mark.index, f"{entry}, ")

    def _margin(self, parent: MappingNode) -> tuple[int, int, str]:
        margin = self._margins.get(id(parent))
        if margin is None:
            key = _uncommented(self._document, parent.value)
            margin = self._margins[id(parent)] = _margin_of(self._document.text, key)
        return margin

    def _into_list(self, edit: Edit) -> Splice:
        document, node = self._document, _existing(self._document, edit.path)
        start = content_start(document.text, node)
        if isinstance(node, CollectionNode) and node.flow_style:
            items = ", ".join(inline(document, item) for item in edit.value)
            first = node.value[0].start_mark.index if node.value else 0  # an alias has the position of its anchor
            return Splice(max(first, start + 1), f"{items}, " if node.value else items)
        column = start - document.text.rfind("\n", 0, start) - 1
        return _block_splice((start, column, _newline(document.text, start)), edit.value, f"- {STAND_IN}")

    def write_out(self, one: WriteOut) -> Iterator[tuple[Edit, Splice]]:
        """The changes that write a value out."""
        if one.kind == "key" and isinstance(one.parent, MappingNode):
            yield Edit("write", one.path, None), self._new_key(one.parent, str(one.path[-1]), one.value)
        elif one.kind == "merge":
            yield from self._in_place_of_merge(one)
        else:
            yield Edit("write", one.path, None), self._in_place_of_alias(one)

    def _in_place_of_alias(self, one: WriteOut) -> Splice:
        text, start, end = self._document.text, one.start, one.end
        if one.parent.flow_style:
            return Splice(start, flow(one.value), text[start:end])
        rest, newline = _rest_of_line(text, end), _newline(text, end)
        if isinstance(one.parent, SequenceNode):
            is_long = isinstance(one.value, dict | list) and one.value
            lines = block(one.value, one.column) if is_long else [flow(one.value)]
            new = newline.join(lines).lstrip(" ")
            lead = f"{rest.strip()}{newline}{' ' * one.column}" if len(lines) > 1 and rest.strip() else ""
            new = f"{lead}{new}"
        else:
            lines = block({"": one.value}, one.column)
            head = lines[0][one.column + len('"":') :]
            while text[start - 1] == " ":
                start -= 1
            if text[start - 1] != ":":  # the alias has its own line
                start, head = one.start, head.lstrip(" ")
            remark = f" {rest.strip()}" if len(lines) > 1 and rest.strip() else ""
            new = newline.join([head + remark, *lines[1:]])
        if len(lines) == 1:
            return Splice(start, new, text[start:end])
        return Splice(start, new + _at_the_end(text, end), text[start : end + len(rest)])

    def _in_place_of_merge(self, one: WriteOut) -> Iterator[tuple[Edit, Splice]]:
        text, keys, path, is_flow = self._document.text, one.value, one.path, one.parent.flow_style
        if not keys:
            yield Edit("write", (*path, "<<"), None), Splice(one.start, "<<: {}", text[one.start : one.end])
            return
        newline, rest = _newline(text, one.end), _rest_of_line(text, one.end)
        between = ", " if is_flow else newline + " " * one.column
        remark = "" if is_flow else rest.lstrip(" ")
        old = text[one.start : one.end + (len(rest) - len(remark) if remark else 0)]
        behind = between if remark else "" if is_flow else _at_the_end(text, one.end)
        entries = [
            flow({key: value})[1:-1] if is_flow else newline.join(block({key: value}, one.column)).lstrip(" ")
            for key, value in keys.items()
        ]
        for number, (key, entry) in enumerate(zip(keys, entries, strict=True), 1):
            is_last = number == len(keys)
            splice = Splice(one.start, entry + (behind if is_last else between), old if is_last else "")
            yield Edit("write", (*path, str(key)), None), splice


def _rest_of_line(text: str, position: int) -> str:
    """The text up to the line end, without spaces before it."""
    end = text.find("\n", position)
    return text[position : end if end >= 0 else len(text)].rstrip()


def _at_the_end(text: str, position: int) -> str:
    """A line end where a block would be the end of a text that has none."""
    return "" if text.find("\n", position) >= 0 else "\n"


def _before(node: Node) -> str:
    """The anchor of a node, to write before a new value; empty without one."""
    return "" if anchor_of(node) is None else f"&{anchor_of(node)} "


def _existing(document: Document, path: Path) -> Node:
    node = document.node(path)
    if node is None:
        raise document.problem(path, "is not there")
    return node


def _uncommented(document: Document, pairs: Sequence[tuple[Node, Node]]) -> Node:
    """The key before which new keys are inserted: the first without a comment above it, so that comments stay with their keys.

    The second key is preferred, so that a container still begins with its ``name``.
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


def _margin_of(text: str, key: Node) -> tuple[int, int, str]:
    """The position and the column of a key, with the ``?`` before it if it has one, and the line end in use there."""
    mark = key.start_mark
    head = text[text.rfind("\n", 0, mark.index) + 1 : mark.index]
    back = len(head) - head.rindex("?") if head.split()[-1:] == ["?"] else 0
    return mark.index - back, mark.column - back, _newline(text, mark.index)


def _block_splice(margin: tuple[int, int, str], value: Any, short: str) -> Splice:
    """Inserts lines before a key or an item, indented as it is."""
    at, column, newline = margin
    indentation = newline + " " * column
    text = newline.join(block(value, column)).lstrip(" ")  # the first line is already at the position
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
    """Lines of block-style YAML for a mapping or list that is not empty, each indented to ``column`` unless it is empty."""
    lines: list[str] = []
    indent = " " * column
    _write(value, indent, indent, lines)
    return lines


def _write(value: Any, lead: str, indent: str, lines: list[str]) -> None:
    """Append the lines of a value: the first begins with ``lead``, the others with ``indent``."""
    inner = f"{indent}  "
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, str) and item[-1:] == "\n" and _fits_block(item):
                lines.append(f"{lead}{_scalar(key)}: |")
                lines += _block_lines(item, inner)
            elif isinstance(item, str):  # most have one line
                lines.append(f"{lead}{_scalar(key)}: {_scalar(item)}{_remark(item)}")
            elif item and isinstance(item, dict | list):
                lines.append(f"{lead}{_scalar(key)}:")
                below = inner if isinstance(item, dict) else indent
                _write(item, below, below, lines)
            else:
                lines.append(f"{lead}{_scalar(key)}: {flow(item)}{_remark(item)}")
            lead = indent
        return
    for item in value:
        if item and isinstance(item, dict | list):
            _write(item, f"{lead}- ", inner, lines)
        elif isinstance(item, str) and _fits_block(item):
            lines.append(f"{lead}- |")
            lines += _block_lines(item, inner)
        else:
            lines.append(f"{lead}- {flow(item)}")
        lead = indent


def _remark(value: Any) -> str:
    """The comment behind a value that has one."""
    return f"  # {value.remark}" if isinstance(value, RemarkedText | RemarkedNumber) else ""


def _fits_block(text: str) -> bool:
    """Whether a text can be a literal block: whole lines of printable characters, the first one not indented.

    Neither the first nor the last line is empty.
    """
    if not text.endswith("\n") or text.endswith("\n\n") or text[0] in " \n":
        return False
    lines = text.split("\n")
    return len(lines) > 2 and all(map(str.isprintable, lines))


def _block_lines(text: str, indent: str) -> list[str]:
    return [indent + line if line else "" for line in text.split("\n")[:-1]]


def inline(document: Document, value: Any) -> str:
    """A value in one line: as JSON in a document that is JSON, else in flow style."""
    return _json(value) if document.is_json else flow(value)


def flow(value: Any) -> str:
    """A value as one line of flow-style YAML."""
    if isinstance(value, InLine):
        return f"{value.tag} {flow(value.value)}".lstrip(" ")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return _scalar(value)


@lru_cache(maxsize=4096, typed=True)
def _scalar(value: Any) -> str:
    """A scalar that every YAML reader reads alike: plain if it looks like a word or a path, else quoted."""
    if isinstance(value, AsWritten):
        return str(value)
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if isinstance(value, str) and '"' in value and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text else text.replace("e", ".0e")  # YAML 1.1 reads 1e+16 as a string
    return _json(value)


def is_quoted(scalar: str, text: str) -> bool:
    """Whether ``scalar`` is ``text`` in quotes on one line, which is read alike everywhere."""
    if scalar.startswith("'"):
        return text.isprintable() and scalar == "'" + text.replace("'", "''") + "'"
    return scalar.startswith('"') and bool(json.loads(scalar) == text)


def _json(value: Any) -> str:
    """JSON that is also YAML: characters that YAML forbids are escaped."""
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
    once = {_place_of(document, removal): removal for removal in removals}
    for removal in sorted(once.values(), key=lambda r: _start_of(document, r.path), reverse=True):
        text = _cut_once(document, text, removal)
    if _reads_as(text, document, expected):
        return text
    margin = " " * document.root.start_mark.column  # of an item of a list
    written = document.serialize(expected).rstrip("\n").replace("\n", f"\n{margin}")
    end = "" if document.is_flow else "\n"  # a block document includes its line end
    text = document.text[: document.start] + written + end + document.text[document.end :]
    if not _reads_as(text, document, expected):
        raise document.problem((), "cannot be unplaced: the text that is left would not have the expected values")
    return text


def _place_of(document: Document, removal: Removal) -> tuple[Any, ...]:
    """Where a removal is made: several paths lead there if the value is shared by an alias."""
    path = removal.path
    if removal.items or removal.replacement is not _KEEP:
        return id(document.node(path) or removal), *removal.items
    return id(document.node(path[:-1]) or removal), path[-1:]


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
    """Make one removal. The text is parsed again, because earlier removals have moved the positions."""
    try:
        current = document.reparse(text)
    except ManifestError:
        return text  # the final comparison notices
    node = current.node(removal.path) if current is not None else None
    if current is None or node is None or not current.start <= node.start_mark.index < current.end:
        return text  # removed at its anchor
    if removal.replacement is not _KEEP:
        within = within_block(text, node, current.get(removal.path), removal.inner) if removal.inner else None
        return apply(text, within or [_replacing(current, node, removal.replacement)])
    if removal.items:
        return apply(text, _without_items(current, node, removal.items))
    parent = current.node(removal.path[:-1])
    if not isinstance(parent, MappingNode):
        return apply(text, [_without_document(text, node)])
    return apply(text, _without_key(current, parent, str(removal.path[-1])))


def _replacing(document: Document, node: Node, value: Any) -> Splice:
    start, end = node.start_mark.index, _end(document, node)
    old = document.text[start:end]
    is_block = isinstance(node, ScalarNode) and node.style in ("|", ">")  # its end mark is behind the line end
    new = "" if value is None else inline(document, value)
    return Splice(start, (_before(node) + new).strip(), old.rstrip() if is_block else old)


def _without_key(document: Document, parent: MappingNode, key: str) -> list[Splice]:
    """Removes a key of a mapping; none if it is only merged into it."""
    text, entries = document.text, parent.value
    index = next((i for i, (name, _) in enumerate(entries) if name.value == key), None)
    if index is None:
        return []
    if len(entries) == 1:
        start, end = content_start(text, parent), _end(document, parent)
        return [Splice(start, "{}", text[start:end])]
    if index + 1 < len(entries):
        start, end = entries[index][0].start_mark.index, entries[index + 1][0].start_mark.index
    else:
        start, end = (_extent(document, value, key.end_mark.index)[1] for key, value in entries[index - 1 :])
    return [Splice(start, "", text[start:end])]


def _without_document(text: str, node: Node) -> Splice:
    """Removes the last document of a file with its separator line."""
    start, end = text.rindex("---", 0, node.start_mark.index + 1), node.end_mark.index
    return Splice(start, "", text[start:end])


_SPACE = re.compile(r"(?:\s+|#.*)*")


def _without_items(document: Document, node: Node, items: Sequence[int]) -> list[Splice]:
    text, children = document.text, node.value
    if len(items) == len(children):
        return [_emptied(document, node)]
    is_flow = isinstance(node, CollectionNode) and node.flow_style
    position = content_start(text, node)
    starts, ends = [], []
    for child in children:
        start, end = _extent(document, child, position)
        space = _SPACE.match(text, position)  # an item of a block begins with its dash
        starts.append(start if is_flow or space is None else space.end())
        ends.append(end)
        position = end
    kept = max(index for index in range(len(children)) if index not in items)
    cuts = [(starts[index], starts[index + 1]) for index in items if index < kept]
    if kept + 1 < len(children):
        cuts.append((ends[kept], ends[-1]))
    return [Splice(start, "", text[start:end]) for start, end in cuts]


def _emptied(document: Document, node: Node) -> Splice:
    """Empties a list. A block list may begin in the column of its key, where ``[]`` may not stand."""
    text = document.text
    start, end = content_start(text, node), _end(document, node)
    if isinstance(node, CollectionNode) and node.flow_style:
        return Splice(start, "[]", text[start:end])
    key = len(text[:start].rstrip())
    if text[key - 1] == ":":
        return Splice(key, " []", text[key:end])
    return Splice(start, "  []", text[start:end])


def _extent(document: Document, node: Node, position: int) -> tuple[int, int]:
    """The extent of the value at or behind a position: the node itself, or an alias of it."""
    if node.start_mark.index < position and id(node) in document.shared:
        for alias in document.shared[id(node)].aliases:
            if alias.start_mark.index >= position:
                return alias.start_mark.index, alias.end_mark.index
    return node.start_mark.index, _end(document, node)


def _end(document: Document, node: Node) -> int:
    """The position behind a value. The parser's end mark of a collection lies behind later comments and blank lines."""
    if isinstance(node, ScalarNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1][1] if isinstance(node, MappingNode) else node.value[-1]
    aliases = document.shared[id(last)].aliases if id(last) in document.shared else []
    inside = [
        one.end_mark.index for one in aliases if node.start_mark.index < one.start_mark.index < node.end_mark.index
    ]
    return int(inside[-1]) if inside else _end(document, last)


def _reads_as(text: str, document: Document, expected: Any) -> bool:
    try:
        current = document.reparse(text)
    except ManifestError:
        return False
    return bool(current is not None and current.get(()) == expected)
