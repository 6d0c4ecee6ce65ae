"""Runs as text: one run in full, a list of runs, and the summary that stands at the end of a run.

Everything is said from :func:`~spotwright.views.facts.run_view`, so text and JSON cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from spotwright.engine.state import RunState
from spotwright.model.attempts import Cause
from spotwright.views.account import account
from spotwright.views.facts import run_view
from spotwright.views.report import money_lines
from spotwright.views.rows import LONGEST_VALUE, attempt_rows, cost_of, output_rows, run_title
from spotwright.views.table import Rows, shorten, table, wrapped
from spotwright.views.words import ended, plural, span, value_text

__all__ = ["runs_text", "show_text", "summary_text"]


def show_text(view: Mapping[str, Any]) -> str:
    """A run in full: its tasks and attempts, why each ended and where its log is, what waits, and its outputs."""
    tasks = [*view["tasks"], *view["left_behind"]]
    parts = [
        [run_title(view), *_head(view)],
        table(attempt_rows(view)),
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
        table(attempt_rows(view, by_start=True)),
        money_lines(account(state, now)),
        _titled("Why tasks have failed", (line for task in tasks for line in _failure(task, briefly=False))),
        [run_title(view)],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def runs_text(summaries: Sequence[Mapping[str, Any]]) -> str:
    """A line per run, in the order given."""
    if not summaries:
        return "no runs yet"
    cost = f"{summaries[0]['prices'].capitalize()} cost"
    headers = ["Run", "Status", "Started", "Took", "Tasks", "Attempts", "Interruptions", cost]
    rows = [
        [
            item["run"], item["status"], _moment(item["started_at"]), span(item["seconds"]),
            f"{item['tasks'].get('succeeded', 0)}/{item['tasks']['all']}", str(item["attempts"]),
            str(item["interruptions"]), cost_of(item["cost"], item["currency"]),
        ]
        for item in summaries
    ]  # fmt: skip
    lines = table(Rows(headers, rows, "lllrrrrr"))
    if any(item["cost"]["money"] is None for item in summaries):
        lines += ["", "nh: node-hours, where a pool has no price"]
    return "\n".join(lines)


def _titled(title: str, lines: Iterator[str]) -> list[str]:
    found = list(lines)
    return [title, *found] if found else []


def _head(view: Mapping[str, Any]) -> Iterator[str]:
    started = f"{_moment(view['started_at'], precisely=True)}, seed {view['seed']}"
    if view["engines"] > 1:
        started += f", resumed {plural(view['engines'] - 1, 'time')}"
    rows = [("pipeline", view["pipeline"]), ("started", started)]
    rows += [
        ("argument", f"{key} = {shorten(value_text(value), LONGEST_VALUE)}") for key, value in view["arguments"].items()
    ]
    if view["time_scale"] != 1:
        rows.append(("time", f"waits pass {view['time_scale']:g} times faster; seconds are real"))
    rows += [("note", text) for text in view["notes"]]
    if view["status"] in ("stopped", "failed") or (view["status"] == "running" and not view["driven"]):
        rows.append(("go on", f"spotwright resume {view['run']}"))
    for word, text in rows:
        yield from wrapped(text, indent=f"  {word:<9} ", hang=" " * 12)


def _moment(at: float, *, precisely: bool = False) -> str:
    """A moment in local time, to the minute, or to the second with the zone."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S %z" if precisely else "%Y-%m-%d %H:%M")


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
    if Cause(attempt["cause"]).is_error and attempt["last_line"]:
        yield f"    said  {shorten(attempt['last_line'], LONGEST_VALUE)}"
    if attempt["next"]:
        yield from wrapped(attempt["next"], indent="    then  ", hang=" " * 10)
    if attempt["log"]:
        yield f"    log   {attempt['log']}"


def _failure(task: Mapping[str, Any], *, briefly: bool) -> Iterator[str]:
    """Why a task has failed; ``briefly`` leaves out what stands among the ends of its attempts.

    Nothing for a pipeline or a loop that has failed because something inside it has, which is told there.
    """
    last = task["attempts"][-1] if task["attempts"] else None
    if task["status"] != "failed" or not task["why"] or task["why"].startswith(f"{task['path']}/"):
        return
    if last is None or last["next"] != task["why"]:
        yield from wrapped(f"{task['path']}: {task['why']}", indent="  ", hang="    ")
    elif not briefly:
        yield from _end(task, last)


def _waits(view: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for task in tasks:
        waiting = task["waits_for"]
        if waiting is not None and (waiting["kind"] != "nothing" or view["status"] == "running"):
            until = waiting["until"]
            moment = f", until +{span(until - view['started_at'])}" if until is not None else ""
            yield from wrapped(f"{task['path']} {waiting['text']}{moment}", indent="  ", hang="    ")


def _output_lines(view: Mapping[str, Any]) -> Iterator[str]:
    outputs = output_rows(view)
    width = max((len(name) for name, _ in outputs), default=0)
    for name, value in outputs:
        yield f"  {name:<{width}}  {value}"
