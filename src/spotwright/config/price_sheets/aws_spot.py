"""AWS's spot price history: the JSON that ``aws ec2 describe-spot-price-history`` prints, or its entries as CSV.

An entry says when the price of a machine type changed in a zone; it holds until the next entry. Source: the command's page in the
AWS CLI reference. Prices are in USD: the answer names no currency (EC2 API, ``SpotPrice``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spotwright.config.price_sheets.offers import Offer, Row, Sheet, system_of
from spotwright.model.pools import Capacity

__all__ = ["COLUMNS", "is_history", "read_histories", "read_rows"]

COLUMNS = frozenset({"AvailabilityZone", "InstanceType", "ProductDescription", "SpotPrice", "Timestamp"})
"""Columns by which the CSV form is recognised."""

_KIND = "AWS spot price history"
_LETTER = re.compile(r"(?<=\d)[a-z]$")


def is_history(document: Any) -> bool:
    """Whether a JSON document is a spot price history."""
    return isinstance(document, dict) and isinstance(document.get("SpotPriceHistory"), list)


def read_histories(name: str, histories: Sequence[Mapping[str, Any]]) -> Sheet:
    """Read one or several answers. Raises :class:`ConfigError` for a wrong price or date."""
    rows = [
        Row(
            name,
            f"SpotPriceHistory[{number}]" if len(histories) == 1 else f"[{page}].SpotPriceHistory[{number}]",
            entry,
        )
        for page, history in enumerate(histories)
        for number, entry in enumerate(history["SpotPriceHistory"])
        if isinstance(entry, dict)
    ]
    remark = "the sheet ends with a NextToken: fetch the rest" if histories[-1].get("NextToken") else ""
    return Sheet(name, _KIND, None, tuple(_offers(rows)), remark)


def read_rows(name: str, rows: Sequence[Row]) -> Sheet:
    """Read the CSV form. Raises :class:`ConfigError` as :func:`read_histories` does."""
    return Sheet(name, _KIND, None, tuple(_offers(rows)))


def _offers(rows: Sequence[Row]) -> Iterator[Offer]:
    for row in rows:
        zone = row.text("AvailabilityZone").lower()
        yield Offer(
            machine=row.text("InstanceType").lower(),
            capacity=Capacity.SPOT,
            system=system_of(row.text("ProductDescription")),
            region=_LETTER.sub("", zone),
            zone=zone,
            price=row.price("SpotPrice"),
            currency="USD",
            since=row.moment("Timestamp"),
            place=row.place,
        )
