"""The tables that text and notebooks share: heads and cells, taken from the JSON facts of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from spotwright.model.quantities import format_money
from spotwright.views.table import Rows, shorten
from spotwright.views.words import span, value_text

__all__ = ["LONGEST_VALUE", "attempt_rows", "cost_of", "output_rows", "run_title"]

LONGEST_VALUE = 76
"""Columns of an argument's or output's value."""

_MANY = 20  # up to so many iterations of a task have a line each; of more only those with something to tell


def run_title(view: Mapping[str, Any]) -> str:
    """How the run stands, in one sentence."""
    took = span(view["seconds"])
    if view["status"] == "running":
        word = f"has been running for {took}" if view["driven"] else f"was left unfinished by its engine after {took}"
    else:
        word = f"{ {'cancelled': 'was cancelled', 'stopped': 'was stopped'}.get(view['status'], view['status']) } after {took}"
    why = f": {view['why']}" if view["why"] else ""
    return f"Run {view['run']} {word}{why}"


def cost_of(amount: Mapping[str, Any] | None, unit: str = "") -> str:
    """An amount of the JSON facts as a number."""
    if amount is None:
        return ""
    if amount["money"] is None:
        return format_money(Fraction(amount["seconds"]) / 3600, "nh" if unit else "")
    return format_money(Fraction(amount["money"]), unit)


def attempt_rows(view: Mapping[str, Any], *, by_start: bool = False) -> Rows:
    """A line per attempt; tasks without one have a line that says what became of them.

    Of a task with many iterations those that succeeded at once, or were not to run, share one line. In the order of
    tasks, each named once, with its status; or in the order in which the attempts began.
    """
    unit = f"{view['prices'].capitalize()} {view['currency']}" if view["has_prices"] else "Node-hours"
    headers = ["Task", "Status", "Attempt", "Pool", "Node", "Cause", "Began", "Seconds", unit]
    tasks = [*view["tasks"], *view["left_behind"]]
    together = _together(tasks)
    rows = [_row_of_many(view, group) for group in together.values()]
    alike = {task["path"] for group in together.values() for task in group}
    for task in (task for task in tasks if task["path"] not in alike):
        for index, (began, row) in enumerate(_task_rows(view, task)):
            if by_start and row[2]:
                row[1] = ""
            elif index and not by_start:
                row[:2] = ["", ""]
            rows.append((began, row))
    if by_start:
        rows.sort(key=lambda row: row[0])
    return Rows(headers, [row for _, row in rows], "llrlllrr.")


def _together(tasks: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """The iterations of one task that came to the same good end without more ado, where they are many."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for task in tasks:
        plain = len(task["attempts"]) <= 1 and task["cached_from"] is None
        if task["path"] != task["written"] and task["status"] in ("succeeded", "skipped") and plain:
            groups.setdefault((task["written"], task["status"]), []).append(task)
    return {key: group for key, group in groups.items() if len(group) > _MANY}


def _row_of_many(view: Mapping[str, Any], group: Sequence[Mapping[str, Any]]) -> tuple[float, list[str]]:
    attempts = [attempt for task in group for attempt in task["attempts"]]
    began = min((a["bound_at"] for a in attempts if a["bound_at"] is not None), default=math.inf)
    seconds = sum(a["seconds"] or 0.0 for a in attempts)
    costs = [a["cost"] for a in attempts if a["cost"] is not None]
    money = None if any(c["money"] is None for c in costs) else sum(c["money"] for c in costs)
    cost = {"seconds": sum(c["seconds"] for c in costs), "money": money}
    return began, [
        f"{group[0]['written']} ({len(group):,} iterations)", str(group[0]["status"]), "",
        ", ".join(sorted({a["pool"] for a in attempts if a["pool"]})), "", "succeeded" if attempts else "",
        f"+{span(began - view['started_at'])}" if attempts else "", f"{seconds:.1f}" if attempts else "",
        cost_of(cost) if attempts else "",
    ]  # fmt: skip


def _status(task: Mapping[str, Any]) -> str:
    if task["cached_from"] is not None:
        return f"result of {task['cached_from']['run']}"
    waiting = task["waits_for"]
    over = waiting is not None and waiting["kind"] == "nothing"
    return "not started" if over and not task["attempts"] else str(task["status"])


def _task_rows(view: Mapping[str, Any], task: Mapping[str, Any]) -> Iterator[tuple[float, list[str]]]:
    status = _status(task)
    for attempt in task["attempts"]:
        began = attempt["bound_at"] if attempt["bound_at"] is not None else attempt["placed_at"]
        yield began, [
            task["path"], status, str(attempt["number"]), attempt["pool"] or "", attempt["node"] or "",
            attempt["cause"] or attempt["status"],
            f"+{span(began - view['started_at'])}",
            f"{attempt['seconds']:.1f}" if attempt["seconds"] is not None else "",
            cost_of(attempt["cost"]),
        ]  # fmt: skip
    if not task["attempts"]:
        yield math.inf, [task["path"], status, *[""] * 7]


def output_rows(view: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The outputs of the run by name, long values cut: ``--json`` has all of them."""
    return [(name, _output_text(output)) for name, output in view["outputs"].items()]


def _output_text(output: Mapping[str, Any]) -> str:
    if output["kind"] == "artifact":
        return str(output["uri"])
    value = [each["uri"] for each in output["artifacts"]] if output["kind"] == "artifacts" else output["value"]
    return shorten(value_text(value), LONGEST_VALUE)
