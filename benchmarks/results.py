"""A line of the benchmark: the samples, what they are compared with, and whether the target was reached.

Machines differ, and one machine differs from minute to minute, so a line compares with something measured in the same run
whenever possible.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

__all__ = ["Judged", "Row", "as_text"]


class Judged(Enum):
    """Which figure the target is about."""

    VALUE = "value"
    RATIO = "ratio"  # to what stands beside it
    DIFFERENCE = "difference"  # to what stands beside it
    NOTHING = "nothing"  # shown for comparison


@dataclass(frozen=True, slots=True)
class Row:
    """One measured line. ``beside`` names the subject of the samples in ``theirs``; ``best``: minima count, not medians."""

    line: str
    what: str
    ours: Sequence[float]
    unit: str
    judged: Judged = Judged.NOTHING
    limit: float = 0.0
    beside: str = ""
    theirs: Sequence[float] = field(default_factory=tuple)
    best: bool = False
    at_least: bool = False  # the target is a lower bound

    @property
    def figure(self) -> float:
        """The figure that the target is about."""
        ours = self.middle(self.ours)
        if self.judged is Judged.RATIO:
            return ours / self.middle(self.theirs)
        if self.judged is Judged.DIFFERENCE:
            return ours - self.middle(self.theirs)
        return ours

    @property
    def passed(self) -> bool:
        """Whether the target was reached; true without a target."""
        if self.judged is Judged.NOTHING:
            return True
        return self.figure >= self.limit if self.at_least else self.figure <= self.limit

    def middle(self, samples: Sequence[float]) -> float:
        """The sample that represents all of them."""
        return min(samples) if self.best else statistics.median(samples)

    def as_json(self) -> dict[str, Any]:
        """The line as data."""
        return {
            "line": self.line, "what": self.what, "unit": self.unit, "ours": list(self.ours), "beside": self.beside,
            "theirs": list(self.theirs), "judged": self.judged.value, "figure": self.figure, "limit": self.limit,
            "passed": self.passed,
        }  # fmt: skip


def as_text(row: Row) -> str:
    """The line for people."""
    parts = [f"{row.what:<62}", f"{_samples(row, row.ours):>26}"]
    parts.append(f"{row.beside + ' ' + _samples(row, row.theirs) if row.theirs else '':<40}")
    if row.judged is not Judged.NOTHING:
        verdict = "pass" if row.passed else "MISSED"
        parts.append(f"{_figure(row):>12} {'>=' if row.at_least else '<='} {_limit(row):<9} {verdict}")
    return "  ".join(parts).rstrip()


def _samples(row: Row, samples: Sequence[float]) -> str:
    text = f"{_number(row.middle(samples))} {row.unit}"
    if len(samples) > 1:
        text += f" ({_number(min(samples))} to {_number(max(samples))})"
    return text


def _figure(row: Row) -> str:
    if row.judged is Judged.RATIO:
        return f"{row.figure:.3g} x"
    sign = "+" if row.judged is Judged.DIFFERENCE and row.figure >= 0 else ""
    return f"{sign}{_number(row.figure)} {row.unit}"


def _limit(row: Row) -> str:
    return f"{row.limit:.3g} x" if row.judged is Judged.RATIO else f"{_number(row.limit)} {row.unit}"


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
