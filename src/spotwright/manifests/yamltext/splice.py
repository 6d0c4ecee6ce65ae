"""Turn edits into insertions at the parser's positions.

A key is inserted before an existing key, an item before the first item, in the style of its surroundings: so comments, quoting,
order and line ends of everything else stay as they are. A replaced scalar keeps its old text for the way back. Nothing is
inserted at the end of a mapping, because the parser's end marks lie behind later comments and blank lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from spotwright.manifests.yamltext.block_scalars import within_block
from spotwright.manifests.yamltext.documents import Document, Path
from spotwright.manifests.yamltext.edits import STAND_IN, Edit, Splice
from spotwright.yaml_composer import CollectionNode, MappingNode, Node

__all__ = ["apply", "block", "flow", "in_brief", "inline", "is_quoted", "splices"]

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
