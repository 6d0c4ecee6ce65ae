"""``make bench-page``: what the page in the browser takes, held against its targets; exit code 1 if one is missed.

::

    python -m benchmarks.page [--only start|runs|large|...] [--quick] [--json]

Everything is measured on the real command, and what a person sees in the machine's own Chromium, without a window. Cold is a
fresh process with an empty index and a fresh profile of the browser. Figures are medians of five where that is cheap, and of
three for what takes seconds; a row with one sample says so by having no range. What other work the machine does counts: the load
is printed before each line.

That hostile texts stay texts and refused requests are refused, that axe finds nothing and that every colour has its contrast are
tests: ``make test-page``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.pages.large import costs, frames, large
from benchmarks.pages.lists import runs, start
from benchmarks.pages.live import follow, many
from benchmarks.pages.logs import logs
from benchmarks.pages.measured import Measured
from benchmarks.pages.view import first_view
from benchmarks.results import Row, as_text
from tests.browsers import browser_on_the_path, why_there_is_no_browser
from tests.page.browser.chromium_pages import started_chromium

_LINES: Mapping[str, Callable[[Measured], Iterator[Row]]] = {
    "start": start,
    "large": large,
    "frames": frames,
    "account": costs,
    "view": first_view,
    "follow": follow,
    "logs": logs,
    "many": many,
    "runs": runs,
}


def main() -> int:
    """Measure what was asked for. Exit code 1 when a target is missed, 2 without a browser."""
    options = _options()
    program = browser_on_the_path()
    if program is None:
        print(why_there_is_no_browser(), file=sys.stderr)
        return 2
    out = sys.stderr if options.json else sys.stdout
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="spotwright-page-") as folder, started_chromium(program) as browser:
        print(f"Python {platform.python_version()}, Chromium {browser.version}, {os.cpu_count()} processors", file=out)
        measured = Measured(Path(folder), browser, quick=options.quick)
        for name in options.only or _LINES:
            print(f"{name}: load {os.getloadavg()[0]:.1f}", file=out, flush=True)
            for row in _LINES[name](measured):
                rows.append(row)
                print(f"{row.line:>3}  {as_text(row)}", file=out, flush=True)
    if options.json:
        print(json.dumps([row.as_json() for row in rows]))
    missed = sum(not row.passed for row in rows)
    print(f"{missed} of {len(rows)} lines missed their target" if missed else "every target was reached", file=out)
    return 1 if missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("--only", choices=list(_LINES), action="append", help="measure this (may be given again)")
    parser.add_argument("--quick", action="store_true", help="each once, on smaller runs")
    parser.add_argument("--json", action="store_true", help="every sample as JSON on standard output")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
