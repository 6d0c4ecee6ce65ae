"""Which browser of this machine tests use, and why a test without one is skipped."""

from __future__ import annotations

import os
import shutil

__all__ = ["browser_on_the_path", "why_there_is_no_browser"]

_NAMES = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome")


def browser_on_the_path() -> str | None:
    """The program of a Chromium; ``None`` if none is installed."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


def why_there_is_no_browser() -> str:
    """The reason of a skipped test, which CI takes only where Chromium cannot be installed (``tests/skips.yaml``)."""
    if failed := os.environ.get("NO_CHROMIUM"):  # .ci/run has tried
        return f"no browser: {failed}"
    if os.geteuid() == 0 and shutil.which("apt-get"):
        return "no browser: apt-get install -y --no-install-recommends chromium"
    return "no browser, and only root can install one, on Debian: apt-get install -y --no-install-recommends chromium"
