"""Gives pools without a price the one that the price sheets have for them.

A sheet is recognised by its shape. Among its offers a pool's is found by machine type, capacity type, operating system, region
and zone.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from spotwright.config import price_sheet_formats
from spotwright.config.document import read_bounded, read_text
from spotwright.config.price_sheet_formats import Offer, Row, Sheet
from spotwright.errors import ConfigError
from spotwright.model.pools import Pool, Quote

__all__ = ["MAX_BYTES", "Found", "NoPrice", "dated_sheets", "find_price", "named_sheet", "quoted", "read_sheet"]


_ZONE_OF_REGION = re.compile(r"(?P<aws>[a-z]{2}(?:-[a-z]+)+-\d+)[a-z]|(?P<gcp>[a-z]+(?:-[a-z]+)+\d+)-[a-z]")
_GPU = "nvidia.com/gpu"
_GPU_LABEL = "cloud.google.com/gke-accelerator"  # which GPU it is: GKE's own label, "About GPUs in GKE"
_GIB = 2**30


class NoPrice(Exception):
    """The sheets have no price of a pool, or several. The message says what they have, and the fix."""


class Found(NamedTuple):
    """The price of a pool, an offer that it was made of, and the sheet of the offer."""

    price: Fraction
    offer: Offer
    sheet: Sheet
    remark: str = ""


def find_price(pool: Pool, system: str, sheets: Sequence[Sheet]) -> Found:
    """The price of a node of the pool with this operating system. Raises :class:`NoPrice`."""
    if not pool.machine:
        raise NoPrice("no machine: name one, by which the price is looked up, or a price")
    machine = pool.machine.lower()
    for sheet in sheets:
        whole = [offer for offer in sheet.offers if not offer.part and offer.machine == machine]
        if any(offer.capacity is pool.capacity and offer.system == system for offer in whole):
            return _highest(pool, _here(pool, whole, system), sheet)
    for sheet in sheets:
        family = machine.partition("-")[0]
        if "-" in machine and any(offer.part and offer.machine == family for offer in sheet.offers):
            return _composed(pool, family, sheet, system)
    raise NoPrice(_nothing(machine, pool, system, sheets))


def _nothing(machine: str, pool: Pool, system: str, sheets: Sequence[Sheet]) -> str:
    """What the sheets have instead of the price that is looked for."""
    names = ", ".join(sheet.name for sheet in sheets)
    offers = [offer for sheet in sheets for offer in sheet.offers if not offer.part]
    kinds = sorted({f"{offer.capacity} {offer.system}" for offer in offers if offer.machine == machine})
    if kinds:
        return f"{names}: {pool.machine} has no {pool.capacity} price for {system}, only for {', '.join(kinds)}"
    close = difflib.get_close_matches(machine, sorted({offer.machine for offer in offers}), n=1)
    remarks = "".join(f"; {sheet.remark}" for sheet in sheets if sheet.remark)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"{names}: no price of {pool.machine}{hint}{remarks}; add a sheet that has it, or a price"


def _here(pool: Pool, offers: Iterable[Offer], system: str) -> list[Offer]:
    """The offers of the pool's kind in its region and zones."""
    offers = [offer for offer in offers if offer.capacity is pool.capacity and offer.system in (system, "")]
    regions = sorted({offer.region for offer in offers})
    wanted = {pool.region.lower()} if pool.region else {_region_of(zone) for zone in pool.zones} - {""}
    if not wanted and len(regions) > 1:
        raise NoPrice(f"prices in {len(regions)} regions ({_some(regions)}): set region: in the pool")
    if wanted:
        offers = [offer for offer in offers if offer.region in wanted]
        if not offers:
            raise NoPrice(f"no price in {', '.join(sorted(wanted))}, only in {_some(regions)}")
    return _in_zones(pool, offers)


def _in_zones(pool: Pool, offers: list[Offer]) -> list[Offer]:
    zones = {zone.lower() for zone in pool.zones}
    by_zone = sorted({offer.zone for offer in offers} - {""})
    if not zones or not by_zone:
        return offers
    here = [offer for offer in offers if offer.zone in zones or not offer.zone]
    if not here:
        raise NoPrice(f"no price in the zones {', '.join(pool.zones)}, only in {_some(by_zone)}")
    return here


def _region_of(zone: str) -> str:
    """The region of an AWS or Google Cloud zone (``us-east-1a``, ``us-central1-a``); Azure's zones are numbers."""
    match = _ZONE_OF_REGION.fullmatch(zone.lower())
    return (match["aws"] or match["gcp"]) if match else ""


def _highest(pool: Pool, offers: Sequence[Offer], sheet: Sheet) -> Found:
    newest = [
        _newest(pool, [offer for offer in offers if offer.zone == zone]) for zone in {each.zone for each in offers}
    ]
    currencies = sorted({offer.currency for offer in newest})
    if len(currencies) > 1:
        raise NoPrice(f"{sheet.name}: prices in {' and '.join(currencies)}: keep one currency in the sheet")
    highest = max(newest, key=lambda offer: (offer.price, offer.zone))
    differ = len({offer.price for offer in newest}) > 1
    return Found(highest.price, highest, sheet, f"the highest of {len(newest)} zones" if differ else "")


def _newest(pool: Pool, offers: Sequence[Offer]) -> Offer:
    """The newest price of one place. Raises :class:`NoPrice` if there are two."""
    moment = max(offer.since or 0.0 for offer in offers)
    newest = [offer for offer in offers if (offer.since or 0.0) == moment]
    for offer in newest[1:]:
        if (offer.price, offer.currency) != (newest[0].price, newest[0].currency):
            first = newest[0]
            raise NoPrice(
                f"two prices of {pool.machine}: {float(first.price):g} {first.currency} ({first.place}) and "
                f"{float(offer.price):g} {offer.currency} ({offer.place}): keep one in the sheet, or set price: in the pool"
            )
    return newest[-1]


def _composed(pool: Pool, family: str, sheet: Sheet, system: str) -> Found:
    """The sum of a machine's parts. Google Cloud charges a Windows licence beside them, which no sheet here has."""
    if system != "linux":
        raise NoPrice(f"{sheet.name}: prices of parts, without the licence for {system}: set price: in the pool")
    node = pool.node or {}
    if not node.get("cpu") or not node.get("memory"):
        raise NoPrice(f"{sheet.name} has prices of cores and memory: set node: {{cpu: ..., memory: ...}} in the pool")
    amounts = {(family, "core"): Fraction(node["cpu"], 1000), (family, "ram"): Fraction(node["memory"], _GIB)}
    if node.get(_GPU):
        gpu = pool.labels.get(_GPU_LABEL)
        if not gpu:
            raise NoPrice(f"{sheet.name} has prices of GPUs by type: set the label {_GPU_LABEL} in the pool")
        amounts["", f"gpu:{gpu}"] = Fraction(node[_GPU])
    found = [_part(pool, machine, part, sheet) for machine, part in amounts]
    currencies = sorted({each.offer.currency for each in found})
    if len(currencies) > 1:
        raise NoPrice(f"{sheet.name}: prices in {' and '.join(currencies)}: keep one currency in the sheet")
    price = sum((each.price * amount for each, amount in zip(found, amounts.values(), strict=True)), Fraction(0))
    names = " + ".join(f"{float(amount):g} {part}" for (_, part), amount in amounts.items())
    return Found(price, found[0].offer, sheet, f"the sum of {names}")


def _part(pool: Pool, machine: str, part: str, sheet: Sheet) -> Found:
    offers = [offer for offer in sheet.offers if (offer.machine, offer.part) == (machine, part)]
    if not any(offer.capacity is pool.capacity for offer in offers):
        raise NoPrice(f"{sheet.name}: no {pool.capacity} price of {machine} {part}".replace("  ", " "))
    return _highest(pool, _here(pool, offers, "linux"), sheet)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


MAX_BYTES = 100_000_000
"""Largest sheet. AWS's offer file of a whole region is larger: filter it, for example with ``aws pricing get-products``."""

_KNOWN = (
    "Azure retail prices (JSON with Items, or CSV), AWS spot price history (SpotPriceHistory), AWS price list (products and "
    "terms, PriceList, or CSV), Google Cloud SKUs (skus) or billing export (rows with sku and cost)"
)
_ABOUT = 5  # lines of AWS's CSV before its columns
_EXPORTED = {
    name.replace(".", "_"): name for name in (*price_sheet_formats.GCP_COLUMNS, "location.region", "usage_end_time")
}


def read_sheet(text: str, name: str) -> Sheet:
    """Read a price sheet; ``name`` is its name in messages.

    Raises :class:`ConfigError` for an empty or unknown file, and for a wrong value, with its place.
    """
    if not text.strip():
        raise ConfigError(f"{name}: expected a price sheet, found an empty file")
    sheet = _json(text, name) if text.lstrip()[0] in "{[" else _csv(text, name)
    if not sheet.offers:
        raise ConfigError(f"{name}: {sheet.kind}, but no price of a machine in it: check the filter that made the file")
    return sheet


def _json(text: str, name: str) -> Sheet:
    documents = _documents(text, name)
    first = documents[0]
    if all(price_sheet_formats.is_answer(each) for each in documents):
        return price_sheet_formats.read_answers(name, documents)
    if all(price_sheet_formats.is_history(each) for each in documents):
        return price_sheet_formats.read_histories(name, documents)
    if all(price_sheet_formats.is_sku_list(each) for each in documents):
        return price_sheet_formats.read_skus(name, documents)
    if price_sheet_formats.is_export(documents):
        return price_sheet_formats.read_export(
            name, [Row(name, f"[{number}]", row) for number, row in enumerate(documents)]
        )
    if len(documents) == 1 and price_sheet_formats.is_offer_file(first):
        return price_sheet_formats.read_offer_file(name, first)
    if len(documents) == 1 and price_sheet_formats.is_product_list(first):
        return price_sheet_formats.read_product_list(name, first)
    raise ConfigError(f"{name}: not a price sheet of a known form: expected {_KNOWN}")


def _documents(text: str, name: str) -> list[Any]:
    """The document of the file, those of the list that it is, or one a line."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        if error.msg != "Extra data" or len(lines) < 2:
            raise ConfigError(f"{name}:{error.lineno}: not valid JSON: {error.msg}") from None
        return [_line(line, name, number) for number, line in enumerate(lines, 1)]
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
        raise ConfigError(f"{name}: not a price sheet: {error}") from None
    if isinstance(document, list):
        return document or [None]
    return [document]


def _line(line: str, name: str, number: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name}:{number}: not valid JSON: {error}") from None


def _csv(text: str, name: str) -> Sheet:
    lines = text.splitlines(keepends=True)
    is_aws = lines[0].lower().replace('"', "").startswith("formatversion")
    about = dict(_cells(lines[:_ABOUT])) if is_aws else {}
    reader = csv.DictReader(io.StringIO("".join(lines[_ABOUT if is_aws else 0 :]), newline=""))
    try:
        columns = {_EXPORTED.get(column, column) for column in reader.fieldnames or () if column}
        rows = [Row(name, f"line {reader.line_num + (_ABOUT if is_aws else 0)}", _named(values)) for values in reader]
    except csv.Error as error:
        raise ConfigError(f"{name}:{reader.line_num}: not valid CSV: {error}") from None
    if columns >= price_sheet_formats.AZURE_COLUMNS:
        return price_sheet_formats.read_azure_prices(name, rows)
    if columns >= price_sheet_formats.AWS_SPOT_COLUMNS:
        return price_sheet_formats.read_aws_spot_history(name, rows)
    if columns >= price_sheet_formats.AWS_OFFER_COLUMNS:
        return price_sheet_formats.read_aws_offers(name, rows, about.get("publication date", ""))
    if columns >= price_sheet_formats.GCP_COLUMNS:
        return price_sheet_formats.read_export(name, rows)
    raise ConfigError(f"{name}: not a price sheet of a known form: expected {_KNOWN}")


def _named(values: dict[str | None, Any]) -> dict[str, Any]:
    """The values of a line by column; names of an export get their points."""
    return {_EXPORTED.get(column, column): value for column, value in values.items() if column}


def _cells(lines: Sequence[str]) -> list[tuple[str, str]]:
    return [(row[0].lower(), row[1]) for row in csv.reader(lines) if len(row) > 1]


def dated_sheets(paths: Iterable[Path]) -> list[Sheet]:
    """Read price sheets; one without a date of its own has that of its file's last change. Raises :class:`ConfigError`."""
    sheets = []
    for path in paths:
        sheet = read_sheet(read_text(path, MAX_BYTES), str(path))
        sheets.append(sheet if sheet.dated is not None else sheet._replace(dated=path.stat().st_mtime))
    return sheets


def named_sheet(name: str, standard_input: BinaryIO, now: float) -> Sheet:
    """The price sheet that a command line names; ``-`` is standard input, whose sheet is of ``now``.

    Raises :class:`InputError`.
    """
    if name != "-":
        return dated_sheets([Path(name)])[0]
    data = read_bounded(standard_input, MAX_BYTES, "standard input")
    sheet = read_sheet(data.decode("utf-8-sig", errors="replace"), "standard input")
    return sheet if sheet.dated is not None else sheet._replace(dated=now)


def quoted(pool: Pool, sheets: Sequence[Sheet], currency: str) -> Pool:
    """The pool with the price of the first sheet that has one. Raises :class:`NoPrice`."""
    found = find_price(pool, pool.os, sheets)
    offer = found.offer
    if offer.currency != currency:
        raise NoPrice(
            f"{found.sheet.name} is in {offer.currency}, this file in {currency}: set currency: {offer.currency}, or take "
            f"a sheet in {currency}"
        )
    name = Path(found.sheet.name).name
    dated = found.sheet.dated or 0.0
    quote = Quote(
        found.price, offer.currency, offer.region, offer.zone, offer.since, dated, name, found.sheet.kind, found.remark
    )
    return replace(pool, price=found.price, quote=quote)
