"""Text on narrow terminals: lines break between words only."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.views.builders import Story, tutorial, tutorial_plan

from spotwright.engine.state import RunState
from spotwright.views.account import account
from spotwright.views.account_report import report_text
from spotwright.views.run_json import run_view, summary
from spotwright.views.run_text import runs_text, show_text, summary_text
from spotwright.views.text import Rows, table, terminal_width

NAME = "iris-x7k2p"


def a_failure() -> Story:
    story = Story(tutorial_plan(), arguments={"url": "a long text " * 20})
    story.boots("cpu-spot-1").binds("download", "cpu-spot-1").after(1)
    story.fact(
        "ended", "download", 1, signals={"exit_code": 1}, last_line="ValueError: no such column in the table " * 3
    )
    return story.gives_back("cpu-spot-1")


TEXTS: dict[str, Callable[[RunState], str]] = {
    "show": lambda state: show_text(run_view(state, NAME)),
    "summary": lambda state: summary_text(state, NAME),
    "runs": lambda state: runs_text([summary(state, NAME)]),
    "report": lambda state: report_text(account(state), NAME),
}


@pytest.mark.parametrize("story", [tutorial, a_failure])
@pytest.mark.parametrize("text", TEXTS)
def test_no_line_breaks_inside_a_word_at_60_columns(
    monkeypatch: pytest.MonkeyPatch, story: Callable[[], Story], text: str
) -> None:
    state = story().state
    whole = TEXTS[text](state)
    monkeypatch.setenv("COLUMNS", "60")
    narrow = TEXTS[text](state)
    assert [line for line in narrow.splitlines() if len(line) > 60 and len(line.split()) > 1] == []
    assert words(whole) - words(narrow) <= {"Task", "Run", "Pool", "Where", "it", "went"}  # headers of first columns


def words(text: str) -> set[str]:
    return {word.rstrip(",") for word in text.split()}


def test_a_row_that_does_not_fit_is_a_paragraph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    rows = [["train", "gpu-spot", "interrupted"], ["", "gpu", "succeeded"]]
    assert table(Rows(["Task", "Pool", "Cause"], rows, "lll")) == [
        "train",
        "  Pool gpu-spot, Cause",
        "  interrupted",
        "  Pool gpu, Cause",
        "  succeeded",
    ]


def test_a_table_that_fits_stays_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    assert table(Rows(["Task", "Pool"], [["train", "gpu"]], "ll")) == ["Task   Pool", "train  gpu"]


@pytest.mark.parametrize(("columns", "width"), [("60", 60), ("3", 20), ("wide", None), ("0", None)])
def test_the_width_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch, columns: str, width: int | None) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal_width() == width
