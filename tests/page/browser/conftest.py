"""Fixtures for tests of the page in a real Chromium, which is the machine's own: Playwright downloads nothing.

Such a test waits with locators and ``expect``. ``wait_for_function`` needs ``eval``, which the page's policy refuses, and
``bypass_csp`` would hide what users get.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from tests.page.browser.chromium_pages import ChromiumPages
from tests.page.browser.page_process import served_page

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Opens an address in a separate profile (:meth:`ChromiumPages.open`). Problems with it fail the test."""
    pages = ChromiumPages(chromium)
    yield pages.open
    pages.close()
    assert pages.unexpected() == []


@pytest.fixture
def page_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """Starts ``spotwright page`` on a state folder, with more options if given, and gives the address that it prints."""
    with ExitStack() as stack:
        yield lambda state, *arguments: stack.enter_context(
            served_page(state, tmp_path_factory.mktemp("page"), *arguments)
        )
