"""``runs``, ``show``, ``logs``, ``report`` and ``cancel``: looking at runs, whoever drives them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from spotwright.cli import SUCCEEDED
from spotwright.cli.options import json_option, state_option
from spotwright.errors import SpotwrightError
from spotwright.records.folders import RunFolder
from spotwright.runs import reading
from spotwright.runs.reading import AttemptLog, find_run, list_runs, now_of, read_state
from spotwright.views.account import account
from spotwright.views.facts import run_view, summary
from spotwright.views.report import report_json, report_text
from spotwright.views.show import runs_text, show_text

__all__ = ["cancel", "logs", "report", "runs", "show"]


@click.command()
@state_option
@json_option
def runs(state: Path, as_json: bool) -> int:
    """List the runs of the state folder, newest last."""
    summaries = []
    for folder in list_runs(state):
        try:
            summaries.append(summary(read_state(folder), folder.name, now_of(folder)))
        except SpotwrightError as error:  # one that is damaged, or of a newer version, hides none of the others
            click.echo(f"spotwright: run {folder.name} is left out: {error}", err=True)
    click.echo(json.dumps(summaries) if as_json else runs_text(summaries))
    return SUCCEEDED


@click.command()
@click.argument("name", metavar="RUN")
@state_option
@json_option
def show(name: str, state: Path, as_json: bool) -> int:
    """Show RUN: every task and attempt, where it ran, why it ended and what followed."""
    folder = find_run(state, name)
    view = run_view(read_state(folder), folder.name, now_of(folder))
    click.echo(json.dumps(view) if as_json else show_text(view))
    return SUCCEEDED


@click.command()
@click.argument("name", metavar="RUN")
@click.argument("task", required=False)
@click.argument("attempt", type=int, required=False)
@click.option("--follow", is_flag=True, help="Go on as the attempts write, until they have ended.")
@state_option
@json_option
def logs(name: str, task: str | None, attempt: int | None, follow: bool, state: Path, as_json: bool) -> int:
    """Print the logs of RUN, of one TASK, or of one ATTEMPT of it; also those of attempts whose node was taken.

    TASK is a path or a name: of several tasks with that name, and of everything in a loop, all logs are printed.
    """
    folder = find_run(state, name)
    if follow:
        _follow(folder, task, attempt, as_json=as_json)
        return SUCCEEDED
    found = reading.logs(folder, read_state(folder), task, attempt)
    if as_json:
        click.echo(json.dumps([_as_json(log, log.text()) for log in found]))
        return SUCCEEDED
    for log in found:
        if attempt is None:
            click.echo(_heading(log))
        _write(log.text(), newline=attempt is None)
    return SUCCEEDED


@click.command()
@click.argument("name", metavar="RUN")
@state_option
@json_option
def report(name: str, state: Path, as_json: bool) -> int:
    """Say what RUN cost, what was wasted and what spot saved."""
    folder = find_run(state, name)
    counted = account(read_state(folder), now_of(folder))
    click.echo(json.dumps(report_json(counted, folder.name)) if as_json else report_text(counted, folder.name))
    return SUCCEEDED


@click.command()
@click.argument("name", metavar="RUN")
@state_option
@json_option
def cancel(name: str, state: Path, as_json: bool) -> int:
    """Cancel RUN, whoever drives it, and wait until nothing of it runs any more."""
    folder = find_run(state, name)
    ended = reading.cancel(folder)
    if as_json:
        click.echo(json.dumps(run_view(ended, folder.name)))
    else:
        click.echo(f"run {folder.name}: {ended.status.value}")
    return SUCCEEDED


def _follow(folder: RunFolder, task: str | None, attempt: int | None, *, as_json: bool) -> None:
    last: AttemptLog | None = None
    for log, text in reading.follow(folder, task, attempt):
        if as_json:
            click.echo(json.dumps(_as_json(log, text)))
            continue
        if attempt is None and (last is None or (log.task, log.attempt) != (last.task, last.attempt)):
            click.echo(_heading(log))
        last = log
        _write(text)


def _as_json(log: AttemptLog, text: str) -> dict[str, object]:
    return {"task": log.task, "attempt": log.attempt, "path": str(log.path), "ended": log.ended, "text": text}


def _heading(log: AttemptLog) -> str:
    return f"==> {log.task} attempt {log.attempt} <=="


def _write(text: str, *, newline: bool = False) -> None:
    sys.stdout.write(text)
    if newline and text and not text.endswith("\n"):
        sys.stdout.write("\n")
    sys.stdout.flush()
