"""AWS's price list of EC2: an offer file (JSON or CSV), or the answer of ``aws pricing get-products``. On-demand prices.

Form: "Reading the service price list files" in the AWS Billing guide. A CSV file begins with five lines about itself; the JSON
has ``products`` and ``terms`` by SKU; an entry of ``PriceList`` is a JSON text with both of one product. A machine type has a
dozen prices; the plain one is shared tenancy, nothing installed, capacity in use.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spotwright.config.price_sheets.offers import Offer, Row, Sheet, system_of
from spotwright.errors import ConfigError
from spotwright.model.pools import Capacity

__all__ = ["COLUMNS", "is_offer_file", "is_product_list", "read_offer_file", "read_product_list", "read_rows"]

COLUMNS = frozenset({"SKU", "TermType", "PricePerUnit", "Instance Type", "Operating System"})
"""Columns by which the CSV form is recognised."""

_KIND = "AWS price list"
_PLAIN = {"tenancy": ("Shared", ""), "preInstalledSw": ("NA", ""), "capacitystatus": ("Used", "")}
_NAMES = {"tenancy": "Tenancy", "preInstalledSw": "Pre Installed S/W", "capacitystatus": "CapacityStatus"}  # in CSV


def is_offer_file(document: Any) -> bool:
    """Whether a JSON document is an offer file."""
    return isinstance(document, dict) and isinstance(document.get("products"), dict) and "terms" in document


def is_product_list(document: Any) -> bool:
    """Whether a JSON document is an answer of ``get-products``."""
    return isinstance(document, dict) and isinstance(document.get("PriceList"), list)


def read_offer_file(name: str, document: Mapping[str, Any]) -> Sheet:
    """Read an offer file. Raises :class:`ConfigError` for a wrong price, currency or date."""
    terms = _of(_of(document, "terms"), "OnDemand")
    offers = [
        offer
        for sku, product in document["products"].items()
        for offer in _product(name, f"products.{sku}", product, _of(terms, sku))
    ]
    return Sheet(name, _KIND, Row(name, "", document).moment("publicationDate"), tuple(offers))


def read_product_list(name: str, document: Mapping[str, Any]) -> Sheet:
    """Read an answer of ``get-products``. Raises :class:`ConfigError` as :func:`read_offer_file` does."""
    offers: list[Offer] = []
    dated = None
    for number, entry in enumerate(document["PriceList"]):
        place = f"PriceList[{number}]"
        try:
            item = json.loads(entry) if isinstance(entry, str) else entry
        except ValueError as error:
            raise ConfigError(f"{name}: {place}: not valid JSON: {error}") from None
        if not isinstance(item, dict):
            raise ConfigError(f"{name}: {place}: expected a product with its terms")
        dated = Row(name, place, item).moment("publicationDate") or dated
        offers += _product(name, place, _of(item, "product"), _of(_of(item, "terms"), "OnDemand"))
    remark = "the sheet ends with a NextToken: fetch the rest" if document.get("NextToken") else ""
    return Sheet(name, _KIND, dated, tuple(offers), remark)


def read_rows(name: str, rows: Sequence[Row], published: str) -> Sheet:
    """Read the CSV form; ``published`` is its publication date. Raises :class:`ConfigError` for a wrong value."""
    offers = [
        Offer(
            machine=row.text("Instance Type").lower(),
            capacity=Capacity.ON_DEMAND,
            system=system_of(row.text("Operating System")),
            region=row.text("Region Code").lower(),
            zone="",
            price=row.price("PricePerUnit"),
            currency=row.currency("Currency"),
            since=row.moment("EffectiveDate"),
            place=row.place,
        )
        for row in rows
        if row.text("Instance Type")
        and row.text("TermType") == "OnDemand"
        and row.text("Unit") in ("Hrs", "")
        and all(row.text(_NAMES[field]) in plain for field, plain in _PLAIN.items())
    ]
    return Sheet(name, _KIND, Row(name, "", {"Publication Date": published}).moment("Publication Date"), tuple(offers))


def _product(name: str, place: str, product: Any, terms: Mapping[str, Any]) -> Iterator[Offer]:
    attributes = Row(name, f"{place}.attributes", _of(product, "attributes"))
    is_plain = all(attributes.text(field) in plain for field, plain in _PLAIN.items())
    if not attributes.text("instanceType") or not is_plain:
        return
    for term in terms.values():
        since = Row(name, place, term).moment("effectiveDate")
        for code, dimension in _of(term, "priceDimensions").items():
            if dimension.get("unit") not in ("Hrs", None):
                continue
            amounts = Row(name, f"{place}.priceDimensions.{code}.pricePerUnit", _of(dimension, "pricePerUnit"))
            for currency in amounts.values:
                yield Offer(
                    machine=attributes.text("instanceType").lower(),
                    capacity=Capacity.ON_DEMAND,
                    system=system_of(attributes.text("operatingSystem")),
                    region=attributes.text("regionCode").lower(),
                    zone="",
                    price=amounts.price(currency),
                    currency=currency,
                    since=since,
                    place=place,
                )


def _of(document: Any, key: str) -> Mapping[str, Any]:
    """The mapping under a key; an empty one if there is none."""
    value = document.get(key) if isinstance(document, dict) else None
    return value if isinstance(value, dict) else {}
