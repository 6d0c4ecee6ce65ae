"""Stores the prices of price sheets with a run, which counts at the prices of its time also when the sheets are gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from spotwright.model.pools import Pool, Quote

__all__ = ["quotes_from_data", "quotes_to_data"]


def quotes_to_data(pools: Mapping[str, Pool]) -> dict[str, list[object]]:
    """The quotes of pools for a JSON file; prices exactly, as text."""
    return {name: [str(pool.quote.price), *pool.quote[1:]] for name, pool in pools.items() if pool.quote is not None}


def quotes_from_data(data: Mapping[str, Sequence[object]]) -> dict[str, Quote]:
    """The quotes that :func:`quotes_to_data` wrote."""
    return {name: Quote(Fraction(str(price)), *rest) for name, (price, *rest) in data.items()}  # type: ignore[arg-type]
