"""Every view of the page with an address, for tests and pictures that go through all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Page, expect
from tests.forecast.builders import HOUR, forecast, task
from tests.page.made_runs import KINDS, make_run

from spotwright.engine.state import RunState
from spotwright.forecast.report import forecast_json
from spotwright.model.attempts import Cause
from spotwright.records.state_folder import StateFolder

__all__ = [
    "GOLDEN_VIEWS", "GOLDEN_WINDOW", "VIEWS", "View", "address_of", "make_golden_runs", "make_runs", "wait_until_drawn",
]  # fmt: skip

LOG = (
    "\x1b[1mepoch 1\x1b[0m loss 0.693\n",
    "\x1b[31merror rate\x1b[0m 0.12\n",
    *(f"step {number}: loss {1 / number:.4f}\n" for number in range(1, 60)),
)
"""The output of every attempt that is shown."""


class View(NamedTuple):
    """A view: where it is below the root of the page, and an element that is there once it is drawn."""

    path: str
    drawn: str


VIEWS: Mapping[str, View] = {
    "runs": View("", ".grid-runs [data-row]"),
    "timeline": View("runs/{run}/timeline", ".view-timeline .plot path.m-bar"),
    "timeline-by-node": View("runs/{run}/timeline?by=node", ".view-timeline .plot path"),
    "graph": View("runs/{run}/graph", ".view-graph a.node, .view-graph [data-row]"),
    "tasks": View("runs/{run}/tasks", ".grid-tasks [data-row]"),
    "account": View("runs/{run}/account", ".view-account table"),
    "plan": View("runs/{run}/plan", ".view-plan"),
    "nodes": View("runs/{run}/nodes", ".view-nodes [data-row], .view-nodes tbody tr"),
    "history": View("runs/{run}/history", ".view-history [data-row], .view-history tbody tr"),
    "about": View("runs/{run}/about", ".view-about"),
    "attempt": View("runs/{run}/attempt?task={task}&n={n}", ".view-attempt .log-lines .line .words span"),
    "log": View("runs/{run}/log?task={task}&n={n}", ".view-log .log-lines .line .words span"),
    "pools": View("pools", "main h1"),
    "totals": View("totals", "main table, main .empty"),
    "rehearsals": View("rehearsals", "main table, main .empty"),
}


GOLDEN_VIEWS: Mapping[str, str] = {
    **{view: "ordinary" for view in VIEWS if view not in {"pools", "totals", "rehearsals"}},
    "timeline": "interrupted",
}
"""The views with a golden picture, each with the run that it shows. These runs ended at a fixed moment."""

GOLDEN_WINDOW: dict[str, Any] = {"viewport": {"width": 1000, "height": 700}}


def make_golden_runs(state: Path) -> dict[str, tuple[str, int]]:
    """Make the runs of :data:`GOLDEN_VIEWS`, as :func:`make_runs` does."""
    return make_runs(state, "ordinary", "interrupted")


def make_runs(state: Path, *kinds: str, start: float = 1_790_000_000.0) -> dict[str, tuple[str, int]]:
    """Make runs of these kinds, with a plan beside each. Each gives the attempt to look at: the first that was interrupted.

    That one has a log.
    """
    plan = json.dumps({**forecast_json(forecast(task(work=HOUR)), "pipeline.py"), "currency": "USD"})
    found = {}
    for number, kind in enumerate(kinds):
        made = make_run(state, kind, KINDS[kind], start=start + 3600.0 * number)
        found[kind] = _interrupted(made)
        folder = StateFolder.open(state).run(kind)
        folder.forecast.write_text(plan)
        log = folder.log(*found[kind])
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("".join(LOG))
    return found


def _interrupted(state: RunState) -> tuple[str, int]:
    return next(
        (path, number)
        for path, task in state.tasks.items()
        for number, attempt in enumerate(task.attempts, 1)
        if attempt.cause is Cause.INTERRUPTED
    )


def address_of(view: str, run: str, attempt: tuple[str, int]) -> str:
    """Where a view of a run is, below the root of the page."""
    return VIEWS[view].path.format(run=run, task=attempt[0], n=attempt[1])


def wait_until_drawn(page: Page, view: str) -> None:
    """Wait until the view has its content, without a sign of loading."""
    expect(page.locator(VIEWS[view].drawn).first).to_be_attached(timeout=30_000)
    expect(page.locator(".loading")).to_have_count(0)
