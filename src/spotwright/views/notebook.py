"""Runs in notebooks: HTML without scripts or style sheets, in the notebook's light or dark colours.

All strings are escaped. A colour only repeats the word beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from spotwright.model.attempts import Cause
from spotwright.views.account import Account
from spotwright.views.account_report import figures, line_rows, money_lines, pool_rows, report_json, report_text
from spotwright.views.run_deadline import deadline_json, missed_text
from spotwright.views.run_rows import artifact_lines, attempt_rows, output_rows, run_title
from spotwright.views.text import Rows, after_cause, ended, plural
from spotwright.visible_text import visible

__all__ = ["Report", "TaskTable", "account_html", "run_html", "tasks_html"]

_TABLE = "border-collapse:collapse;margin:.4em 0;color:inherit;background:none;font-variant-numeric:tabular-nums"
_CELL = "padding:.2em .7em;border-bottom:1px solid rgba(128,128,128,.35);text-align:{};color:inherit;background:none"
_DOTS = {  # readable on white and on black
    "succeeded": "#2fa36b",
    "running": "#3d8fd1",
    "failed": "#e0564f",
    "interrupted": "#d08a1d",
    "lost": "#d08a1d",
    "backoff": "#d08a1d",
}
_OTHER_DOT = "#8a8a8a"


class TaskTable(Mapping[str, Mapping[str, Any]]):
    """The tasks of a run by path, as plain data (the shape is that of ``run_view``); a table in a notebook."""

    def __init__(self, view: Mapping[str, Any]) -> None:
        self._view = view
        self._tasks: dict[str, Mapping[str, Any]] = {task["path"]: task for task in view["tasks"]}

    def __getitem__(self, path: str) -> Mapping[str, Any]:
        return self._tasks[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    def __repr__(self) -> str:
        return "\n".join(
            f"{path}: {task['status']}, {plural(len(task['attempts']), 'attempt')}"
            for path, task in self._tasks.items()
        )

    def _repr_html_(self) -> str:
        return tasks_html(self._view)


class Report:
    """The account of a run: a table in a notebook, text when printed, ``json()`` for machines, exact in ``account``."""

    def __init__(self, account: Account, name: str = "") -> None:
        self.account = account
        self._name = name

    def json(self) -> dict[str, Any]:
        """The same facts as ``spotwright report --json``."""
        return report_json(self.account, self._name)

    def __repr__(self) -> str:
        return report_text(self.account, self._name)

    def _repr_html_(self) -> str:
        return account_html(self.account)


def run_html(view: Mapping[str, Any], account: Account) -> str:
    """A run in full: tasks and attempts, the causes of their ends, outputs, and the cost."""
    ends = [f"<li>{_escaped(text)}</li>" for task in view["tasks"] for text in _ends(task)]
    artifacts = list(artifact_lines(view))
    outputs = [list(row) for row in output_rows(view)]
    return _whole(
        f"<div>{_dot(view['status'])}<b>{_escaped(run_title(view))}</b></div>",
        _missed(view["deadline"]),
        _table(attempt_rows(view)),
        f"<ul style='margin:.4em 0'>{''.join(ends)}</ul>" if ends else "",
        _table(Rows(["Output", "Value"], outputs, "ll")),
        _lines(["Artifacts", *artifacts]) if artifacts else "",
        _lines(money_lines(account)),
    )


def tasks_html(view: Mapping[str, Any]) -> str:
    """The tasks of a run, a line per attempt."""
    return _whole(_table(attempt_rows(view)))


def account_html(account: Account) -> str:
    """An account: its pools, the use of node time, and the savings by spot."""
    tables = [pool_rows(account), line_rows(account)] if account.pools else []
    return _whole(
        f"<div><b>Account</b> ({_escaped(figures(account))})</div>",
        _missed(deadline_json(account.deadline)),
        *(_table(rows) for rows in tables),
        _lines(money_lines(account)) if tables else "<div>no node was used</div>",
    )


def _missed(deadline: Mapping[str, Any] | None) -> str:
    text = missed_text(deadline)
    return _lines([f"Deadline {text}"]) if text else ""


def _escaped(text: str) -> str:
    return escape(visible(text, block=True))


def _ends(task: Mapping[str, Any]) -> Iterator[str]:
    for attempt in task["attempts"]:
        if attempt["cause"] is not None and attempt["cause"] != Cause.SUCCEEDED:
            how = ended(Cause(attempt["cause"]), attempt["why"], attempt["progress"])
            yield f"{task['path']} attempt {attempt['number']} {how}; {after_cause(Cause(attempt['cause']), attempt['next'])}"


def _whole(*parts: str) -> str:
    return f"<div style='color:inherit;background:none'>{''.join(parts)}</div>"


def _lines(lines: Iterable[str]) -> str:
    return f"<pre style='margin:.4em 0;color:inherit;background:none'>{_escaped(chr(10).join(lines))}</pre>"


def _table(whole: Rows) -> str:
    headers, rows, align, _ = whole.used()
    if not rows:
        return ""
    sides = ["left" if letter == "l" else "right" for letter in align]
    head = "".join(
        f"<th style='{_CELL.format(side)}'>{_escaped(text)}</th>" for text, side in zip(headers, sides, strict=True)
    )
    body = "".join(f"<tr>{_cells(headers, row, sides)}</tr>" for row in rows)
    return f"<table style='{_TABLE}'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cells(headers: Sequence[str], row: Sequence[str], sides: Sequence[str]) -> str:
    cells = []
    for header, text, side in zip(headers, row, sides, strict=True):
        dot = _dot(text) if text and header in ("Status", "Cause") else ""
        cells.append(f"<td style='{_CELL.format(side)}'>{dot}{_escaped(text)}</td>")
    return "".join(cells)


def _dot(word: str) -> str:
    """A coloured dot beside the word."""
    return f"<span style='color:{_DOTS.get(word, _OTHER_DOT)}' aria-hidden='true'>\N{BLACK CIRCLE}</span>&nbsp;"
