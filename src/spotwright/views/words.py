"""The words in which causes, amounts and stored values are said, the same in every view."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from spotwright.model.attempts import Cause
from spotwright.model.quantities import format_duration, format_money
from spotwright.views.amounts import Amount, Range
from spotwright.views.lines import Account, Spent

__all__ = [
    "SPENT",
    "cost",
    "cost_range",
    "ended",
    "figures",
    "heading",
    "plural",
    "readable",
    "span",
    "time_range",
    "value_text",
    "with_unit",
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
"""What an attempt did, by its cause: "attempt 2 was interrupted"."""

SPENT: Mapping[Spent, str] = {
    Spent.INTERRUPTIONS: "wasted by interruptions",
    Spent.MOVES: "wasted by moves",
    Spent.ERRORS: "spent on errors",
    Spent.STOPPED: "spent on what was stopped",
    Spent.UNDER_WAY: "under way",
}
"""The name of each line of an account."""

_SECRET = re.compile(r"\{\{\$\.secret\['((?:[^'\\]|\\.)*)'\]\}\}", re.DOTALL)


def ended(cause: Cause, why: str, progress: float | None) -> str:
    """How an attempt ended: ``was interrupted: its node is gone (at 41% of its work)``."""
    if cause in (Cause.SUCCEEDED, Cause.CANCELLED):
        return _ENDED[cause]  # what follows the colon says the same
    share = f" (at {progress:.0%} of its work)" if progress is not None else ""
    return f"{_ENDED[cause]}: {why}{share}"


def plural(count: int, noun: str) -> str:
    """``1 task``, ``2 tasks``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def span(seconds: Fraction | float) -> str:
    """A duration for people, to a tenth of a second at most: 9.97 seconds are ``10s``."""
    return format_duration(round(float(seconds), 1))


def cost(amount: Amount) -> str:
    """An amount as a number: money, or node-hours where there are no prices."""
    if amount.money is not None:
        return format_money(amount.money)
    return format_money(amount.seconds / 3600)


def cost_range(amounts: Range) -> str:
    """``0.0011``, or ``0.0011 to 0.0042`` where it is not known exactly."""
    return _range(cost(amounts.low), cost(amounts.high))


def time_range(amounts: Range) -> str:
    """``4.1s``, or ``0s to 4.1s`` where it is not known exactly."""
    return _range(span(amounts.low.seconds), span(amounts.high.seconds))


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def figures(account: Account) -> str:
    """What every block of figures says of itself: whose prices, and how time passed."""
    without = f"{', '.join(account.unpriced)} {'has' if len(account.unpriced) == 1 else 'have'} no price"
    said = [f"figures are node-hours: {without}" if account.unpriced else f"prices are {account.prices}"]
    if account.time_scale != 1:
        said.append(f"waits passed {account.time_scale:g} times faster; seconds are real")
    return "; ".join(said)


def with_unit(number: str, account: Account) -> str:
    """A number with what it counts: ``0.0059 USD``, or node-hours. Whoever shows it says :func:`figures` beside it."""
    return f"{number} {'node-hours' if account.unpriced else account.currency}"


def heading(account: Account) -> str:
    """The head of a column of such numbers, which says by itself whose prices they are."""
    return "Node-hours" if account.unpriced else f"{account.prices.capitalize()} {account.currency}"


def readable(value: Any) -> Any:
    """A stored value with ``@env:TOKEN`` in the place of the marker that stands for a secret."""
    if isinstance(value, str):
        return _SECRET.sub(lambda match: re.sub(r"\\(.)", r"\1", match[1]), value)
    if isinstance(value, Mapping):
        return {key: readable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [readable(item) for item in value]
    return value


def value_text(value: Any) -> str:
    """A value as text: texts as they are, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
