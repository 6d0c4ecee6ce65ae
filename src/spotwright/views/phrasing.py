"""The words for causes, durations and stored values, the same in every view."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any

from spotwright.model.attempts import Cause
from spotwright.model.quantities import format_duration

__all__ = [
    "after_cause",
    "age_text",
    "ended",
    "plural",
    "readable",
    "span",
    "time_of_day",
    "value_text",
]

_ENDED: Mapping[Cause, str] = {
    Cause.SUCCEEDED: "succeeded",
    Cause.FAILED: "failed",
    Cause.INTERRUPTED: "was interrupted",
    Cause.LOST: "was lost",
    Cause.DISRUPTED: "was moved",
    Cause.OUT_OF_MEMORY: "ran out of memory",
    Cause.TIMED_OUT: "timed out",
    Cause.START_UP: "could not start",
    Cause.UNSCHEDULABLE: "found no node",
    Cause.CANCELLED: "was stopped",
}
"""Verbs for the end of an attempt, by cause: "attempt 2 was interrupted"."""


_SECRET = re.compile(r"\{\{\$\.secret\['((?:[^'\\]|\\.)*)'\]\}\}", re.DOTALL)


def ended(cause: Cause, why: str, progress: float | None) -> str:
    """How an attempt ended: ``was interrupted: its node is gone (at 41% of its work)``."""
    if cause in (Cause.SUCCEEDED, Cause.CANCELLED):
        return _ENDED[cause]  # the reason says the same
    share = f" (at {progress:.0%} of its work)" if progress is not None else ""
    return f"{_ENDED[cause]}: {why.removeprefix(f'it {_ENDED[cause]}: ')}{share}"


def after_cause(cause: Cause, following: str) -> str:
    """The decision after an attempt, for a place that has just named the cause: the cause is not repeated."""
    return following.removeprefix(f"{cause}, and ")


def plural(count: int, noun: str) -> str:
    """``1 task``, ``2 tasks``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def age_text(seconds: float) -> str:
    """A length of time in its largest unit: ``30d``, ``5h``, ``12min``, ``40s``."""
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.0f}{name}"
    return f"{max(0.0, seconds):.0f}s"


def time_of_day(at: float) -> str:
    """A moment (Unix seconds) as a local time of day, to the second."""
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S")


def span(seconds: Fraction | float) -> str:
    """A duration for people, to a tenth of a second at most: 9.97 seconds are ``10s``."""
    return format_duration(round(float(seconds), 1))


def readable(value: Any) -> Any:
    """A stored value with ``@env:TOKEN`` instead of the marker of a secret."""
    if isinstance(value, str):
        return _SECRET.sub(lambda match: re.sub(r"\\(.)", r"\1", match[1]), value)
    if isinstance(value, Mapping):
        return {key: readable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [readable(item) for item in value]
    return value


def value_text(value: Any) -> str:
    """A value as text: strings unchanged, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
