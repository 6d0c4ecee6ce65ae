"""The start of the command, and a list of 10,000 runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from benchmarks.pages.inputs import many_runs
from benchmarks.pages.measured import Measured
from benchmarks.pages.seen import first_shown, opened
from benchmarks.pages.served import Served, processor_seconds, resident
from benchmarks.results import Judged, Row
from playwright.sync_api import Page

__all__ = ["runs", "start"]

_ROW = {"rows": ".grid-runs [data-row='0'] a"}


def start(at: Measured) -> Iterator[Row]:
    """Row 1 of the design."""
    started, used, memory = [], [], []
    state = at.ordinary()
    for _ in range(at.times(5)):
        with Served(state, at.new_folder("cache")) as served:
            started.append(served.started_in)
            used.append(served.start_used)
            with opened(at.browser, served.url, _ROW) as page:
                first_shown(page, "rows")
            memory.append(resident(served.web))
    yield Row("1", "spotwright page until it prints its address", started, "s", Judged.VALUE, 0.6)
    yield Row("1", "the same: processor time, which other work of the machine does not lengthen", used, "s")
    yield Row("1", "memory of the web process after a page was opened", memory, "MB", Judged.VALUE, 60)


def runs(at: Measured) -> Iterator[Row]:
    """Row 2 of the design."""
    count = 1000 if at.quick else 10_000
    state = at.new_folder("runs")
    many_runs(state, count)
    name = f"{count:,} runs"
    cold, warm, filtered, oldest, meanwhile = [], [], [], [], []
    for _ in range(at.times(3)):
        with Served(state, at.new_folder("cache")) as served, opened(at.browser, served.url, _ROW) as page:
            cold.append(first_shown(page, "rows"))
    cache = at.new_folder("cache")
    with Served(state, cache) as served:
        begun = processor_seconds(*served.workers, served.web)
        is_filled = _fill(served, count, meanwhile)
        used = processor_seconds(*served.workers, served.web) - begun
    yield Row("2", f"{name}: first rows in Chromium, no index", cold, "s", Judged.VALUE, 1.0)
    for _ in range(at.times(5)):
        with Served(state, cache) as served, opened(at.browser, served.url, _ROW) as page:
            warm.append(first_shown(page, "rows"))
            filtered.append(_filter(page, f"run-{count // 2:05d}"))
            oldest.append(_oldest(page, served, "run-00000"))
    yield Row("2", f"{name}: first rows in Chromium, with the index", warm, "s", Judged.VALUE, 0.5)
    yield Row("2", f"{name}: a filter until its rows are drawn", filtered, "s", Judged.VALUE, 0.15)
    yield Row("2", f"{name}: to the oldest run, in Chromium", oldest, "s", Judged.VALUE, 0.3)
    yield Row(
        "2",
        f"{name}: processor time until all are in the index",
        [used if is_filled else float("inf")],
        "s",
        Judged.VALUE,
        0.015 * count,
    )
    yield Row("2", f"{name}: other answers meanwhile", meanwhile, "s", Judged.VALUE, 0.1)


def _fill(served: Served, count: int, meanwhile: list[float]) -> bool:
    """Wait until every run is in the index, and ask something else now and then."""
    until = time.monotonic() + 0.1 * count
    while time.monotonic() < until:
        answer = served.ask("runs", limit=50).document
        if answer.get("indexed", answer["total"]) >= count:
            return True
        meanwhile.append(served.ask("runs/run-00000").seconds)
        time.sleep(1.0)
    return False


def _filter(page: Page, name: str) -> float:
    """Seconds from the last letter in the field until the run is the first row."""
    return _drawn(page, "(name) => { const field = document.querySelector(\"input[type='search']\"); field.value = name;"
                  " field.dispatchEvent(new Event('input', { bubbles: true })); }", name, name)  # fmt: skip


def _oldest(page: Page, served: Served, name: str) -> float:
    """Seconds until the last row shows the oldest run: from a fresh list, the key End."""
    page.goto(served.base)
    first_shown(page, "rows")
    page.locator(".grid-runs [data-row='0']").focus()
    return _drawn(
        page,
        "() => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: 'End', bubbles: true }))",
        None,
        name,
    )


_DRAWN = """
async ([name]) => {
  const seen = () => [...document.querySelectorAll(".grid-runs [data-row] a")].some((link) => link.textContent.includes(name));
  const begun = performance.now();
  ACT
  while (!seen() && performance.now() - begun < 20000) await new Promise((next) => setTimeout(next, 2));
  if (!seen()) return Infinity;
  await new Promise((next) => requestAnimationFrame(() => setTimeout(next)));
  return (performance.now() - begun) / 1000;
}
"""


def _drawn(page: Page, act: str, given: Any, name: str) -> float:
    return float(page.evaluate(_DRAWN.replace("ACT", f"({act})({given!r})" if given else f"({act})()"), [name]))
