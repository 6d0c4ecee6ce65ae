#!/usr/bin/env python3
"""Make the pictures of the page, with the machine's own Chromium. Look at each before it is committed.

    scripts/page_pictures.py             docs/pictures: the demo's run in every view, and a larger run
    scripts/page_pictures.py --golden    tests/page/browser/golden: what tests/page/browser/test_pictures.py compares with

The demo is run anew, with its own seed, in a folder that is thrown away, beside what ``spotwright plan`` says of it. Names of
views as arguments make those alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from playwright.sync_api import Browser  # noqa: E402  # the line above finds what follows
from tests.browsers import browser_on_the_path, why_there_is_no_browser  # noqa: E402
from tests.page.browser.chromium_pages import started_chromium  # noqa: E402
from tests.page.browser.page_process import served_page  # noqa: E402
from tests.page.browser.pictures import GOLDEN, fonts_of, opened, small_png  # noqa: E402
from tests.page.browser.views import GOLDEN_VIEWS, GOLDEN_WINDOW, VIEWS, address_of, make_golden_runs, make_runs  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
RUN = "iris"
MOST = 120_000  # bytes
_WIDE = {"viewport": {"width": 1280, "height": 800}}
_NARROW = {"viewport": {"width": 400, "height": 800}}


class Picture(NamedTuple):
    """A picture of the docs: the view, the run, the window, and the additions to the address."""

    view: str
    run: str = RUN
    settings: dict[str, Any] = _WIDE


DOCS = {
    **{view: Picture(view) for view in VIEWS if view != "rehearsals"},
    "plan": Picture("plan", "interrupted"),  # a second of the demo stands for an hour, which no plan knows
    "timeline-dark": Picture("timeline", settings={**_WIDE, "color_scheme": "dark"}),
    "timeline-narrow": Picture("timeline", settings=_NARROW),
    "timeline-of-144-tasks": Picture("timeline", "interrupted"),
    "tasks-of-144-tasks": Picture("tasks", "interrupted"),
}


def main() -> int:
    """Make the pictures. Exit code 1 if one has too many bytes, 2 without a browser."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--golden", action="store_true", help="those of the tests")
    parser.add_argument("names", nargs="*", help="these alone")
    options = parser.parse_args()
    program = browser_on_the_path()
    if program is None:
        print(why_there_is_no_browser(), file=sys.stderr)
        return 2
    too_large = []
    with tempfile.TemporaryDirectory(prefix="spotwright-pictures-") as folder, started_chromium(program) as browser:
        make = golden if options.golden else documented
        for path, picture in make(browser, Path(folder), options.names):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(picture)
            print(f"{path.relative_to(ROOT)}: {len(picture):,} bytes", flush=True)
            if len(picture) > MOST:
                too_large.append(path.name)
    if too_large:
        print(f"more than {MOST:,} bytes: {', '.join(too_large)}", file=sys.stderr)
    return 1 if too_large else 0


def documented(browser: Browser, folder: Path, names: Sequence[str]) -> Iterator[tuple[Path, bytes]]:
    """The pictures of docs/pictures."""
    state = folder / "state"
    attempts = {RUN: ("train", 3), **make_runs(state, "interrupted", start=time.time() - 7200.0)}
    run_demo(state, folder)
    with served_page(state, folder) as url:
        for name, picture in DOCS.items():
            if names and name not in names:
                continue
            path = address_of(picture.view, picture.run, attempts[picture.run])
            page = opened(browser, url, path, picture.view, **picture.settings)
            yield PICTURES / f"{name}.png", small_png(page.screenshot())
            page.context.close()


def run_demo(state: Path, folder: Path) -> None:
    """Run the demo, with a plan beside it."""
    pipeline = ROOT / "examples" / "iris" / "pipeline.py"
    plan = folder / "plan.json"
    command = [sys.executable, "-m", "spotwright", "plan", str(pipeline), "--json"]
    plan.write_bytes(subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=folder).stdout)
    demo = [sys.executable, str(ROOT / "examples" / "iris" / "demo.py"), "--state", str(state), "--name", RUN]
    subprocess.run([*demo, "--plan", str(plan)], check=True, stdout=subprocess.DEVNULL, cwd=folder)


def golden(browser: Browser, folder: Path, names: Sequence[str]) -> Iterator[tuple[Path, bytes]]:
    """The golden pictures, and with what they were made."""
    state = folder / "state"
    attempts = make_golden_runs(state)
    with served_page(state, folder) as url:
        for view, run in GOLDEN_VIEWS.items():
            if names and view not in names:
                continue
            page = opened(browser, url, address_of(view, run, attempts[run]), view, **GOLDEN_WINDOW)
            yield GOLDEN / f"{view}.png", small_png(page.screenshot())
            made_with = {"chromium": browser.version, "fonts": fonts_of(page)}
            if view == "log":
                (GOLDEN / "made_with.json").write_text(json.dumps(made_with, indent=2) + "\n")
            page.context.close()


if __name__ == "__main__":
    sys.exit(main())
