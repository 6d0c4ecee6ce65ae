"""From the command that the README names after the demo to the reason of the third interruption, in under a minute.

Once with the mouse alone and once with the keyboard alone. What a person does is counted: each act is given a slow person's time.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.examples.conftest import EXAMPLES

CLICK = 4.0  # seconds to look at the page, find a place there, and click on it
KEY = 0.5  # seconds to press a key and hear or see where the focus is
READ = 10.0  # seconds to read or hear the sentence
MINUTE = 60.0
_FOCUSED = "() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The state folder of the demo, and why ``show`` says that the third attempt of ``train`` ended."""
    folder = tmp_path_factory.mktemp("demo")
    state = folder / "state"
    said(folder, str(EXAMPLES / "iris" / "demo.py"), "--name", "demo")
    view: dict[str, Any] = json.loads(said(folder, "-m", "spotwright", "show", "last", "--json"))
    train = next(task for task in view["tasks"] if task["path"] == "train")
    third = train["attempts"][2]
    assert third["cause"] == "interrupted"
    return state, third["why"]


def said(folder: Path, *arguments: str) -> str:
    """The output of a command that uses the state in the folder."""
    env = {**os.environ, "SPOTWRIGHT_STATE": str(folder / "state"), "HOME": str(folder)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=True).stdout


class Person:
    """A user of the page; ``seconds`` is the time taken, including waits for the page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.acts = 0
        self._began = time.monotonic()
        self._seconds = 0.0

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)
        self.acts += 1
        self._seconds += KEY

    def tab_to(self, what: str) -> None:
        """Press Tab until the focus is on something whose name has this beginning."""
        for _ in range(80):
            if re.match(what, self.page.evaluate(_FOCUSED).strip()):
                return
            self.press("Tab")
        raise AssertionError(f"Tab does not lead to {what}")

    def click(self, x: float, y: float) -> None:
        self.page.mouse.move(x, y)
        self.page.mouse.click(x, y)
        self.acts += 1
        self._seconds += CLICK

    @property
    def seconds(self) -> float:
        """So far, and with the reading of one sentence."""
        return self._seconds + READ + time.monotonic() - self._began


def is_told(person: Person, why: str) -> None:
    """The page shows the reason, visibly and as the view's own text, after less than a minute."""
    sentence = person.page.locator(".sentence")
    expect(sentence).to_be_in_viewport()
    expect(sentence).to_have_text(re.compile(rf"^train attempt 3 on \S+ was interrupted: {re.escape(why)}"))
    assert person.seconds < MINUTE, f"{person.acts} acts take {person.seconds:.0f} seconds"


def opened(page_server: Callable[..., str], open_page: Callable[..., Page], state: Path) -> Page:
    """The page as ``spotwright page last`` opens it, once a reader sees bars."""
    page = open_page(page_server(state, "last"), viewport={"width": 1280, "height": 800})
    expect(page.locator(".lane .m-bar").first).to_be_visible()
    return page


def test_with_the_mouse_alone(
    demo: tuple[Path, str], page_server: Callable[..., str], open_page: Callable[..., Page]
) -> None:
    state, why = demo
    page = opened(page_server, open_page, state)
    person = Person(page)
    lane = page.locator(".lane", has_text="train")
    letters = lane.locator("text.m-letters", has_text="I").first
    third = [float(x) for x in (letters.get_attribute("x") or "").split()][2]  # the third bar with the letter I
    plot = lane.locator(".plot").bounding_box()
    assert plot is not None
    person.click(plot["x"] + third, plot["y"] + plot["height"] / 2)
    is_told(person, why)


def test_with_the_keyboard_alone(
    demo: tuple[Path, str], page_server: Callable[..., str], open_page: Callable[..., Page]
) -> None:
    state, why = demo
    page = opened(page_server, open_page, state)
    person = Person(page)
    person.tab_to("download: succeeded")  # the first lane, which reads what it is
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
        person.press(key)
    expect(page.locator("a.mark")).to_have_accessible_name(re.compile("^train attempt 3 on "))
    person.press("Enter")
    is_told(person, why)
