"""Azure's retail prices: the answer of the REST API, several pages of it, or its items as CSV.

Fields and their values: "Azure Retail Prices overview" in Microsoft's documentation (``prices.azure.com/api/retail/prices``,
api-version 2023-01-01-preview). An answer has 1,000 items and a ``NextPageLink`` to the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spotwright.config.price_sheets.offers import Offer, Row, Sheet
from spotwright.model.pools import Capacity

__all__ = ["COLUMNS", "is_answer", "read_answers", "read_rows"]

COLUMNS = frozenset({"armSkuName", "armRegionName", "retailPrice", "currencyCode", "skuName"})
"""Columns by which the CSV form is recognised."""

_KIND = "Azure retail prices"
_OTHER_USES = ("cloudservices", "cloud services", "dedicated host")  # other products on machines of the same name


def is_answer(document: Any) -> bool:
    """Whether a JSON document is an answer of the API."""
    return isinstance(document, dict) and isinstance(document.get("Items"), list)


def read_answers(name: str, answers: Sequence[Mapping[str, Any]]) -> Sheet:
    """Read one or several answers. Raises :class:`ConfigError` for a wrong price, currency or date."""
    rows = [
        Row(name, f"Items[{number}]" if len(answers) == 1 else f"[{page}].Items[{number}]", item)
        for page, answer in enumerate(answers)
        for number, item in enumerate(answer["Items"])
        if isinstance(item, dict)
    ]
    more = answers[-1].get("NextPageLink")
    remark = "the sheet ends with a NextPageLink: fetch the other pages, or filter by armSkuName" if more else ""
    return Sheet(name, _KIND, None, tuple(_offers(rows)), remark)


def read_rows(name: str, rows: Sequence[Row]) -> Sheet:
    """Read the CSV form. Raises :class:`ConfigError` as :func:`read_answers` does."""
    return Sheet(name, _KIND, None, tuple(_offers(rows)))


def _offers(rows: Sequence[Row]) -> Iterator[Offer]:
    for row in rows:
        if not _is_machine(row):
            continue
        is_spot = row.text("skuName").endswith(" Spot") or row.text("meterName").endswith(" Spot")
        yield Offer(
            machine=row.text("armSkuName").lower(),
            capacity=Capacity.SPOT if is_spot else Capacity.ON_DEMAND,
            system="windows" if row.text("productName").lower().endswith("windows") else "linux",
            region=row.text("armRegionName").lower(),
            zone="",
            price=row.price("retailPrice"),
            currency=row.currency("currencyCode"),
            since=row.moment("effectiveStartDate"),
            place=row.place,
        )


def _is_machine(row: Row) -> bool:
    """Whether the item is an hour of a virtual machine: no reservation, no test offer, no machine of low priority."""
    product = row.text("productName").lower()
    return (
        bool(row.text("armSkuName"))
        and row.text("serviceName") in ("", "Virtual Machines")
        and row.text("type") in ("", "Consumption")
        and row.text("unitOfMeasure") in ("", "1 Hour")
        and "Low Priority" not in row.text("skuName")
        and not any(words in product for words in _OTHER_USES)
    )
