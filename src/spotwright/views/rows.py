"""The tables that text and notebooks share: heads and cells, taken from the JSON facts of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from spotwright.model.quantities import format_money
from spotwright.views.table import Rows, shorten
from spotwright.views.words import span, value_text

__all__ = ["LONGEST_VALUE", "attempt_rows", "cost_of", "output_rows", "run_title"]

LONGEST_VALUE = 76
"""Columns of an argument's or output's value."""


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

    In the order of tasks, each named once, with its status; or in the order in which the attempts began.
    """
    unit = f"{view['prices'].capitalize()} {view['currency']}" if view["has_prices"] else "Node-hours"
    headers = ["Task", "Status", "Attempt", "Pool", "Node", "Cause", "Began", "Seconds", unit]
    rows = []
    for task in (*view["tasks"], *view["left_behind"]):
        for index, (began, row) in enumerate(_task_rows(view, task)):
            if by_start and row[2]:
                row[1] = ""
            elif index and not by_start:
                row[:2] = ["", ""]
            rows.append((began, row))
    if by_start:
        rows.sort(key=lambda row: row[0])
    return Rows(headers, [row for _, row in rows], "llrlllrr.")


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
