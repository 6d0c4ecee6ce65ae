"""Notebook displays: escaped, self-contained, readable on light and dark."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from tests.views.builders import Story, a_plan, a_task, tutorial

from spotwright.views.account import account
from spotwright.views.notebook import Report, TaskTable, account_html, run_html, tasks_html
from spotwright.views.run_json import run_view

EVIL = "<script>alert('x')</script>"


class Balanced(HTMLParser):
    """Reads HTML and remembers what is open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def fragments() -> list[str]:
    state = tutorial().state
    view = run_view(state, "iris-x7k2p")
    return [run_html(view, account(state)), tasks_html(view), account_html(account(state))]


@pytest.mark.parametrize("html", fragments())
def test_fragments_are_balanced_and_load_nothing(html: str) -> None:
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    assert not parser.tags & {"script", "link", "img", "iframe", "style"}
    assert "http" not in html


@pytest.mark.parametrize("html", fragments())
def test_only_the_dots_of_fragments_have_a_colour(html: str) -> None:
    outside_dots = re.sub(r"<span[^>]*>", "", html)
    assert not re.search(r"#[0-9a-f]{3,6}\b|color:(?!inherit)", outside_dots)
    assert set(re.findall(r"background:([^;']*)", html)) == {"none"}


def test_everything_is_escaped() -> None:
    story = Story(a_plan(a_task("train"))).boots("cpu-spot-1").binds("train", "cpu-spot-1").after(1)
    story.ends("train", {"parameters": {"text": EVIL}}).gives_back("cpu-spot-1")
    html = run_html(run_view(story.state, EVIL), account(story.state))
    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 2


def test_a_run_shows_its_attempts_interruptions_outputs_and_cost() -> None:
    html = fragments()[0]
    for text in (
        "iris-x7k2p succeeded after 28s",
        "gpu-spot-2",
        "was interrupted",
        "interruption 1 of 10",
        "0.9736842105263158",
        "saved",
    ):
        assert text in html


def test_tasks_are_a_mapping_by_path() -> None:
    table = TaskTable(run_view(tutorial().state, "iris-x7k2p"))
    assert list(table) == ["download", "merge", "train"]
    assert len(table["train"]["attempts"]) == 2
    assert repr(table).splitlines()[2] == "train: succeeded, 2 attempts"
    assert "<table" in table._repr_html_()


def test_a_report_is_text_html_and_json() -> None:
    report = Report(account(tutorial().state), "iris-x7k2p")
    assert repr(report).startswith("Account of iris-x7k2p (prices are simulated)")
    assert "useful work" in report._repr_html_()
    assert report.json()["run"] == "iris-x7k2p"


def test_a_run_without_attempts_can_be_shown() -> None:
    state = Story(a_plan(a_task("train"))).state
    assert "has been running for" in run_html(run_view(state, "x", state.last_at), account(state, state.last_at))
    assert "no node was used" in account_html(account(state))
