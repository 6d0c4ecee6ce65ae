"""Collects the problems of a configuration, so that a user sees all of them at once.

A problem is one line: ``file:line: field: what was expected, what was found``. Problems are shown in the order of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from spotwright.config.yaml_nodes import Items, Node, Scalar
from spotwright.errors import ConfigError

__all__ = ["Location", "Problems", "closest", "describe"]

_SHOWN = 10
_ENOUGH = 100  # problems after which reading stops: such a file is no configuration, and finding close names takes time
_PLAIN_KEY = re.compile(r"[\w/*.-]+")
_LONGEST = 60  # characters of a user's text that a message repeats


class Problems:
    """The problems of one file; ``name`` is its name in messages."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._problems: dict[tuple[int, str], None] = {}  # an anchored value is read once for each of its aliases

    def __len__(self) -> int:
        return len(self._problems)

    def add(self, line: int, field: str, text: str) -> None:
        """Add a problem at a line (0: no particular one) and field (empty: the whole file).

        Raises :class:`ConfigError` when there are too many.
        """
        self._problems[line, _printable(f"{field}: {text}" if field else text)] = None
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
        """Report that the value of this field is not ``what`` it must be."""
        self.wrong(node.line, f"expected {what}, found {describe(node)}")

    def unknown(self, line: int, name: str, known: Iterable[str]) -> None:
        """Report an unknown key of this mapping, with the closest known one."""
        self.key(name).wrong(line, f"unknown key, {closest(name, known)}")


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
    return f"known here: {shown}" if names else "none is known here"


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


def _printable(text: str) -> str:
    """Return the text on one line, with unprintable characters escaped."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
