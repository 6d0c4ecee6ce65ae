"""How long tasks take: measured by an earlier run, given in a file, stated as ``work`` in the configuration, or assumed.

A file names tasks by their paths or by patterns, as ``policy.tasks`` does; the later line wins::

    tasks:
      prepare: 5m
      "**/train*": {work: 2h, save: 30s}   # save: what one checkpoint takes; the task goes on from its last one
      loop: {iterations: 12}               # of a loop over items that only the run knows

JSON has the same shape. What nothing says is assumed to take :data:`ASSUMED`, and the forecast says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from spotwright.config.document import MAX_BYTES, read
from spotwright.config.patterns import matches, refusal
from spotwright.config.problems import Location, Problems
from spotwright.config.text_files import read_text
from spotwright.config.yaml_nodes import Entry, Scalar, Table
from spotwright.errors import InputError
from spotwright.model.quantities import format_duration, parse_duration

__all__ = ["ASSUMED", "SAVE", "Durations", "Given", "Known", "read_durations"]

ASSUMED = 600.0
"""Seconds that a task takes whose duration nothing tells."""

SAVE = 60.0
"""Seconds that one save of a checkpoint takes where no file says it."""

_KEYS = ("work", "save", "iterations")
_MOST_ITERATIONS = 20_000


class Given(NamedTuple):
    """What one line says, or what one earlier run measured. Durations in seconds; ``None``: it says nothing."""

    work: float | None = None
    save: float | None = None
    iterations: int | None = None
    saves: bool = False
    where: str = ""


class Known(NamedTuple):
    """The duration of one task: its ``work`` and where that is from, whether it saves, and what one save takes."""

    work: float
    source: str
    saves: bool
    save: float


@dataclass
class Durations:
    """The durations of a forecast. ``given`` are patterns with what holds for them, the later one stronger."""

    origin: str = ""
    given: Sequence[tuple[str, Given]] = ()
    remarks: Sequence[str] = ()
    assumed: dict[str, None] = field(default_factory=dict)
    guessed_saves: dict[str, None] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def of(self, path: str, spec_path: str, stated: float | None) -> Known:
        """The duration of a task; ``stated`` is the ``work`` of its policy."""
        work: float | None = None
        save: float | None = None
        saves = False
        for each in self._matching(path, spec_path):
            work = each.work if each.work is not None else work
            save = each.save if each.save is not None else save
            saves = saves or each.saves or each.save is not None
        if save is None:
            self.guessed_saves[spec_path] = None
        if work is not None:
            return Known(work, self.origin, saves, SAVE if save is None else save)
        if stated is not None:
            return Known(stated, "work in the policy", saves, SAVE if save is None else save)
        self.assumed[spec_path] = None
        return Known(ASSUMED, "assumed", saves, SAVE if save is None else save)

    def iterations(self, path: str) -> int | None:
        """The number of iterations of a loop, if it is given."""
        counts = [each.iterations for each in self._matching(path, path) if each.iterations is not None]
        return counts[-1] if counts else None

    def _matching(self, *paths: str) -> Iterator[Given]:
        for pattern, each in self.given:
            if any(matches(pattern, path) for path in dict.fromkeys(paths)):
                self.used.add(pattern)
                yield each

    def check_used(self, paths: Sequence[str]) -> None:
        """Refuse a line that names no task. Raises :class:`InputError`."""
        for pattern, each in self.given:
            if each.where and pattern not in self.used:
                shown = ", ".join(paths[:20]) + (", ..." if len(paths) > 20 else "")
                raise InputError(f"{each.where}: tasks.{pattern}: fits no task; the tasks are {shown}")

    def notes(self) -> Iterator[str]:
        """What was assumed, for the user."""
        yield from self.remarks
        if self.assumed:
            names = list(self.assumed)
            shown = ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:3])} and {len(names) - 3} more"
            yield (
                f"the duration of {shown} is not known: {format_duration(ASSUMED)} each is assumed; name an earlier run or a "
                "file with --durations, or set work in the policy"
            )


def read_durations(path: Path) -> Durations:
    """Read a file of durations. Raises :class:`ConfigError` with the line of every problem."""
    problems = Problems(str(path))
    root, top = read(read_text(path, MAX_BYTES), problems), Location(problems)
    for name, entry in root.entries.items():
        if name != "tasks":
            top.unknown(entry.line, name, ("tasks",))
    tasks = root.entries.get("tasks")
    if tasks is None or not isinstance(tasks.node, Table) or not tasks.node.entries:
        raise problems.stop(
            tasks.line if tasks else 1, "tasks", "expected a mapping from tasks to durations, such as {train: 2h}"
        )
    given = [
        (pattern, _given(pattern, entry, top.key("tasks").key(pattern), f"{path}:{entry.line}"))
        for pattern, entry in tasks.node.entries.items()
    ]
    problems.raise_any()
    return Durations(f"given in {path.name}", given)


def _given(pattern: str, entry: Entry, location: Location, where: str) -> Given:
    why = refusal(pattern)
    if why:
        location.wrong(entry.line, why)
    if isinstance(entry.node, Scalar):
        return Given(work=_duration(entry.node, location), where=where)
    if not isinstance(entry.node, Table):
        location.expected(entry.node, "a duration such as 2h, or {work: 2h, save: 30s}")
        return Given(where=where)
    fields = entry.node.entries
    for name, value in fields.items():
        if name not in _KEYS:
            location.unknown(value.line, name, _KEYS)
    save = _field("save", fields, location)
    return Given(_field("work", fields, location), save, _iterations(fields, location), save is not None, where)


def _field(name: str, fields: Mapping[str, Entry], location: Location) -> float | None:
    entry = fields.get(name)
    if entry is None:
        return None
    if isinstance(entry.node, Scalar):
        return _duration(entry.node, location.key(name))
    location.key(name).expected(entry.node, "a duration such as 2h")
    return None


def _duration(node: Scalar, location: Location) -> float | None:
    """A duration above 0: a task that takes no time has none to plan."""
    try:
        seconds = parse_duration(node.text)
    except ValueError:
        location.expected(node, "a duration such as 30s, 5m or 2h")
        return None
    if seconds <= 0:
        location.expected(node, "a duration above 0")
        return None
    return seconds


def _iterations(fields: Mapping[str, Entry], location: Location) -> int | None:
    entry = fields.get("iterations")
    if entry is None:
        return None
    node = entry.node
    if isinstance(node, Scalar) and node.kind == "int" and 0 < int(node.text) <= _MOST_ITERATIONS:
        return int(node.text)
    location.key("iterations").expected(node, f"a whole number from 1 to {_MOST_ITERATIONS}")
    return None
