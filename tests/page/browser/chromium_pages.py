"""Pages in Chromium that fail a test on every error, every breach of the policy and every request that leaves the origin."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, WebError, sync_playwright

__all__ = ["ChromiumPages", "axe", "started_chromium"]

_OFFLINE = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
)
_TELL_BREACHES = """
document.addEventListener("securitypolicyviolation", (event) => console.error(
  `policy: ${event.effectiveDirective} refuses ${event.blockedURI} ${event.sample}`));
"""
"""A policy that only reports writes no error to the console; this does. No page of ours sees it before its own scripts run."""


@contextmanager
def started_chromium(program: str) -> Iterator[Browser]:
    """Chromium without a window, which makes no network requests by itself."""
    rights = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*rights, *_OFFLINE])
        try:
            yield browser
        finally:
            browser.close()


class ChromiumPages:
    """Opens pages, each with a separate profile, and notes their problems."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self.faults: list[str] = []
        self._allowed: list[str] = []

    def open(self, url: str, *, allow: str | None = None, **settings: Any) -> Page:
        """The page at ``url`` when it is loaded.

        ``allow`` is a regular expression for faults that the test causes on purpose, such as a server that is stopped.
        ``settings`` are those of a browser context: ``color_scheme``, ``viewport``, ``reduced_motion``, ``has_touch``.
        """
        if allow is not None:
            self._allowed.append(allow)
        context = self._browser.new_context(**settings)
        self._contexts.append(context)
        context.add_init_script(_TELL_BREACHES)
        context.on("console", self._console)
        context.on("weberror", self._error)
        origin = _origin(url)
        context.on("request", lambda request: self._request(request, origin))
        page = context.new_page()
        page.goto(url)
        return page

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.faults.append(f"console: {message.text} ({message.location.get('url', '')})")

    def _error(self, error: WebError) -> None:
        self.faults.append(f"error: {error.error}")

    def _request(self, request: Request, origin: tuple[str, str]) -> None:
        if urlsplit(request.url).scheme not in {"data", "blob"} and _origin(request.url) != origin:
            self.faults.append(f"request: {request.method} {request.url} leaves the origin")

    def close(self) -> None:
        """Close all pages, after their last messages."""
        for context in self._contexts:
            for page in context.pages:
                page.evaluate("0")  # an answer comes after the events before it
            context.close()
        self._contexts.clear()

    def unexpected(self) -> list[str]:
        """The faults that no test has allowed."""
        return [fault for fault in self.faults if not any(re.search(allowed, fault) for allowed in self._allowed)]


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2]


def axe(page: Page) -> list[str]:
    """axe-core's findings in the page, a line for each element: its rule, the element, and the fix."""
    found: list[dict[str, Any]] = Axe().run(page).response["violations"]
    return [
        f"{violation['id']} ({violation['impact']}): {' '.join(map(str, node['target']))}: {violation['help']}"
        for violation in found
        for node in violation["nodes"]
    ]
