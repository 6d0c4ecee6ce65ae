"""A run of 10,000 tasks with 20,000 attempts: how fast it is there, what is sent and drawn, and its account."""

from __future__ import annotations

import time
from collections.abc import Iterator
from fractions import Fraction

from benchmarks.pages.measured import Measured
from benchmarks.pages.seen import first_shown, opened, scrolled
from benchmarks.pages.served import Served, processor_seconds
from benchmarks.results import Judged, Row

from spotwright.records.reader import RunReader
from spotwright.records.state_folder import StateFolder
from spotwright.views.account import Account, account

__all__ = ["costs", "frames", "large"]

_BARS = ".view-timeline .plot path.m-bar, .view-timeline .grid-attempts [data-row]"
_SHOWN = {"head": ".head .facts", "rows": ".grid-tasks [data-row]", "bars": _BARS}


def large(at: Measured) -> Iterator[Row]:
    """Row 3 of the design. Cold: a fresh process and a fresh browser, warm: a fresh browser alone."""
    state = at.large
    cold: dict[str, list[float]] = {"head": [], "rows": [], "bars": []}
    warm: dict[str, list[float]] = {"head": [], "rows": [], "bars": []}
    cold_used, warm_used = list[float](), list[float]()
    for _ in range(at.times(3)):
        for view, name in (("tasks", "rows"), ("timeline", "bars")):
            with Served(state, at.new_folder("cache")) as served:
                for samples, used in ((cold, cold_used), (warm, warm_used)):
                    before = processor_seconds(*served.workers)
                    address = served.url.replace("/?", f"/runs/many/{view}?")
                    with opened(at.browser, address, _SHOWN) as page:
                        samples[name].append(first_shown(page, name))
                        used.append(processor_seconds(*served.workers) - before)
                        if name == "rows":
                            samples["head"].append(first_shown(page, "head"))
    for kind, used in (("cold", cold_used), ("warm", warm_used)):
        yield Row("3", f"{_name(at)}: processor time of the worker, {kind}", used, "s")
    limits = {"head": (0.3, 0.2), "rows": (1.2, 0.4), "bars": (1.5, 0.6)}
    for kind, samples, which in (("cold", cold, 0), ("warm", warm, 1)):
        for name, found in samples.items():
            yield Row("3", f"{_name(at)}: {name} in Chromium, {kind}", found, "s", Judged.VALUE, limits[name][which])


def frames(at: Measured) -> Iterator[Row]:
    """Row 4 of the design."""
    rates: dict[str, list[float]] = {"tasks": [], "timeline": []}
    worst: dict[str, list[float]] = {"tasks": [], "timeline": []}
    elements: list[float] = []
    boxes = {"tasks": ".grid-tasks .rows", "timeline": ".view-timeline .scroller, .view-timeline .grid-attempts .rows"}
    with Served(at.large, at.new_folder("cache")) as served:
        size = sum(served.ask(f"runs/many/{what}").size for what in ("tasks", "timeline")) / 1000
        for view, box in boxes.items():
            with opened(at.browser, served.url.replace("/?", f"/runs/many/{view}?"), _SHOWN) as page:
                first_shown(page, "rows" if view == "tasks" else "bars")
                page.wait_for_timeout(3000)  # the head asks for the account
                for _ in range(at.times(3)):
                    rate, longest, count = scrolled(page, box)
                    rates[view].append(rate)
                    worst[view].append(longest * 1000)
                    elements.append(count)
    yield Row("4", f"{_name(at)}: rows and bars, gzip", [size], "kB", Judged.VALUE, 60)
    for view in boxes:
        yield Row(
            "4",
            f"{view}: frames a second while it scrolls 120 pixels a frame",
            rates[view],
            "/s",
            Judged.VALUE,
            50,
            at_least=True,
        )
        yield Row("4", f"{view}: the longest frame of five seconds", worst[view], "ms", Judged.VALUE, 100)
    yield Row("4", "elements of the document", [max(elements)], "", Judged.VALUE, 1500)


def costs(at: Measured) -> Iterator[Row]:
    """Row 5 of the design. The reference is the sum of the nodes' times at their prices, in fractions."""
    folder = StateFolder.existing(at.large).run("many")
    state = RunReader(folder, lambda _: False).state
    used: list[float] = []
    for _ in range(at.times(5)):
        begun = time.process_time()
        counted = account(state)
        used.append(time.process_time() - begun)
    yield Row("5", f"{_name(at)}: processor time of the account", used, "s", Judged.VALUE, 0.5)
    yield Row(
        "5", "its cost beside node time at prices in fractions", [_apart(counted)], "relative", Judged.VALUE, 1e-12
    )


def _apart(counted: Account) -> float:
    exact = sum(
        ((Fraction(node.end) - Fraction(node.start)) * Fraction(node.pool.price or 0) / 3600 for node in counted.nodes),
        Fraction(0),
    )
    return float(abs((counted.whole.money or 0) - exact) / exact)


def _name(at: Measured) -> str:
    return "1,000 tasks" if at.quick else "10,000 tasks"
