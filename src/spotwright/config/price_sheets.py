"""Looks up the prices of pools without one in price sheets.

A sheet is a CSV with the columns of :data:`COLUMNS`. Spotwright neither asks providers nor reads their formats: the guide on
pools has a command for each cloud that makes a sheet from the cloud's answer. A pool's offer is found by machine type, capacity
type, operating system, region and zone.
"""

from __future__ import annotations

import csv
import difflib
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO, NamedTuple

from spotwright.config.document import read_bounded, read_text
from spotwright.errors import ConfigError
from spotwright.model.pools import Capacity, Pool, Quote

__all__ = ["COLUMNS", "MAX_BYTES", "NoPrice", "dated_sheets", "named_sheet", "quoted", "read_sheet"]

COLUMNS = ("machine", "capacity", "price", "currency", "region", "zone", "os", "since")
"""The columns of a sheet, in any order; the first three are required.

``machine``: the machine type; ``capacity``: ``spot`` or ``on-demand``; ``price``: of one machine per hour; ``currency``: a code
(default USD); ``region``, ``zone``: where the price applies (default everywhere); ``os``: ``linux`` (the default) or
``windows``; ``since``: the date or time from which it applies.
"""

MAX_BYTES = 100_000_000
"""Largest sheet."""

_REQUIRED = frozenset(COLUMNS[:3])
_NUMBER = re.compile(r"(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,2})?")
_CURRENCY = re.compile(r"[A-Z]{3}")
_ZONE_OF_REGION = re.compile(r"(?P<aws>[a-z]{2}(?:-[a-z]+)+-\d+)[a-z]|(?P<gcp>[a-z]+(?:-[a-z]+)+\d+)-[a-z]")


class NoPrice(Exception):
    """The sheets have no price for a pool, or several. The message has the similar prices and the fix."""


class Offer(NamedTuple):
    """One price per hour. ``machine`` is lowercase, ``since`` in Unix seconds; ``place`` names its line in messages."""

    machine: str
    capacity: Capacity
    price: Fraction
    currency: str
    region: str
    zone: str
    system: str
    since: float | None
    place: str


class Sheet(NamedTuple):
    """A price sheet. ``dated`` is when it was saved, in Unix seconds."""

    name: str
    dated: float
    offers: tuple[Offer, ...]


def read_sheet(text: str, name: str, dated: float) -> Sheet:
    """Read a price sheet; ``name`` is its name in messages.

    Raises :class:`ConfigError` for another format, and for a wrong value, with its place.
    """
    if not text.strip():
        raise ConfigError(f"{name}: expected a price sheet, found an empty file")
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        missing = sorted(_REQUIRED.difference(reader.fieldnames or ()))
        if missing:
            raise ConfigError(
                f"{name}: not a price sheet: its first line names no {', '.join(missing)}; expected CSV with the columns "
                f"{','.join(COLUMNS)}"
            )
        offers = tuple(_offer(name, reader.line_num, row) for row in reader)
    except csv.Error as error:
        raise ConfigError(f"{name}:{reader.line_num}: not valid CSV: {error}") from None
    if not offers:
        raise ConfigError(f"{name}: contains no prices: check the command that made it")
    return Sheet(name, dated, offers)


def _offer(name: str, line: int, row: dict[str, str | None]) -> Offer:
    value = {column: (row.get(column) or "").strip() for column in COLUMNS}

    def wrong(column: str, expected: str) -> ConfigError:
        return ConfigError(f"{name}:{line}: {column}: expected {expected}, found {value[column] or 'nothing'!s:.60}")

    if not value["machine"]:
        raise wrong("machine", "a machine type such as m5.xlarge")
    if value["capacity"] not in tuple(Capacity):
        raise wrong("capacity", "spot or on-demand")
    if not _NUMBER.fullmatch(value["price"]) or not math.isfinite(float(value["price"])):
        raise wrong("price", "an amount such as 0.192")
    if value["currency"] and not _CURRENCY.fullmatch(value["currency"]):
        raise wrong("currency", "a currency code such as USD")
    try:
        since = _moment(value["since"])
    except ValueError:
        raise wrong("since", "a date such as 2026-11-01") from None
    return Offer(
        value["machine"].lower(),
        Capacity(value["capacity"]),
        Fraction(value["price"]),
        value["currency"] or "USD",
        value["region"].lower(),
        value["zone"].lower(),
        value["os"].lower() or "linux",
        since,
        f"line {line}",
    )


def _moment(text: str) -> float | None:
    if not text:
        return None
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def quoted(pool: Pool, sheets: Sequence[Sheet], currency: str) -> Pool:
    """The pool with the price of the first sheet that has one. Raises :class:`NoPrice`."""
    sheet, offer, remark = _find(pool, sheets)
    if offer.currency != currency:
        raise NoPrice(
            f"{sheet.name} is in {offer.currency}, this file in {currency}: set currency: {offer.currency}, or use a sheet in"
            f" {currency}"
        )
    name = Path(sheet.name).name
    region = offer.region or _region_of(offer.zone)
    quote = Quote(offer.price, offer.currency, region, offer.zone, offer.since, sheet.dated, name, remark)
    return replace(pool, price=offer.price, quote=quote)


def _find(pool: Pool, sheets: Sequence[Sheet]) -> tuple[Sheet, Offer, str]:
    if not pool.machine:
        raise NoPrice("no machine: set one, to look up its price, or set a price")
    machine = pool.machine.lower()
    for sheet in sheets:
        offers = [
            offer
            for offer in sheet.offers
            if (offer.machine, offer.capacity, offer.system) == (machine, pool.capacity, pool.os)
        ]
        if offers:
            return sheet, *_highest(pool, _here(pool, offers), sheet)
    raise NoPrice(_nothing(machine, pool, sheets))


def _nothing(machine: str, pool: Pool, sheets: Sequence[Sheet]) -> str:
    """The similar prices that the sheets do have."""
    names = ", ".join(sheet.name for sheet in sheets)
    offers = [offer for sheet in sheets for offer in sheet.offers]
    kinds = sorted({f"{offer.capacity} {offer.system}" for offer in offers if offer.machine == machine})
    if kinds:
        return f"{names}: {pool.machine} has no {pool.capacity} price for {pool.os}, only for {', '.join(kinds)}"
    close = difflib.get_close_matches(machine, sorted({offer.machine for offer in offers}), n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"{names}: no price of {pool.machine}{hint}; add a sheet that has it, or a price"


def _here(pool: Pool, offers: list[Offer]) -> list[Offer]:
    """The offers of the pool's kind in its region and zones."""
    named = [(offer, offer.region or _region_of(offer.zone)) for offer in offers]
    regions = sorted({region for _, region in named} - {""})
    wanted = {pool.region.lower()} if pool.region else {_region_of(zone.lower()) for zone in pool.zones} - {""}
    if not wanted and len(regions) > 1:
        raise NoPrice(f"prices in {len(regions)} regions ({_some(regions)}): set region: in the pool")
    if wanted:
        offers = [offer for offer, region in named if not region or region in wanted]
        if not offers:
            raise NoPrice(f"no price in {', '.join(sorted(wanted))}, only in {_some(regions)}")
    zones = {zone.lower() for zone in pool.zones}
    by_zone = sorted({offer.zone for offer in offers} - {""})
    here = [offer for offer in offers if not zones or offer.zone in zones or not offer.zone]
    if not here:
        raise NoPrice(f"no price in the zones {', '.join(pool.zones)}, only in {_some(by_zone)}")
    return here


def _region_of(zone: str) -> str:
    """The region of an AWS or Google Cloud zone (``us-east-1a``, ``us-central1-a``); Azure's zones are numbers."""
    match = _ZONE_OF_REGION.fullmatch(zone)
    return (match["aws"] or match["gcp"]) if match else ""


def _highest(pool: Pool, offers: Sequence[Offer], sheet: Sheet) -> tuple[Offer, str]:
    newest = [
        _newest(pool, [offer for offer in offers if offer.zone == zone]) for zone in {each.zone for each in offers}
    ]
    currencies = sorted({offer.currency for offer in newest})
    if len(currencies) > 1:
        raise NoPrice(f"{sheet.name}: prices in {' and '.join(currencies)}: keep one currency in the sheet")
    highest = max(newest, key=lambda offer: (offer.price, offer.zone))
    differ = len({offer.price for offer in newest}) > 1
    return highest, f"the highest of {len(newest)} zones" if differ else ""


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


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def dated_sheets(paths: Iterable[Path]) -> list[Sheet]:
    """Read price sheets, each dated with its file's last change. Raises :class:`ConfigError`."""
    return [read_sheet(read_text(path, MAX_BYTES), str(path), path.stat().st_mtime) for path in paths]


def named_sheet(name: str, standard_input: BinaryIO, now: float) -> Sheet:
    """The price sheet that a command line names; ``-`` is standard input, dated ``now``.

    Raises :class:`InputError`.
    """
    if name != "-":
        return dated_sheets([Path(name)])[0]
    data = read_bounded(standard_input, MAX_BYTES, "standard input")
    return read_sheet(data.decode("utf-8-sig", errors="replace"), "standard input", now)
