"""Edits as text: insertions at the marks of the parser, and nothing else.

A key is inserted before a key that is there, an item before the first item, in the style that the place has: so comments,
quoting, order and line ends of everything else stay as they are. A replaced scalar keeps its old text in the inverse. The end
of a mapping is never used: the parser's end marks lie behind comments and blank lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from spotwright.manifests.documents import Document, Path
from spotwright.manifests.edits import STAND_IN, Edit, Splice
from spotwright.manifests.literal import within_block
from spotwright.manifests.nodes import CollectionNode, MappingNode, Node
from spotwright.manifests.remembered import remembered

__all__ = ["apply", "block", "flow", "in_brief", "inline", "splices"]

_JSON = json.JSONEncoder(ensure_ascii=False)
_NOT_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def splices(document: Document, edits: Sequence[Edit]) -> list[tuple[Edit, Splice]]:
    """The changes of the text that the edits mean, by position; those at one position in the order of the edits."""
    pairs = ((edit, change) for edit in edits for change in _changes(document, edit))
    ordered = sorted(pairs, key=lambda pair: pair[1].at)
    for index, ((edit, change), (later, _)) in enumerate(pairwise(ordered)):
        if edit.path[:-1] == later.path[:-1] and _is_empty_flow(document, edit):
            ordered[index] = edit, change._replace(text=f"{change.text}, ")
    return ordered


def _is_empty_flow(document: Document, edit: Edit) -> bool:
    """Whether a key comes into ``{}``, where only the next one tells that a comma is needed."""
    parent = document.node(edit.path[:-1])
    return edit.kind == "add" and isinstance(parent, MappingNode) and bool(parent.flow_style) and not parent.value


def in_brief(change: Splice) -> Splice:
    """The change with a stand-in for its value, where it has one."""
    return Splice(change.at, change.short, change.old) if change.short else change


def apply(text: str, changes: Sequence[Splice]) -> str:
    """Make changes, given by rising position."""
    parts, position = [], 0
    for change in changes:
        parts += [text[position : change.at], change.text]
        position = change.at + len(change.old)
    return "".join([*parts, text[position:]])


def _changes(document: Document, edit: Edit) -> Sequence[Splice]:
    if edit.kind != "embed":
        return [_splice(document, edit)]
    node, old = _existing(document, edit.path), document.get(edit.path)
    within = within_block(document.text, node, old, edit.inner)
    if within is not None:
        return within
    start, end = node.start_mark.index, node.end_mark.index
    return [
        Splice(start, inline(document, edit.value), document.text[start:end].rstrip())
    ]  # a block ends behind its line end


def _splice(document: Document, edit: Edit) -> Splice:
    if edit.kind == "replace":
        node = _existing(document, edit.path)
        start, end = node.start_mark.index, node.end_mark.index
        return Splice(start, inline(document, edit.value), document.text[start:end].rstrip())
    if edit.kind == "extend":
        return _into_list(document, edit)
    if edit.kind == "append":
        return _behind(document, edit)
    return _into_mapping(document, edit)


def _existing(document: Document, path: Path) -> Node:
    node = document.node(path)
    if node is None:
        raise document.problem(path, "is not there")
    return node


def _into_mapping(document: Document, edit: Edit) -> Splice:
    parent, key = _existing(document, edit.path[:-1]), str(edit.path[-1])
    text = document.text
    if not isinstance(parent, MappingNode):
        raise document.problem(edit.path[:-1], "expected a mapping")
    existing = document.node(edit.path)
    if existing is not None:  # a null under this very key
        start, end = existing.start_mark.index, existing.end_mark.index
        space = "" if start and text[start - 1] in " \t\n" else " "
        return Splice(start, f"{space}{inline(document, edit.value)}", text[start:end])
    if parent.flow_style:
        at = parent.start_mark.index + 1
        comma = ", " if parent.value else ""
        if parent.value:
            at = parent.value[0][0].start_mark.index
        return Splice(at, f"{inline(document, key)}: {inline(document, edit.value)}{comma}")
    neighbour = _uncommented(document, [key_node for key_node, _ in parent.value])
    return _block_splice(text, neighbour, {key: edit.value}, f"{_scalar(key)}: {STAND_IN}")


def _uncommented(document: Document, keys: Sequence[Node]) -> Node:
    """The first key without a comment above it, so that a comment stays with the key it speaks of; else the first.

    The second key comes before the first: a container's ``name`` is read at the beginning.
    """
    for key in [*keys[1:], keys[0]]:
        if not _line_above(document.text, key.start_mark.index).startswith("#"):
            return key
    return keys[0]


def _line_above(text: str, position: int) -> str:
    """The last line above a position that has anything in it."""
    end = text.rfind("\n", 0, position)
    while end > 0 and text[end - 1] in "\r\n":
        end -= 1
    return text[text.rfind("\n", 0, max(end, 0)) + 1 : max(end, 0)].strip()


def _newline(text: str, position: int) -> str:
    """How lines end around a position."""
    end = text.find("\n", position)
    end = end if end >= 0 else text.rfind("\n", 0, position)
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


def _into_list(document: Document, edit: Edit) -> Splice:
    node = _existing(document, edit.path)
    text = document.text
    if isinstance(node, CollectionNode) and node.flow_style:
        at = node.value[0].start_mark.index if node.value else node.start_mark.index + 1
        items = ", ".join(inline(document, item) for item in edit.value)
        return Splice(at, f"{items}, " if node.value else items)
    return _block_splice(text, node, edit.value, f"- {STAND_IN}")


def _block_splice(text: str, neighbour: Node, value: Any, short: str) -> Splice:
    """Lines in front of a key or an item, indented as it is."""
    column = neighbour.start_mark.column
    newline = _newline(text, neighbour.start_mark.index)
    behind = newline + " " * column
    lines = newline.join(block(value, column)).lstrip(" ")
    return Splice(neighbour.start_mark.index, lines + behind, short=short + behind)


def _behind(document: Document, edit: Edit) -> Splice:
    """A document behind the last one, in the style of the first."""
    newline = _newline(document.text, document.start)
    first = _existing(document, (0,))
    if isinstance(first, CollectionNode) and first.flow_style:
        return Splice(document.end, f"{newline}--- {inline(document, edit.value)}")
    lead = "" if document.text[: document.end].endswith("\n") else newline
    return Splice(document.end, lead + newline.join(["---", *block(edit.value, 0), ""]))


@remembered
def block(value: Any, column: int) -> Sequence[str]:
    """Lines of block-style YAML for a mapping or list that is not empty, every line indented to ``column``."""
    lines: list[str] = []
    _write(value, " " * column, lines)
    return lines


def _write(value: Any, indent: str, lines: list[str]) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, dict | list) and item:
                lines.append(f"{indent}{_scalar(key)}:")
                _write(item, f"{indent}  " if isinstance(item, dict) else indent, lines)
            elif isinstance(item, str) and _reads_well(item):
                lines.append(f"{indent}{_scalar(key)}: |")
                lines += [f"{indent}  {line}" for line in item.splitlines()]
            else:
                lines.append(f"{indent}{_scalar(key)}: {flow(item)}")
        return
    for item in value:
        if isinstance(item, dict | list) and item:
            first = len(lines)
            _write(item, f"{indent}  ", lines)
            lines[first] = f"{indent}- {lines[first][len(indent) + 2 :]}"
        else:
            lines.append(f"{indent}- {flow(item)}")


def _reads_well(text: str) -> bool:
    """Whether a text can stand as a literal block: whole lines of ordinary characters, the first of them not indented."""
    if not text.endswith("\n"):
        return False
    lines = text.split("\n")
    return len(lines) > 2 and text[0] != " " and all(line and line.isprintable() for line in lines[:-1])


def inline(document: Document, value: Any) -> str:
    """One line that stands for a value in this document: JSON in one that is JSON."""
    return _json(value) if document.is_json else flow(value)


def flow(value: Any) -> str:
    """One line of flow-style YAML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return _scalar(value)


@lru_cache(maxsize=4096, typed=True)
def _scalar(value: Any) -> str:
    """A scalar that every YAML reader takes for what it is: plain where that is plain to see, else JSON."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if isinstance(value, str) and '"' in value and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text else text.replace("e", ".0e")  # YAML 1.1 takes 1e+16 for a text
    return _json(value)


def _json(value: Any) -> str:
    """JSON that is YAML too, which allows fewer characters as they are."""
    return _NOT_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", _JSON.encode(value))
