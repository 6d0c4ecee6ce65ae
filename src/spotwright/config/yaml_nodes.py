"""A YAML document as nodes that keep their line and their text as written.

Values of a YAML loader lose both: ``1.30`` becomes 1.3, ``no`` becomes false, and messages cannot name a line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

__all__ = ["Entry", "Items", "Node", "Scalar", "Table", "kind_of", "plain"]

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?(?:[0-9]{1,18}\.[0-9]{0,18}|\.[0-9]{1,18})")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), "null"),
    **dict.fromkeys((word for base in ("true", "yes", "on") for word in (base, base.title(), base.upper())), "bool"),
    **dict.fromkeys((word for base in ("false", "no", "off") for word in (base, base.title(), base.upper())), "bool"),
}


class Scalar(NamedTuple):
    """A single value: its text as written, and its type by YAML 1.1."""

    line: int
    text: str
    kind: str  # null | bool | int | float | str


class Items(NamedTuple):
    """A list."""

    line: int
    nodes: tuple[Node, ...]


class Entry(NamedTuple):
    """A value in a mapping, with the line of its key."""

    line: int
    node: Node


class Table(NamedTuple):
    """A mapping; its keys are always text."""

    line: int
    entries: Mapping[str, Entry]


Node: TypeAlias = Scalar | Items | Table


def kind_of(text: str) -> str:
    """Type of an unquoted text by YAML 1.1. Octal, sexagesimal and other rare numbers stay text, and so are refused."""
    word = _WORDS.get(text)
    if word is not None:
        return word
    if _INT.fullmatch(text):
        return "int"
    return "float" if _FLOAT.fullmatch(text) else "str"


def plain(node: Node) -> Any:
    """Return the node as Python values: dictionaries, lists, text, numbers, booleans and ``None``."""
    if isinstance(node, Table):
        return {key: plain(entry.node) for key, entry in node.entries.items()}
    if isinstance(node, Items):
        return [plain(item) for item in node.nodes]
    if node.kind == "int":
        return int(node.text)
    if node.kind == "float":
        return float(node.text)
    if node.kind == "bool":
        return node.text.lower() in ("true", "yes", "on")
    return None if node.kind == "null" else node.text
