"""Charges as rows for finance, with the column names of FOCUS 1.2, the FinOps Open Cost and Usage Specification.

Names, meanings and allowed values: focus.finops.org, version 1.2, "Columns"; columns of our own begin with ``x_``, as its section
on custom columns asks. The rows are an account of what nodes cost by their prices, not an invoice, so the columns that only the
provider's invoice can fill are left out; :data:`LEFT_OUT` names them with the reason.

Money and quantities have twelve decimals. Each row holds the difference of two rounded running sums, so that the rows add up to
the rounded total exactly, however many they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

from spotwright.model.pools import PriceSource, Provider
from spotwright.views.account.account_model import Account
from spotwright.views.spending.charges import Charge, Line, charges_of

__all__ = ["COLUMNS", "DECIMALS", "LEFT_OUT", "VERSION", "rows_of"]

VERSION = "1.2"
"""The version of FOCUS whose names are used."""

DECIMALS = 12
"""Decimals of money and quantities."""

COLUMNS: Mapping[str, str] = {
    "AvailabilityZone": "the pool's zone, where it has one only",
    "BilledCost": "money for real nodes; 0 for simulated nodes and example prices, which nobody bills; empty without a price",
    "BillingCurrency": "`currency` of the configuration",
    "ChargeCategory": "always `Usage`",
    "ChargeClass": "always empty: nothing here corrects an earlier invoice",
    "ChargeDescription": "the line in words",
    "ChargeFrequency": "always `Usage-Based`",
    "ChargePeriodStart": "begin of the attempt; for the other lines, of the node",
    "ChargePeriodEnd": "its end",
    "ConsumedQuantity": "hours of the node that this line uses",
    "ConsumedUnit": "always `Hours`",
    "ContractedCost": "as EffectiveCost: no discount is known beside the price",
    "ContractedUnitPrice": "price of a node hour",
    "EffectiveCost": "node time times price, of simulated nodes too; empty without a price",
    "ListCost": "as EffectiveCost",
    "ListUnitPrice": "price of a node hour",
    "PricingCategory": "`Dynamic` for spot, `Standard` for on-demand",
    "PricingQuantity": "as ConsumedQuantity",
    "PricingUnit": "always `Hours`",
    "ProviderName": "by the pool's `provider`; empty for karpenter and generic",
    "RegionId": "the pool's region",
    "ResourceId": "the run and the node",
    "ResourceName": "the node",
    "ResourceType": "always `Virtual Machine`",
    "ServiceCategory": "always `Compute`",
    "ServiceSubcategory": "always `Virtual Machines`",
    "Tags": "run, pipeline, task and pool as one JSON object",
    "x_Line": "`attempt`, `boot`, `idle` or `unfilled`",
    "x_Run": "the run",
    "x_Pipeline": "the pipeline",
    "x_Task": "the task of an attempt",
    "x_Attempt": "its number",
    "x_Cause": "why it ended; empty while it runs",
    "x_Pool": "the pool",
    "x_CapacityType": "`spot` or `on-demand`",
    "x_MachineType": "the pool's machine type",
    "x_PriceSource": "`configured`, `simulated` or `example`",
    "x_WastedCostLow": "the least of EffectiveCost that was spent on work which was not kept",
    "x_WastedCostHigh": "the most of it; the same where progress was reported",
}
"""The columns in their order, each with its meaning here."""

LEFT_OUT: Mapping[str, str] = {
    "BillingAccountId, BillingAccountName, SubAccountId, SubAccountName": "the account is the provider's, and is not asked for",
    "BillingPeriodStart, BillingPeriodEnd, InvoiceId, InvoiceIssuerName": "there is no invoice here",
    "CommitmentDiscount... and CapacityReservation...": "commitments and reservations are not known",
    "ServiceName, PublisherName, SkuId, SkuPriceId": "they are names and numbers in the provider's own catalogue",
    "PricingCurrency...": "prices are in the billing currency",
}
"""Columns of FOCUS that the rows do not have, and why."""

_PROVIDERS = {Provider.AKS: "Microsoft", Provider.GKE: "Google Cloud", Provider.EKS: "AWS"}
_CONTEXT = Context(prec=60, rounding=ROUND_HALF_EVEN)
_UNIT = Decimal(1).scaleb(-DECIMALS)


class _Rounded:
    """A running sum; each step is the difference of two rounded sums."""

    def __init__(self) -> None:
        self._exact = Fraction(0)
        self._given = Decimal(0)

    def step(self, amount: Fraction) -> str:
        self._exact += amount
        whole = round(self._exact * 10**DECIMALS)
        following = Decimal(whole).scaleb(-DECIMALS, _CONTEXT)
        difference = _CONTEXT.subtract(following, self._given)
        self._given = following
        return format(difference, "f")


class _FocusRows:
    """Makes the rows of one run after another; all rows that one object made add up exactly."""

    def __init__(self) -> None:
        self._billed = _Rounded()
        self._effective = _Rounded()
        self._hours = _Rounded()
        self._least = _Rounded()
        self._most = _Rounded()

    def rows(self, account: Account, run: str, pipeline: str) -> Iterator[dict[str, str]]:
        """The rows of a run: a text for every column of :data:`COLUMNS`."""
        for charge in charges_of(account):
            yield self._row(charge, account.currency, run, pipeline)

    def _row(self, charge: Charge, currency: str, run: str, pipeline: str) -> dict[str, str]:
        pool, money = charge.pool, charge.amount.money
        hours = self._hours.step(charge.amount.seconds / 3600)
        cost = "" if money is None else self._effective.step(money)
        is_billed = pool.price_source is PriceSource.CONFIGURED
        billed = "" if money is None else self._billed.step(money if is_billed else Fraction(0))
        price = "" if money is None or pool.price is None else _decimal(pool.price)
        row = dict.fromkeys(COLUMNS, "") | {
            "AvailabilityZone": pool.zones[0] if len(pool.zones) == 1 else "",
            "BilledCost": billed,
            "BillingCurrency": currency,
            "ChargeCategory": "Usage",
            "ChargeDescription": _description(charge),
            "ChargeFrequency": "Usage-Based",
            "ChargePeriodStart": _moment(charge.start),
            "ChargePeriodEnd": _moment(charge.end),
            "ConsumedQuantity": hours,
            "ConsumedUnit": "Hours",
            "ContractedCost": cost,
            "ContractedUnitPrice": price,
            "EffectiveCost": cost,
            "ListCost": cost,
            "ListUnitPrice": price,
            "PricingCategory": "Dynamic" if pool.is_spot else "Standard",
            "PricingQuantity": hours,
            "PricingUnit": "Hours",
            "ProviderName": _PROVIDERS.get(pool.provider, ""),
            "RegionId": pool.region or (pool.quote.region if pool.quote is not None else ""),
            "ResourceId": f"{run}/{charge.node}",
            "ResourceName": charge.node,
            "ResourceType": "Virtual Machine",
            "ServiceCategory": "Compute",
            "ServiceSubcategory": "Virtual Machines",
            "Tags": _tags(charge, run, pipeline),
            "x_Line": charge.line.value,
            "x_Run": run,
            "x_Pipeline": pipeline,
            "x_Pool": pool.name,
            "x_CapacityType": pool.capacity.value,
            "x_MachineType": pool.machine,
            "x_PriceSource": pool.price_source.value if price else "",
        }
        return row | (self._of_attempt(charge) if charge.line is Line.ATTEMPT else {})

    def _of_attempt(self, charge: Charge) -> dict[str, str]:
        money, kept = charge.amount.money, charge.kept
        wasted = {}
        if money is not None and kept is not None and charge.cause is not None:
            wasted = {
                "x_WastedCostLow": self._least.step(money * (1 - kept.high)),
                "x_WastedCostHigh": self._most.step(money * (1 - kept.low)),
            }
        cause = charge.cause.value if charge.cause is not None else ""
        return {"x_Task": charge.task, "x_Attempt": str(charge.attempt), "x_Cause": cause, **wasted}


def _description(charge: Charge) -> str:
    if charge.line is Line.ATTEMPT:
        return f"Attempt {charge.attempt} of {charge.task} on {charge.node}"
    return f"{charge.line.value.capitalize()} time of {charge.node}"


def _tags(charge: Charge, run: str, pipeline: str) -> str:
    tags = {"run": run, "pipeline": pipeline, "task": charge.task, "pool": charge.pool.name}
    return json.dumps({f"spotwright.dev/{key}": value for key, value in tags.items() if value}, ensure_ascii=False)


def _moment(seconds: float) -> str:
    """A moment in UTC, as FOCUS writes dates."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _decimal(value: Fraction) -> str:
    exact = _CONTEXT.divide(Decimal(value.numerator), Decimal(value.denominator))
    return format(exact.quantize(_UNIT, context=_CONTEXT).normalize(_CONTEXT), "f")


def rows_of(accounts: Iterable[tuple[Account, str, str]]) -> Iterator[dict[str, str]]:
    """The rows of several runs, one after another: each with its account, its name and its pipeline."""
    made = _FocusRows()
    for account, run, pipeline in accounts:
        yield from made.rows(account, run, pipeline)
