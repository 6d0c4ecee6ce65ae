"""Reads YAML text into one document of nodes, or refuses it with the line of its first error.

:mod:`spotwright.yaml_composer` reads the text and limits its depth and its size with aliases unfolded. This module refuses equal
keys, with both lines, and custom types. Anchors, aliases and merge keys (``<<``) mean what they mean in YAML 1.1.
"""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from spotwright import yaml_composer as composer
from spotwright.config.problems import Location, Problems, describe
from spotwright.config.yaml_nodes import Entry, Items, Node, Scalar, Table, kind_of

__all__ = ["read"]

MAX_BYTES = 1_000_000  # a thousand pools are 200 kB
MAX_UNFOLDED = 50_000  # values, those of aliases counted at each use: all of them are read and checked

_QUOTE_STAR = "a pattern that begins with * needs quotes"
_HINTS = (  # words in libyaml's message, advice
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
    no document or several, something other than a mapping, too deep, or too large.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise problems.stop(0, "", "expected UTF-8 text, found half a surrogate pair") from None
    if size > MAX_BYTES:
        raise problems.stop(0, "", f"expected at most {MAX_BYTES} bytes, found {size}")
    text = text.removeprefix("\ufeff")
    try:
        root = _root(text, problems)
    except composer.ComposeError as error:
        raise problems.stop(error.line, "", str(error)) from None
    except yaml.MarkedYAMLError as error:
        raise problems.stop(*_broken(error, text)) from None
    except yaml.reader.ReaderError as error:
        line = text.encode()[: error.position].count(b"\n") + 1
        raise problems.stop(line, "", f"not valid YAML: {error.reason} (character {error.character!r})") from None
    if root is None or (isinstance(root, Scalar) and root.kind == "null"):
        raise problems.stop(1, "", "expected a configuration (version: 1, pools, policy), found an empty file")
    if not isinstance(root, Table):
        raise problems.stop(root.line, "", f"expected a mapping with version, pools and policy, found {describe(root)}")
    return root


def _root(text: str, problems: Problems) -> Node | None:
    """The only document of a text; ``None`` where it has none."""
    documents = composer.compose(text, lenient=True, max_unfolded=MAX_UNFOLDED)
    first = next(documents, None)
    if first is None:
        return None
    second = next(documents, None)
    if second is not None:
        raise problems.stop(second.line, "", "expected one document, found a second one after '---'")
    return _Converter(problems).convert(first.root)


def _broken(error: yaml.MarkedYAMLError, text: str) -> tuple[int, str, str]:
    """Line, field and text of an error of libyaml, with advice where there is some."""
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 0
    message = str(error.problem or error.context)
    if error.context and error.context_mark and error.context_mark.line + 1 < line:
        message += f" {error.context}, which began on line {error.context_mark.line + 1}"
    return line, "", f"not valid YAML: {message}{_hint(f'{error.context} {error.problem}', text, mark)}"


def _hint(message: str, text: str, mark: yaml.Mark | None) -> str:
    if "cannot start any token" in message and mark is not None:
        lines = text.splitlines()
        character = lines[mark.line][mark.column : mark.column + 1] if mark.line < len(lines) else ""
        return (
            "; it is a tab: indent with spaces"
            if character == "\t"
            else f"; a value that begins with {character} needs quotes"
        )
    return next((f"; {advice}" for words, advice in _HINTS if words in message), "")


class _Converter:
    """Makes configuration nodes of composed ones; reports equal keys and YAML types with their field."""

    def __init__(self, problems: Problems) -> None:
        self._known: dict[int, Node] = {}  # so that the value of an alias is converted once
        self._root = Location(problems)

    def convert(self, node: composer.Node, location: Location | None = None, key: int | None = None) -> Node:
        """Return the node of a value; ``key`` is the line of its key."""
        known = self._known.get(id(node))
        if known is None:
            known = self._known[id(node)] = self._converted(node, self._root if location is None else location, key)
        return known

    def _converted(self, node: composer.Node, location: Location, key: int | None) -> Node:
        line = _line(node)
        if isinstance(node, composer.MappingNode):
            _refuse_tag(node.start.tag, line, location)
            return Table(line, self._entries(node, location))
        if isinstance(node, composer.SequenceNode):
            _refuse_tag(node.start.tag, line, location)
            return Items(line, tuple(self.convert(item, location.item(index)) for index, item in enumerate(node.value)))
        _refuse_tag(None if node.tag == "!" else node.tag, line, location)
        kind = kind_of(node.value) if node.implicit[0] else "str"
        # libyaml gives an absent value the line of the next token; the line of its key is better
        return Scalar(key if kind == "null" and key is not None else line, node.value, kind)

    def _entries(self, node: composer.MappingNode, location: Location) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        merged: list[tuple[int, composer.Node]] = []
        for key, value in node.value:
            line = _line(key)
            if not isinstance(key, composer.ScalarNode):
                location.wrong(line, f"expected a name as key, found {describe(self.convert(key, location))}")
                continue
            _refuse_tag(None if key.tag == "!" else key.tag, line, location)
            field = location.key(key.value)
            if key.value == "<<":
                merged.append((line, value))
            elif key.value in entries:
                field.wrong(line, f"given twice, first on line {entries[key.value].line}: remove one")
            else:
                entries[key.value] = Entry(line, self.convert(value, field, line))
        for line, value in merged:
            for table in self._merge_sources(line, value, location):
                for name, entry in table.entries.items():
                    entries.setdefault(name, entry)
        return entries

    def _merge_sources(self, line: int, node: composer.Node, location: Location) -> Iterator[Table]:
        converted = self.convert(node, location.key("<<"), line)
        for source in converted.nodes if isinstance(converted, Items) else (converted,):
            if isinstance(source, Table):
                yield source
            else:
                location.key("<<").wrong(line, f"expected a mapping to merge, found {describe(source)}")


def _refuse_tag(tag: str | None, line: int, location: Location) -> None:
    if tag is not None:
        location.wrong(line, f"expected a value without a YAML type, found {tag}: remove it")


def _line(node: composer.Node) -> int:
    return int(node.start_mark.line) + 1
