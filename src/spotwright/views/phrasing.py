"""The words for causes, amounts and stored values, the same in every view."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any

from spotwright.model.attempts import Cause
from spotwright.model.pools import PriceSource
from spotwright.model.quantities import format_duration, format_money
from spotwright.views.account.account_model import Account, SpentOn
from spotwright.views.account.amounts import Amount, Range

__all__ = [
    "SPENT",
    "after_cause",
    "age_text",
    "cost",
    "cost_heading",
    "cost_range",
    "ended",
    "figures",
    "heading",
    "plural",
    "price_unit",
    "readable",
    "span",
    "time_of_day",
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
"""Verbs for the end of an attempt, by cause: "attempt 2 was interrupted"."""

SPENT: Mapping[SpentOn, str] = {
    SpentOn.INTERRUPTIONS: "wasted by interruptions",
    SpentOn.MOVES: "wasted by moves",
    SpentOn.ERRORS: "spent on errors",
    SpentOn.STOPPED: "spent on what was stopped",
    SpentOn.UNDER_WAY: "under way",
}
"""The name of each line of an account."""

_SECRET = re.compile(r"\{\{\$\.secret\['((?:[^'\\]|\\.)*)'\]\}\}", re.DOTALL)


def ended(cause: Cause, why: str, progress: float | None) -> str:
    """How an attempt ended: ``was interrupted: its node is gone (at 41% of its work)``."""
    if cause in (Cause.SUCCEEDED, Cause.CANCELLED):
        return _ENDED[cause]  # the reason says the same
    share = f" (at {progress:.0%} of its work)" if progress is not None else ""
    return f"{_ENDED[cause]}: {why}{share}"


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


def cost(amount: Amount, whole: Amount) -> str:
    """An amount as a number: money, or node-hours without prices. ``whole`` is the total that stands beside it."""
    if amount.money is not None:
        return format_money(amount.money, beside=whole.money or Fraction(0))
    return format_money(amount.seconds / 3600, beside=whole.seconds / 3600)


def cost_range(amounts: Range, whole: Amount) -> str:
    """``0.0011``, or ``0.0011 to 0.0042`` if it is not exact."""
    return _range(cost(amounts.low, whole), cost(amounts.high, whole))


def time_range(amounts: Range) -> str:
    """``4.1s``, or ``0s to 4.1s`` if it is not exact."""
    return _range(span(amounts.low.seconds), span(amounts.high.seconds))


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def figures(account: Account) -> str:
    """The heading of every block of figures: the origin of prices, and how fast waits passed."""
    without = f"{', '.join(account.unpriced)} {'has' if len(account.unpriced) == 1 else 'have'} no price"
    parts = [f"figures are node-hours: {without}" if account.unpriced else _price_sources(account)]
    if account.time_scale != 1:
        parts.append(f"waits passed {account.time_scale:g} times faster; seconds are real")
    return "; ".join(parts)


def _price_sources(account: Account) -> str:
    if account.prices == "mixed":
        unbilled = (PriceSource.SIMULATED, PriceSource.EXAMPLE)
        names = {source: [pool.name for pool in account.pools if pool.price_source is source] for source in unbilled}
        parts = [f"{', '.join(pools)} {_PRICES[source]}" for source, pools in names.items() if pools]
        if any(pool.price_source is PriceSource.CONFIGURED for pool in account.pools):
            parts.append(f"the others {_PRICES[PriceSource.CONFIGURED]}")
        return f"prices of {', '.join(parts)}"
    return f"prices {_PRICES[PriceSource(account.prices)]}"


_PRICES = {
    PriceSource.SIMULATED: "are simulated",
    PriceSource.EXAMPLE: "are examples",
    PriceSource.CONFIGURED: "are those of the configuration",
}


def with_unit(number: str, account: Account) -> str:
    """A number with its unit: ``0.0059 USD``, or node-hours. :func:`figures` must stand beside it."""
    return f"{number} {'node-hours' if account.unpriced else account.currency}"


def heading(account: Account) -> str:
    """The header of a column of such numbers."""
    return "Node-hours" if account.unpriced else price_unit(account.prices, account.currency)


def price_unit(prices: str, currency: str) -> str:
    """``Simulated USD``, ``Example USD``, ``USD`` for configured prices, or ``USD, partly simulated``."""
    units = {"simulated": f"Simulated {currency}", "example": f"Example {currency}"}
    return {**units, "mixed": f"{currency}, partly simulated"}.get(prices, currency)


def cost_heading(prices: Iterable[str]) -> str:
    """The head of a column with the costs of several runs; ``Cost`` if somebody may be billed for one of them."""
    sources = sorted(set(prices))
    if {"simulated", "example"}.issuperset(sources):
        return f"{' or '.join(sources)} cost".capitalize()
    return "Cost"


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
