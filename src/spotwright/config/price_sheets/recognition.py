"""Recognises a price sheet by its shape, and reads it: which provider, which form, JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from spotwright.config.price_sheets import aws_offers, aws_spot, azure, gcp
from spotwright.config.price_sheets.offers import Row, Sheet
from spotwright.errors import ConfigError

__all__ = ["MAX_BYTES", "read_sheet"]

MAX_BYTES = 100_000_000
"""Largest sheet. AWS's offer file of a whole region is larger: filter it, for example with ``aws pricing get-products``."""

_KNOWN = (
    "Azure retail prices (JSON with Items, or CSV), AWS spot price history (SpotPriceHistory), AWS price list (products and "
    "terms, PriceList, or CSV), Google Cloud SKUs (skus) or billing export (rows with sku and cost)"
)
_ABOUT = 5  # lines of AWS's CSV before its columns
_EXPORTED = {name.replace(".", "_"): name for name in (*gcp.COLUMNS, "location.region", "usage_end_time")}


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
    if all(azure.is_answer(each) for each in documents):
        return azure.read_answers(name, documents)
    if all(aws_spot.is_history(each) for each in documents):
        return aws_spot.read_histories(name, documents)
    if all(gcp.is_sku_list(each) for each in documents):
        return gcp.read_skus(name, documents)
    if gcp.is_export(documents):
        return gcp.read_export(name, [Row(name, f"[{number}]", row) for number, row in enumerate(documents)])
    if len(documents) == 1 and aws_offers.is_offer_file(first):
        return aws_offers.read_offer_file(name, first)
    if len(documents) == 1 and aws_offers.is_product_list(first):
        return aws_offers.read_product_list(name, first)
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
    if columns >= azure.COLUMNS:
        return azure.read_rows(name, rows)
    if columns >= aws_spot.COLUMNS:
        return aws_spot.read_rows(name, rows)
    if columns >= aws_offers.COLUMNS:
        return aws_offers.read_rows(name, rows, about.get("publication date", ""))
    if columns >= gcp.COLUMNS:
        return gcp.read_export(name, rows)
    raise ConfigError(f"{name}: not a price sheet of a known form: expected {_KNOWN}")


def _named(values: dict[str | None, Any]) -> dict[str, Any]:
    """The values of a line by column; names of an export get their points."""
    return {_EXPORTED.get(column, column): value for column, value in values.items() if column}


def _cells(lines: Sequence[str]) -> list[tuple[str, str]]:
    return [(row[0].lower(), row[1]) for row in csv.reader(lines) if len(row) > 1]
