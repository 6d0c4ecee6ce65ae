"""Google Cloud: the SKU list of the Cloud Billing API, or rows of a billing export. Both price the parts of a machine.

A machine costs its cores, its memory and its GPUs, each with an SKU for its family, region and capacity type; the kind of part
is told by the SKU's description (``Spot Preemptible N1 Predefined Instance Core running in Americas``). Sources: the reference of
``services.skus.list``, "Understanding the Cloud Billing data tables in BigQuery", and descriptions in public price tools. Nested
fields of an export are named with points (``sku.description``), in CSV also with underscores.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from spotwright.config.price_sheets.offers import Offer, Row, Sheet
from spotwright.model.pools import Capacity

__all__ = ["COLUMNS", "is_export", "is_sku_list", "read_export", "read_skus"]

COLUMNS = frozenset({"sku.description", "cost", "currency", "usage.amount_in_pricing_units"})
"""Columns by which the CSV form of an export is recognised."""

_SPOT = r"(?P<spot>Spot Preemptible |Preemptible )?"
_PART = re.compile(
    rf"{_SPOT}(?P<family>[A-Z]\d[A-Z]?|Compute optimized)(?: Predefined| AMD| Arm)*(?: Instance)? (?P<part>Core|Ram) running in "
)
_GPU = re.compile(r"(?P<gpu>Nvidia [\w ]+?) GPU (?P<spot>attached to (?:Spot )?Preemptible VMs )?running in ")
_FAMILIES = {"compute optimized": "c2"}
_NANO = 10**9


def is_sku_list(document: Any) -> bool:
    """Whether a JSON document is an answer of ``services.skus.list``."""
    return isinstance(document, dict) and isinstance(document.get("skus"), list)


def is_export(rows: Any) -> bool:
    """Whether a JSON document is a list of rows of a billing export."""
    first = rows[0] if isinstance(rows, list) and rows else None
    return isinstance(first, dict) and isinstance(first.get("sku"), dict) and "cost" in first


def read_skus(name: str, answers: Sequence[Mapping[str, Any]]) -> Sheet:
    """Read one or several answers. Raises :class:`ConfigError` for a wrong price, currency or date."""
    skus = [(page, number, sku) for page, answer in enumerate(answers) for number, sku in enumerate(answer["skus"])]
    offers = [
        offer
        for page, number, sku in skus
        if isinstance(sku, dict)
        for offer in _sku(name, f"skus[{number}]" if len(answers) == 1 else f"[{page}].skus[{number}]", sku)
    ]
    remark = "the sheet ends with a nextPageToken: fetch the rest" if answers[-1].get("nextPageToken") else ""
    return Sheet(name, "Google Cloud SKU list", None, tuple(offers), remark)


def read_export(name: str, rows: Sequence[Row]) -> Sheet:
    """Read rows of a billing export, nested or flat: each gives the price that was paid for a unit.

    Raises :class:`ConfigError` for a wrong cost, amount, currency or date.
    """
    offers = [offer for row in rows for offer in _billed(row._replace(values=_flat(row.values)))]
    newest = max((offer.since for offer in offers if offer.since is not None), default=None)
    return Sheet(name, "Google Cloud billing export", newest, tuple(offers))


def _kind(description: str) -> tuple[str, str, Capacity] | None:
    """Family, part and capacity type of an SKU by its description; ``None`` for everything else that is sold."""
    match = _PART.match(description) or _GPU.match(description)
    if match is None:
        return None
    capacity = Capacity.SPOT if match["spot"] else Capacity.ON_DEMAND
    if match.re is _GPU:
        return "", f"gpu:{match['gpu'].lower().replace(' ', '-')}", capacity
    family = match["family"].lower()
    return _FAMILIES.get(family, family), match["part"].lower(), capacity


def _sku(name: str, place: str, sku: Mapping[str, Any]) -> Iterator[Offer]:
    kind = _kind(str(sku.get("description", "")))
    pricing = sku.get("pricingInfo")
    if kind is None or not isinstance(pricing, list) or not pricing:
        return
    family, part, capacity = kind
    info = pricing[-1]  # the newest
    rates = info.get("pricingExpression", {}).get("tieredRates") or [{}]
    row = Row(name, f"{place}.pricingInfo.unitPrice", rates[-1].get("unitPrice", {}))
    price = row.price("units") + row.price("nanos") / _NANO
    for region in sku.get("serviceRegions") or [""]:
        yield Offer(
            machine=family,
            capacity=capacity,
            system="linux",
            region=str(region).lower(),
            zone="",
            price=price,
            currency=row.currency("currencyCode"),
            since=Row(name, place, info).moment("effectiveTime"),
            place=place,
            part=part,
        )


def _billed(row: Row) -> Iterator[Offer]:
    kind = _kind(row.text("sku.description"))
    if kind is None:
        return
    amount = row.price("usage.amount_in_pricing_units")
    if not amount:
        return  # a correction or a credit: it has no price
    family, part, capacity = kind
    cost: Fraction = row.price("cost")
    yield Offer(
        machine=family,
        capacity=capacity,
        system="linux",
        region=row.text("location.region").lower(),
        zone="",
        price=cost / amount,
        currency=row.currency("currency"),
        since=row.moment("usage_end_time"),
        place=row.place,
        part=part,
    )


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested fields by their names with points."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": each for inner, each in value.items()}
        else:
            flat[key] = value
    return flat
