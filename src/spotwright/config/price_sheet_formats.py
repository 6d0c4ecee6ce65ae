"""Reads the price sheets that AWS, Azure and Google Cloud publish, export or answer, into offers of one form.

Of AWS: an offer file of EC2 (JSON or CSV) or the answer of ``aws pricing get-products`` for on-demand, and the spot price
history. Of Azure: the retail prices, as answers of the REST API or as CSV. Of Google Cloud: the SKU list of the Cloud Billing
API or rows of a billing export, which price the parts of a machine.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, NamedTuple

from spotwright.errors import ConfigError
from spotwright.model.pools import Capacity

__all__ = [
    "AWS_OFFER_COLUMNS",
    "AWS_SPOT_COLUMNS",
    "AZURE_COLUMNS",
    "GCP_COLUMNS",
    "Offer",
    "Row",
    "Sheet",
    "is_answer",
    "is_export",
    "is_history",
    "is_offer_file",
    "is_product_list",
    "is_sku_list",
    "read_answers",
    "read_aws_offers",
    "read_aws_spot_history",
    "read_azure_prices",
    "read_export",
    "read_histories",
    "read_offer_file",
    "read_product_list",
    "read_skus",
    "system_of",
]


_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,2})?")
_CURRENCY = re.compile(r"[A-Z]{3}")
_LONGEST = 60  # characters of a value that a message repeats


class Offer(NamedTuple):
    """One price per hour. ``place`` names the entry of the sheet in messages.

    ``machine`` is a machine type in small letters. Where a provider sells the parts of a machine (Google Cloud), ``part`` is
    ``core``, ``ram`` (a GiB) or ``gpu:TYPE``, and ``machine`` is the family. An empty ``zone`` is the whole region.
    ``since`` is the moment from which the price holds, in Unix seconds.
    """

    machine: str
    capacity: Capacity
    system: str
    region: str
    zone: str
    price: Fraction
    currency: str
    since: float | None
    place: str
    part: str = ""


class Sheet(NamedTuple):
    """A price sheet. ``dated`` is its publication in Unix seconds, if it names one; ``remark`` is a limit of it, for messages."""

    name: str
    kind: str
    dated: float | None
    offers: tuple[Offer, ...]
    remark: str = ""


class Row(NamedTuple):
    """One entry of a sheet: reads its values, and names the file, the place and the field where one is wrong."""

    sheet: str
    place: str
    values: Mapping[str, Any]

    def text(self, field: str) -> str:
        """A text, without surrounding space; empty if there is none."""
        value = self.values.get(field)
        return "" if value is None else str(value).strip()

    def price(self, field: str) -> Fraction:
        """An amount of money, 0 or more. Raises :class:`ConfigError`."""
        value = self.values.get(field)
        text = repr(value) if isinstance(value, float) else self.text(field)
        if isinstance(value, bool) or not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
            raise self.wrong(field, "an amount such as 0.192", value)
        if Fraction(text) < 0:
            raise self.wrong(field, "an amount of 0 or more", value)
        return Fraction(text)

    def currency(self, field: str) -> str:
        """A currency code. Raises :class:`ConfigError`."""
        text = self.text(field)
        if not _CURRENCY.fullmatch(text):
            raise self.wrong(field, "a currency code such as USD", self.values.get(field))
        return text

    def moment(self, field: str) -> float | None:
        """Unix seconds of a date or a time, in UTC unless it names a zone; ``None`` if there is none.

        Raises :class:`ConfigError`.
        """
        text = self.text(field)
        if not text:
            return None
        try:
            moment = datetime.fromisoformat(text.removesuffix(" UTC"))
        except ValueError:
            raise self.wrong(field, "a date such as 2026-11-01", text) from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()

    def wrong(self, field: str, expected: str, found: Any) -> ConfigError:
        """The error of a wrong value; the caller raises it."""
        shown = "nothing" if found is None or found == "" else repr(found)[:_LONGEST]
        where = f"{self.place}.{field}" if self.place else field
        return ConfigError(f"{self.sheet}: {where}: expected {expected}, found {shown}")


def system_of(text: str) -> str:
    """The operating system in small letters: ``linux`` for ``Linux/UNIX``, ``windows``; others as the sheet names them."""
    plain = text.removesuffix("(Amazon VPC)").strip().lower()
    return "linux" if plain in ("", "linux", "linux/unix") else plain


AWS_OFFER_COLUMNS = frozenset({"SKU", "TermType", "PricePerUnit", "Instance Type", "Operating System"})
"""Columns by which the CSV form is recognised."""

_AWS_PRICE_LIST = "AWS price list"
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
    return Sheet(name, _AWS_PRICE_LIST, Row(name, "", document).moment("publicationDate"), tuple(offers))


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
    return Sheet(name, _AWS_PRICE_LIST, dated, tuple(offers), remark)


def read_aws_offers(name: str, rows: Sequence[Row], published: str) -> Sheet:
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
    return Sheet(
        name, _AWS_PRICE_LIST, Row(name, "", {"Publication Date": published}).moment("Publication Date"), tuple(offers)
    )


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


AWS_SPOT_COLUMNS = frozenset({"AvailabilityZone", "InstanceType", "ProductDescription", "SpotPrice", "Timestamp"})
"""Columns by which the CSV form is recognised."""

_AWS_SPOT_HISTORY = "AWS spot price history"
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
    return Sheet(name, _AWS_SPOT_HISTORY, None, tuple(_aws_spot_offers(rows)), remark)


def read_aws_spot_history(name: str, rows: Sequence[Row]) -> Sheet:
    """Read the CSV form. Raises :class:`ConfigError` as :func:`read_histories` does."""
    return Sheet(name, _AWS_SPOT_HISTORY, None, tuple(_aws_spot_offers(rows)))


def _aws_spot_offers(rows: Sequence[Row]) -> Iterator[Offer]:
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


AZURE_COLUMNS = frozenset({"armSkuName", "armRegionName", "retailPrice", "currencyCode", "skuName"})
"""Columns by which the CSV form is recognised."""

_AZURE_PRICES = "Azure retail prices"
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
    return Sheet(name, _AZURE_PRICES, None, tuple(_azure_offers(rows)), remark)


def read_azure_prices(name: str, rows: Sequence[Row]) -> Sheet:
    """Read the CSV form. Raises :class:`ConfigError` as :func:`read_answers` does."""
    return Sheet(name, _AZURE_PRICES, None, tuple(_azure_offers(rows)))


def _azure_offers(rows: Sequence[Row]) -> Iterator[Offer]:
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


GCP_COLUMNS = frozenset({"sku.description", "cost", "currency", "usage.amount_in_pricing_units"})
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
