"""Prices from price sheets: every provider's form, what is matched, and what is refused with its place."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.config.sheets import aws_product, azure_item, billed, offer_file, sku, spot_price

from spotwright import config
from spotwright.errors import ConfigError
from spotwright.model.pools import Pool
from spotwright.records.stored_plan import quotes_from_data, quotes_to_data

MADE = 1_793_500_000  # 2026-11-01, of the sheet's file
AZURE_SPOT = "{capacity: spot, machine: Standard_NC6s_v3, region: eastus}"
AWS_SPOT = "{capacity: spot, machine: m5.xlarge}"
AWS = "{capacity: on-demand, machine: m5.xlarge, region: us-east-1}"
GCP_SPOT = "{capacity: spot, machine: n1-standard-8, region: us-central1, node: {cpu: 8, memory: 30Gi}}"
N1 = [
    sku("Spot Preemptible N1 Predefined Instance Core running in Americas", 6_655_000),
    sku("Spot Preemptible N1 Predefined Instance Ram running in Americas", 892_000, unit="GiBy.h"),
    sku("N1 Predefined Instance Core running in Americas", 31_611_000),
    sku("N1 Predefined Instance Ram running in Americas", 4_237_000, unit="GiBy.h"),
    sku("Licensing Fee for Windows Server", 40_000_000),
]
N1_COST = 8 * Fraction("0.006655") + 30 * Fraction("0.000892")


def azure(*items: dict[str, Any], **more: Any) -> str:
    return json.dumps({"BillingCurrency": "USD", "Items": items, "NextPageLink": None, "Count": len(items)} | more)


def history(*entries: dict[str, Any], **more: Any) -> str:
    return json.dumps({"SpotPriceHistory": entries} | more)


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def pool(folder: Path, sheet: str, settings: str, top: str = "") -> Pool:
    """The pool with these settings in a configuration with this price sheet."""
    (folder / "sheet").write_text(sheet)
    os.utime(folder / "sheet", (MADE, MADE))
    (folder / "spotwright.yaml").write_text(f"version: 1\nprices: sheet\n{top}\npools:\n  a: {settings}\n")
    return config.load(folder / "spotwright.yaml").pools["a"]


def spot_item(**changes: Any) -> dict[str, Any]:
    return azure_item(**{"skuName": "NC6s v3 Spot", "meterName": "NC6s v3 Spot", "retailPrice": 0.3} | changes)


def test_an_azure_answer_has_the_price_of_the_capacity_type(tmp_path: Path) -> None:
    sheet = azure(azure_item(), spot_item())

    assert pool(tmp_path, sheet, AZURE_SPOT).price == Fraction("0.3")
    assert pool(tmp_path, sheet, AZURE_SPOT.replace("spot", "on-demand")).price == Fraction("0.9")


def test_a_price_keeps_currency_region_and_dates(tmp_path: Path) -> None:
    quote = pool(tmp_path, azure(spot_item()), AZURE_SPOT).quote

    assert quote is not None
    assert (quote.currency, quote.region, quote.dated, quote.sheet) == ("USD", "eastus", MADE, "sheet")
    assert quote.origin(MADE + 3 * 86400).startswith("Azure retail prices in sheet of 2026-11-01 (3 days old), eastus")


@pytest.mark.parametrize(
    "other",
    [
        {"productName": "Virtual Machines NCSv3 Series Windows", "retailPrice": 9.0},
        {"type": "Reservation", "retailPrice": 9.0},
        {"type": "DevTestConsumption", "retailPrice": 9.0},
        {"skuName": "NC6s v3 Low Priority", "meterName": "x", "retailPrice": 9.0},
        {"productName": "NCSv3 Series CloudServices", "retailPrice": 9.0},
        {"unitOfMeasure": "1 Month", "retailPrice": 9.0},
    ],
)
def test_other_uses_of_a_machine_have_no_part_in_its_price(tmp_path: Path, other: dict[str, Any]) -> None:
    sheet = azure(azure_item(), azure_item(**other))
    assert pool(tmp_path, sheet, AZURE_SPOT.replace("spot", "on-demand")).price == Fraction("0.9")


def test_windows_has_its_own_price(tmp_path: Path) -> None:
    sheet = azure(azure_item(), azure_item(productName="Virtual Machines NCSv3 Series Windows", retailPrice=1.2))
    assert pool(tmp_path, sheet, "{capacity: on-demand, machine: Standard_NC6s_v3, os: windows}").price == Fraction(
        "1.2"
    )


def test_the_newest_of_spot_prices_counts(tmp_path: Path) -> None:
    sheet = history(spot_price("0.30", at="2026-11-20T10:00:00+00:00"), spot_price("0.50", at="2026-11-20T09:00:00Z"))
    assert pool(tmp_path, sheet, AWS_SPOT).price == Fraction("0.3")


def test_of_several_zones_the_highest_price_counts_and_is_called_that(tmp_path: Path) -> None:
    sheet = history(spot_price("0.30"), spot_price("0.40", zone="us-east-1b"), spot_price("0.9", zone="us-east-1f"))
    found = pool(tmp_path, sheet, "{capacity: spot, machine: m5.xlarge, zones: [us-east-1a, us-east-1b]}")

    assert found.price == Fraction("0.4")
    assert found.quote is not None
    assert (found.quote.zone, found.quote.remark) == ("us-east-1b", "the highest of 2 zones")


def test_an_offer_file_and_an_answer_have_the_plain_on_demand_price(tmp_path: Path) -> None:
    products = [
        aws_product(),
        aws_product("BBB", "9", tenancy="Dedicated"),
        aws_product("CCC", "9", preInstalledSw="SQL Ent"),
    ]
    entries = [
        json.dumps({"product": product, "terms": {"OnDemand": terms}, "publicationDate": "2026-11-18T00:00:00Z"})
        for product, terms in products
    ]

    file, answer = pool(tmp_path, offer_file(*products), AWS), pool(tmp_path, json.dumps({"PriceList": entries}), AWS)

    assert file.price == answer.price == Fraction("0.192")
    assert file.quote is not None
    assert answer.quote is not None
    assert file.quote.dated == answer.quote.dated == 1_794_960_000  # the publication, not the file


def test_a_machine_of_google_cloud_costs_the_sum_of_its_parts(tmp_path: Path) -> None:
    found = pool(tmp_path, json.dumps({"skus": N1}), GCP_SPOT)

    assert found.price == N1_COST
    assert found.quote is not None
    assert found.quote.remark == "the sum of 8 core + 30 ram"


def test_the_gpu_of_a_google_machine_is_named_by_its_label(tmp_path: Path) -> None:
    gpu = sku("Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Americas", 110_000_000)
    settings = GCP_SPOT.replace(
        "30Gi}", "30Gi, nvidia.com/gpu: 2}, labels: {cloud.google.com/gke-accelerator: nvidia-tesla-t4}"
    )
    assert pool(tmp_path, json.dumps({"skus": [*N1, gpu]}), settings).price == N1_COST + 2 * Fraction("0.11")


def test_a_billing_export_has_the_price_that_was_paid(tmp_path: Path) -> None:
    rows = [
        billed("Spot Preemptible N1 Predefined Instance Core running in Americas", "0.5", "100"),
        billed("Spot Preemptible N1 Predefined Instance Ram running in Americas", "0.2", "200"),
        billed("Network Internet Egress", "1", "10"),
    ]
    lines = "\n".join(json.dumps(row) for row in rows)

    expected = 8 * Fraction("0.005") + 30 * Fraction("0.001")
    assert pool(tmp_path, json.dumps(rows), GCP_SPOT).price == expected
    assert pool(tmp_path, lines, GCP_SPOT).price == expected


def test_each_form_may_be_csv(tmp_path: Path) -> None:
    product = {
        "SKU": "A", "TermType": "OnDemand", "EffectiveDate": "2026-11-01", "Unit": "Hrs", "PricePerUnit": "0.192",
        "Currency": "USD", "Instance Type": "m5.xlarge", "Operating System": "Linux", "Tenancy": "Shared",
        "Pre Installed S/W": "NA", "CapacityStatus": "Used", "Region Code": "us-east-1",
    }  # fmt: skip
    about = (
        '"FormatVersion","v1.0"\n"Disclaimer","x"\n"Publication Date","2026-11-18"\n"Version","1"\n"OfferCode","E"\n'
    )
    parts = [
        {"sku_description": f"Spot Preemptible N1 Predefined Instance {part} running in Americas", "cost": "1", "currency": "USD",
         "usage_amount_in_pricing_units": "10", "location_region": "us-central1", "usage_end_time": "2026-11-19"}
        for part in ("Core", "Ram")
    ]  # fmt: skip

    assert pool(tmp_path, as_csv([azure_item(), spot_item()]), AZURE_SPOT).price == Fraction("0.3")
    assert pool(tmp_path, as_csv([spot_price()]), AWS_SPOT).price == Fraction("0.31")
    assert pool(tmp_path, about + as_csv([product, product | {"TermType": "Reserved"}]), AWS).price == Fraction("0.192")
    assert pool(tmp_path, as_csv(parts), GCP_SPOT).price == 38 * Fraction("0.1")


def test_a_price_in_the_configuration_wins(tmp_path: Path) -> None:
    found = pool(tmp_path, azure(spot_item()), "{capacity: spot, machine: Standard_NC6s_v3, price: 0.7/h}")
    assert (found.price, found.quote) == (Fraction("0.7"), None)


def test_the_first_sheet_with_the_machine_counts(tmp_path: Path) -> None:
    (tmp_path / "history.json").write_text(history(spot_price()))
    (tmp_path / "list.json").write_text(offer_file(aws_product()))
    (tmp_path / "spotwright.yaml").write_text(
        f"version: 1\nprices: [history.json, list.json]\npools:\n  a: {AWS_SPOT}\n  b: {AWS}\n"
    )
    pools = config.load(tmp_path / "spotwright.yaml").pools

    assert [found.price for found in pools.values()] == [Fraction("0.31"), Fraction("0.192")]


@pytest.mark.parametrize(
    ("sheet", "settings", "message"),
    [
        ("", AZURE_SPOT, "expected a price sheet, found an empty file"),
        ("{", AZURE_SPOT, "sheet:1: not valid JSON"),
        ("{}", AZURE_SPOT, "not a price sheet of a known form: expected Azure retail prices"),
        ("a,b\n1,2\n", AZURE_SPOT, "not a price sheet of a known form"),
        (azure(), AZURE_SPOT, "Azure retail prices, but no price of a machine in it: check the filter"),
        (azure(spot_item(retailPrice=-1)), AZURE_SPOT, "Items[0].retailPrice: expected an amount of 0 or more, found -1"),
        (azure(spot_item(retailPrice=None)), AZURE_SPOT, "Items[0].retailPrice: expected an amount such as 0.192, found nothing"),
        (azure(spot_item(currencyCode="")), AZURE_SPOT, "Items[0].currencyCode: expected a currency code"),
        (history(spot_price(at="now")), AWS_SPOT, "SpotPriceHistory[0].Timestamp: expected a date such as 2026-11-01"),
        (azure(azure_item()), AZURE_SPOT, "Standard_NC6s_v3 has no spot price for linux, only for on-demand linux"),
        (azure(spot_item()), "{capacity: spot, machine: Standard_NC6s_v2}", "did you mean standard_nc6s_v3?"),
        (azure(spot_item(), NextPageLink="x"), AWS_SPOT, "no price of m5.xlarge; the sheet ends with a NextPageLink"),
        (azure(spot_item(), spot_item(armRegionName="westus")), "{capacity: spot, machine: Standard_NC6s_v3}",
         "prices in 2 regions (eastus, westus): set region: in the pool"),
        (azure(spot_item()), AZURE_SPOT.replace("eastus", "westus"), "no price in westus, only in eastus"),
        (history(spot_price()), "{capacity: spot, machine: m5.xlarge, zones: [us-east-1c]}",
         "no price in the zones us-east-1c, only in us-east-1a"),
        (azure(spot_item(), spot_item(retailPrice=0.4)), AZURE_SPOT,
         "two prices of Standard_NC6s_v3: 0.3 USD (Items[0]) and 0.4 USD (Items[1])"),
        (azure(spot_item(), spot_item(currencyCode="EUR")), AZURE_SPOT,
         "two prices of Standard_NC6s_v3: 0.3 USD (Items[0]) and 0.3 EUR"),
        (azure(spot_item(currencyCode="EUR")), AZURE_SPOT, "is in EUR, this file in USD: set currency: EUR"),
        (azure(spot_item()), "{capacity: spot}", "no machine: name one"),
        (json.dumps({"skus": N1}), "{capacity: spot, machine: n1-standard-8}", "set node: {cpu: ..., memory: ...} in the pool"),
        (json.dumps({"skus": N1}), GCP_SPOT.replace("30Gi", "30Gi, nvidia.com/gpu: 1"),
         "set the label cloud.google.com/gke-accelerator"),
    ],
)  # fmt: skip
def test_a_price_that_cannot_be_told_is_refused_with_place_and_fix(
    tmp_path: Path, sheet: str, settings: str, message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        pool(tmp_path, sheet, settings)

    assert message in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_a_sheet_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"prices: .*gone\.json: cannot be read: No such file"):
        config.parse(
            "version: 1\nprices: gone.json\npools: {a: {capacity: spot, machine: x}}", tmp_path / "spotwright.yaml"
        )


def test_stored_quotes_replace_sheets_that_are_gone(tmp_path: Path) -> None:
    found = pool(tmp_path, azure(spot_item()), AZURE_SPOT)
    (tmp_path / "sheet").unlink()
    text = (tmp_path / "spotwright.yaml").read_text()
    assert found.quote is not None

    again = config.parse(text, tmp_path / "spotwright.yaml", traces_exist=False, quotes={"a": found.quote})

    assert again.pools["a"] == found


def test_quotes_are_stored_exactly(tmp_path: Path) -> None:
    found = pool(tmp_path, json.dumps({"skus": N1}), GCP_SPOT)
    data = json.loads(json.dumps(quotes_to_data({"a": found})))
    assert quotes_from_data(data) == {"a": found.quote}
