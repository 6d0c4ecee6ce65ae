"""The built site as tests see it: made once, served on the loopback, searched in a browser as its reader does."""

from __future__ import annotations

import functools
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

from playwright.sync_api import Page
from tests.docs.pages import ROOT

__all__ = ["build", "found_by", "served"]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Do not log requests."""


def build(folder: Path, settings: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    """Build a site as ``make docs`` does, into a folder."""
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--config-file",
            str(settings),
            "--site-dir",
            str(folder),
        ],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128  # the default of 5 refuses a browser that asks for the files of a page at once


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address at which a folder is served."""
    server = _Server(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def found_by(page: Page, address: str, words: str) -> list[str]:
    """The pages that the search of a site finds by some words, best first, as paths in the site."""
    page.goto(f"{address}/index.html?q={quote(words)}")  # as somebody comes who was sent a search
    links = page.locator("li.md-search-result__item > a")
    links.first.wait_for()
    return [urlsplit(str(link.get_attribute("href"))).path.lstrip("/") for link in links.all()]
