"""The state of a browser that loaded a run's columns and applied every delta, compared with a fresh load."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from spotwright.engine.events import Event
from spotwright.engine.fold import fold
from spotwright.engine.plan import Plan
from spotwright.engine.state import RunState
from spotwright.page.columns import Changes, RunColumns

TABLES = ("tasks", "attempts", "nodes")


def rows_of(table: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of an answer, with words instead of their indexes."""
    words, columns = table["words"], table["columns"]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return [
        {name: (words[name][value] if value >= 0 else None) if name in words else value for name, value in row.items()}
        for row in rows
    ]


def apply(table: dict[str, Any], delta: dict[str, Any] | None) -> None:
    """Append the new words of a look to a table, and write its changed rows."""
    if delta is None:
        return
    for column, words in delta["words"].items():
        table["words"][column] += words
    for row, values in delta["rows"].items():
        for column, value in zip(table["columns"].values(), values, strict=True):
            if int(row) == len(column):
                column.append(value)
            else:
                column[int(row)] = value


class Browser:
    """The tables of one reader. Everything goes through JSON, as on the way to a browser."""

    def __init__(self, columns: RunColumns) -> None:
        self.tables: dict[str, Any] = {}
        self.load(columns)

    def load(self, columns: RunColumns) -> None:
        """Load all columns."""
        self.tables = json.loads(json.dumps({name: getattr(columns, name)() for name in TABLES}))

    def apply(self, changes: Changes) -> None:
        """Append new words and rows, and write changed rows."""
        for name, table in self.tables.items():
            apply(table, json.loads(json.dumps(getattr(changes, name))))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of a table in an order that does not depend on when they came."""
        rows = rows_of(self.tables[name])
        return rows if name == "tasks" else sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def follow(plans: Sequence[Plan], looks: Iterable[Sequence[Event]], first: int = 0) -> tuple[Browser, RunState, int]:
    """Read a run look by look from the ``first`` on, and compare a browser's state after each with a fresh load.

    Returns the browser, the state and how often the columns had to be made again.
    """
    state = RunState(plans)
    columns, browser, resets = RunColumns(state), Browser(RunColumns(state)), 0
    for number, events in enumerate(looks):
        for event in events:
            fold(state, event)
        changes = columns.update(state, events, state.last_at) if number > first else None
        if changes is None:
            resets += number > first
            columns = RunColumns(state, state.last_at)
            browser.load(columns)
        else:
            browser.apply(changes)
        fresh = Browser(RunColumns(state))
        for name in TABLES:
            assert browser.rows(name) == fresh.rows(name), (number, name, [event.kind for event in events])
    return browser, state, resets
