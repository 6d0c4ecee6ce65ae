"""YAML text to one document of nodes, or to the line where it stops being one.

PyYAML's loader takes the last of two equal keys in silence, follows aliases without a bound and recurses with the document.
So only libyaml's events are used here: equal keys are refused with both lines, depth and size are bounded (an aliased value
counts as often as it is used), and custom types are refused. Anchors, aliases and merge keys (``<<``) mean what they mean
in YAML 1.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import yaml

from spotwright.config.nodes import Entry, Items, Node, Scalar, Table, kind_of
from spotwright.config.problems import Place, Problems, describe

__all__ = ["read"]

MAX_BYTES = 1_000_000  # a thousand pools are 200 kB
MAX_DEPTH = 20  # the deepest field is 5
MAX_NODES = 50_000

_LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_QUOTE_STAR = "a pattern that begins with * needs quotes"
_HINTS = (  # what libyaml says, what helps
    ("alias", _QUOTE_STAR),
    (
        "mapping values are not allowed",
        "a value that holds ': ' needs quotes, and keys of one level stand in one column",
    ),
    ("could not find expected ':'", "write 'key: value', with a space after the colon"),
    ("did not find expected key", "keys of one level stand in one column"),
    ("unexpected end of stream", "a quote is not closed"),
    ("did not find expected ',' or", "a bracket is not closed, or a comma is missing"),
)


def read(text: str, problems: Problems) -> Table:
    """Read the one mapping that the text must be.

    Equal keys and types are noted in ``problems`` and reading goes on. Raises :class:`ConfigError` where it cannot: broken YAML,
    no document or several, something else than a mapping, too deep, or too large.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise problems.stop(0, "", "expected UTF-8 text, found half a surrogate pair") from None
    if size > MAX_BYTES:
        raise problems.stop(0, "", f"expected at most {MAX_BYTES} bytes, found {size}")
    text = text.removeprefix("\ufeff")
    builder = _Builder(problems)
    try:
        builder.feed(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        raise problems.stop(*_broken(error, text)) from None
    except yaml.reader.ReaderError as error:
        line = text.encode()[: error.position].count(b"\n") + 1
        raise problems.stop(line, "", f"not valid YAML: {error.reason} (character {error.character!r})") from None
    root = builder.root
    if root is None or (isinstance(root, Scalar) and root.kind == "null"):
        raise problems.stop(1, "", "expected a configuration (version: 1, pools, policy), found an empty file")
    if not isinstance(root, Table):
        raise problems.stop(root.line, "", f"expected a mapping with version, pools and policy, found {describe(root)}")
    return root


def _broken(error: yaml.MarkedYAMLError, text: str) -> tuple[int, str, str]:
    """The line, field and text of a problem that libyaml found, with what helps where that is known."""
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 0
    said = str(error.problem or error.context)
    if error.context and error.context_mark and error.context_mark.line + 1 < line:
        said += f" {error.context}, which began on line {error.context_mark.line + 1}"
    return line, "", f"not valid YAML: {said}{_hint(f'{error.context} {error.problem}', text, mark)}"


def _hint(said: str, text: str, mark: yaml.Mark | None) -> str:
    if "cannot start any token" in said and mark is not None:
        lines = text.splitlines()
        found = lines[mark.line][mark.column : mark.column + 1] if mark.line < len(lines) else ""
        return (
            "; it is a tab: indent with spaces" if found == "\t" else f"; a value that begins with {found} needs quotes"
        )
    return next((f"; {helps}" for words, helps in _HINTS if words in said), "")


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come yet."""

    line: int
    is_table: bool
    anchor: str | None
    parts: list[Node] = field(default_factory=list)  # of a mapping: key, value, key, value
    size: int = 1


class _Builder:
    """Builds the tree from events without recursion; the size of a node counts what its aliases stand for."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.root: Node | None = None
        self._documents = 0
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Node, int]] = {}

    def feed(self, events: Iterable[yaml.Event]) -> None:
        for event in events:
            line = event.start_mark.line + 1 if event.start_mark else 0
            if isinstance(event, yaml.ScalarEvent):
                self._tag(event, line)
                kind = kind_of(event.value) if event.implicit[0] else "str"
                self._put(Scalar(self._line_of_value(line, kind), event.value, kind), 1, event.anchor)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._tag(event, line)
                self._open(line, event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._close()
            elif isinstance(event, yaml.AliasEvent):
                self._alias(line, str(event.anchor))
            elif isinstance(event, yaml.DocumentStartEvent):
                self._documents += 1
                if self._documents > 1:
                    raise self.problems.stop(line, "", "expected one document, found a second one after '---'")

    def _line_of_value(self, line: int, kind: str) -> int:
        """The line of a value: libyaml places a value that is not there where the next word stands; its key's line is better."""
        above = self._stack[-1] if self._stack else None
        if kind == "null" and above is not None and above.is_table and len(above.parts) % 2:
            return above.parts[-1].line
        return line

    def _open(self, line: int, event: yaml.CollectionStartEvent) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise self.problems.stop(line, "", f"expected at most {MAX_DEPTH} levels, found more")
        self._stack.append(_Open(line, isinstance(event, yaml.MappingStartEvent), event.anchor))

    def _close(self) -> None:
        done = self._stack.pop()
        parts = done.parts
        node = Table(done.line, self._entries(parts)) if done.is_table else Items(done.line, tuple(parts))
        self._put(node, done.size, done.anchor)

    def _alias(self, line: int, name: str) -> None:
        if name not in self._anchors:
            raise self.problems.stop(line, "", f"the alias *{name} names no anchor that ended before it; {_QUOTE_STAR}")
        node, size = self._anchors[name]
        self._put(node, size, None)

    def _put(self, node: Node, size: int, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = (node, size)
        if not self._stack:
            self.root = node
            return
        above = self._stack[-1]
        above.parts.append(node)
        above.size += size
        if above.size > MAX_NODES:
            raise self.problems.stop(
                node.line, "", f"expected at most {MAX_NODES} values, aliases unfolded; found more"
            )

    def _entries(self, parts: list[Node]) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        merged: list[tuple[Scalar, Node]] = []
        for key, node in zip(parts[::2], parts[1::2], strict=True):
            if not isinstance(key, Scalar):
                self._place().wrong(key.line, f"expected a name as key, found {describe(key)}")
            elif key.text == "<<":
                merged.append((key, node))
            elif key.text in entries:
                first = entries[key.text].line
                self._place().key(key.text).wrong(key.line, f"said twice, first on line {first}: remove one")
            else:
                entries[key.text] = Entry(key.line, node)
        for key, node in merged:
            for table in self._merge_sources(key, node):
                for name, entry in table.entries.items():
                    entries.setdefault(name, entry)
        return entries

    def _merge_sources(self, key: Scalar, node: Node) -> Iterator[Table]:
        for source in node.nodes if isinstance(node, Items) else (node,):
            if isinstance(source, Table):
                yield source
            else:
                self._place().key("<<").wrong(key.line, f"expected a mapping to merge, found {describe(source)}")

    def _place(self) -> Place:
        """The field of the mapping that ends now, from the keys it stands under."""
        place = Place(self.problems)
        for above in self._stack:
            if not above.is_table:
                place = place.item(len(above.parts))
            elif len(above.parts) % 2 and isinstance(above.parts[-1], Scalar):
                place = place.key(above.parts[-1].text)
        return place

    def _tag(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent, line: int) -> None:
        if event.tag is not None and not (isinstance(event, yaml.ScalarEvent) and event.tag == "!"):
            self._place().wrong(line, f"expected a value without a YAML type, found {event.tag}: remove it")
