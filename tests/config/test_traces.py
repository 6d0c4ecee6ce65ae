"""Recorded traces: reading, refusing, and finding them from a configuration."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from spotwright import config
from spotwright.errors import ConfigError
from spotwright.model.pools import Trace

TRACE = '{"metadata": {"gap_seconds": 300, "zone": "b"}, "data": [4, 4, 0, 3]}'


def write(folder: Path, trace: str = TRACE, simulate: str = "trace: traces/t.json") -> Path:
    (folder / "traces").mkdir()
    (folder / "traces" / "t.json").write_text(trace)
    (folder / "spotwright.yaml").write_text(
        f"version: 1\npools:\n  a:\n    capacity: spot\n    simulate: {{{simulate}}}\n"
    )
    return folder / "spotwright.yaml"


def test_a_trace_is_read(tmp_path: Path) -> None:
    write(tmp_path)
    assert config.load_trace(tmp_path / "traces" / "t.json") == Trace(300.0, (4, 4, 0, 3))


def test_a_trace_covers_a_gap_for_each_count() -> None:
    assert Trace(300.0, (4, 4, 0, 3)).length == 1200.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: not valid JSON: Expecting value"),
        ("{\n1}", ":2: not valid JSON: Expecting property name enclosed in double quotes"),
        ("[]", ': expected {"metadata": {"gap_seconds": n}, "data": [counts]}'),
        ('{"data": [1]}', ": metadata.gap_seconds: expected the seconds between two counts, more than 0"),
        (TRACE.replace("300", "0"), ": metadata.gap_seconds: expected the seconds between two counts, more than 0"),
        (TRACE.replace("300", "NaN"), ": metadata.gap_seconds: expected the seconds between two counts, more than 0"),
        (TRACE.replace("300", "true"), ": metadata.gap_seconds: expected the seconds between two counts, more than 0"),
        (
            TRACE.replace("[4, 4, 0, 3]", "[]"),
            ": data: expected a list of numbers of available nodes, one or more",
        ),
        (
            TRACE.replace("[4, 4, 0, 3]", "4"),
            ": data: expected a list of numbers of available nodes, one or more",
        ),
        (TRACE.replace("0, 3", '"0", 3'), ': data[2]: expected a whole number, 0 or more, found "0"'),
        (TRACE.replace("0, 3", "-1, 3"), ": data[2]: expected a whole number, 0 or more, found -1"),
        (TRACE.replace("0, 3", "0.5, 3"), ": data[2]: expected a whole number, 0 or more, found 0.5"),
        (TRACE.replace("0, 3", "true, 3"), ": data[2]: expected a whole number, 0 or more, found true"),
    ],
)
def test_a_malformed_trace_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        config.load_trace(path)
    assert str(caught.value) == f"{path}{message}"


@pytest.mark.parametrize("text", ["[" * 100_000, '{"data": [' + "9" * 10_000 + "]}"])
def test_a_costly_trace_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"t\.json: not a trace: "):
        config.load_trace(path)


def test_a_traces_path_is_relative_to_the_configuration(tmp_path: Path) -> None:
    assert config.load(write(tmp_path)).pools["a"].simulate.trace == str(tmp_path / "traces" / "t.json")


def test_a_missing_trace_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, simulate="trace: traces/gone.json")
    with pytest.raises(ConfigError) as caught:
        config.load(path)
    assert str(caught.value) == (
        f"{path}:5: pools.a.simulate.trace: {tmp_path / 'traces' / 'gone.json'}: cannot be read: No such file or directory"
    )


def test_a_malformed_trace_is_an_error_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"spotwright\.yaml:5: pools\.a\.simulate\.trace: .*t\.json: data: expected"):
        config.load(write(tmp_path, '{"metadata": {"gap_seconds": 1}}'))


def test_a_run_cannot_begin_after_the_end_of_the_trace(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r":5: pools\.a\.simulate\.start: expected less than the 1200s of the trace$"):
        config.load(write(tmp_path, simulate="trace: traces/t.json, start: 20m"))


def test_a_stored_text_is_read_without_its_traces(tmp_path: Path) -> None:
    stored = config.load(write(tmp_path))
    (tmp_path / "traces" / "t.json").unlink()
    assert config.parse(stored.text, stored.path, traces_exist=False) == stored


PRICED = '{"metadata": {"gap_seconds": 300}, "data": [4, 4, 2], "prices": [1, "1.5/h", 0.9]}'


def test_no_node_is_available_while_the_price_is_above_the_maximum(tmp_path: Path) -> None:
    write(tmp_path, PRICED)
    assert config.load_trace(tmp_path / "traces" / "t.json", Fraction(1)) == Trace(300.0, (4, 0, 2))


def test_without_a_maximum_the_prices_change_nothing(tmp_path: Path) -> None:
    write(tmp_path, PRICED)
    assert config.load_trace(tmp_path / "traces" / "t.json") == Trace(300.0, (4, 4, 2))


def test_without_prices_the_maximum_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path)
    assert config.load_trace(tmp_path / "traces" / "t.json", Fraction(1, 100)) == Trace(300.0, (4, 4, 0, 3))


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        ("[1, 1]", ": prices: expected a list with a price for each count of data (3)"),
        ("4", ": prices: expected a list with a price for each count of data (3)"),
        ("[1, -1, 1]", ": prices[1]: expected an amount per hour, 0 or more, found -1"),
        ("[1, 1, null]", ": prices[2]: expected an amount per hour, 0 or more, found null"),
        ("[true, 1, 1]", ": prices[0]: expected an amount per hour, 0 or more, found true"),
        ("[NaN, 1, 1]", ": prices[0]: expected an amount per hour, 0 or more, found NaN"),
    ],
)
def test_wrong_prices_are_refused(tmp_path: Path, prices: str, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(f'{{"metadata": {{"gap_seconds": 300}}, "data": [4, 4, 2], "prices": {prices}}}')
    with pytest.raises(ConfigError) as caught:
        config.load_trace(path)
    assert str(caught.value) == f"{path}{message}"
