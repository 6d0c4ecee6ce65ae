"""What is wrong with a configuration, collected so that a user sees all of it at once and not one error a try.

A problem is one line: ``file:line: field: what was expected, what was found``. They are shown in the order of the file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import NamedTuple

from spotwright.config.nodes import Items, Node, Scalar
from spotwright.errors import ConfigError

__all__ = ["Place", "Problems", "closest", "describe"]

_SHOWN = 10
_ENOUGH = 100  # reading stops here: a file this wrong is not a configuration, and looking for close names takes time
_PLAIN_KEY = re.compile(r"[\w/*.-]+")
_LONGEST = 60  # characters of a user's text that a message repeats


class Problems:
    """Collects problems of one file; ``name`` is how the file is called in messages."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._found: dict[tuple[int, str], None] = {}  # an anchored value is read once for each of its aliases

    def __len__(self) -> int:
        return len(self._found)

    def add(self, line: int, field: str, text: str) -> None:
        """Note a problem at a line (0: none in particular) and field (empty: the whole file).

        Raises :class:`ConfigError` when there are so many that more would not help.
        """
        self._found[line, _printable(f"{field}: {text}" if field else text)] = None
        if len(self._found) >= _ENOUGH:
            raise self.error()

    def stop(self, line: int, field: str, text: str) -> ConfigError:
        """Note a problem after which nothing more can be read; the caller raises what this returns."""
        self.add(line, field, text)
        return self.error()

    def error(self) -> ConfigError:
        """The first problems in the order of the file, a line each."""
        found = sorted(self._found, key=lambda problem: problem[0])
        lines = [f"{self.name}:{line}: {text}" if line else f"{self.name}: {text}" for line, text in found[:_SHOWN]]
        if len(found) > _SHOWN:
            lines.append(f"... and {len(found) - _SHOWN} more")
        return ConfigError("\n".join(lines))

    def raise_any(self) -> None:
        """Raise :class:`ConfigError` if there was any problem."""
        if self._found:
            raise self.error()


class Place(NamedTuple):
    """Where in the document the reader is: the field's dotted path, and where its problems go."""

    problems: Problems
    path: str = ""

    def key(self, name: str) -> Place:
        """The place of a key of the mapping here."""
        name = name if _PLAIN_KEY.fullmatch(name) else repr(_short(name))
        return Place(self.problems, f"{self.path}.{name}" if self.path else name)

    def item(self, index: int) -> Place:
        """The place of an item of the list here, counted from 0."""
        return Place(self.problems, f"{self.path}[{index}]")

    def wrong(self, line: int, text: str) -> None:
        """Note a problem with this field."""
        self.problems.add(line, self.path, text)

    def expected(self, node: Node, what: str) -> None:
        """Note that the value of this field is not what it must be."""
        self.wrong(node.line, f"expected {what}, found {describe(node)}")

    def unknown(self, line: int, name: str, known: Iterable[str]) -> None:
        """Note a key of the mapping here that is not known, with the closest that is."""
        self.key(name).wrong(line, f"unknown key, {closest(name, known)}")


def closest(name: str, known: Iterable[str]) -> str:
    """``did you mean 'x'?`` for the closest known name, or the list of the known ones."""
    names = sorted(known)
    close = difflib.get_close_matches(
        name[:_LONGEST].lower().replace("-", "_"), names, n=1
    ) or difflib.get_close_matches(name[:_LONGEST], names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"known here: {shown}" if names else "none is known here"


def describe(node: Node) -> str:
    """What a user wrote, short, as a message repeats it."""
    if isinstance(node, Scalar):
        if node.kind == "null":
            return "nothing"
        return repr(_short(node.text)) if node.kind == "str" else _short(node.text)
    empty = "" if (node.nodes if isinstance(node, Items) else node.entries) else "n empty"
    return f"a{empty} list" if isinstance(node, Items) else f"a{empty} mapping"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _printable(text: str) -> str:
    """One line, whatever characters a user's key holds."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
