"""Reads recorded traces from files: ``{"metadata": {"gap_seconds": 300}, "data": [4, 4, 3, ...]}``.

``"prices": [0.9, 1.1, ...]`` may stand beside ``data``: the price of a node, per hour, for each count.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

from spotwright.config.text_files import read_text
from spotwright.errors import ConfigError
from spotwright.model.pools import Trace
from spotwright.model.quantities import parse_price

__all__ = ["load_trace"]

MAX_BYTES = 100_000_000  # 45 days in steps of 195 s are 60 kB
MAX_GAP = 366 * 86400  # seconds


def load_trace(path: str | Path, max_price: Fraction | None = None) -> Trace:
    """Read a recorded trace. No node is available in it while its price is above ``max_price``.

    Raises :class:`ConfigError` that names the file and what it must hold.
    """
    text = read_text(path, MAX_BYTES)
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: not valid JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
        raise ConfigError(f"{path}: not a trace: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError(f'{path}: expected {{"metadata": {{"gap_seconds": n}}, "data": [counts]}}')
    counts = _counts(document, path)
    prices = _prices(document, path, len(counts))
    if max_price is not None and prices:
        counts = tuple(0 if price > max_price else count for count, price in zip(counts, prices, strict=True))
    return Trace(_gap(document, path), counts)


def _gap(document: dict[str, Any], path: str | Path) -> float:
    metadata = document.get("metadata")
    gap = metadata.get("gap_seconds") if isinstance(metadata, dict) else None
    if isinstance(gap, bool) or not isinstance(gap, int | float) or not 0 < gap <= MAX_GAP or math.isnan(gap):
        raise ConfigError(f"{path}: metadata.gap_seconds: expected the seconds between two counts, more than 0")
    return float(gap)


def _counts(document: dict[str, Any], path: str | Path) -> tuple[int, ...]:
    data = document.get("data")
    if not isinstance(data, list) or not data:
        raise ConfigError(f"{path}: data: expected a list of numbers of available nodes, one or more")
    for index, count in enumerate(data):
        if type(count) is not int or count < 0:
            raise ConfigError(
                f"{path}: data[{index}]: expected a whole number, 0 or more, found {json.dumps(count)[:60]}"
            )
    return tuple(data)


def _prices(document: dict[str, Any], path: str | Path, count: int) -> tuple[Fraction, ...]:
    prices = document.get("prices", [])
    if not isinstance(prices, list) or (prices and len(prices) != count):
        raise ConfigError(f"{path}: prices: expected a list with a price for each count of data ({count})")
    return tuple(_price(price, f"{path}: prices[{index}]") for index, price in enumerate(prices))


def _price(price: Any, field: str) -> Fraction:
    try:
        return parse_price(price if isinstance(price, int | float | str) else "")
    except ValueError:
        raise ConfigError(f"{field}: expected an amount per hour, 0 or more, found {json.dumps(price)[:60]}") from None
