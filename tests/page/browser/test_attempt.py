"""The panel of an attempt in a browser: why it ended in the order of the evidence, and what it waits for."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.page.browser.chromium_pages import axe
from tests.page.browser.run_addresses import driven, view_address
from tests.page.made_runs import KINDS, make_run
from tests.page.recorded import a_recorded_run, a_story, log_of, recorded

from spotwright.page.attempt_panel import attempt_panel, history
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import StateFolder

Open = Callable[..., Page]
Serve = Callable[..., str]

FORMS: list[dict[str, Any]] = [{}, {"color_scheme": "dark"}, {"viewport": {"width": 360, "height": 640}}]


@pytest.fixture
def interrupted(tmp_path: Path) -> RunReader:
    """A run whose task was interrupted once, and ended then."""
    reader = recorded(tmp_path / "state", a_story().ends("eval", exit_code=1).gives_back("cpu-spot-2"))
    log_of(reader.folder, 1, b"epoch 1\nepoch 2\n")
    return reader


def attempt_page(open_page: Open, page_server: Serve, reader: RunReader, n: int | str, **settings: Any) -> Page:
    state = reader.folder.path.parent.parent
    page = open_page(view_address(page_server(state), "a-run", "attempt", task="eval", n=n), **settings)
    expect(page.get_by_role("region", name="Attempt", exact=True)).to_be_visible()
    return page


def test_the_panel_answers_in_the_words_of_the_journal(
    interrupted: RunReader, page_server: Serve, open_page: Open
) -> None:
    said = attempt_panel(interrupted, "eval", 1)
    page = attempt_page(open_page, page_server, interrupted, 1)

    panel = page.get_by_role("region", name="Attempt", exact=True)
    expect(panel.locator(".sentence")).to_have_text(said["sentence"])
    expect(panel.locator(".rule")).to_contain_text(f"Rule {said['rule']['row']}: {said['rule']['text']}")
    headings = panel.get_by_role("heading", level=3).all_inner_texts()
    assert headings == [
        "Evidence",
        "What followed",
        f"What else ended on {said['attempt']['node']} within a minute",
        "Events",
        "Measures",
        "Command",
        "Log",
    ]
    rows = page.get_by_role("region", name="Evidence").locator("tbody tr")
    expect(rows).to_have_count(len(said["evidence"]))
    for index, each in enumerate(said["evidence"]):
        expect(rows.nth(index).locator("td").first).to_have_text(each["signal"].replace("_", " "))
        expect(rows.nth(index).locator("td").last).to_have_text("✓ decided" if each["decided"] else "")
    expect(panel).to_contain_text(said["followed"]["text"])
    expect(panel.locator(".events > li")).to_have_count(len(said["events"]))
    expect(panel.locator(".events > li summary").last).to_contain_text(said["events"][-1]["text"])
    expect(panel.locator(".log-lines")).to_contain_text("epoch 2")


def test_an_event_shows_its_json_when_it_is_opened_with_the_keyboard(
    interrupted: RunReader, page_server: Serve, open_page: Open
) -> None:
    page = attempt_page(open_page, page_server, interrupted, 1)
    bound = page.locator(".events > li", has_text="runs on cpu-spot-1")
    expect(bound.locator("pre")).to_be_hidden()

    bound.locator("summary").focus()
    page.keyboard.press("Enter")

    expect(bound.locator("pre")).to_contain_text('"node": "cpu-spot-1"')


def test_attempts_of_one_task_lead_to_each_other(interrupted: RunReader, page_server: Serve, open_page: Open) -> None:
    page = attempt_page(open_page, page_server, interrupted, 1)

    page.get_by_role("link", name="Attempt 2").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=2)).to_contain_text("attempt 2 of 2")
    expect(page.locator(".sentence")).to_have_text(attempt_panel(interrupted, "eval", 2)["sentence"])
    assert "n=2" in page.url

    page.go_back()
    expect(page.get_by_role("heading", level=2)).to_contain_text("attempt 1 of 2")


@pytest.mark.parametrize("settings", FORMS)
def test_every_form_of_the_panel_is_accessible_and_no_wider_than_the_window(
    interrupted: RunReader, page_server: Serve, open_page: Open, settings: dict[str, Any]
) -> None:
    page = attempt_page(open_page, page_server, interrupted, 1, **settings)
    expect(page.locator(".log-lines")).to_contain_text("epoch 2")

    assert axe(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_an_attempt_that_waits_says_for_what_and_changes_when_it_has_a_node(
    tmp_path: Path, page_server: Serve, open_page: Open
) -> None:
    story = a_story(source="/p/pipeline.py")
    waits = next(index for index, event in enumerate(story.events) if event.kind == "bound" and event.attempt == 2)
    later, story.events = story.events[waits:], story.events[:waits]
    with driven(tmp_path / "state", story) as (reader, journal):
        waiting = attempt_panel(RunReader(reader.folder, lambda _: True), "eval", 2)["waiting"]
        page = attempt_page(open_page, page_server, reader, 2)
        expect(page.get_by_role("heading", name="What it waits for")).to_be_visible()
        expect(page.locator(".panel")).to_contain_text(waiting["why"])
        expect(page.locator(".panel")).to_contain_text("spotwright explain /p/pipeline.py")

        journal.append(later)

        expect(page.locator(".sentence")).to_contain_text("runs on cpu-spot-2")
        expect(page.get_by_role("heading", name="What it waits for")).to_have_count(0)


def test_the_head_of_a_run_changes_by_itself(tmp_path: Path, page_server: Serve, open_page: Open) -> None:
    story = a_story()
    first = len(story.events)
    story.ends("eval").gives_back("cpu-spot-2")
    later, story.events = story.events[first:], story.events[:first]
    with driven(tmp_path / "state", story) as (reader, journal):
        page = attempt_page(open_page, page_server, reader, 1)
        expect(page.locator(".head .chip")).to_have_text("running")

        journal.append(later)

        expect(page.locator(".head .chip")).to_have_text("succeeded")
        expect(page.locator(".head")).to_contain_text("1 of 1")


def test_a_task_without_attempts_says_why(tmp_path: Path, page_server: Serve, open_page: Open) -> None:
    make_run(tmp_path / "state", "failed", KINDS["failed"])
    reader = RunReader(StateFolder.existing(tmp_path / "state").run("failed"), lambda _: False)
    task = next(task for task in reader.state.tasks.values() if not task.attempts)
    rows = history(reader, task=task.path)["rows"]

    page = open_page(view_address(page_server(tmp_path / "state"), "failed", "attempt", task=task.path))

    expect(page.get_by_role("heading", level=2)).to_contain_text(f"{task.path}, no attempt")
    expect(page.locator(".sentence")).not_to_be_empty()
    expect(page.locator(".events > li")).to_have_count(len(rows))


def test_hostile_text_of_an_end_is_text_with_marks(tmp_path: Path, page_server: Serve, open_page: Open) -> None:
    hostile = "<img src=x onerror=alert(1)>\u202egnp.exe\x1b[2J"
    story = a_story().ends("eval", exit_code=1, reason=hostile, message=hostile).gives_back("cpu-spot-2")
    reader = recorded(tmp_path / "state", story)
    page = attempt_page(open_page, page_server, reader, 2)

    shown = page.get_by_role("region", name="Evidence")
    expect(shown).to_contain_text("<img src=x onerror=alert(1)><U+202E>gnp.exe<U+001B>[2J")
    assert page.locator("main img").count() == 0
    assert not re.search("[\u202e\x1b]", page.content())


def test_an_attempt_that_is_not_there_is_said_to_be_missing(
    interrupted: RunReader, page_server: Serve, open_page: Open
) -> None:
    state = interrupted.folder.path.parent.parent
    page = open_page(view_address(page_server(state), "a-run", "attempt", task="eval", n=7), allow="status of 404")

    expect(page.get_by_role("alert")).to_contain_text("has 2 attempts, not an attempt 7")


def test_artifacts_are_drawn_and_html_runs_nothing(tmp_path: Path, page_server: Serve, open_page: Open) -> None:
    out = tmp_path / "state/runs/a-run/tasks/eval/attempt-2/out"
    curve = [
        {"confidenceThreshold": 1 - each, "falsePositiveRate": each**2, "recall": each} for each in (0.0, 0.5, 1.0)
    ]
    matrix = {
        "annotationSpecs": [{"displayName": "cat"}, {"displayName": "dog"}],
        "rows": [{"row": [9, 1]}, {"row": [2, 8]}],
    }
    kinds = {"page": "HTML", "table": "Dataset", "scores": "Metrics", "classes": "ClassificationMetrics"}
    said = {"scores": {"accuracy": 0.75}, "classes": {"confusionMatrix": matrix, "confidenceMetrics": curve}}
    artifacts = {
        name: {
            "name": name,
            "type": {"schemaTitle": f"system.{kind}"},
            "uri": str(out / name),
            "metadata": said.get(name, {}),
        }
        for name, kind in kinds.items()
    }
    a_recorded_run(tmp_path / "state", artifacts)
    out.mkdir(parents=True)
    script = "<script>parent.document.title = 'taken'</script>"
    (out / "page").write_text(f"<h1>A report</h1>{script}<img src='https://example.org/x.png'>", encoding="utf-8")
    (out / "table").write_text("name,value\none,1\ntwo,2\n", encoding="utf-8")

    printed = page_server(tmp_path / "state")
    allowed = "Blocked script execution|violates the following Content Security Policy|leaves the origin"
    page = open_page(view_address(printed, "a-run", "about", task="eval"), allow=allowed)

    expect(page.frame_locator("iframe").get_by_role("heading")).to_have_text("A report")
    expect(page.get_by_role("article", name="table").get_by_role("cell", name="two")).to_be_visible()
    expect(page.get_by_role("article", name="scores")).to_contain_text("0.75")
    classes = page.get_by_role("article", name="classes")
    expect(classes.get_by_role("cell", name="9")).to_be_visible()
    expect(classes.get_by_role("img", name=re.compile("ROC curve of classes, 3 points"))).to_be_visible()
    classes.get_by_text("The curve as a table").click()
    expect(classes.get_by_role("region", name="Points of the ROC curve").locator("tbody tr")).to_have_count(3)
    expect(page).to_have_title("About · a-run · Spotwright")
    assert page.locator("iframe").get_attribute("sandbox") == ""


@pytest.mark.parametrize("settings", FORMS)
def test_history_and_about_are_accessible(
    interrupted: RunReader, page_server: Serve, open_page: Open, settings: dict[str, Any]
) -> None:
    printed = page_server(interrupted.folder.path.parent.parent)
    page = open_page(view_address(printed, "a-run", "history", event=3), **settings)
    expect(page.get_by_role("region", name="Event", exact=True)).to_contain_text("Event 3")
    assert axe(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    page.get_by_role("link", name="About").click()
    expect(page.get_by_role("heading", name="Commands")).to_be_visible()
    assert axe(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_history_has_every_event_in_order_and_filters_by_kind_and_task(
    tmp_path: Path, page_server: Serve, open_page: Open
) -> None:
    make_run(tmp_path / "state", "ordinary", KINDS["ordinary"])
    reader = RunReader(StateFolder.existing(tmp_path / "state").run("ordinary"), lambda _: False)
    printed = page_server(tmp_path / "state")
    page = open_page(view_address(printed, "ordinary", "history"))
    expect(page.locator(".filters .note")).to_have_text(f"{reader.seq:,} events")

    page.locator(".grid [data-row='0']").focus()
    page.keyboard.press("End")
    last = history(reader, reader.seq - 1)["rows"][0]
    expect(page.locator(f".grid [data-row='{reader.seq - 1}']")).to_contain_text(last["text"])
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Event", exact=True)).to_contain_text(f"Event {reader.seq}")

    page.get_by_label("Kind").select_option("decided")
    decided = history(reader, limit=1000, kinds=["decided"])["rows"]
    expect(page.locator(".grid [data-row='0']")).to_contain_text(decided[0]["text"])
    page.get_by_label("Task").fill("work-1-1")
    of_task = history(reader, limit=1000, kinds=["decided"], task="work-1-1")["rows"]
    expect(page.locator(".filters .note")).to_contain_text(f"{len(of_task)} of")
    assert "task=work-1-1" in page.url
