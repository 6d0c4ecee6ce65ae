"""Reads YAML text into one document of nodes that keep their line and their text as written, or refuses it with the line.

:mod:`spotwright.yaml_composer` reads the text and limits its depth and its size with aliases unfolded. This module refuses
duplicate keys, with both lines, and custom types. Anchors, aliases and merge keys (``<<``) follow YAML 1.1. Files are bounded
in size and in UTF-8. Problems are collected, so that users see them all at once.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import yaml

from spotwright import yaml_composer as composer
from spotwright.errors import ConfigError, InputError
from spotwright.model.policy import RENAMED
from spotwright.model.quantities import format_bytes
from spotwright.visible_text import visible

__all__ = [
    "MOST_MANIFESTS",
    "STANDARD_INPUT",
    "Entry",
    "Items",
    "Location",
    "Node",
    "ObjectSources",
    "Problems",
    "Scalar",
    "Table",
    "closest",
    "config_maps",
    "describe",
    "kind_of",
    "name_of",
    "plain",
    "read",
    "read_bounded",
    "read_input",
    "read_text",
    "secrets",
]


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
    """The YAML 1.1 type of an unquoted text. Octal, sexagesimal and other rare numbers stay text, and so are refused."""
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


_SHOWN = 10
_ENOUGH = (
    100  # problems after which reading stops: such a file is not a configuration, and finding similar names takes time
)
_PLAIN_KEY = re.compile(r"[\w/*.-]+")
_LONGEST = 60  # characters of a user's text that a message repeats


class Problems:
    """The problems of a file; ``name`` is its name in messages. ``stored``: a run kept its text, so earlier names are valid."""

    def __init__(self, name: str, *, stored: bool = False) -> None:
        self.name = name
        self.stored = stored
        self._problems: dict[tuple[int, str], None] = {}  # an anchored value is read once for each of its aliases

    def __len__(self) -> int:
        return len(self._problems)

    def add(self, line: int, field: str, text: str) -> None:
        """Add a problem at a line (0: no particular one) and field (empty: the whole file).

        Raises :class:`ConfigError` when there are too many.
        """
        self._problems[line, visible(f"{field}: {text}" if field else text)] = None
        if len(self._problems) >= _ENOUGH:
            raise self.error()

    def stop(self, line: int, field: str, text: str) -> ConfigError:
        """Add a problem after which reading cannot continue; the caller raises the returned error."""
        self.add(line, field, text)
        return self.error()

    def error(self) -> ConfigError:
        """Return an error with the first problems in the order of the file, a line each."""
        problems = sorted(self._problems, key=lambda problem: problem[0])
        lines = [f"{self.name}:{line}: {text}" if line else f"{self.name}: {text}" for line, text in problems[:_SHOWN]]
        if len(problems) > _SHOWN:
            lines.append(f"... and {len(problems) - _SHOWN} more")
        return ConfigError("\n".join(lines))

    def raise_any(self) -> None:
        """Raise :class:`ConfigError` if there is a problem."""
        if self._problems:
            raise self.error()


class Location(NamedTuple):
    """A field in the document: its dotted path, and the collection for its problems."""

    problems: Problems
    path: str = ""

    def key(self, name: str) -> Location:
        """Return the location of a key of this mapping."""
        name = name if _PLAIN_KEY.fullmatch(name) else repr(_short(name))
        return Location(self.problems, f"{self.path}.{name}" if self.path else name)

    def item(self, index: int) -> Location:
        """Return the location of an item of this list, counted from 0."""
        return Location(self.problems, f"{self.path}[{index}]")

    def wrong(self, line: int, text: str) -> None:
        """Report a problem of this field."""
        self.problems.add(line, self.path, text)

    def expected(self, node: Node, what: str) -> None:
        """Report that this field's value is not the expected ``what``."""
        self.wrong(node.line, f"expected {what}, found {describe(node)}")

    def entries(self, node: Table, known: Collection[str]) -> Mapping[str, Entry]:
        """Return the entries of this mapping by their known names; a stored run's text may have earlier names."""
        if not self.problems.stored:
            return node.entries
        return {RENAMED[key] if RENAMED.get(key) in known else key: entry for key, entry in node.entries.items()}

    def unknown(self, line: int, name: str, known: Collection[str]) -> None:
        """Report an unknown key of this mapping, with its new name or the closest known one."""
        present = RENAMED.get(name)
        self.key(name).wrong(
            line, f"was renamed to {present}" if present in known else f"unknown key, {closest(name, known)}"
        )


def closest(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'x'?`` for the closest known name, or the list of the known names."""
    import difflib

    names = sorted(known)
    close = difflib.get_close_matches(
        name[:_LONGEST].lower().replace("-", "_"), names, n=1
    ) or difflib.get_close_matches(name[:_LONGEST], names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"known here: {shown}" if names else "no keys are allowed here"


def describe(node: Node) -> str:
    """Describe a user's value in a few words, for a message."""
    if isinstance(node, Scalar):
        if node.kind == "null":
            return "nothing"
        return repr(_short(node.text)) if node.kind == "str" else _short(node.text)
    empty = "" if (node.nodes if isinstance(node, Items) else node.entries) else "n empty"
    return f"a{empty} list" if isinstance(node, Items) else f"a{empty} mapping"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


MAX_BYTES = 1_000_000  # a thousand pools are 200 kB
MAX_UNFOLDED = 50_000  # values, aliases counted at each use: all of them are read and checked

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
    """Read a text that must be one mapping.

    Duplicate keys and custom types are noted in ``problems`` and reading goes on. Raises :class:`ConfigError` if it cannot:
    broken YAML, no document or several, not a mapping, too deep, or too large.
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
    """Converts composed nodes to configuration nodes; reports duplicate keys and YAML types with their field."""

    def __init__(self, problems: Problems) -> None:
        self._known: dict[int, Node] = {}  # an alias's value is converted once
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

    def _entries(self, node: composer.MappingNode, location: Location) -> Mapping[str, Entry]:
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
        location.wrong(line, f"expected a value without a YAML tag, found {tag}: remove it")


def _line(node: composer.Node) -> int:
    return int(node.start_mark.line) + 1


MOST_MANIFESTS = 64 * 2**20
"""The most bytes of a manifest file: a list of all pods of a large cluster has half as many."""

STANDARD_INPUT = Path("-")
"""The name of standard input on a command line."""

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def read_text(path: str | Path, most: int) -> str:
    """Read a file of at most ``most`` bytes, with its line ends and without its byte order mark.

    Raises :class:`ConfigError` that names the file and its problem.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path}: expected a file, found a folder or a device")
            return _decoded(read_bounded(file, most, str(path)), str(path)).removeprefix("\ufeff")
    except InputError as error:
        raise ConfigError(str(error)) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise ConfigError(f"{path}: cannot be read: {_reason(error)}") from None


def read_input(path: Path, most: int = MOST_MANIFESTS, advice: str = "split it") -> str:
    """Read a file, a pipe or standard input whole, with its line ends and its byte order mark.

    ``advice`` says what to do with a larger one. Raises :class:`InputError` that names the file and its problem.
    """
    name = name_of(path)
    try:
        if path == STANDARD_INPUT:
            return _decoded(read_bounded(sys.stdin.buffer, most, name, advice), name)
        with path.open("rb") as file:
            return _decoded(read_bounded(file, most, name, advice), name)
    except (OSError, ValueError) as error:
        raise InputError(f"{name}: cannot be read: {_reason(error)}") from None


def name_of(path: Path) -> str:
    """The name of a command-line file in messages."""
    return "standard input" if path == STANDARD_INPUT else str(path)


def read_bounded(file: BinaryIO, most: int, name: str, advice: str = "") -> bytes:
    """Read a file to its end, but at most ``most`` bytes. Raises :class:`InputError` if there are more."""
    data = file.read(most + 1)
    if len(data) > most:
        limit = f"{most} bytes" if most % 2**20 else format_bytes(most)
        raise InputError(f"{name}: expected at most {limit}, found more{advice and f': {advice}'}")
    return data


def _decoded(data: bytes, name: str) -> str:
    if b"\0" in data[:8192] and not data.startswith(_UTF_16):
        raise InputError(f"{name}: expected text, found a binary file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        found = f"found the byte 0x{data[error.start]:02x}: save it as UTF-8 (in PowerShell, > writes UTF-16)"
        raise InputError(f"{name}:{line}: expected UTF-8 text, {found}") from None


def _reason(error: OSError | ValueError) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file without blocking: a named pipe would wait for its writer. Windows has neither the flag nor such pipes."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


ObjectSources: TypeAlias = Mapping[str, Mapping[str, str] | str]
"""Objects by name: the text of each key, or ``@folder:PATH`` for a folder whose files are the keys."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")  # a DNS subdomain
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_REFERENCES = ("@env:", "@file:")
_FOLDER = "@folder:"


def secrets(node: Node, location: Location, expects: str) -> ObjectSources:
    """Read secrets; their values must be references."""
    return _objects(node, location, expects, references_only=True)


def config_maps(node: Node, location: Location, expects: str) -> ObjectSources:
    """Read config maps; their values are texts or references."""
    return _objects(node, location, expects, references_only=False)


def _objects(node: Node, location: Location, expects: str, *, references_only: bool) -> ObjectSources:
    objects: dict[str, Mapping[str, str] | str] = {}
    if not isinstance(node, Table):
        location.expected(node, expects)
        return objects
    for name, entry in node.entries.items():
        where = location.key(name)
        if not _NAME.fullmatch(name):
            where.wrong(entry.line, "expected a Kubernetes name: lower-case letters, digits, - and .")
        elif isinstance(entry.node, Table):
            objects[name] = _keys(entry.node, where, references_only=references_only)
        elif isinstance(entry.node, Scalar) and entry.node.text.startswith(_FOLDER):
            objects[name] = entry.node.text
        else:
            where.expected(
                entry.node, "a mapping of keys to values, or @folder:PATH of a folder with a file for each key"
            )
    return objects


def _keys(node: Table, location: Location, *, references_only: bool) -> dict[str, str]:
    values: dict[str, str] = {}
    for key, entry in node.entries.items():
        where, value = location.key(key), entry.node
        is_text = isinstance(value, Scalar) and value.kind != "null"
        if not _KEY.fullmatch(key):
            where.wrong(entry.line, "expected a key: letters, digits, - _ and .")
        elif not isinstance(value, Scalar) or not is_text:
            where.expected(
                value, "@env:VARIABLE or @file:PATH" if references_only else "text, @env:VARIABLE or @file:PATH"
            )
        elif references_only and not value.text.startswith(_REFERENCES):
            where.wrong(  # the message does not repeat the value, which may be the secret
                entry.line,
                "expected @env:VARIABLE or @file:PATH, found a value; a secret does not belong in this file",
            )
        else:
            values[key] = value.text
    return values
