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
    if "left out in 60 columns" not in narrow:
        assert words(whole) - words(narrow) <= {
            "Task",
            "Run",
            "Pool",
            "Where",
            "it",
            "went",
        }  # headers of first columns


@pytest.mark.parametrize("text", TEXTS)
def test_at_80_columns_every_table_of_a_run_is_a_table(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    state = tutorial().state
    headers = {
        line.split()[0] for line in TEXTS[text](state).splitlines() if line.startswith(("Task ", "Run ", "Pool "))
    }
    monkeypatch.setenv("COLUMNS", "80")
    narrow = TEXTS[text](state).splitlines()
    assert headers <= {line.split()[0] for line in narrow if line}
    assert [line for line in narrow if len(line) > 80] == []


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


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        (27, ["Task   Pool  Node  Cause", "train  gpu   n-1   lost"]),
        (23, ["Task   Pool  Cause", "train  gpu   lost", "left out in 23 columns:", "Node"]),
        (20, ["Task   Pool  Cause", "train  gpu   lost", "left out in 20", "columns: Node"]),
    ],
)
def test_columns_that_a_table_can_spare_are_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, columns: int, lines: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = Rows(["Task", "Pool", "Node", "Cause"], [["train", "gpu", "n-1", "lost"]], "llll", ("Node", "Cause"))
    assert table(rows) == lines


def test_a_table_that_does_not_fit_without_its_spare_columns_either_is_paragraphs_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    rows = Rows(["Task", "Pool", "Node"], [["a" * 30, "gpu", "n-1"]], "lll", ("Node",))
    assert table(rows) == ["a" * 30, "  Pool gpu, Node n-1"]


def test_a_table_that_fits_stays_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    assert table(Rows(["Task", "Pool"], [["train", "gpu"]], "ll")) == ["Task   Pool", "train  gpu"]


@pytest.mark.parametrize(("columns", "width"), [("60", 60), ("3", 20), ("wide", None), ("0", None)])
def test_the_width_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch, columns: str, width: int | None) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal_width() == width
