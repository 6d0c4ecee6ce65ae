"""Runs that go on: from a commit to the pixel, many changes, many windows, and many runs one after the other."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree

import aiohttp
from benchmarks.pages.inputs import Playing, playing
from benchmarks.pages.measured import Measured
from benchmarks.pages.seen import first_shown, opened
from benchmarks.pages.served import Served, processor_seconds, resident
from benchmarks.results import Judged, Row
from playwright.sync_api import Page

__all__ = ["follow", "many"]

_PORT = 8949  # a fixed one, so that the same window goes on after a restart
_ROWS = {"rows": ".grid-tasks [data-row]"}

_NOTE_COUNTS = """
() => {
  globalThis.counts = {};
  const note = document.querySelector(".view-tasks .filters .note");
  let told = -1;
  const look = () => {
    const count = Number(note.textContent.split(" ")[0].replace(/[^0-9]/g, ""));
    if (count === told) return;
    told = count;
    requestAnimationFrame(() => setTimeout(() => (counts[count] ??= Date.now() / 1000)));
  };
  look();
  new MutationObserver(look).observe(note, { childList: true, subtree: true, characterData: true });
}
"""
_FOLLOW = """
async (name) => {
  const files = performance.getEntriesByType("resource").map((file) => file.name);
  const { Run } = await import(files.find((file) => file.endsWith("/store.js")));
  globalThis.Run = Run;
  globalThis.loads = 0;
  globalThis.followed = new Run(name);
  const load = followed.load.bind(followed);
  followed.load = () => (loads++, load());
  await followed.load();
}
"""
_COMPARE = """
async (name) => {
  const fresh = new Run(name);
  await fresh.load();
  for (let tries = 0; followed.seq < fresh.seq && tries < 100; tries++) await new Promise((next) => setTimeout(next, 100));
  const rows = (table) => {
    const found = [];
    for (let row = 0; row < table.rows; row++)
      found.push(JSON.stringify(table.names.map((name) => (table.words[name] ? table.word(name, row) : table[name][row]))));
    return found.sort().join("\\n");
  };
  fresh.close();
  const equal = ["tasks", "attempts", "nodes"].filter((name) => rows(fresh[name].value) === rows(followed[name].value));
  return { equal: equal.length, rows: fresh.tasks.value.rows, loads };
}
"""


def follow(at: Measured) -> Iterator[Row]:
    """Row 7 of the design, on this machine."""
    seconds = 10.0 if at.quick else 60.0
    state = at.new_folder("live")
    with (
        playing(at.recorded, state / "runs" / "slow", 5.0, state / "slow") as run,
        Served(_as_state(state), at.new_folder("cache")) as served,
    ):
        address = served.url.replace("/?", "/runs/slow/tasks?status=succeeded&")
        with opened(at.browser, address, _ROWS) as page:
            first_shown(page, "rows")
            page.evaluate(_NOTE_COUNTS)
            page.wait_for_timeout(1000 * seconds)
            delays = _delays(run, page)
    yield Row("7", "from a commit to the pixel: p95, 5 tasks a second", [_p95(delays)], "s", Judged.VALUE, 0.6)
    yield from _fast(at, seconds)


def _fast(at: Measured, seconds: float) -> Iterator[Row]:
    state, cache = at.new_folder("live"), at.new_folder("cache")
    with playing(at.recorded, state / "runs" / "fast", 400.0, state / "fast") as run:
        served = Served(_as_state(state), cache, _PORT)
        try:
            context = at.browser.new_context()
            page = context.new_page()
            page.goto(served.url.replace("/?", "/runs/fast/tasks?"))
            page.locator(_ROWS["rows"]).first.wait_for()
            page.evaluate(_FOLLOW, "fast")
            web, worker = processor_seconds(served.web), processor_seconds(*served.workers)
            memory = resident(served.web)
            begun = time.monotonic()
            page.wait_for_timeout(1000 * seconds)
            took = time.monotonic() - begun
            web = (processor_seconds(served.web) - web) / took * 100
            worker = (processor_seconds(*served.workers) - worker) / took * 100
            grown = (resident(served.web) / memory - 1) * 100
            with run.held():
                before = page.evaluate(_COMPARE, "fast")
            served.close()
            page.wait_for_timeout(1000)
            served = Served(_as_state(state), cache, _PORT)
            other = context.new_page()
            other.goto(served.url)  # the new cookie of this browser
            other.close()
            page.wait_for_timeout(5000)
            with run.held():
                after = page.evaluate(_COMPARE, "fast")
            context.close()
        finally:
            served.close()
    yield Row("7", "400 tasks a second: processor of the web process", [web], "%", Judged.NOTHING)
    yield Row("7", "400 tasks a second: processor of web process and worker", [web + worker], "%", Judged.VALUE, 30)
    yield Row(
        "7",
        "tables of the window equal to a fresh load, of three",
        [before["equal"]],
        "",
        Judged.VALUE,
        3,
        at_least=True,
    )
    yield Row("7", "the same after a restart of the server", [after["equal"]], "", Judged.VALUE, 3, at_least=True)
    yield Row(
        "7", "times that the window loaded all again before the restart", [before["loads"] - 1], "", Judged.VALUE, 0
    )
    yield Row(
        "12", f"growth of the web process in {24_000 if seconds > 10 else 4_000:,} tasks", [grown], "%", Judged.VALUE, 5
    )


def _as_state(folder: Path) -> Path:
    """A folder with runs as a state folder."""
    if not (folder / "format").exists():
        (folder / "format").write_text("1\n")
    return folder


def _delays(run: Playing, page: Page) -> list[float]:
    """Seconds from each commit until a count at least as large was drawn."""
    seen = sorted((int(count), at) for count, at in page.evaluate("() => counts").items())
    begun, found, place = min(at for _, at in seen), [], 0
    for count, at in sorted(run.committed().items()):
        while place < len(seen) and seen[place][0] < count:
            place += 1
        if at > begun and place < len(seen):
            found.append(seen[place][1] - at)
    return found


def _p95(samples: list[float]) -> float:
    return statistics.quantiles(samples, n=20)[-1]


def many(at: Measured) -> Iterator[Row]:
    """Row 12 of the design: windows and runs. A day is not measured; :func:`follow` has the growth in an hour's events."""
    seconds, count = (10.0, 200)
    state = at.new_folder("live")
    with (
        playing(at.recorded, state / "runs" / "slow", 10.0, state / "slow"),
        Served(_as_state(state), at.new_folder("cache")) as served,
    ):
        used, sent = ThreadPoolExecutor(1).submit(asyncio.run, _windows(served, "slow", count, seconds)).result()
    yield Row("12", f"{count} streams on a run, 10 tasks a second: web process", [used], "%", Judged.VALUE, 15)
    yield Row("12", "the same: events that each window got", [sent], "", Judged.VALUE, seconds, at_least=True)
    state = at.new_folder("twenty")
    copies = 3 if at.quick else 20
    (state / "runs").mkdir()
    for number in range(copies):
        copytree(at.large / "runs" / "many", state / "runs" / f"many-{number}")
    memory: list[float] = []
    with Served(_as_state(state), at.new_folder("cache")) as served:
        for number in range(copies):
            served.ask(f"runs/many-{number}/tasks")
            served.ask(f"runs/many-{number}/timeline")
            memory.append(max(map(resident, served.workers)))
    yield Row(
        "12",
        f"{copies} large runs one after the other: most memory of the worker",
        [max(memory)],
        "MB",
        Judged.VALUE,
        512,
    )


async def _windows(served: Served, run: str, count: int, seconds: float) -> tuple[float, float]:
    """Percent of a core of the web process while so many windows follow a run, and how many events each got."""
    pieces = 0
    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        headers={"Cookie": served.cookie}, timeout=timeout, connector=connector
    ) as session:

        async def follow_one(after: str) -> None:
            nonlocal pieces
            async with session.get(f"{served.base}api/v1/stream", params={"run": run, "after": after}) as response:
                async for line in response.content:
                    pieces += line.startswith(b"event: changes")

        tasks = served.ask(f"runs/{run}/tasks").document
        following = [asyncio.create_task(follow_one(f"{tasks['made_at']}.{tasks['seq']}")) for _ in range(count)]
        await asyncio.sleep(3.0)
        pieces, before, begun = 0, processor_seconds(served.web), time.monotonic()
        await asyncio.sleep(seconds)
        used = (processor_seconds(served.web) - before) / (time.monotonic() - begun) * 100
        found = pieces / count
        for each in following:
            each.cancel()
        await asyncio.gather(*following, return_exceptions=True)
    return used, found
