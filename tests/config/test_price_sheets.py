"""Prices from price sheets: matches, refusals with their place, and the guide's commands that make sheets."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest
from tests.config.sheets import ANSWERS

from spotwright import config
from spotwright.errors import ConfigError
from spotwright.model.pools import Pool
from spotwright.records.stored_plan import quotes_from_data, quotes_to_data

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "configure-pools.md"
MADE = 1_793_500_000  # 2026-11-01, of the sheet's file
HEAD = "machine,capacity,price,currency,region,zone,os,since\n"
AZURE = HEAD + "Standard_NC6s_v3,on-demand,0.9,USD,eastus,,,\nStandard_NC6s_v3,spot,0.3,USD,eastus,,,\n"
AZURE_SPOT = "{capacity: spot, machine: Standard_NC6s_v3, region: eastus}"
AWS_SPOT = "{capacity: spot, machine: m5.xlarge}"


def aws(*prices: tuple[str, str, str]) -> str:
    return HEAD + "".join(f"m5.xlarge,spot,{price},,,{zone},,{since}\n" for price, zone, since in prices)


def pool(folder: Path, sheet: str, settings: str) -> Pool:
    """The pool with these settings in a configuration with this price sheet."""
    (folder / "sheet").write_text(sheet)
    os.utime(folder / "sheet", (MADE, MADE))
    (folder / "spotwright.yaml").write_text(f"version: 1\nprices: sheet\npools:\n  a: {settings}\n")
    return config.load(folder / "spotwright.yaml").pools["a"]


@pytest.mark.parametrize(
    ("name", "settings", "price"),
    [
        ("spot.csv", AWS_SPOT, "0.4"),
        ("on-demand.csv", "{capacity: on-demand, machine: m5.xlarge, region: us-east-1}", "0.192"),
        ("azure.csv", AZURE_SPOT, "0.3"),
        ("azure.csv", AZURE_SPOT.replace("spot", "on-demand"), "0.9"),
        ("google.csv", "{capacity: spot, machine: n1-standard-8, region: us-central1}", "0.08"),
    ],
)
def test_the_commands_of_the_guide_make_sheets_of_what_the_clouds_answer(
    tmp_path: Path, name: str, settings: str, price: str
) -> None:
    programs = {file: program for program, file in re.findall(r"jq -r '(.*?)' > (\S+)", GUIDE.read_text(), re.DOTALL)}
    assert programs.keys() == ANSWERS.keys()
    jq = shutil.which("jq")
    if jq is None:
        pytest.skip("jq is not installed: apt-get install jq")
    done = subprocess.run(
        [jq, "-r", programs[name]], input=json.dumps(ANSWERS[name]), capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert pool(tmp_path, done.stdout, settings).price == pytest.approx(Fraction(price))


def test_a_price_keeps_currency_region_and_dates(tmp_path: Path) -> None:
    quote = pool(tmp_path, AZURE, AZURE_SPOT).quote

    assert quote is not None
    assert (quote.currency, quote.region, quote.dated, quote.sheet) == ("USD", "eastus", MADE, "sheet")
    assert quote.origin(MADE + 3 * 86400) == "sheet from 2026-11-01 (3 days old), eastus"


def test_windows_has_its_own_price(tmp_path: Path) -> None:
    sheet = AZURE + "Standard_NC6s_v3,on-demand,1.2,USD,eastus,,windows,\n"
    settings = "{capacity: on-demand, machine: Standard_NC6s_v3, os: windows}"
    assert pool(tmp_path, sheet, settings).price == Fraction("1.2")


def test_columns_may_be_missing_and_in_any_order(tmp_path: Path) -> None:
    found = pool(tmp_path, "price,machine,capacity,more\n0.31,M5.xlarge,spot,x\n", AWS_SPOT)
    assert found.price == Fraction("0.31")


def test_the_newest_price_counts(tmp_path: Path) -> None:
    sheet = aws(("0.30", "us-east-1a", "2026-11-20T10:00:00+00:00"), ("0.50", "us-east-1a", "2026-11-20T09:00:00Z"))
    assert pool(tmp_path, sheet, AWS_SPOT).price == Fraction("0.3")


def test_of_several_zones_the_highest_price_counts_and_is_called_that(tmp_path: Path) -> None:
    sheet = aws(("0.30", "us-east-1a", ""), ("0.40", "us-east-1b", ""), ("0.9", "us-east-1f", ""))
    found = pool(tmp_path, sheet, "{capacity: spot, machine: m5.xlarge, zones: [us-east-1a, us-east-1b]}")

    assert found.price == Fraction("0.4")
    assert found.quote is not None
    assert (found.quote.region, found.quote.zone, found.quote.remark) == (
        "us-east-1",
        "us-east-1b",
        "the highest of 2 zones",
    )


def test_a_price_in_the_configuration_wins(tmp_path: Path) -> None:
    found = pool(tmp_path, AZURE, "{capacity: spot, machine: Standard_NC6s_v3, price: 0.7/h}")
    assert (found.price, found.quote) == (Fraction("0.7"), None)


def test_the_first_sheet_with_the_machine_counts(tmp_path: Path) -> None:
    (tmp_path / "spot.csv").write_text(aws(("0.31", "us-east-1a", "")))
    (tmp_path / "list.csv").write_text(HEAD + "m5.xlarge,on-demand,0.192,,us-east-1,,,\nm5.xlarge,spot,9,,,,,\n")
    (tmp_path / "spotwright.yaml").write_text(
        f"version: 1\nprices: [spot.csv, list.csv]\npools:\n  a: {AWS_SPOT}\n"
        "  b: {capacity: on-demand, machine: m5.xlarge}\n"
    )
    pools = config.load(tmp_path / "spotwright.yaml").pools

    assert [found.price for found in pools.values()] == [Fraction("0.31"), Fraction("0.192")]


def row(**values: str) -> str:
    """A sheet of one line, an Azure spot price with other values."""
    line = {"machine": "Standard_NC6s_v3", "capacity": "spot", "price": "0.3", "region": "eastus", **values}
    return f"{','.join(line)}\n{','.join(line.values())}\n"


@pytest.mark.parametrize(
    ("sheet", "settings", "message"),
    [
        ("", AZURE_SPOT, "expected a price sheet, found an empty file"),
        ('{"Items": []}', AZURE_SPOT, "not a price sheet: its first line names no capacity, machine, price; expected CSV with"),
        ("machine,price\nx,1\n", AZURE_SPOT, "its first line names no capacity"),
        (HEAD, AZURE_SPOT, "contains no prices: check the command that made it"),
        (row(price="-1"), AZURE_SPOT, "sheet:2: price: expected an amount such as 0.192, found -1"),
        (row(price="0." + "1" * 5000), AZURE_SPOT, "price: expected an amount such as 0.192"),
        (row(price=""), AZURE_SPOT, "price: expected an amount such as 0.192, found nothing"),
        (row(price="1e99"), AZURE_SPOT.replace("eastus", "westus"), "no price in westus"),
        (row(currency="dollars"), AZURE_SPOT, "currency: expected a currency code such as USD, found dollars"),
        (row(capacity="Spot"), AZURE_SPOT, "capacity: expected spot or on-demand, found Spot"),
        (row(machine=""), AZURE_SPOT, "machine: expected a machine type such as m5.xlarge, found nothing"),
        (row(since="now"), AZURE_SPOT, "since: expected a date such as 2026-11-01, found now"),
        (row(capacity="on-demand"), AZURE_SPOT, "Standard_NC6s_v3 has no spot price for linux, only for on-demand linux"),
        (row(), "{capacity: spot, machine: Standard_NC6s_v2}", "did you mean standard_nc6s_v3?"),
        (row() + "Standard_NC6s_v3,spot,0.3,westus\n", "{capacity: spot, machine: Standard_NC6s_v3}",
         "prices in 2 regions (eastus, westus): set region: in the pool"),
        (row(), AZURE_SPOT.replace("eastus", "westus"), "no price in westus, only in eastus"),
        (aws(("0.3", "us-east-1a", "")), "{capacity: spot, machine: m5.xlarge, zones: [us-east-1c]}",
         "no price in the zones us-east-1c, only in us-east-1a"),
        (row() + "Standard_NC6s_v3,spot,0.4,eastus\n", AZURE_SPOT,
         "two prices of Standard_NC6s_v3: 0.3 USD (line 2) and 0.4 USD (line 3)"),
        (row(currency="EUR"), AZURE_SPOT, "is in EUR, this file in USD: set currency: EUR"),
        (row(), "{capacity: spot}", "no machine: set one"),
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
    with pytest.raises(ConfigError, match=r"prices: .*gone\.csv: cannot be read: No such file"):
        config.parse(
            "version: 1\nprices: gone.csv\npools: {a: {capacity: spot, machine: x}}", tmp_path / "spotwright.yaml"
        )


def test_stored_quotes_replace_sheets_that_are_gone(tmp_path: Path) -> None:
    found = pool(tmp_path, AZURE, AZURE_SPOT)
    (tmp_path / "sheet").unlink()
    text = (tmp_path / "spotwright.yaml").read_text()
    assert found.quote is not None

    again = config.parse(text, tmp_path / "spotwright.yaml", traces_exist=False, quotes={"a": found.quote})

    assert again.pools["a"] == found


def test_quotes_are_stored_exactly(tmp_path: Path) -> None:
    found = pool(tmp_path, row(price="0.33333333333333333333"), AZURE_SPOT)
    data = json.loads(json.dumps(quotes_to_data({"a": found})))
    assert quotes_from_data(data) == {"a": found.quote}
