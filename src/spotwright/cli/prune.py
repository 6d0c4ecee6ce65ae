"""``prune``: free space."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from spotwright.cli import FAILED, SUCCEEDED
from spotwright.cli.options import Duration, json_option, state_option
from spotwright.errors import InputError
from spotwright.records.inventory import Item
from spotwright.records.state_folder import StateFolder
from spotwright.runs.bodies import require_platform
from spotwright.views.prune_report import deleted_text, kept_lines, prune_json, prune_text

__all__ = ["prune"]


@click.command()
@click.option(
    "--older-than", type=Duration(), metavar="DURATION", help="What was not used for this long.  [default: 30d]"
)
@click.option(
    "--keep",
    multiple=True,
    metavar="RUN",
    help="Keep this run: its name, the beginning of it, or last. May be repeated.",
)
@click.option(
    "--keep-last", type=int, metavar="N", help="Keep the N newest runs; without --older-than all older ones go."
)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing.")
@click.option("--yes", is_flag=True, help="Delete without asking, for scripts.")
@state_option
@json_option
def prune(
    older_than: float | None,
    keep: tuple[str, ...],
    keep_last: int | None,
    *,
    dry_run: bool,
    yes: bool,
    state: Path,
    as_json: bool,
) -> int:
    """Delete runs, rehearsals, checkpoints, cached results and Python environments that nobody needs.

    Says what each takes and what it would delete, then asks. Runs named by --keep stay, and so do runs that are under way and
    runs whose results are used by what stays. Checkpoints go a day after their run has succeeded, everything else after 30 days
    without use. Volumes are never deleted. The Python environments are those of all your projects.
    """
    require_platform()
    from spotwright.runs import pruning

    folder, now = StateFolder.existing(state), time.time()
    named = frozenset(folder.find(name).name for name in keep)
    options = pruning.PruneOptions(older_than, named, keep_last)
    items = pruning.take_stock(folder, options, now)
    candidates = [item for item in items if not item.kept]
    if not as_json:
        click.echo(prune_text(items, now))
    if dry_run or not candidates:
        click.echo(json.dumps(prune_json(items, now)) if as_json else _nothing_deleted(candidates))
        return SUCCEEDED
    if not yes:
        if not _confirmed(as_json=as_json):
            click.echo("nothing was deleted")
            return SUCCEEDED
        # the question may stand for hours: a run that was begun or resumed meanwhile keeps what it uses
        shown = {item.path for item in candidates}
        now_there = [item for item in pruning.take_stock(folder, options) if item.path in shown]
        candidates = [item for item in now_there if not item.kept]
        for line in kept_lines(now_there):
            click.echo(line)
    outcomes = list(pruning.delete(folder, candidates))
    failed = {str(item.path): why for item, why in outcomes if why}
    for why in failed.values():
        click.echo(f"spotwright: {why}", err=True)
    gone = [item for item, why in outcomes if not why]
    click.echo(json.dumps(prune_json(items, now, failed)) if as_json else deleted_text(gone))
    return FAILED if failed else SUCCEEDED


def _nothing_deleted(candidates: Sequence[Item]) -> str:
    return "\nnothing was deleted: this was a dry run" if candidates else "\nthere is nothing to delete"


def _confirmed(*, as_json: bool) -> bool:
    """Ask the user. Raises :class:`InputError` where nobody can be asked."""
    if as_json or not sys.stdin.isatty():
        raise InputError(
            "prune deletes only with --yes where nobody can be asked; --dry-run shows what it would delete"
        )
    return click.confirm("\nDelete this?")
