"""``prune``: frees space. Its report gives the size of each item, what would be deleted, and why the rest is kept."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import click

from spotwright.cli import FAILED, SUCCEEDED, say
from spotwright.cli.cluster import Place, open_cluster, place_options
from spotwright.cli.options import Duration, json_option, say_where
from spotwright.errors import InputError
from spotwright.records.state_folder import StateFolder
from spotwright.records.trash import Item, Sort
from spotwright.runs.bodies import require_platform
from spotwright.views.text import Rows, age_text, plural, table

__all__ = ["deleted_text", "kept_lines", "prune", "prune_json", "prune_text"]


_MEGABYTE = 10**6
_AGE = 30 * 86400.0  # seconds
_MOST_LINES = 20  # of one list; the JSON form has all


def prune_text(items: Sequence[Item], now: float) -> str:
    """A table of all sorts, then the runs and rehearsals to delete, and the items kept for a reason other than age."""
    parts = [table(_sorts(items, now)), _listed(items, now), kept_lines(items)]
    return "\n\n".join("\n".join(part) for part in parts if part)


def kept_lines(items: Sequence[Item]) -> list[str]:
    """The items kept for a reason other than age, one per line. Checkpoints are omitted: they are kept for their run."""
    kept = [
        f"kept: {_SINGULAR[item.sort]} {item.name} ({item.kept})"
        for item in items
        if item.kept and not item.kept.startswith("used in the last") and item.sort is not Sort.CHECKPOINT
    ]
    return [*kept[:_MOST_LINES], *_more(len(kept))]


def deleted_text(deleted: Sequence[Item]) -> str:
    """What was deleted, in one sentence."""
    if not deleted:
        return "no item was deleted"
    counts = [plural(n, _SINGULAR[sort]) for sort in Sort if (n := sum(item.sort is sort for item in deleted))]
    return f"deleted {', '.join(counts)}: {_megabytes(deleted)} MB"


def prune_json(items: Sequence[Item], now: float, failed: dict[str, str] | None = None) -> dict[str, Any]:
    """The report for programs.

    - ``deleted``: false if no item was deleted (``--dry-run``, or nothing to delete);
    - ``sorts``: for each sort (``runs``, ``rehearsals``, ``checkpoints``, ``cached results``, ``environments``, ``leftovers``)
      its ``count`` and ``bytes``, and in ``delete`` the same for the items to delete, with ``oldest`` and ``newest``: seconds
      since the last use, null for none;
    - ``items``: ``sort``, ``name``, ``path``, ``status`` (of a run, else empty), ``age`` in seconds since the last use,
      ``bytes``, ``delete``, and ``why`` it is kept or could not be deleted.
    """
    failures = failed or {}
    return {
        "deleted": failed is not None,
        "sorts": {sort.value: _sort_json([item for item in items if item.sort is sort], now) for sort in Sort},
        "items": [
            {
                "sort": item.sort.value,
                "name": item.name,
                "path": str(item.path),
                "status": item.detail,
                "age": max(0.0, now - item.used_at),
                "bytes": item.size,
                "delete": not item.kept,
                "why": item.kept or failures.get(str(item.path), ""),
            }
            for item in items
        ],
    }


_SINGULAR = {
    Sort.RUN: "run",
    Sort.REHEARSAL: "rehearsal",
    Sort.CHECKPOINT: "checkpoint folder",
    Sort.RESULT: "cached result",
    Sort.ENVIRONMENT: "environment",
    Sort.LEFTOVER: "leftover",
}


def _sort_json(items: Sequence[Item], now: float) -> dict[str, Any]:
    ages = [max(0.0, now - item.used_at) for item in items if not item.kept]
    return {
        "count": len(items),
        "bytes": sum(item.size for item in items),
        "delete": {
            "count": len(ages),
            "bytes": sum(item.size for item in items if not item.kept),
            "oldest": max(ages, default=None),
            "newest": min(ages, default=None),
        },
    }


def _sorts(items: Sequence[Item], now: float) -> Rows:
    headers = ["What", "All", "MB", "Delete", "MB to delete", "Unused for"]
    rows = [_row(sort.value, [item for item in items if item.sort is sort], now) for sort in Sort]
    return Rows(headers, [*rows, [*_row("together", items, now)[:-1], ""]], "lrrrrl", ("MB", "All"))


def _row(name: str, items: Sequence[Item], now: float) -> list[str]:
    gone = [item for item in items if not item.kept]
    ages = sorted(now - item.used_at for item in gone)
    between = " to ".join(dict.fromkeys(age_text(each) for each in (ages[0], ages[-1]))) if ages else ""
    return [name, str(len(items)), _megabytes(items), str(len(gone)), _megabytes(gone), between]


def _listed(items: Sequence[Item], now: float) -> list[str]:
    gone = [item for item in items if not item.kept and item.sort in (Sort.RUN, Sort.REHEARSAL)]
    rows = [
        [item.name, item.detail or _SINGULAR[item.sort], age_text(now - item.used_at), _megabytes([item])]
        for item in gone[:_MOST_LINES]
    ]
    lines = table(Rows(["To delete", "Status", "Unused for", "MB"], rows, "lllr")) if rows else []
    return [*lines, *_more(len(gone))]


def _more(count: int) -> Iterator[str]:
    if count > _MOST_LINES:
        yield f"and {count - _MOST_LINES:,} more"


def _megabytes(items: Sequence[Item]) -> str:
    return f"{sum(item.size for item in items) / _MEGABYTE:,.1f}"


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
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, without deleting it.")
@click.option("--yes", is_flag=True, help="Delete without asking, for scripts.")
@place_options
@json_option
def prune(
    place: Place,
    older_than: float | None,
    keep: tuple[str, ...],
    keep_last: int | None,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Delete unneeded runs, rehearsals, checkpoints, cached results and Python environments.

    Shows the size of each and what it would delete, then asks. Kept are runs named by --keep, active runs, and runs whose
    results a kept run uses. Checkpoints are deleted a day after their run succeeded, everything else after 30 days without use.
    Volumes are never deleted. Python environments belong to all your projects.

    With --cluster it deletes the records of ended runs, and the archived runs of one namespace, with your rights. The
    controller archives runs after a week, or deletes them where it has no store.
    """
    with ExitStack() as opened:
        wanted = older_than, keep, keep_last
        stock = _of_cluster(place, *wanted, opened) if place.cluster else _of_folder(place, *wanted)
        return _free(stock, dry_run=dry_run, yes=yes, as_json=as_json)


class _Stock(NamedTuple):
    """The deletable items: ``take`` lists them as of a time, ``delete`` returns why each failed one did."""

    take: Callable[[float], Sequence[Item]]
    delete: Callable[[Iterable[Item]], Iterator[tuple[Item, str]]]
    problem: Callable[[], str] = str
    """Why the list is incomplete; empty if it is complete."""


def _of_folder(place: Place, older_than: float | None, keep: Sequence[str], keep_last: int | None) -> _Stock:
    require_platform()
    from spotwright.runs import pruning

    say_where(place.state)
    folder = StateFolder.existing(place.state)
    named = frozenset(folder.find(name).name for name in keep)
    options = pruning.PruneOptions(older_than, named, keep_last)
    return _Stock(partial(pruning.take_stock, folder, options), partial(pruning.delete, folder))


def _of_cluster(
    place: Place, older_than: float | None, keep: Sequence[str], keep_last: int | None, opened: ExitStack
) -> _Stock:
    kubernetes, runs = opened.enter_context(open_cluster(place))
    from spotwright.cluster.recorded_runs import RecordedPruning

    age = older_than if older_than is not None else _AGE if keep_last is None else 0.0
    pruning = RecordedPruning(kubernetes, runs, place.namespace, age=age, keep=keep, keep_last=keep_last)
    return _Stock(pruning.take_stock, pruning.delete, lambda: pruning.problem)


def _free(stock: _Stock, *, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Show what would be deleted, ask, and delete it."""
    now = time.time()
    items = stock.take(now)
    if problem := stock.problem():
        say(f"spotwright: {problem}", err=True)
    candidates = [item for item in items if not item.kept]
    if not as_json:
        say(prune_text(items, now))
    if dry_run or not candidates:
        say(json.dumps(prune_json(items, now)) if as_json else _nothing_deleted(candidates))
        return SUCCEEDED
    if not yes:
        if not _confirmed(as_json=as_json):
            say("no item was deleted")
            return SUCCEEDED
        # the question may stand for hours: a run that was begun or resumed meanwhile keeps what it uses
        shown = {item.path for item in candidates}
        now_there = [item for item in stock.take(time.time()) if item.path in shown]
        candidates = [item for item in now_there if not item.kept]
        for line in kept_lines(now_there):
            say(line)
    outcomes = list(stock.delete(candidates))
    failed = {str(item.path): why for item, why in outcomes if why}
    for why in failed.values():
        say(f"spotwright: {why}", err=True)
    gone = [item for item, why in outcomes if not why]
    say(json.dumps(prune_json(items, now, failed)) if as_json else deleted_text(gone))
    return FAILED if failed else SUCCEEDED


def _nothing_deleted(candidates: Sequence[Item]) -> str:
    return "\ndry run: no item was deleted" if candidates else "\nnothing to delete"


def _confirmed(*, as_json: bool) -> bool:
    """Ask the user. Raises :class:`InputError` without a terminal to ask."""
    if as_json or not sys.stdin.isatty():
        raise InputError(
            "no terminal to ask for confirmation: give --yes to delete; --dry-run shows what would be deleted"
        )
    return click.confirm("\nDelete this?")
