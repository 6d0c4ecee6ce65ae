"""The words for amounts and prices, the same in every view."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from spotwright.model.pools import PriceSource
from spotwright.model.quantities import format_money
from spotwright.views.account.account_model import Account, SpentOn
from spotwright.views.account.amounts import Amount, Range
from spotwright.views.phrasing import span

__all__ = ["SPENT", "cost", "cost_heading", "cost_range", "figures", "heading", "price_unit", "time_range", "with_unit"]

SPENT: Mapping[SpentOn, str] = {
    SpentOn.INTERRUPTIONS: "wasted by interruptions",
    SpentOn.MOVES: "wasted by moves",
    SpentOn.ERRORS: "spent on errors",
    SpentOn.STOPPED: "spent on what was stopped",
    SpentOn.UNDER_WAY: "under way",
}
"""The name of each line of an account."""


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
