"""Regular expressions of Go, as autoscalers match names by them: whether one is found anywhere in a name.

A module of its own, because Python's :mod:`re` would not do: a pattern comes from a cluster, and one such as ``(a+)+$`` keeps
:mod:`re` busy for years. Here, as in Go, the time is the length of the pattern times that of the name. Source: Go, package
``regexp/syntax`` (no lookaround, no reference back; at most 1,000 repetitions).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

__all__ = ["LONGEST", "NamePattern", "name_pattern"]

LONGEST = 500
"""The most characters of a pattern, and of a name that it is looked for in."""

_DEEPEST = 50  # groups in groups
_MOST_STEPS = 2_000  # of a program: repetitions are written out
_MOST_REPETITIONS = 1_000

_Ranges: TypeAlias = tuple[tuple[str, str], ...]
_Place: TypeAlias = Literal["start", "end", "edge", "inside"]

_DIGITS: _Ranges = (("0", "9"),)
_WORD: _Ranges = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
_SPACES: _Ranges = (("\t", "\n"), ("\f", "\r"), (" ", " "))
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACES}
_NAMED_CLASSES: dict[str, _Ranges] = {
    "alnum": (("0", "9"), ("A", "Z"), ("a", "z")),
    "alpha": (("A", "Z"), ("a", "z")),
    "digit": _DIGITS,
    "lower": (("a", "z"),),
    "punct": (("!", "/"), (":", "@"), ("[", "`"), ("{", "~")),
    "space": (*_SPACES, ("\v", "\v")),
    "upper": (("A", "Z"),),
    "word": _WORD,
    "xdigit": (("0", "9"), ("A", "F"), ("a", "f")),
}
_CONTROLS = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_PLACES: dict[str, _Place] = {"A": "start", "z": "end", "b": "edge", "B": "inside"}
_FLAGS = re.compile(r"\?([imsU]*)(?:-([imsU]+))?([:)])")
_GROUP_NAME = re.compile(r"\?P?<\w+>")
_COUNTS = re.compile(r"\{(\d{1,5})(,?)(\d{0,5})\}")


class _Letter(NamedTuple):
    """One character of these ranges, or of no such range. ``folds``: in upper or lower case."""

    ranges: _Ranges
    is_negated: bool = False
    folds: bool = False

    def takes(self, letter: str) -> bool:
        forms = (letter, letter.lower(), letter.upper()) if self.folds else (letter,)
        return any(low <= form <= high for low, high in self.ranges for form in forms) is not self.is_negated


class _At(NamedTuple):
    """A place between characters."""

    place: _Place


class _Sequence(NamedTuple):
    parts: Sequence[_Part]


class _Choice(NamedTuple):
    ways: Sequence[_Part]


class _Repeated(NamedTuple):
    part: _Part
    least: int
    most: int | None


_Part: TypeAlias = _Letter | _At | _Sequence | _Choice | _Repeated


class _Step(NamedTuple):
    """A step of a program: take a letter or stand at a place, then go on with each of ``following``; None: just go on."""

    test: _Letter | _At | None
    following: list[int]


_FOUND = 0  # the number of the step that ends every program


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A pattern that is looked for in names. Made by :func:`name_pattern`. ``literal``: a text in every name that has it."""

    text: str
    literal: str
    steps: Sequence[_Step] = field(compare=False, repr=False)
    start: int = field(compare=False, repr=False)

    def is_in(self, name: str) -> bool:
        """Whether the pattern matches anywhere in the name, of which the first :data:`LONGEST` characters count."""
        name = name[:LONGEST]
        if self.literal not in name:
            return False
        active: list[int] = []
        for position in range(len(name) + 1):
            reached = self._reached([*active, self.start], name, position)
            if _FOUND in reached:
                return True
            active = []
            for number in reached if position < len(name) else ():
                test, following = self.steps[number]
                if isinstance(test, _Letter) and test.takes(name[position]):
                    active += following
        return False

    def _reached(self, numbers: Sequence[int], name: str, position: int) -> set[int]:
        """The steps that are reached at a position without taking a letter."""
        reached: set[int] = set()
        waiting = list(numbers)
        while waiting:
            number = waiting.pop()
            if number in reached:
                continue
            reached.add(number)
            test, following = self.steps[number]
            if test is None or (isinstance(test, _At) and _is_at(test.place, name, position)):
                waiting += following
        return reached


def _is_at(place: _Place, name: str, position: int) -> bool:
    if place in ("start", "end"):
        return position == (0 if place == "start" else len(name))
    before, after = (0 <= one < len(name) and _Letter(_WORD).takes(name[one]) for one in (position - 1, position))
    return (before is not after) is (place == "edge")


def name_pattern(text: str) -> NamePattern:
    """Read a pattern. Raises :class:`ValueError`, with the reason, for what Go refuses or what is too long."""
    if len(text) > LONGEST:
        raise ValueError(f"it has more than {LONGEST} characters")
    program = _Program()
    part = _Reader(text).read()
    start = program.add(part, _FOUND)
    return NamePattern(text, max(_literals(part), key=len), tuple(program.steps), start)


def _literals(part: _Part) -> list[str]:
    """The texts that stand in a part as they are, one after another; an empty one among them."""
    found = [""]
    for one in part.parts if isinstance(part, _Sequence) else ():
        low = one.ranges[0][0] if isinstance(one, _Letter) else ""
        if one == _Letter(((low, low),)):
            found[-1] += low
        else:
            found.append("")
    return found


class _Program:
    """The steps of a pattern, the last first."""

    def __init__(self) -> None:
        self.steps = [_Step(None, [])]
        self._count = 0

    def add(self, part: _Part, following: int) -> int:
        """Add a part, after which the program goes on with the step ``following``; return its first step."""
        self._count += 1
        if self._count > _MOST_STEPS:
            raise ValueError("it is too long with its repetitions written out")
        if isinstance(part, _Letter | _At):
            return self._step(part, [following])
        if isinstance(part, _Sequence):
            for one in reversed(part.parts):
                following = self.add(one, following)
            return following
        if isinstance(part, _Choice):
            return self._step(None, [self.add(one, following) for one in part.ways])
        return self._repeated(part, following)

    def _repeated(self, part: _Repeated, following: int) -> int:
        if part.most is None:
            start = self._step(None, [following])
            self.steps[start].following.append(self.add(part.part, start))
        else:
            start = following
            for _ in range(part.most - part.least):
                start = self._step(None, [self.add(part.part, start), following])
        for _ in range(part.least):
            start = self.add(part.part, start)
        return start

    def _step(self, test: _Letter | _At | None, following: list[int]) -> int:
        self.steps.append(_Step(test, following))
        return len(self.steps) - 1


class _Reader:
    """Reads a pattern from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._folds = False

    def read(self) -> _Part:
        part = self._choice()
        if self._at < len(self._text):
            raise ValueError("a ) has no (")
        return part

    def _sees(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise ValueError("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _matched(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return match

    def _choice(self) -> _Part:
        ways = [self._sequence()]
        while self._sees("|"):
            self._at += 1
            ways.append(self._sequence())
        return _Choice(ways) if len(ways) > 1 else ways[0]

    def _sequence(self) -> _Part:
        parts: list[_Part] = []
        while self._at < len(self._text) and not self._sees("|") and not self._sees(")"):
            parts.append(self._repetitions())
        return _Sequence(parts)

    def _repetitions(self) -> _Part:
        if self._text[self._at] in "*+?":
            raise ValueError(f"nothing stands before {self._text[self._at]}")
        part = self._single()
        counts = self._counts()
        if counts is None:
            return part
        if self._sees("?"):
            self._at += 1  # as few as possible: the same names match
        if self._counts() is not None:
            raise ValueError("one repetition follows another")
        return _Repeated(part, *counts)

    def _counts(self) -> tuple[int, int | None] | None:
        """The least and the most of the repetition that follows; None where there is none."""
        for sign, counts in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._sees(sign):
                self._at += 1
                return counts
        match = self._matched(_COUNTS)
        if match is None:
            return None
        least = int(match[1])
        most = int(match[3]) if match[3] else None if match[2] else least
        if max(least, most or 0) > _MOST_REPETITIONS or (most is not None and most < least):
            raise ValueError(f"{match[0]} is no number of repetitions")
        return least, most

    def _single(self) -> _Part:
        letter = self._next()
        if letter == "(":
            return self._group()
        if letter == "[":
            return self._class()
        if letter == ".":
            return _Letter((("\n", "\n"),), is_negated=True)
        if letter in "^$":
            return _At("start" if letter == "^" else "end")
        if letter == "\\":
            return self._escaped()
        return self._letter(((letter, letter),))

    def _letter(self, ranges: _Ranges, *, is_negated: bool = False) -> _Letter:
        return _Letter(ranges, is_negated, self._folds)

    def _group(self) -> _Part:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} groups stand in one another")
        folds = self._folds
        if self._sees("?") and not self._matched(_GROUP_NAME):
            match = self._matched(_FLAGS)
            if match is None:
                raise ValueError("Go has no such group, such as a look ahead")
            self._folds = ("i" in match[1] or folds) and "i" not in (match[2] or "")
            if match[3] == ")":  # up to the end of the group around it
                self._depth -= 1
                return _Sequence(())
        part = self._choice()
        if self._next() != ")":
            raise ValueError("a ( is not closed")
        self._folds = folds
        self._depth -= 1
        return part

    def _escaped(self) -> _Part:
        letter = self._next()
        if letter in _PLACES:
            return _At(_PLACES[letter])
        if letter.lower() in _CLASSES:
            return self._letter(_CLASSES[letter.lower()], is_negated=letter.isupper())
        if letter == "Q":
            end = self._text.find("\\E", self._at)
            quoted = self._text[self._at : end if end >= 0 else None]
            self._at = len(self._text) if end < 0 else end + 2
            return _Sequence([self._letter(((one, one),)) for one in quoted])
        plain = self._plain(letter)
        return self._letter(((plain, plain),))

    def _plain(self, letter: str) -> str:
        """The character that an escape stands for."""
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter == "x":
            digits = self._text[self._at : self._at + 2]
            if not re.fullmatch(r"[0-9A-Fa-f]{2}", digits):
                raise ValueError("\\x needs two digits")
            self._at += 2
            return chr(int(digits, 16))
        if letter.isalnum():
            raise ValueError(f"Go has no \\{letter}" if letter not in "pP" else f"\\{letter} is not known here")
        return letter

    def _class(self) -> _Part:
        is_negated = self._sees("^")
        self._at += is_negated
        ranges: list[tuple[str, str]] = []
        is_first = True
        while is_first or not self._sees("]"):
            is_first = False
            ranges += self._member()
        self._at += 1
        return self._letter(tuple(ranges), is_negated=is_negated)

    def _member(self) -> Iterator[tuple[str, str]]:
        if self._sees("[:"):
            end = self._text.find(":]", self._at)
            named = _NAMED_CLASSES.get(self._text[self._at + 2 : end] if end >= 0 else "")
            if named is None:
                raise ValueError("Go has no such [:class:]")
            self._at = end + 2
            yield from named
            return
        low = self._next()
        if low == "\\":
            escape = self._next()
            if escape in _CLASSES:
                yield from _CLASSES[escape]
                return
            low = self._plain(escape)
        high = low
        if self._sees("-") and not self._sees("-]"):
            self._at += 1
            high = self._next()
            high = self._plain(self._next()) if high == "\\" else high
            if high < low:
                raise ValueError(f"{low}-{high} is no range")
        yield low, high
