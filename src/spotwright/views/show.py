"""Runs as text: one run in full, a list of runs, and the summary that stands at the end of a run.

Everything is said from :func:`~spotwright.views.facts.run_view`, so text and JSON cannot differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Any

from spotwright.engine.state import RunState
from spotwright.model.attempts import Cause
from spotwright.model.quantities import format_duration, format_money
from spotwright.views.account import account
from spotwright.views.facts import run_view
from spotwright.views.report import money_lines
from spotwright.views.table import shorten, table, wrapped
from spotwright.views.words import ended, plural, value_text

__all__ = ["runs_text", "show_text", "summary_text"]

_LONGEST_VALUE = 76  # columns of an output's value in text; --json has all of it


def show_text(view: Mapping[str, Any]) -> str:
    """A run in full: its tasks and attempts, why each ended and where its log is, what waits, and its outputs."""
    tasks = [*view["tasks"], *view["left_behind"]]
    parts = [
        [_title(view), *_head(view)],
        _attempt_table(view, tasks),
        _titled("Why attempts ended, and what followed", (line for task in tasks for line in _ends(task))),
        _titled("Why tasks have failed", (line for task in tasks for line in _failure(task, briefly=True))),
        _titled("What waits", _waits(view, tasks)),
        _titled("Outputs", _output_lines(view)),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def summary_text(state: RunState, name: str, now: float | None = None) -> str:
    """What stands at the end of a run: its outputs, a line per attempt, what was spent, wasted and saved."""
    view = run_view(state, name, now)
    tasks = [*view["tasks"], *view["left_behind"]]
    parts = [
        _titled("Outputs", _output_lines(view)),
        _attempt_table(view, tasks, by_start=True),
        money_lines(account(state, now)),
        _titled("Why tasks have failed", (line for task in tasks for line in _failure(task, briefly=False))),
        [_title(view)],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def runs_text(summaries: Sequence[Mapping[str, Any]]) -> str:
    """A line per run, in the order given."""
    if not summaries:
        return "no runs yet"
    headers = [
        "Run",
        "Pipeline",
        "Status",
        "Started",
        "Took",
        "Tasks",
        "Attempts",
        "Interruptions",
        f"{summaries[0]['prices'].capitalize()} cost",
    ]
    rows = [
        [
            item["run"], item["pipeline"], item["status"], _moment(item["started_at"]), format_duration(item["seconds"]),
            f"{item['tasks'].get('succeeded', 0)}/{item['tasks']['all']}", str(item["attempts"]),
            str(item["interruptions"]), _cost(item["cost"], item["currency"]),
        ]
        for item in summaries
    ]  # fmt: skip
    lines = table(headers, rows, "llllrrrrr")
    if any(item["cost"]["money"] is None for item in summaries):
        lines += ["", "nh: node-hours, where a pool has no price"]
    return "\n".join(lines)


def _titled(title: str, lines: Iterator[str]) -> list[str]:
    found = list(lines)
    return [title, *found] if found else []


def _title(view: Mapping[str, Any]) -> str:
    took = format_duration(view["seconds"])
    if view["status"] == "running":
        word = f"has been running for {took}" if view["driven"] else f"was left unfinished by its engine after {took}"
    else:
        word = f"{ {'cancelled': 'was cancelled', 'stopped': 'was stopped'}.get(view['status'], view['status']) } after {took}"
    why = f": {view['why']}" if view["why"] else ""
    return f"Run {view['run']} {word}{why}"


def _head(view: Mapping[str, Any]) -> Iterator[str]:
    started = f"{_moment(view['started_at'], zone=True)}, seed {view['seed']}"
    if view["engines"] > 1:
        started += f", resumed {plural(view['engines'] - 1, 'time')}"
    rows = [("pipeline", view["pipeline"]), ("started", started)]
    rows += [
        ("argument", f"{key} = {shorten(value_text(value), _LONGEST_VALUE)}")
        for key, value in view["arguments"].items()
    ]
    if view["time_scale"] != 1:
        rows.append(("time", f"waits pass {view['time_scale']:g} times faster; seconds are real"))
    rows += [("note", text) for text in view["notes"]]
    for word, text in rows:
        yield from wrapped(text, indent=f"  {word:<9} ", hang=" " * 12)


def _moment(at: float, *, zone: bool = False) -> str:
    """A moment in local time."""
    return datetime.fromtimestamp(at).astimezone().strftime(f"%Y-%m-%d %H:%M:%S{' %z' if zone else ''}")


def _cost(amount: Mapping[str, Any] | None, unit: str = "") -> str:
    """An amount of the JSON facts as a number."""
    if amount is None:
        return ""
    if amount["money"] is None:
        return format_money(Fraction(amount["seconds"]) / 3600, "nh" if unit else "")
    return format_money(Fraction(amount["money"]), unit)


def _attempt_table(view: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]], *, by_start: bool = False) -> list[str]:
    """A line per attempt; tasks without one have a line that says what became of them.

    In the order of tasks, each named once, with its status; or in the order in which the attempts began.
    """
    unit = f"{view['prices'].capitalize()} {view['currency']}" if view["has_prices"] else "Node-hours"
    headers = ["Task", "Status", "Attempt", "Pool", "Node", "Cause", "Began", "Seconds", unit]
    rows = []
    for task in tasks:
        for index, (began, row) in enumerate(_task_rows(view, task)):
            named = row[:2] if not by_start else [row[0], "" if row[2] else row[1]]
            rows.append((began, ["", "", *row[2:]] if index and not by_start else [*named, *row[2:]]))
    if by_start:
        rows.sort(key=lambda row: row[0])
    return table(headers, [row for _, row in rows], "llrlllrr.") if rows else []


def _status(task: Mapping[str, Any]) -> str:
    if task["cached_from"] is not None:
        return f"result of {task['cached_from']['run']}"
    waiting = task["waits_for"]
    return (
        "not started"
        if waiting is not None and waiting["kind"] == "nothing" and not task["attempts"]
        else str(task["status"])
    )


def _task_rows(view: Mapping[str, Any], task: Mapping[str, Any]) -> Iterator[tuple[float, list[str]]]:
    status = _status(task)
    for attempt in task["attempts"]:
        began = attempt["bound_at"] if attempt["bound_at"] is not None else attempt["placed_at"]
        yield began, [
            task["path"], status, str(attempt["number"]), attempt["pool"] or "", attempt["node"] or "",
            attempt["cause"] or attempt["status"],
            f"+{format_duration(began - view['started_at'])}",
            f"{attempt['seconds']:.1f}" if attempt["seconds"] is not None else "",
            _cost(attempt["cost"]),
        ]  # fmt: skip
    if not task["attempts"]:
        yield math.inf, [task["path"], status, *[""] * 7]


def _ends(task: Mapping[str, Any]) -> Iterator[str]:
    """Every attempt of a task that did not succeed."""
    for attempt in task["attempts"]:
        if attempt["cause"] is not None and attempt["cause"] != Cause.SUCCEEDED:
            yield from _end(task, attempt)


def _end(task: Mapping[str, Any], attempt: Mapping[str, Any]) -> Iterator[str]:
    """What ended an attempt, what followed, and the command that prints its log."""
    where = f" on {attempt['node']}" if attempt["node"] else ""
    how = ended(Cause(attempt["cause"]), attempt["why"], attempt["progress"])
    yield from wrapped(f"{task['path']} attempt {attempt['number']}{where} {how}", indent="  ", hang="    ")
    if attempt["next"]:
        yield from wrapped(attempt["next"], indent="    then  ", hang=" " * 10)
    if attempt["log"]:
        yield f"    log   {attempt['log']}"


def _failure(task: Mapping[str, Any], *, briefly: bool) -> Iterator[str]:
    """Why a task has failed; ``briefly`` leaves out what stands among the ends of its attempts."""
    last = task["attempts"][-1] if task["attempts"] else None
    if task["status"] != "failed" or not task["why"]:
        return
    if last is None or last["next"] != task["why"]:
        yield from wrapped(f"{task['path']}: {task['why']}", indent="  ", hang="    ")
    elif not briefly:
        yield from _end(task, last)


def _waits(view: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for task in tasks:
        waiting = task["waits_for"]
        if waiting is not None:
            until = waiting["until"]
            moment = f", until +{format_duration(until - view['started_at'])}" if until is not None else ""
            yield from wrapped(f"{task['path']} {waiting['text']}{moment}", indent="  ", hang="    ")


def _output_lines(view: Mapping[str, Any]) -> Iterator[str]:
    outputs = view["outputs"]
    width = max(map(len, outputs), default=0)
    for name, output in outputs.items():
        value = output["uri"] if output["kind"] == "artifact" else shorten(value_text(output["value"]), _LONGEST_VALUE)
        yield f"  {name:<{width}}  {value}"
