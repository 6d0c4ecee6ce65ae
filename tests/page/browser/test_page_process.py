"""The real command in a real browser: it opens with the token of its address, is at rest without runs, and ends with Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.page.browser.chromium_pages import axe
from tests.page.browser.page_process import served_page


@pytest.mark.parametrize("settings", [{}, {"color_scheme": "dark"}, {"viewport": {"width": 360, "height": 640}}])
def test_a_project_without_runs_says_what_to_type(
    tmp_path: Path, page_server: Callable[..., str], open_page: Callable[..., Page], settings: dict[str, object]
) -> None:
    page = open_page(page_server(tmp_path / "state"), **settings)

    expect(page.get_by_role("main")).to_contain_text("spotwright run pipeline.py")
    assert "token" not in page.url
    assert axe(page) == []


def test_a_command_that_ends_without_an_address_fails_with_what_it_said(tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match="ended with 2"),
        served_page(tmp_path / "state", tmp_path, "--base-path", "no path"),
    ):
        raise NotImplementedError("it has no address")
