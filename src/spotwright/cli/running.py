"""``run`` and ``resume``: the commands that drive a run, show how it goes and end with its summary."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import click

from spotwright.cli import FAILED, STOPPED, SUCCEEDED
from spotwright.cli.options import Duration, arguments_of, json_option, policy_of, state_option
from spotwright.engine.loop import Observer
from spotwright.engine.state import RunState, RunStatus
from spotwright.pipelines.source import load
from spotwright.records.folders import RunFolder
from spotwright.runs.engine import Prepared, prepare, start
from spotwright.runs.options import CACHE_MODES, RunOptions
from spotwright.runs.reading import find_run
from spotwright.runs.resume import resume as resume_run
from spotwright.views.progress import make_progress
from spotwright.views.runs import run_view, summary_text

__all__ = ["resume", "run"]

_CODES = {
    RunStatus.SUCCEEDED: SUCCEEDED,
    RunStatus.FAILED: FAILED,
    RunStatus.CANCELLED: STOPPED,
    RunStatus.STOPPED: STOPPED,
}


@click.command()
@click.argument("pipeline_file", metavar="PIPELINE", type=click.Path(path_type=Path))
@click.option("--pipeline", "pipeline_name", metavar="NAME", help="Which pipeline, where the file has several.")
@click.option(
    "--arg",
    "texts",
    metavar="NAME=VALUE",
    multiple=True,
    help="An argument; @env:VAR and @file:PATH keep the value out of every record.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Instead of spotwright.yaml beside the pipeline.",
)
@click.option("--seed", type=int, help="Decides every simulated interruption.  [default: drawn, and said]")
@click.option("--taken-every", type=Duration(), help="Take spot nodes away, on average this often.")
@click.option(
    "--time-scale",
    type=float,
    default=1.0,
    show_default=True,
    help="Waits of the simulated world pass this many times faster; work does not.",
)
@click.option(
    "--cache",
    type=click.Choice(CACHE_MODES),
    default="auto",
    show_default=True,
    help="Use earlier results; auto: unless nodes are taken.",
)
@click.option(
    "--policy",
    "policy_texts",
    metavar="FIELD=VALUE",
    multiple=True,
    help="A policy field for every task, stronger than anything else: spot=never, interruptions.max=3.",
)
@click.option("--no-cache", is_flag=True, help="The same as --cache off.")
@click.option("--name", help="The run's name.  [default: the pipeline's with five letters]")
@state_option
@json_option
def run(
    pipeline_file: Path,
    pipeline_name: str | None,
    texts: tuple[str, ...],
    config: Path | None,
    seed: int | None,
    taken_every: float | None,
    time_scale: float,
    cache: str,
    policy_texts: tuple[str, ...],
    no_cache: bool,
    name: str | None,
    state: Path,
    as_json: bool,
) -> int:
    """Run PIPELINE (a .py with @dsl.pipeline, or compiled KFP YAML) on spot pools, on this machine.

    Pools and policy come from spotwright.yaml beside it. Each attempt is a real process; simulated nodes are taken away
    only where the pools or --taken-every say so.
    """
    options = RunOptions(
        arguments=arguments_of(texts), textual=True, config=config, seed=seed, taken_every=taken_every,
        time_scale=time_scale, cache="off" if no_cache else cache, state=state, name=name,
        policy=policy_of(policy_texts),
    )  # fmt: skip
    prepared = prepare(load(pipeline_file, pipeline=pipeline_name), options)
    return drive_prepared(prepared, as_json=as_json)


def drive_prepared(prepared: Prepared, *, as_json: bool) -> int:
    """Drive a prepared run with its progress on the terminal; print the summary; give the exit code."""
    with _shown(as_json=as_json) as observers:
        folder, state = start(prepared, observers)
    return _finish(folder, state, as_json=as_json)


@click.command()
@click.argument("name", metavar="RUN")
@click.option("--as-compiled", is_flag=True, help="Do not look at the pipeline and configuration files again.")
@state_option
@json_option
def resume(name: str, as_compiled: bool, state: Path, as_json: bool) -> int:
    """Go on with RUN after a crash, a stop or a failure; what succeeded is not run again.

    Where the pipeline's code changed since, what changed and what follows it runs again. A run that failed starts its
    unfinished tasks with fresh budgets. RUN is a name, its unique beginning, or 'last'.
    """
    folder = find_run(state, name)
    out = sys.stderr if as_json else sys.stdout
    with _shown(as_json=as_json) as observers:
        resumption = resume_run(folder, lambda text: click.echo(text, file=out), observers, mended=not as_compiled)
    if resumption.nothing_to_do:
        click.echo(f"run {folder.name} has succeeded already: nothing to do", file=out)
    return _finish(folder, resumption.state, as_json=as_json)


@contextmanager
def _shown(*, as_json: bool) -> Iterator[Sequence[Observer]]:
    """The progress display, on the error output where standard output is for JSON."""
    stream: TextIO = sys.stderr if as_json else sys.stdout
    with make_progress(stream) as progress:
        yield (progress,)


def _finish(folder: RunFolder, state: RunState, *, as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps(run_view(state, folder.name, time.time())))
    else:
        click.echo(summary_text(state, folder.name, time.time()))
    if state.status is RunStatus.STOPPED:
        click.echo(f"stopped; go on with: spotwright resume {folder.name}", err=True)
    return _CODES.get(state.status, FAILED)
