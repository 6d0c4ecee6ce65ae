"""A rule of lint as data: what it finds, why that is bad on spot, what to do, and two examples that are its tests and its page.

A rule has a check for each sort of subject that it looks at. A check is a pure function of the subject and the settings; it
yields a problem for each place where the rule does not hold. Only the engine (:mod:`spotwright.lint.linting`) knows files,
comments that allow a finding, and severities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from spotwright.lint.settings import Settings
from spotwright.lint.subjects.objects import KubeObject
from spotwright.lint.subjects.pipelines import Pipeline
from spotwright.lint.subjects.pods import Pods
from spotwright.lint.subjects.python_files import PythonFile
from spotwright.placing.documents import Path

__all__ = ["Checks", "Finding", "Mend", "Problem", "Rename", "Rule", "Severity"]


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"  # it cannot work: the API server refuses or drops it, no node fits, or the file does not load
    WARNING = "warning"  # it works until the first interruption, or does not do what was asked for
    NOTE = "note"  # advice


class Mend(NamedTuple):
    """A safe change of a document, in the words of :class:`~spotwright.placing.patch.Editor`.

    ``kind`` is ``add``, ``extend`` or ``replace``.
    """

    kind: str
    path: Path
    value: Any


class Rename(NamedTuple):
    """A safe change of a Python file: other words in place of ``old`` at a line and a column, counted from 1 and 0 characters."""

    line: int
    column: int
    old: str
    new: str


class Problem(NamedTuple):
    """A place where a rule does not hold. In a document the place is a path, in a Python file a line (and no path).

    ``fix`` replaces the rule's own advice where the place allows a more exact one.
    """

    path: Path
    text: str
    fix: str = ""
    mends: tuple[Mend, ...] = ()
    line: int = 0
    rename: Rename | None = None


class Finding(NamedTuple):
    """A problem in a file, for people and machines. ``field`` is the path of the value, empty in Python files."""

    rule: str
    severity: Severity
    file: str
    line: int
    field: str
    text: str
    fix: str
    can_fix: bool = False


class Checks(NamedTuple):
    """The functions of a rule, one for each sort of subject that it looks at."""

    pods: Callable[[Pods, Settings], Iterator[Problem]] | None = None
    objects: Callable[[KubeObject, Settings], Iterator[Problem]] | None = None
    pipelines: Callable[[Pipeline, Settings], Iterator[Problem]] | None = None
    python: Callable[[PythonFile, Settings], Iterator[Problem]] | None = None


Example: TypeAlias = str
"""The text of a small complete file: YAML, or Python if it begins with an import."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. ``id`` never changes; ``why`` and ``fix`` are whole sentences for people.

    ``fails`` and ``passes`` are the examples; ``config`` is the ``spotwright.yaml`` beside them, if they need one. ``mends``:
    ``--fix`` changes the failing example. ``place_says``: ``place`` says the same while it writes, so that objects that it has
    written are not found again. ``source`` says where the fact is known from.
    """

    id: str
    severity: Severity
    title: str
    why: str
    fix: str
    fails: Example
    passes: Example
    checks: Checks
    config: str = ""
    mends: bool = False
    place_says: bool = False
    source: str = ""

    @property
    def is_python(self) -> bool:
        """Whether the examples are Python files."""
        return self.checks.python is not None and self.checks.pipelines is None and self.checks.pods is None
