"""``rehearse``: whether a step is safe when its node goes, whether it goes on, and what one interruption costs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from spotwright.cli import FAILED, SUCCEEDED, importing
from spotwright.cli.options import (
    Duration,
    arguments_of,
    arguments_option,
    config_option,
    containers_option,
    json_option,
    pipeline_option,
    state_option,
)
from spotwright.errors import InputError

__all__ = ["rehearse"]


class _WithCommand(click.Command):
    """Everything after ``--`` is a command of the user's, with options of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the command away before the options are read."""
        if "--" in args:
            at = args.index("--")
            ctx.meta["command"] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


@click.command(cls=_WithCommand, options_metavar="[OPTIONS]")
@click.argument("pipeline_file", metavar="[PIPELINE] [-- COMMAND...]", required=False, type=click.Path(path_type=Path))
@click.option("--task", metavar="PATH", help="One task of the pipeline.  [default: every task]")
@pipeline_option
@arguments_option("An argument, as for spotwright run.")
@config_option("the pipeline")
@containers_option("What container components run in, as for spotwright run.")
@click.option(
    "--interruptions",
    type=int,
    default=5,
    show_default=True,
    help="How many come one after the other in the last point.",
)
@click.option("--seed", type=int, help="Decides every point.  [default: drawn, and said]")
@click.option(
    "--notice", type=Duration(), help="Of points with notice.  [default: the pools', at most 1/4 of the step]"
)
@click.option("--tolerance", type=float, default=0.0, show_default=True, help="By how much numbers may differ.")
@click.option("--compare", metavar="MODULE:FUNCTION", help="Your own comparison of outputs; also FILE.py:FUNCTION.")
@click.option(
    "--keep", metavar="PATH", multiple=True, help="A place beside the checkpoint's that outlives an attempt: a volume."
)
@click.option(
    "--output",
    "outputs",
    metavar="PATH",
    multiple=True,
    help="Of a command: what it makes.  [default: all that it leaves]",
)
@click.option("--stdout", is_flag=True, help="Of a command: what it prints is an output too.")
@click.option("--must-resume", is_flag=True, help="Starting over is not good enough: exit code 1.")
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write the points as a JUnit file.")
@state_option
@json_option
@click.pass_context
def rehearse(
    ctx: click.Context,
    pipeline_file: Path | None,
    task: str | None,
    pipeline_name: str | None,
    texts: tuple[str, ...],
    config: Path | None,
    containers: str,
    interruptions: int,
    seed: int | None,
    notice: float | None,
    tolerance: float,
    compare: str | None,
    keep: tuple[str, ...],
    outputs: tuple[str, ...],
    stdout: bool,
    must_resume: bool,
    junit: Path | None,
    state: Path,
    as_json: bool,
) -> int:
    """Interrupt a step where it hurts, before a provider does: a task of PIPELINE, every task, or a COMMAND after --.

    It runs undisturbed, then interrupted at the start, in the middle, inside a save, between outputs and at the end, with
    notice and without. Exit code 0: its outputs are the same every time; 1: they are not, or it never finishes.
    """
    with importing():
        from spotwright.rehearsal.opening import Options, perform
        from spotwright.rehearsal.report import as_json as json_of
        from spotwright.rehearsal.report import as_junit, as_text, failures, point_text
    options = Options(
        pipeline=pipeline_file, command=ctx.meta.get("command", ()), pipeline_name=pipeline_name, task=task,
        arguments=arguments_of(texts), config=config, containers=containers, outputs=outputs, keep=keep, stdout=stdout, seed=seed,
        interruptions=interruptions, tolerance=tolerance, compare=compare, notice=notice, state=state,
    )  # fmt: skip
    if junit is not None:
        _write(junit, "")  # a rehearsal takes long: what cannot be written is said before
    progress = sys.stderr if as_json else sys.stdout
    found = perform(
        options, lambda said: click.echo(said if isinstance(said, str) else point_text(said), file=progress)
    )
    if junit is not None:
        _write(junit, as_junit(found, must_resume=must_resume))
    click.echo(json.dumps(json_of(found)) if as_json else f"\n{as_text(found, points=False)}")
    return FAILED if failures(found.steps, must_resume=must_resume) else SUCCEEDED


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"--junit {path}: cannot be written: {error.strerror}") from error
