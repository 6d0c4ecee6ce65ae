"""Finds the price of a pool among the offers of price sheets: by machine type, capacity type, operating system, region and zone.

The rules: the region is the pool's ``region``, else that of its zones; without either the sheet must have one region only. Where
prices differ by zone, the pool's zones count, and of several the highest price: a forecast may be too high, never too low. Of
several prices of one place the newest counts. A machine that is sold in parts costs the sum of its parts.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from spotwright.config.price_sheets.offers import Offer, Sheet
from spotwright.model.pools import Pool

__all__ = ["Found", "NoPrice", "find_price"]

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
