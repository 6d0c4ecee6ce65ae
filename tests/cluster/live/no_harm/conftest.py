"""The table of the events that every kind of workload survives: without Spotwright, placed as a file, and with the controller."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

_log = logging.getLogger(__name__)

Compared = Callable[[str, str, str, object], None]
"""Notes how a workload of a kind ended after an event, by the way in which it ran."""

_CELLS = pytest.StashKey[dict[tuple[str, str], dict[str, str]]]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show the table: a row for each event and kind, a column for each way."""
    cells = config.stash.get(_CELLS, {})
    if not cells:
        return
    ways = list(dict.fromkeys(way for row in cells.values() for way in row))
    terminalreporter.section("how each workload ended, seconds after the event, and the pods that it took")
    terminalreporter.write_line(" | ".join([f"{'event':<32}", f"{'kind':<9}", *(f"{way:<24}" for way in ways)]))
    for (event, kind), row in cells.items():
        line = [f"{event:<32}", f"{kind:<9}", *(f"{row.get(way, '-'):<24}" for way in ways)]
        terminalreporter.write_line(" | ".join(line))


@pytest.fixture
def compared(pytestconfig: pytest.Config) -> Compared:
    """Notes an outcome for the table."""
    cells = pytestconfig.stash.setdefault(_CELLS, {})

    def note(event: str, kind: str, way: str, result: object) -> None:
        cells.setdefault((event, kind), {})[way] = str(result)
        _log.info("%s | %s | %s | %s", event, kind, way, result)

    return note
