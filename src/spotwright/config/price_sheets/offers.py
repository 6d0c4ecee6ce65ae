"""Offers: the prices of one sheet in one form, whoever published it. The readers of the providers' forms make them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, NamedTuple

from spotwright.errors import ConfigError
from spotwright.model.pools import Capacity

__all__ = ["Offer", "Row", "Sheet", "system_of"]

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,2})?")
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
