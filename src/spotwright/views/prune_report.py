"""The report of ``spotwright prune``: what takes how much, what would be deleted, and why the rest is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from spotwright.records.inventory import Item, Sort
from spotwright.views.phrasing import age_text, plural
from spotwright.views.table import Rows, table

__all__ = ["deleted_text", "kept_lines", "prune_json", "prune_text"]

_MEGABYTE = 10**6
_MOST_LINES = 20  # of one list; the JSON form has all


def prune_text(items: Sequence[Item], now: float) -> str:
    """A table of all sorts, then every run and rehearsal that would be deleted, and what is kept for another reason than age."""
    parts = [table(_sorts(items, now)), _listed(items, now), kept_lines(items)]
    return "\n\n".join("\n".join(part) for part in parts if part)


def kept_lines(items: Sequence[Item]) -> list[str]:
    """What is kept for another reason than age, an item a line. Checkpoints are left out: they are kept for their run."""
    kept = [
        f"kept: {_SINGULAR[item.sort]} {item.name} ({item.kept})"
        for item in items
        if item.kept and not item.kept.startswith("used in the last") and item.sort is not Sort.CHECKPOINT
    ]
    return [*kept[:_MOST_LINES], *_more(len(kept))]


def deleted_text(deleted: Sequence[Item]) -> str:
    """What was deleted, in one sentence."""
    if not deleted:
        return "nothing was deleted"
    counts = [plural(n, _SINGULAR[sort]) for sort in Sort if (n := sum(item.sort is sort for item in deleted))]
    return f"deleted {', '.join(counts)}: {_megabytes(deleted)} MB"


def prune_json(items: Sequence[Item], now: float, failed: dict[str, str] | None = None) -> dict[str, Any]:
    """The report for programs.

    - ``deleted``: false where nothing was deleted (``--dry-run``, or nothing to delete);
    - ``sorts``: for each sort (``runs``, ``rehearsals``, ``checkpoints``, ``cached results``, ``environments``, ``leftovers``)
      its ``count`` and ``bytes``, and in ``delete`` the same of what is to be deleted, with ``oldest`` and ``newest``: seconds
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
    return Rows(headers, [*rows, [*_row("together", items, now)[:-1], ""]], "lrrrrl")


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
