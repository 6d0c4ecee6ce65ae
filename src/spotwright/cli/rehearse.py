"""``rehearse``: test whether a step survives interruptions, whether it resumes, and what one interruption costs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TextIO

import click

from spotwright.cli import FAILED, SUCCEEDED, importing, say
from spotwright.cli.options import (
    Duration,
    PipelineOptions,
    WithUserCommand,
    pipeline_options,
    policy_of,
    policy_option,
)
from spotwright.errors import InputError
from spotwright.runs.bodies import require_platform
from spotwright.views.text import fitted

__all__ = ["rehearse"]


@click.command(cls=WithUserCommand, options_metavar="[OPTIONS]")
@click.argument("pipeline_file", metavar="[PIPELINE] [-- COMMAND...]", required=False, type=click.Path(path_type=Path))
@pipeline_options(
    policy_option(),
    click.option("--task", metavar="PATH", help="One task of the pipeline.  [default: every task]"),
    click.option(
        "--keep", metavar="PATH", multiple=True, help="A path that outlives an attempt, such as a mounted volume."
    ),
    click.option(
        "--output",
        "outputs",
        metavar="PATH",
        multiple=True,
        help="An output to compare: of a command a file or folder, of a task a path in a kept one or in a volume."
        "  [default: a task's declared outputs; every file that a command makes or changes, without kept ones]",
    ),
    click.option("--stdout", is_flag=True, help="Of a command: compare its standard output too."),
    click.option("--tolerance", type=float, default=0.0, show_default=True, help="Allowed difference of numbers."),
    click.option(
        "--compare", metavar="MODULE:FUNCTION", help="A function that compares outputs; also FILE.py:FUNCTION."
    ),
    click.option(
        "--interruptions",
        type=int,
        default=5,
        show_default=True,
        help="Number of consecutive interruptions at the last injection point.",
    ),
    click.option(
        "--notice",
        type=Duration(),
        help="Notice before an interruption.  [default: as the pools say, at most 1/4 of the step]",
    ),
    click.option(
        "--budget",
        type=Duration(),
        help="End the rehearsal of a step after this time; the most informative points come first.",
    ),
    click.option(
        "--ranks",
        type=int,
        metavar="N",
        help="Of a command such as torchrun that starts N ranks: take the node of one, of another and of all too.",
    ),
    click.option(
        "--must-resume", is_flag=True, help="Exit with 1 also if a step starts over, or goes back to an older save."
    ),
    click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write a JUnit report."),
)
@click.pass_context
def rehearse(
    ctx: click.Context,
    shared: PipelineOptions,
    pipeline_file: Path | None,
    policy_texts: tuple[str, ...],
    task: str | None,
    keep: tuple[str, ...],
    outputs: tuple[str, ...],
    stdout: bool,
    tolerance: float,
    compare: str | None,
    interruptions: int,
    notice: float | None,
    budget: float | None,
    ranks: int | None,
    must_resume: bool,
    junit: Path | None,
) -> int:
    """Test how a step survives interruptions: one task of PIPELINE, every task, or a COMMAND after --.

    A plain script in place of PIPELINE is the command: python PIPELINE.

    The step runs undisturbed, then once per injection point: interrupted at the start, in the middle, inside a save, between
    outputs and at the end, with notice and without. Exit code 0: its outputs are the same every time; 1: they differ, cannot
    be compared, or the step fails or never finishes.
    """
    require_platform()
    with importing():
        from spotwright.rehearsal.report import as_json, as_junit, as_text, failures, keep_report, outcome_text
        from spotwright.rehearsal.session import RehearsalOptions, run_rehearsal
    options = RehearsalOptions(
        pipeline=pipeline_file, command=ctx.meta.get("command", ()), pipeline_name=shared.pipeline_name, task=task,
        arguments=shared.arguments, config=shared.config, containers=shared.containers, outputs=outputs, keep=keep,
        stdout=stdout, seed=shared.seed, interruptions=interruptions, tolerance=tolerance, compare=compare, notice=notice,
        budget=budget, ranks=ranks, state=shared.state, policy=policy_of(policy_texts),
    )  # fmt: skip
    if junit is not None:
        _write(junit, "")  # a rehearsal takes long, so a file that cannot be written is reported first
    progress = sys.stderr if shared.as_json else sys.stdout
    rehearsal = run_rehearsal(
        options, lambda line: _show(line if isinstance(line, str) else outcome_text(line), progress)
    )
    keep_report(rehearsal)
    if junit is not None:
        _write(junit, as_junit(rehearsal, must_resume=must_resume))
    if shared.as_json:
        say(json.dumps(as_json(rehearsal)))
    else:
        _show(f"\n{as_text(rehearsal, points=False)}", sys.stdout)
    return FAILED if failures(rehearsal.steps, must_resume=must_resume) else SUCCEEDED


def _show(text: str, file: TextIO) -> None:
    """Print lines, wrapped between words where they are wider than the terminal."""
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        for part in fitted(line, hang=f"{indent}    "):
            say(part, file=file)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"--junit {path}: cannot be written: {error.strerror}") from error
