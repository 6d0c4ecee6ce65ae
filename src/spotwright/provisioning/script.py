"""Shell text: quoted commands, explanations as comments, and variables for what the configuration does not know.

The text is meant to be read first and then passed to a shell. So every word that comes from the configuration is quoted, a
comment is always one line, and a variable that is not set ends the shell with its meaning.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

__all__ = ["Flags", "Variable", "Word", "command", "comment", "heredoc", "items", "section"]

_WIDTH = 110


class Variable(NamedTuple):
    """A value that only the user knows, as a variable of the shell. ``meaning``: plain words without quotes.

    Without a meaning the script sets the variable itself. ``around`` is a text with ``{}`` in the variable's place. A list is not
    quoted, so that the shell makes a word of each value.
    """

    name: str
    meaning: str
    around: str = "{}"
    is_list: bool = False

    def __str__(self) -> str:
        expanded = f"${{{self.name}:?{self.meaning}}}" if self.meaning else f"${{{self.name}}}"
        if self.is_list:
            return expanded
        before, _, after = self.around.partition("{}")
        first, last = (shlex.quote(part) if part else "" for part in (before, after))
        return f'{first}"{expanded}"{last}'


Word: TypeAlias = str | int | Variable
Flags: TypeAlias = Mapping[str, Sequence[Word]]
"""Flags by name, without their dashes; a flag without values is a switch."""


def command(words: Sequence[Word], flags: Flags) -> Iterator[str]:
    """The lines of a command: each flag on its own line, and each of its values where they are too long for one line."""
    lines = [" ".join(_quoted(word) for word in words)]
    for name, values in flags.items():
        quoted = [_quoted(value) for value in values]
        line = f"  --{name} {' '.join(quoted)}".rstrip()
        lines += (
            [line] if len(quoted) < 2 or len(line) <= _WIDTH else [f"  --{name}", *(f"    {one}" for one in quoted)]
        )
    for line in lines[:-1]:
        yield f"{line} \\"
    yield lines[-1]


def comment(text: str) -> Iterator[str]:
    """The text as comment lines, wrapped; line breaks in it are spaces."""
    yield from textwrap.wrap(
        " ".join(text.split()), _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )


def section(title: str, *texts: str) -> Iterator[str]:
    """An empty line, a title, and explanations below it, each with a dash."""
    yield ""
    yield f"# {title}"
    yield from items(texts)


def items(texts: Iterable[str]) -> Iterator[str]:
    """Explanations as comments, each with a dash."""
    for text in texts:
        first, *others = comment(text)
        yield f"# - {first[2:]}"
        yield from (f"#   {line[2:]}" for line in others)


def heredoc(words: Sequence[Word], lines: Iterable[str]) -> Iterator[str]:
    """A command that reads the lines from its standard input; the shell expands nothing in them."""
    yield f"{' '.join(_quoted(word) for word in words)} <<'EOF'"
    yield from lines
    yield "EOF"


def _quoted(word: Word) -> str:
    return str(word) if isinstance(word, Variable) else shlex.quote(str(word))
