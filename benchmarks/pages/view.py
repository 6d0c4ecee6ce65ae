"""The first view, as somebody sees it who opens the page."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.pages.measured import Measured
from benchmarks.pages.seen import first_shown, opened, vitals
from benchmarks.pages.served import Served
from benchmarks.results import Judged, Row

__all__ = ["first_view"]

_LOADED = """
async () => {
  const files = performance.getEntriesByType("resource");
  const of = (ending) => files.filter((file) => new URL(file.name).pathname.endsWith(ending));
  const size = (ending) => of(ending).reduce((sum, file) => sum + file.encodedBodySize, 0);
  return { scripts: size(".js") / 1000, styles: size(".css") / 1000, requests: files.length + 1 };
}
"""
_ROW = {"rows": "[data-row='0'], .view-timeline .plot path.m-bar"}


def first_view(at: Measured) -> Iterator[Row]:
    """Row 6 of the design, for the list of runs and for the timeline of a run."""
    state = at.ordinary()
    with Served(state, at.new_folder("cache")) as served:
        served.ask("runs/ordinary/timeline")  # the process is started: how long that takes is in the rows before
        for view, address in (("runs", served.url), ("timeline", served.url.replace("/?", "/runs/ordinary/timeline?"))):
            paint, shift, blocked, click = [], [], [], []
            loaded: dict[str, float] = {}
            for _ in range(at.times(5)):
                with opened(at.browser, address, _ROW) as page:
                    first_shown(page, "rows")
                    page.wait_for_timeout(500)
                    seen = vitals(page)
                    paint.append(seen["paint"])
                    shift.append(seen["shift"])
                    loaded = page.evaluate(_LOADED)
                    page.locator(".bar nav a", has_text="Pools").click() if view == "runs" else page.locator(
                        ".tabs a", has_text="Tasks"
                    ).click()
                    page.wait_for_timeout(500)
                    click.append(vitals(page)["click"])
                with opened(at.browser, address, _ROW, slower=4) as page:
                    first_shown(page, "rows")
                    page.wait_for_timeout(1000)
                    blocked.append(vitals(page)["blocked"])
            yield Row("6", f"{view}: JavaScript, gzip", [loaded["scripts"]], "kB", Judged.VALUE, 60)
            yield Row("6", f"{view}: styles, gzip", [loaded["styles"]], "kB", Judged.VALUE, 8)
            yield Row("6", f"{view}: requests", [loaded["requests"]], "", Judged.VALUE, 40)
            yield Row("6", f"{view}: largest contentful paint", paint, "s", Judged.VALUE, 0.8)
            yield Row("6", f"{view}: layout shift", shift, "", Judged.VALUE, 0.05)
            yield Row("6", f"{view}: blocking time, processor four times slower", blocked, "s", Judged.VALUE, 0.3)
            yield Row("6", f"{view}: from a click to the next paint", click, "s", Judged.VALUE, 0.2)
