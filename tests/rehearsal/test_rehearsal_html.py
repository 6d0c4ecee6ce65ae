"""The report of a rehearsal in a notebook."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from tests.browsers import browser_on_the_path, why_there_is_no_browser

from spotwright.rehearsal.api import RehearsalReport
from spotwright.rehearsal.verdict import Verdict


def point(name: str, **fields: Any) -> Mapping[str, Any]:
    return {
        "name": name,
        "problem": None,
        "run": "r",
        "interrupted": True,
        "not_traced": None,
        "lost_seconds": 0.25,
        **fields,
    }


def report(verdict: str = "not safe", **fields: Any) -> RehearsalReport:
    step = {
        "task": "train<script>",
        "verdict": verdict,
        "fails_undisturbed": None,
        "undecided": None,
        "not_traced": None,
        "probable_cause": "state.json is written in place",
        "cost_per_interruption": 0.5,
        "done_again": 0.1,
        "measured_by": "the files that it writes",
        "lives": [
            {
                "name": "lives of a third, no notice",
                "share": 1 / 3,
                "notice": False,
                "ended": True,
                "kept": 1.0,
                "attempts": [
                    {"number": 1, "work": 0.33, "began": 0.0, "ended": 0.33, "interrupted": True},
                    {"number": 2, "work": 0.33, "began": None, "ended": None, "interrupted": True},
                    {"number": 3, "work": 0.4, "began": 0.6, "ended": 1.0, "interrupted": False},
                ],
            }
        ],
        "lost_files": ["/tmp/state"],  # noqa: S108 (what a report names)
        "connections": ["127.0.0.1:8080"],
        "mapped_saves": ["state.bin"],
        "points": [
            point("start, no notice"),
            point("save 1, no notice", problem="attempt 2 failed: <b>"),
            point("end, no notice", interrupted=False),
            point("middle, no notice", run=None),
        ],
        **fields,
    }
    return RehearsalReport("", {"safe": False, "steps": [step]})


@pytest.mark.parametrize("verdict", Verdict)
def test_a_report_with_one_step_has_its_verdict(verdict: Verdict) -> None:
    assert report(verdict.value).verdict == verdict


def test_why_nothing_is_decided_is_shown() -> None:
    assert (
        "no output that could be compared"
        in report("undecided", undecided="it has no output that could be compared")._repr_html_()
    )


def test_the_verdict_and_every_point_are_in_the_table() -> None:
    html = report()._repr_html_()

    tree = ET.fromstring(html.replace("&nbsp;", " "))  # noqa: S314 (we wrote it)
    rows = [["".join(cell.itertext()) for cell in row.findall("td")] for row in tree.iter("tr")]
    assert [(row[0], row[1].split(" ", 1)[1]) for row in rows if row] == [
        ("start, no notice", "survived"),
        ("save 1, no notice", "broken"),
        ("end, no notice", "not interrupted"),
        ("middle, no notice", "not tried"),
    ]
    cause, lost, kept = "probable cause: state.json is written in place", "/tmp/state", "10% of the interrupted"  # noqa: S108
    for text in ("not safe", cause, lost, kept, "127.0.0.1:8080", "state.bin"):
        assert text in html


def test_texts_of_the_step_are_escaped() -> None:
    html = report()._repr_html_()

    assert "<script" not in html
    assert "<b>" not in html


def test_a_step_that_was_not_traced_is_shown_with_the_reason_and_without_what_only_a_trace_knows() -> None:
    unknown = dict.fromkeys(("lost_files", "connections", "mapped_saves"))
    points = [point("save 1, no notice", interrupted=False, not_traced="it ended before the tracer could attach")]
    html = report(
        "safe", not_traced="ptrace is refused: Operation not permitted", points=points, **unknown
    )._repr_html_()

    assert "not traced: ptrace is refused: Operation not permitted" in html
    assert "not traced: it ended before the tracer could attach" in html
    assert "the step finished before" not in html
    assert "written where nothing outlives" not in html


def test_a_step_that_fails_undisturbed_has_its_reason_and_no_table() -> None:
    html = report(
        "fails without any interruption", fails_undisturbed="it exited with 1", points=[], cost_per_interruption=None
    )._repr_html_()

    assert "it exited with 1" in html
    assert "<table" not in html


_NOTEBOOK = """<!doctype html><meta charset=utf-8><style>
body {{ font: 13px sans-serif; margin: 12px; background: {background}; color: {colour} }}
td, th {{ text-align: right; white-space: normal; padding: .5em; color: red }}
</style><body>{html}<script>
const page = document.documentElement, cell = document.querySelector("td"), style = getComputedStyle(cell);
const range = document.createRange();
range.selectNodeContents(cell);
document.title = JSON.stringify({{overflow: page.scrollWidth - page.clientWidth, colour: style.color, align: style.textAlign,
  lines: range.getClientRects().length}});
</script>"""


def shown_in_a_browser(html: str, folder: Path, width: int, background: str, colour: str) -> Mapping[str, Any]:
    """What a browser makes of the report in a page with the style sheet of a notebook."""
    browser = browser_on_the_path()
    if browser is None:
        pytest.skip(why_there_is_no_browser())
    page = folder / "page.html"
    page.write_text(_NOTEBOOK.format(background=background, colour=colour, html=html))
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    done = subprocess.run(
        [*command, f"--window-size={width},900", "--dump-dom", page.as_uri()],
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    )
    return json.loads(done.stdout.partition("<title>")[2].partition("</title>")[0])


@pytest.mark.parametrize("width", [1000, 480])
@pytest.mark.parametrize(
    ("background", "colour"), [("rgb(255, 255, 255)", "rgb(33, 33, 33)"), ("rgb(17, 17, 17)", "rgb(221, 221, 221)")]
)
def test_a_browser_shows_the_report_without_overflow_in_the_colours_of_the_notebook(
    tmp_path: Path, width: int, background: str, colour: str
) -> None:
    long = point(
        "save 1, no notice", problem="FileExistsError: '/mnt/" + "checkpoints-of-the-run" * 12 + "/train.lock'"
    )

    shown = shown_in_a_browser(report(points=[long])._repr_html_(), tmp_path, width, background, colour)

    assert shown == {"overflow": 0, "colour": colour, "align": "left", "lines": 1}


def test_lives_are_bars_from_where_an_attempt_began_to_where_it_ended() -> None:
    html = report()._repr_html_()

    assert "lives of a third, no notice: the step ended in life 3" in html
    assert "margin-left:60.0%;width:40.0%" in html
    assert "aria-label='attempt 1: 0% to 33%'" in html
    assert "2: 33% of the work; where it began is not known" in html
