"""Automatic changes while a run is active, and things that stay where the user put them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.page.browser.run_addresses import driven, view_address
from tests.page.recorded import a_story, recorded

from spotwright.records.journal import Journal

Open = Callable[..., Page]
Serve = Callable[..., str]

_ENGINE = """
import json, sys
from spotwright.runs.bodies import this_process
print(json.dumps(this_process()), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def engine() -> Iterator[subprocess.Popen[str]]:
    """A process that a run can name as the one that drives it."""
    process = subprocess.Popen([sys.executable, "-c", _ENGINE], stdin=-1, stdout=-1, text=True)
    yield process
    process.kill()
    process.communicate()


def test_a_run_whose_engine_is_killed_says_so_with_the_command_to_go_on(
    engine: subprocess.Popen[str], tmp_path: Path, page_server: Serve, open_page: Open
) -> None:
    reader = recorded(tmp_path / "state", a_story())
    assert engine.stdout is not None
    with closing(Journal.open(reader.folder.journal)) as journal:
        journal.take(json.loads(engine.stdout.readline()), lambda _: False)
    page = open_page(view_address(page_server(tmp_path / "state"), "a-run", "timeline"))
    expect(page.locator(".lane .m-bar.c-running")).to_have_count(1)
    expect(page.locator(".ground .m-undriven")).to_have_count(0)
    expect(page.locator(".through.now")).to_have_count(1)

    engine.kill()
    engine.wait()

    expect(page.locator("h1")).to_contain_text("its engine is not running")
    expect(page.locator(".head")).to_contain_text("spotwright resume a-run")
    expect(page.locator(".ground .m-undriven")).to_have_count(1)
    expect(page.locator(".through.now")).to_have_count(0)


def test_an_attempt_that_runs_is_asked_for_again_and_what_is_open_stays_open(
    tmp_path: Path, page_server: Serve, open_page: Open
) -> None:
    with driven(tmp_path / "state", a_story()):
        page = open_page(view_address(page_server(tmp_path / "state"), "a-run", "attempt", task="eval", n=2))
        event = page.locator("details").first
        event.locator("summary").click()
        page.evaluate("getSelection().selectAllChildren(document.querySelector('.sentence'))")
        for _ in range(2):
            with page.expect_response(re.compile(r"/attempt\?")) as answer:
                pass
            answer.value.finished()
        expect(event).to_have_attribute("open", "")
        expect(event.locator("summary")).to_be_focused()
        assert page.evaluate("String(getSelection())") == page.locator(".sentence").inner_text()


def test_a_server_that_stops_leaves_what_is_read_and_says_so(
    tmp_path: Path, page_server: Serve, open_page: Open
) -> None:
    with driven(tmp_path / "state", a_story()):
        url = page_server(tmp_path / "state")
        page = open_page(view_address(url, "a-run", "attempt", task="eval", n=2), allow="Failed to load|net::ERR")
        expect(page.locator(".sentence")).to_be_visible()
        page.context.set_offline(True)
        expect(page.locator(".problem").first).to_contain_text("does not answer")
        expect(page.locator(".sentence")).to_be_visible()
        page.context.set_offline(False)
        expect(page.locator(".problem")).to_have_count(0)
