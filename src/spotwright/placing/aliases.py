"""Which aliases and merge keys of an edited document stay, and which values are written out.

A value with an anchor is written once and counts in several places. An edit is made at the anchor, and an alias stays if its
place needs the same value afterwards. Otherwise the alias is replaced by its value; the anchor and all other aliases stay. A
merged key that needs another value is written into its own mapping, which wins over the merge key. A merge key that would bring
in an unwanted key is replaced by the keys that it brought before.

The copy keeps the spelling of the text: scalars as they are written there, and parts with their own anchors
as aliases.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from spotwright.placing.documents import Document, Path
from spotwright.placing.patch import Edit, edited, is_same
from spotwright.yaml_composer import (
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    anchor_of,
    anchored,
    data_of,
    is_merge,
    value_of,
)

__all__ = [
    "MAX_WRITTEN_OUT",
    "AsWritten",
    "InLine",
    "Sharing",
    "WriteOut",
    "as_written",
    "content_start",
    "refuse_changed",
    "remedy",
    "sharing",
]


MAX_WRITTEN_OUT = 20_000_000
"""The most characters of shared values that are written out in one document, or repeated for the items of one list."""


def remedy(file: str) -> str:
    """The command for a file in which an alias can neither stay nor be written out.

    Source: mikefarah/yq, "Anchor and Alias Operators"; without the flag a merge key would win over keys beside it.
    """
    command = f"yq --yaml-fix-merge-anchor-to-spec -i 'explode(.)' {shlex.quote(file)}"
    return f"write its aliases out first, with mikefarah's yq 4.47 or later: {command}"


class AsWritten(str):
    """YAML in one line that is written as it is: a scalar as spelled in the text, or an alias."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class InLine:
    """A value that is written in one line, behind its tag (``!vault``) if it has one."""

    tag: str
    value: Any


class WriteOut(NamedTuple):
    """A value to write into the text in place of an alias, so that it counts at ``path`` alone.

    ``kind``: it replaces an ``alias``, is a new ``key`` beside a merge key, or a mapping that replaces a ``merge`` key. ``start``
    and ``end`` are the extent of what it replaces in the text, ``column`` is that of the key or the item. ``parent`` is the
    mapping or the list around it.
    """

    kind: str  # alias | key | merge
    path: Path
    value: Any
    parent: MappingNode | SequenceNode
    start: int = 0
    end: int = 0
    column: int = 0


@dataclass(slots=True)
class Sharing:
    """Where the edits of a document with aliases are made.

    ``edits`` are made in place. ``silent`` are made with others: inside a value that is written out, or at the anchor of
    an alias that stays.
    """

    edits: list[Edit] = field(default_factory=list)
    silent: list[Edit] = field(default_factory=list)
    written: list[WriteOut] = field(default_factory=list)


def sharing(document: Document, edits: Sequence[Edit]) -> Sharing:
    """Sort the edits of a document, and find what has to be written out."""
    walk = _Walk(document, edits)
    walk.visit(document.root, (), walk.data)
    result = Sharing(written=walk.written)
    for edit in edits:
        is_covered = any(edit.path[:length] in walk.covered for length in range(len(edit.path) + 1))
        (result.silent if is_covered else result.edits).append(edit)
    return result


def refuse_changed(document: Document) -> None:
    """Refuse a document that is not edited and so has no record, but has an alias of a value outside that was edited.

    Raises :class:`ManifestError`.
    """
    for one in sharing(document, ()).written if document.foreign else ():
        raise document.problem(
            one.path, f"this shares an anchor with another object, which is changed; {remedy(document.file)}"
        )


def as_written(text: str, node: Node) -> Any:
    """The value of a node of a text for the writer, with its scalars as spelled in the text, without aliases."""
    return _Copier(text, Counter(), {}).content(node, data_of(node), 0)


_NOWHERE: Path = ("<<",)  # the path of everything inside a merge key


class _Walk:
    """Visits the nodes of a document in the order of the text, with the values that they have after the edits.

    ``finals`` has these values of the nodes with an anchor met so far. A node that is met again is there through an alias.
    ``covered`` are paths whose edits are made elsewhere; the path is ``None`` inside a merge key, where no path leads.
    """

    def __init__(self, document: Document, edits: Sequence[Edit]) -> None:
        self.data = edited(document.get(()), edits)
        self.covered: set[Path] = set()
        self.written: list[WriteOut] = []
        self._shared = document.shared
        self._new_items = {edit.path: len(edit.value) for edit in edits if edit.kind == "extend"}
        self._finals: dict[int, Any] = dict(document.foreign)
        self._met: Counter[int] = Counter()
        self._end = 0  # of the scalar, alias or flow collection that was visited last
        names = Counter(name for name, _ in anchored(document.root))
        self._copy = _Copier(document.text, names, self._finals)
        self._text = document.text

    def visit(self, node: Node, path: Path | None, value: Any) -> None:
        """Visit a node in the text itself."""
        if isinstance(node, MappingNode):
            self._mapping(node, path, value if isinstance(value, dict) else node.data)
        elif isinstance(node, SequenceNode):
            items = value if isinstance(value, list) else node.data
            first = self._new_items.get(path, 0) if path is not None else 0
            for index, child in enumerate(node.value):
                event = self._alias(child)
                below = None if path is None else (*path, index)
                column = 0 if event is None else event.start_mark.column
                self._slot(node, child, event, below, items[first + index], column)
        if isinstance(node, ScalarNode) or node.flow_style:
            end = int(node.end_mark.index)
            is_block = isinstance(node, ScalarNode) and node.style in (
                "|",
                ">",
            )  # its end mark is behind the line end
            self._end = (
                len(self._text[node.start_mark.index : end].rstrip()) + node.start_mark.index if is_block else end
            )
        if anchor_of(node) is not None:
            self._finals[id(node)] = value

    def _alias(self, node: Node) -> Any:
        """The event of the alias here; ``None`` if the node itself is here."""
        if id(node) not in self._shared or id(node) not in self._finals:
            return None
        event = self._shared[id(node)].aliases[self._met[id(node)]]
        self._met[id(node)] += 1
        self._end = int(event.end_mark.index)
        return event

    def _slot(
        self, parent: MappingNode | SequenceNode, child: Node, event: Any, path: Path | None, value: Any, column: int
    ) -> None:
        """Visit a value of a mapping or an item of a list, which may be an alias."""
        if event is None:
            self.visit(child, path, value)
            return
        if path is not None:
            self.covered.add(path)
        if not is_same(value, self._finals[id(child)]):
            start, end = event.start_mark.index, event.end_mark.index
            copy = self._copy.content(child, value, start)
            self.written.append(WriteOut("alias", _NOWHERE if path is None else path, copy, parent, start, end, column))

    def _mapping(self, node: MappingNode, path: Path | None, value: dict[str, Any]) -> None:
        merges: list[tuple[ScalarNode, int]] = []
        brought: dict[str, Any] = {}
        own = set()
        for key, child in node.value:
            if not isinstance(key, ScalarNode):
                continue  # a strict composer refuses it
            if anchor_of(key) is not None:
                self._finals[id(key)] = value_of(key)
            if is_merge(key):
                for source in self._sources(child):
                    brought = {**source, **brought}
                merges.append((key, self._end))
            else:
                own.add(key.value)
                below = None if path is None else (*path, key.value)
                self._slot(node, child, self._alias(child), below, value[key.value], key.start_mark.column)
        brought = {name: item for name, item in brought.items() if name not in own}
        if brought.keys() <= value.keys():
            self._keep_merges(node, path, value, brought)
        else:
            self._write_merges(node, path, {name: value[name] for name in node.keys if name not in own}, merges)

    def _keep_merges(
        self, node: MappingNode, path: Path | None, value: dict[str, Any], brought: dict[str, Any]
    ) -> None:
        """Keep the merge keys of a mapping. Keys that need other values than these bring are written beside them."""
        for name, item in brought.items():
            if path is not None:
                self.covered.add((*path, name))
            if not is_same(value[name], item):
                copy = self._copied(node, name, value[name], node.start_mark.index)
                self.written.append(WriteOut("key", (*(_NOWHERE if path is None else path), name), copy, node))

    def _write_merges(
        self, node: MappingNode, path: Path | None, values: dict[str, Any], merges: Sequence[tuple[ScalarNode, int]]
    ) -> None:
        """Write the merged keys of a mapping in place of its first merge key; further ones have no effect."""
        if path is not None:
            self.covered |= {(*path, name) for name in values}
        copies: dict[Any, Any] = {}
        for name, item in values.items():
            copies[self._copy.key(node.keys[name][0])] = self._copied(node, name, item, node.start_mark.index)
        for key, end in merges:
            mark = key.start_mark
            self.written.append(
                WriteOut("merge", _NOWHERE if path is None else path, copies, node, mark.index, end, mark.column)
            )
            copies = {}

    def _copied(self, node: MappingNode, name: str, value: Any, before: int) -> Any:
        pair = node.keys.get(name)
        return value if pair is None else self._copy.copy(pair[1], value, before)

    def _sources(self, node: Node) -> Iterator[dict[str, Any]]:
        """The values that a merge key brings in after the edits, the strongest first."""
        if self._alias(node) is not None:
            merged = self._finals[id(node)]
            yield from (one for one in (merged if isinstance(merged, list) else [merged]) if isinstance(one, dict))
        elif isinstance(node, SequenceNode):
            for child in node.value:
                yield from self._sources(child)
            if node.flow_style:
                self._end = node.end_mark.index
            if anchor_of(node) is not None:
                self._finals[id(node)] = node.data
        else:
            self.visit(node, None, data_of(node))
            if isinstance(node, MappingNode):
                yield node.data


_PROPERTIES = re.compile(r"(?:[&!]\S*(?:\s+(?:#.*\s+)*|$))*")  # an anchor and a tag before a value, and comments
_AMBIGUOUS = frozenset(",[]{}")  # characters that end a plain scalar in flow style


@dataclass(frozen=True, slots=True)
class _Copier:
    """Copies values as spelled in a text. ``names`` counts its anchors by name, ``finals`` are the values of those met."""

    text: str
    names: Counter[str]
    finals: dict[int, Any]

    def copy(self, node: Node, value: Any, before: int) -> Any:
        """A value as its node is written; an alias of the node if that is possible at a position of the text."""
        name = anchor_of(node)
        is_known = name is not None and self.names[name] == 1 and node.start_mark.index < before
        if is_known and id(node) in self.finals and is_same(self.finals[id(node)], value):
            return AsWritten(f"*{name}")
        return self.content(node, value, before)

    def content(self, node: Node, value: Any, before: int) -> Any:
        """A value as its node is written, with aliases only inside."""
        if isinstance(node, ScalarNode):
            return self._scalar(node) if is_same(value_of(node), value) else value
        copy = value
        if isinstance(node, MappingNode) and isinstance(value, dict):
            pairs = {name: node.keys.get(name) for name in value}
            copy = {
                self.key(pair[0]) if pair else name: self.copy(pair[1], value[name], before) if pair else value[name]
                for name, pair in pairs.items()
            }
        elif isinstance(node, SequenceNode) and isinstance(value, list) and len(value) >= len(node.value):
            new = len(value) - len(node.value)
            copy = [*value[:new], *map(self.copy, node.value, value[new:], [before] * len(node.value))]
        is_block = node.start.tag is None and not node.flow_style
        return copy if is_block else InLine(self._split(node)[0], copy)

    def key(self, node: ScalarNode) -> Any:
        """A key as it is written."""
        written = self._scalar(node)
        return written if isinstance(written, AsWritten) else str(node.value)

    def _scalar(self, node: ScalarNode) -> Any:
        """A scalar as it is written, if that is one line which reads alike in block and flow style."""
        tag, content = self._split(node)
        if tag:
            return InLine(tag, node.value)
        is_short = node.style not in ("|", ">") and not {"\n", "\r"} & set(content) and content
        if not is_short or (not node.style and _AMBIGUOUS & set(content)):
            return value_of(node)
        return AsWritten(content)

    def _split(self, node: Node) -> tuple[str, str]:
        """The tag of a node as it is written, and the text behind its anchor and tag."""
        start = content_start(self.text, node)
        words = self.text[node.start_mark.index : start].split()
        return next((word for word in words if word[0] == "!"), ""), self.text[start : node.end_mark.index]


def content_start(text: str, node: Node) -> int:
    """The position of a value behind its anchor and its tag."""
    properties = _PROPERTIES.match(text, node.start_mark.index, node.end_mark.index)
    return properties.end() if properties is not None else node.start_mark.index
