"""From view to view with the keyboard: the focus is never lost, and what is opened is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect
from tests.page.browser.views import make_runs, wait_until_drawn


def test_the_focus_goes_to_the_view_that_is_opened(
    tmp_path: Path, page_server: Callable[..., str], open_page: Callable[..., Page]
) -> None:
    make_runs(tmp_path / "state", "ordinary")
    page = open_page(page_server(tmp_path / "state"))
    focused = page.locator(":focus")
    page.locator("[data-row='0']").focus()
    page.keyboard.press("Enter")
    expect(focused).to_have_text("Timeline")
    expect(page).to_have_title("Timeline · ordinary · Spotwright")

    wait_until_drawn(page, "timeline")
    page.get_by_role("grid", name="Lanes").focus()
    page.keyboard.press("ArrowRight")
    expect(focused).to_have_accessible_name(re.compile("^work-1-1 attempt 1 "))
    page.keyboard.press("Enter")
    expect(focused).to_have_text("work-1-1, attempt 1")
    expect(page).to_have_title("work-1-1, attempt 1 · ordinary · Spotwright")
    page.get_by_role("link", name="Attempt 2").focus()
    page.keyboard.press("Enter")
    expect(focused).to_have_text("work-1-1, attempt 2")

    page.go_back()
    expect(focused).to_have_text("work-1-1, attempt 1")
    page.go_back()
    expect(focused).to_have_accessible_name(re.compile("^work-1-1 attempt 1 "))

    tab = page.get_by_role("link", name="Tasks", exact=True)
    tab.focus()
    page.keyboard.press("Enter")
    wait_until_drawn(page, "tasks")
    expect(tab).to_be_focused()  # what stays keeps the focus
