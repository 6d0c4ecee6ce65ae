"""Every view in light, dark, narrow and at double size: axe finds nothing, and nothing is wider than the window."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page
from tests.page.browser.chromium_pages import axe
from tests.page.browser.views import VIEWS, address_of, make_runs, wait_until_drawn

FORMS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 800}},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 360, "height": 640}},
    "double": {"viewport": {"width": 640, "height": 400}, "device_scale_factor": 2},  # 1280 pixels at 200 % zoom
}
_OUTSIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
_MOST_ELEMENTS = 1500


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, tuple[str, int]]]:
    """A state folder with an ordinary run and one of 144 tasks, and the attempt of each that is looked at."""
    state = tmp_path_factory.mktemp("views") / "state"
    return state, make_runs(state, "ordinary", "interrupted")


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_accessible_in_every_form(
    view: str,
    runs: tuple[Path, dict[str, tuple[str, int]]],
    page_server: Callable[..., str],
    open_page: Callable[..., Page],
) -> None:
    state, attempts = runs
    url = page_server(state)
    found = []
    for form, settings in FORMS.items():
        page = open_page(url, **settings)
        page.goto(url.partition("?")[0] + address_of(view, "ordinary", attempts["ordinary"]))
        wait_until_drawn(page, view)
        found += [f"{form}: {line}" for line in axe(page)]
        if (outside := page.evaluate(_OUTSIDE)) > 0:
            found.append(f"{form}: the document is {outside} pixels wider than the window")
        if page.locator("h1").count() != 1:
            found.append(f"{form}: {page.locator('h1').count()} headings of the first level")
    assert found == []


@pytest.mark.parametrize("view", ["timeline", "tasks", "nodes", "history", "log"])
def test_a_long_list_draws_what_the_window_shows(
    view: str,
    runs: tuple[Path, dict[str, tuple[str, int]]],
    page_server: Callable[..., str],
    open_page: Callable[..., Page],
) -> None:
    state, attempts = runs
    url = page_server(state)
    page = open_page(url, **FORMS["light"])
    page.goto(url.partition("?")[0] + address_of(view, "interrupted", attempts["interrupted"]))
    wait_until_drawn(page, view)
    assert page.evaluate("() => document.querySelectorAll('*').length") <= _MOST_ELEMENTS
