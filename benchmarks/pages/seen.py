"""What a person sees in Chromium, measured in the document: when something first shows, frames, shifts, and what was loaded."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page

__all__ = ["first_shown", "frames_while", "opened", "scrolled", "vitals"]

_WIDE = {"width": 1280, "height": 800}

_TELL_FIRSTS = """
globalThis.firsts = {};
const wanted = WANTED;
const look = () => {
  for (const [name, selector] of Object.entries(wanted)) {
    if (name in firsts || !document.querySelector(selector)) continue;
    firsts[name] = null;
    requestAnimationFrame(() => setTimeout(() => (firsts[name] = performance.now() / 1000)));
  }
};
new MutationObserver(look).observe(document, { childList: true, subtree: true, attributes: true, characterData: true });
"""
"""Notes for each selector when its element was first drawn: the moment after the frame that has it, in seconds since the
navigation began. It runs before the page's own scripts, outside its policy, as an extension of a browser would."""

_TELL_VITALS = """
globalThis.vitals = { paint: 0, shift: 0, blocked: 0, click: 0 };
const observe = (type, take, more = {}) =>
  new PerformanceObserver((list) => list.getEntries().forEach(take)).observe({ type, buffered: true, ...more });
observe("largest-contentful-paint", (entry) => (vitals.paint = entry.startTime / 1000));
observe("layout-shift", (entry) => entry.hadRecentInput || (vitals.shift += entry.value));
observe("longtask", (entry) => (vitals.blocked += Math.max(0, entry.duration - 50) / 1000));
const click = (entry) => entry.name === "click" && (vitals.click = Math.max(vitals.click, entry.duration / 1000));
observe("event", click, { durationThreshold: 16 });
"""

_SCROLL = """
async ([selector, seconds, step]) => {
  const box = document.querySelector(selector);
  const frames = [];
  await new Promise((done) => {
    const frame = (now) => {
      frames.push(now);
      if (box.scrollTop + step >= box.scrollHeight - box.clientHeight) box.scrollTop = 0;
      else box.scrollTop += step;
      if (now - frames[0] < 1000 * seconds) requestAnimationFrame(frame);
      else done();
    };
    requestAnimationFrame(frame);
  });
  return { frames, elements: document.querySelectorAll("*").length };
}
"""

_FRAMES = """
async (seconds) => {
  const frames = [];
  await new Promise((done) => {
    const frame = (now) => {
      frames.push(now);
      if (now - frames[0] < 1000 * seconds) requestAnimationFrame(frame);
      else done();
    };
    requestAnimationFrame(frame);
  });
  return { frames };
}
"""


@contextmanager
def opened(browser: Browser, url: str, wanted: Mapping[str, str] | None = None, *, slower: int = 1) -> Iterator[Page]:
    """The page at ``url`` in a profile of its own. ``wanted``: elements by name for :func:`first_shown`."""
    context = browser.new_context(viewport=_WIDE)
    context.add_init_script(_TELL_FIRSTS.replace("WANTED", json.dumps(dict(wanted or {}))))
    context.add_init_script(_TELL_VITALS)
    try:
        page = context.new_page()
        if slower > 1:
            context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": slower})
        page.goto(url)
        yield page
    finally:
        context.close()


def first_shown(page: Page, name: str, patience: float = 120.0) -> float:
    """Seconds from the begin of the navigation until an element of ``wanted`` was drawn."""
    for _ in range(round(patience * 50)):
        found = page.evaluate("(name) => firsts[name]", name)
        if found:
            return float(found)
        page.wait_for_timeout(20)
    raise RuntimeError(f"{name} was not shown within {patience:g}s at {page.url}")


def scrolled(page: Page, selector: str, seconds: float = 5.0, step: int = 120) -> tuple[float, float, int]:
    """Frames a second while a box scrolls by so many pixels a frame, the longest frame in seconds, the document's elements."""
    found = page.evaluate(_SCROLL, [selector, seconds, step])
    return (*_rate(found["frames"]), int(found["elements"]))


def frames_while(page: Page, seconds: float) -> tuple[float, float]:
    """Frames a second, and the longest in seconds, while the page does what it does."""
    return _rate(page.evaluate(_FRAMES, seconds)["frames"])


def _rate(frames: list[float]) -> tuple[float, float]:
    gaps = [(after - before) / 1000 for before, after in itertools.pairwise(frames)]
    return len(gaps) / sum(gaps), max(gaps)


def vitals(page: Page) -> Mapping[str, Any]:
    """Largest contentful paint, layout shift, blocking time of long tasks, the longest delay from a click to the next paint."""
    found: Mapping[str, Any] = page.evaluate("() => vitals")
    return found
