"""The ``report`` command: the cost of one run, the totals of several, and their charges as rows for finance."""

from __future__ import annotations

import csv
import io
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spotwright.cli import SUCCEEDED, say, show_content
from spotwright.cli.cluster import Place, open_run, place_options
from spotwright.cli.options import Duration, json_option
from spotwright.errors import InputError, SpotwrightError, StateError
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import RunFolder, StateFolder
from spotwright.runs.bodies import is_alive
from spotwright.views.account import Account, account
from spotwright.views.account_report import report_json, report_text
from spotwright.views.spending import Totals

if TYPE_CHECKING:
    from spotwright.forecast.report import Beside

__all__ = ["report"]


_Open = Callable[[], AbstractContextManager[RunReader]]


@click.command()
@click.argument("names", metavar="[RUN]...", nargs=-1)
@click.option("--since", type=Duration(), metavar="DURATION", help="All runs that began within this time, such as 30d.")
@click.option(
    "--focus",
    type=click.Choice(["csv", "json"]),
    help="Print every charge as a row with the column names of FOCUS 1.2, for finance.",
)
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Show beside it what 'spotwright plan --json' had printed into this file.  [default: the one of run --plan]",
)
@place_options
@json_option
def report(
    place: Place, names: tuple[str, ...], since: float | None, focus: str | None, plan_file: Path | None, as_json: bool
) -> int:
    """Show the cost, the waste and the spot savings of RUN.

    Several runs have a total: money by pool, by task and by cause, and the runs in which spot did not pay.
    """
    if plan_file is not None and focus is not None:
        raise click.UsageError("--focus prints charges, and a plan has none: leave --plan out")
    if not names and since is None:
        raise click.UsageError("expected a RUN, 'last', or --since with a time such as 30d")
    if since is not None and place.cluster:
        raise click.UsageError("--since reads the state folder: with --cluster name the runs")
    if focus is None and len(names) == 1 and since is None:
        with open_run(place, names[0]) as reader:
            _print_account(reader, plan_file, as_json=as_json)
        return SUCCEEDED
    accounts = _accounts(_in_cluster(place, names) if place.cluster else _here(place, names, since))
    if focus is not None:
        _print_rows(accounts, focus)
    else:
        _print_totals(accounts, plan_file, as_json=as_json)
    return SUCCEEDED


def _print_account(reader: RunReader, plan_file: Path | None, *, as_json: bool) -> None:
    """Print the account of one run, beside its plan if it has one."""
    costs, run = account(reader.state, reader.now), reader.folder.name
    document, text = report_json(costs, run), report_text(costs, run)
    found = _beside(plan_file, costs, reader)
    if found is not None:
        from spotwright.forecast.report import beside_json, beside_lines

        document["planned"] = beside_json(found)
        text = "\n".join([text, "", *beside_lines(found)])
    say(json.dumps(document) if as_json else text)


def _beside(plan_file: Path | None, costs: Account, reader: RunReader) -> Beside | None:
    """Compare the run with the named plan, else with the run's; ``None`` without a plan.

    A mismatch with the run's plan does not hide the account.
    """
    try:
        path = reader.folder.own_forecast() if plan_file is None else plan_file
        if path is None:
            return None
        from spotwright.forecast.report import beside, read_forecast

        return beside(read_forecast(path), costs, reader.state)
    except (InputError, StateError) as error:
        if plan_file is not None:
            raise
        say(f"spotwright: the plan of run {reader.folder.name} is left out: {error}", err=True)
        return None


def _here(place: Place, names: tuple[str, ...], since: float | None) -> list[tuple[str, _Open]]:
    """The requested runs, each once: its name, and a function that opens it. Raises :class:`UnknownRun`."""
    state = StateFolder.existing(place.state)
    found = {folder.name: folder for folder in (state.find(name) for name in names)}
    if since is not None:
        earliest = (time.time() - since) * 1e9
        found |= {folder.name: folder for folder in state.runs() if folder.made_at() >= earliest}
    return [(name, partial(_opened, folder)) for name, folder in found.items()]


def _in_cluster(place: Place, names: tuple[str, ...]) -> list[tuple[str, _Open]]:
    return [(name, partial(open_run, place, name)) for name in dict.fromkeys(names)]


@contextmanager
def _opened(folder: RunFolder) -> Iterator[RunReader]:
    yield RunReader(folder, is_alive)


def _accounts(runs: Iterable[tuple[str, _Open]]) -> Iterator[tuple[RunReader, Account]]:
    """The accounts of runs, one in memory at a time. A run that cannot be read is named, and hides no other."""
    for name, opens in runs:
        try:
            with opens() as reader:
                costs = account(reader.state, reader.now)
        except SpotwrightError as error:
            say(f"spotwright: run {name} is left out: {error}", err=True)
            continue
        yield reader, costs


def _print_totals(accounts: Iterable[tuple[RunReader, Account]], plan_file: Path | None, *, as_json: bool) -> None:
    from spotwright.views.spending import totals_json, totals_text

    totals = Totals()
    for reader, costs in accounts:
        totals.add_run(reader.state, reader.folder.name, costs, _planned(plan_file, costs, reader))
    say(json.dumps(totals_json(totals)) if as_json else totals_text(totals))


def _planned(plan_file: Path | None, costs: Account, reader: RunReader) -> tuple[float, float, float] | None:
    """The planned cost of a run (p10, p50, p90); ``None`` without a plan, a planned cost, or a price."""
    found = _beside(plan_file, costs, reader)
    if found is None:
        return None
    low, middle, high = found.cost
    if found.actual_cost is None or low is None or middle is None or high is None:
        return None
    return low, middle, high


def _print_rows(accounts: Iterable[tuple[RunReader, Account]], form: str) -> None:
    from spotwright.views.spending import COLUMNS, pipeline_of, rows_of

    rows = rows_of((costs, reader.folder.name, pipeline_of(reader.state)) for reader, costs in accounts)
    if form == "csv":
        columns = list(COLUMNS)
        for row in chain([dict(zip(columns, columns, strict=True))], rows):
            line = io.StringIO()
            csv.DictWriter(line, columns, lineterminator="\n").writerow(row)
            show_content(line.getvalue())
        return
    sys.stdout.write("[")
    for number, row in enumerate(rows):
        sys.stdout.write(("," if number else "") + "\n" + json.dumps(row))
    sys.stdout.write("\n]\n")
