"""Gives pools without a price the one that the price sheets have for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from spotwright.config.price_sheets.matching import NoPrice, find_price
from spotwright.config.price_sheets.offers import Sheet
from spotwright.config.price_sheets.recognition import MAX_BYTES, read_sheet
from spotwright.config.text_files import read_bounded, read_text
from spotwright.model.pools import Pool, Quote

__all__ = ["dated_sheets", "named_sheet", "quoted"]


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
