"""A log of 64 MiB, and one that grows by 5,000 lines a second."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.pages.inputs import long_log, playing, writing
from benchmarks.pages.measured import Measured
from benchmarks.pages.seen import first_shown, frames_while, opened
from benchmarks.pages.served import Served
from benchmarks.results import Judged, Row
from playwright.sync_api import Page

from spotwright.records.reader import RunReader
from spotwright.records.state_folder import StateFolder

__all__ = ["logs"]

_LINES = {"lines": ".log-lines .line:not(.unread) .words span"}
_SEEN = """
async ([act, given, seen, wanted]) => {
  const acts = {
    line: (number) => {
      const rest = location.search.replace(/&line=[0-9]+/, "");
      history.replaceState(null, "", `${location.pathname}${rest}&line=${number}`);
      dispatchEvent(new PopStateEvent("popstate"));
    },
    find: (text) => {
      const field = document.querySelector(".log-find input");
      field.value = text;
      field.dispatchEvent(new Event("input", { bubbles: true }));
    },
  };
  const begun = performance.now();
  acts[act](given);
  const is = () => [...document.querySelectorAll(seen)].some((element) => new RegExp(wanted).test(element.textContent));
  while (!is() && performance.now() - begun < 30000) await new Promise((next) => setTimeout(next, 2));
  if (!is()) return Infinity;
  await new Promise((next) => requestAnimationFrame(() => setTimeout(next)));
  return (performance.now() - begun) / 1000;
}
"""


def logs(at: Measured) -> Iterator[Row]:
    """Row 8 of the design."""
    state = at.ordinary()
    folder = StateFolder.existing(state).run("ordinary")
    taken = next(
        (task, number)
        for task, each in RunReader(folder, lambda _: False).state.tasks.items()
        for number, attempt in enumerate(each.attempts, 1)
        if attempt.cause is not None and attempt.cause.value == "interrupted"
    )
    size = (8 if at.quick else 64) << 20
    count = long_log(folder.log(*taken), size)
    name = f"a log of {size >> 20} MiB"
    cold, first, jump, search = [], [], [], []
    for _ in range(at.times(3)):
        with (
            Served(state, at.new_folder("cache")) as served,
            opened(at.browser, _address(served, *taken), _LINES) as page,
        ):
            cold.append(first_shown(page, "lines"))
        with Served(state, at.new_folder("cache")) as served:
            served.ask("runs/ordinary/tasks")  # the process has started and has the run, but has not looked at the log
            with opened(at.browser, _address(served, *taken), _LINES) as page:
                first.append(first_shown(page, "lines"))
                jump += [
                    _until(page, "line", count // part, ".log-lines .line.at .words", f"step {count // part - 1:9d} ")
                    for part in (3, 2, 5)
                ]
                search.append(_until(page, "find", "needle", ".log-find .found", rf"\b{count // 50_000}( lines?)?$"))
    with Served(state, at.new_folder("cache")) as served:
        here = served.raw("runs/ordinary/log/raw", task=taken[0], n=taken[1])
    printed = _printed(state, taken)
    yield Row("8", f"{name}: first screen in Chromium", first, "s", Judged.VALUE, 0.5)
    yield Row("8", "the same, where the process that reads runs starts with it", cold, "s")
    yield Row("8", f"{name}: to any line", jump, "s", Judged.VALUE, 0.2)
    yield Row("8", f"{name}: a search over all of it", search, "s", Judged.VALUE, 0.6)
    yield Row(
        "8",
        "bytes that differ from `spotwright logs`, of a node that was taken",
        [_differing(here, printed)],
        "",
        Judged.VALUE,
        0,
    )
    yield from _growing(at)


def _address(served: Served, task: str, number: int) -> str:
    return served.url.replace("/?", f"/runs/ordinary/log?task={task}&n={number}&")


def _until(page: Page, act: str, given: object, seen: str, wanted: str) -> float:
    return float(page.evaluate(_SEEN, [act, given, seen, wanted]))


def _printed(state: Path, taken: tuple[str, int]) -> bytes:
    command = [sys.executable, "-m", "spotwright", "logs", "ordinary", taken[0], str(taken[1]), "--state", str(state)]
    return subprocess.run(command, check=True, capture_output=True).stdout


def _differing(one: bytes, other: bytes) -> int:
    if one == other:
        return 0
    return abs(len(one) - len(other)) + sum(a != b for a, b in zip(one, other, strict=False))


def _growing(at: Measured) -> Iterator[Row]:
    state = at.new_folder("growing")
    rates, worst, shown = [], [], []
    with playing(at.recorded, state / "runs" / "grows", 0.01, state / "told"):
        folder = StateFolder.open(state).run("grows")
        tasks = RunReader(folder, lambda _: True).state.tasks
        task = next(
            name
            for name, each in tasks.items()
            if each.attempts and each.attempts[-1].cause is None and each.attempts[-1].bound_at is not None
        )
        log = folder.log(task, 1)
        log.parent.mkdir(parents=True, exist_ok=True)
        with writing(log, 5000), Served(state, at.new_folder("cache")) as served:
            address = served.url.replace("/?", f"/runs/grows/log?task={task}&n=1&")
            with opened(at.browser, address, _LINES) as page:
                first_shown(page, "lines")
                for _ in range(at.times(3)):
                    before = _total(page)
                    rate, longest = frames_while(page, 5.0)
                    rates.append(rate)
                    worst.append(longest * 1000)
                    shown.append((_total(page) - before) / 5.0)
    yield Row("8", "follows 5,000 lines a second: frames a second", rates, "/s", Judged.VALUE, 50, at_least=True)
    yield Row("8", "the same: the longest frame", worst, "ms")
    yield Row(
        "8", "the same: lines a second that the window has reached", shown, "/s", Judged.VALUE, 4500, at_least=True
    )


def _total(page: Page) -> int:
    return int(page.evaluate("() => Number(document.querySelector('.log-lines').lastElementChild.dataset.line)"))
