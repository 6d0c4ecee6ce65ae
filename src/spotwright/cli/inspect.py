"""``runs``, ``show``, ``logs`` and ``cancel``: commands about runs that another process may drive."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

import click

from spotwright.cli import SUCCEEDED, cluster_extra, say, show_content
from spotwright.cli.cluster import Place, open_cluster, open_run, place_options
from spotwright.cli.options import json_option, state_option
from spotwright.errors import InputError, SpotwrightError
from spotwright.records.reader import ENVIRONMENT, AttemptLog, RunReader, follow_logs, list_logs, require_tasks
from spotwright.records.state_folder import StateFolder, missing_folder
from spotwright.runs.bodies import is_alive
from spotwright.views.run_json import only_tasks, run_view, summary
from spotwright.views.run_text import left_out_lines, runs_text, show_text
from spotwright.visible_text import coloured

__all__ = ["cancel", "logs", "runs", "show"]

_POLL = 0.5  # seconds between two looks at a run that is followed


@click.command()
@click.option(
    "--archived",
    is_flag=True,
    help="With --cluster: list the archived runs of a namespace, by default that of the context; of more than 100 the newest.",
)
@place_options
@json_option
def runs(place: Place, archived: bool, as_json: bool) -> int:
    """List the runs of the state folder, or of a cluster, newest last."""
    if archived and not place.cluster:
        raise click.UsageError("--archived lists runs that a cluster's controller has archived: add --cluster")
    summaries, problems, left_out = _archived(place) if archived else _summaries(place)
    for problem in problems:
        say(f"spotwright: {problem}", err=True)
    where = "" if place.cluster else _place_of_no_runs(place.state)
    say(json.dumps(summaries) if as_json else runs_text(summaries, where))
    if left_out and not as_json:
        say("\n".join(["", *left_out_lines(left_out)]))
    return SUCCEEDED


def _place_of_no_runs(state: Path) -> str:
    return f"the state folder is {state.absolute()}" if state.exists() else missing_folder(state)


def _archived(place: Place) -> tuple[list[dict[str, Any]], list[str], list[dict[str, Any]]]:
    """The summaries of archived runs, as :func:`_summaries` returns them."""
    with open_cluster(place) as (_, runs_there):
        return *runs_there.archived_lines(place.namespace), []


def _summaries(place: Place) -> tuple[list[dict[str, Any]], list[str], list[dict[str, Any]]]:
    """The lines of all runs, a sentence for each unreadable run (a damaged run hides no other), and the unavailable pools."""
    if place.cluster:
        with open_cluster(place) as (_, runs_there):
            lines, told = runs_there.lines(place.namespace)
            left_out = runs_there.look_at_pools({*runs_there.namespaces.values(), place.namespace})
            return lines, [*told, *filter(None, [runs_there.pools_unknown])], left_out
    summaries, problems = [], []
    for folder in StateFolder.existing(place.state).runs():
        try:
            reader = RunReader(folder, is_alive)
            summaries.append(summary(reader.state, folder.name, reader.now))
        except SpotwrightError as error:
            problems.append(f"run {folder.name} is left out: {error}")
    return summaries, problems, []


@click.command()
@click.argument("name", metavar="RUN")
@click.argument("task", required=False)
@click.option("--follow", is_flag=True, help="First show what happens, until the run has ended.")
@place_options
@json_option
def show(place: Place, name: str, task: str | None, follow: bool, as_json: bool) -> int:
    """Show RUN: every task and attempt, where it ran, why it ended and what followed.

    TASK is a path, a name or a pattern; only matching tasks are shown.
    """
    with open_run(place, name) as reader:
        if follow:
            _show_progress(reader, sys.stderr if as_json else sys.stdout)
        view = run_view(reader.state, reader.folder.name, reader.now)
        if task is not None:
            view = only_tasks(view, set(require_tasks(reader, task)))
    say(json.dumps(view) if as_json else show_text(view))
    return SUCCEEDED


class _AttemptNumber(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # before click 8.5 it takes no types
    """The number of an attempt, from one, or the word ``environment``."""

    name = "attempt"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; raises click's error for other words."""
        if value == "environment":
            return ENVIRONMENT
        if not str(value).isdecimal() or int(value) < 1:
            self.fail(f"{value!r}: expected the number of an attempt, from 1, or 'environment'", param, ctx)
        return int(value)


@click.command()
@click.argument("name", metavar="RUN")
@click.argument("task", required=False)
@click.argument("attempt", type=_AttemptNumber(), required=False)
@click.option("--follow", is_flag=True, help="Go on as the attempts write, until they have ended.")
@click.option("--raw", "how", flag_value="raw", help="On a terminal: send all bytes as they were written.")
@click.option(
    "--colours", "how", flag_value="colours", help="On a terminal: let colours and progress bars take effect."
)
@place_options
@json_option
def logs(
    place: Place, name: str, task: str | None, attempt: int | None, follow: bool, how: str | None, as_json: bool
) -> int:
    """Print the logs of RUN, of one TASK, or of one ATTEMPT of it, also of attempts whose node was reclaimed.

    ATTEMPT is a number, or 'environment': what pip wrote while the packages of TASK were installed.

    TASK is a path, a name or a pattern; the logs of all matching tasks are printed, in a loop of all iterations.

    A file or pipe gets the text as written. On a terminal, control characters are escaped, because a log could drive the
    terminal.
    """
    with open_run(place, name) as reader:
        _require_logs(place, reader)
        if follow:
            pieces = follow_logs(reader, task, attempt)
            _print_pieces(pieces, with_headings=attempt is None, as_json=as_json, how=how)
        else:
            _print_logs(list_logs(reader, task, attempt), with_headings=attempt is None, as_json=as_json, how=how)
    return SUCCEEDED


def _require_logs(place: Place, reader: RunReader) -> None:
    """Refuse a run on KFP, and say where its logs are: the state folder has none."""
    if place.cluster or not reader.folder.kfp.exists():
        return
    from spotwright.kubeflow.runs import load_kfp_run

    run = load_kfp_run(reader.folder)
    raise InputError(
        f"run {reader.folder.name} ran on Kubeflow Pipelines, which has its logs: {run.page}; where a controller recorded it: "
        f"spotwright logs {run.run_id} --cluster"
    )


def _print_logs(selected: list[AttemptLog], *, with_headings: bool, as_json: bool, how: str | None) -> None:
    """Print whole logs, one after the other."""
    if as_json:
        say(json.dumps([_as_json(log, log.text()) for log in selected]))
        return
    for log in selected:
        if with_headings:
            say(log.heading)
        if how == "raw" or not sys.stdout.isatty():
            _write_bytes(log.read(0), newline=with_headings)
        else:
            _write(log.text(), how, newline=with_headings)


@click.command()
@click.argument("name", metavar="RUN")
@state_option
@json_option
def cancel(name: str, state: Path, as_json: bool) -> int:
    """Cancel RUN, and wait until its processes have ended; a run on Kubeflow Pipelines is terminated there."""
    folder = StateFolder.existing(state).find(name)
    if folder.kfp.exists():
        with cluster_extra("a run on Kubeflow Pipelines"):
            from spotwright.cli.kfp import cancel_on_kfp

        return cancel_on_kfp(folder, as_json=as_json)
    from spotwright.runs.bodies import require_platform

    require_platform()
    from spotwright.runs import resume

    ended = resume.cancel(folder)
    if as_json:
        say(json.dumps(run_view(ended, folder.name)))
    else:
        say(f"run {folder.name}: {ended.status.value}")
    return SUCCEEDED


def _show_progress(reader: RunReader, stream: TextIO) -> None:
    """Show a run as ``spotwright run`` does, until its engine has stopped."""
    from spotwright.views.run_progress import make_progress

    with make_progress(stream) as progress:
        progress.join(reader.state)
        for events in reader.follow(_POLL):
            progress(reader.state, events)


def _print_pieces(
    pieces: Iterable[tuple[AttemptLog, str]], *, with_headings: bool, as_json: bool, how: str | None
) -> None:
    """Print pieces of logs as they come, with a heading whenever the log changes."""
    previous: tuple[str, str, int] | None = None
    for log, text in pieces:
        if as_json:
            say(json.dumps(_as_json(log, text)))
            continue
        if with_headings and log.key != previous:
            say(log.heading)
        previous = log.key
        _write(text, how)


def _as_json(log: AttemptLog, text: str) -> dict[str, object]:
    return {"task": log.task, "attempt": log.attempt, "path": str(log.path), "ended": log.ended, "text": text}


def _write_bytes(data: bytes, *, newline: bool) -> None:
    """Write a log unchanged, including bytes that are not UTF-8."""
    data += b"\n" if newline and data and not data.endswith(b"\n") else b""
    sys.stdout.flush()
    if hasattr(sys.stdout, "buffer"):
        sys.stdout.buffer.write(data)
    else:  # a caller in this process accepts only text
        sys.stdout.write(data.decode("utf-8", "replace"))
    sys.stdout.flush()


def _write(text: str, how: str | None, *, newline: bool = False) -> None:
    if newline and text and not text.endswith("\n"):
        text += "\n"
    if how is None:
        show_content(text)
        return
    sys.stdout.write(coloured(text) if how == "colours" and sys.stdout.isatty() else text)
    sys.stdout.flush()
