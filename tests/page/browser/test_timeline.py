"""The timeline in a browser: its marks with the mouse, the keyboard and a screen reader, the window in the address, paper."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.page.browser.chromium_pages import axe
from tests.page.made_runs import KINDS, make_run

MARK = "a.mark"
FACTS = Path(__file__).with_name("facts_of_marks.js")
VIEWS = ("timeline", "timeline?by=node", "timeline?by=pool", "timeline?as=table", "nodes", "tasks")


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with runs of several kinds."""
    folder = tmp_path_factory.mktemp("made") / "state"
    for name in ("ordinary", "interrupted", "failed"):
        make_run(folder, name, KINDS[name])
    make_run(folder, "long", KINDS["many"]._replace(chains=1500, nodes=40))
    return folder


@pytest.fixture
def at(state: Path, page_server: Callable[..., str], open_page: Callable[..., Page]) -> Callable[..., Page]:
    """Opens a view of a run: ``at("ordinary/timeline?by=node")``."""
    address = urlsplit(page_server(state))

    def opened(view: str, **settings: Any) -> Page:
        path, _, query = view.partition("?")
        page = open_page(f"http://{address.netloc}/runs/{path}?{query}&{address.query}", **settings)
        expect(page.locator("section.view")).to_be_visible(timeout=20_000)
        return page

    return opened


def begin(page: Page) -> Locator:
    """Give the focus to the lanes; the mark that has it."""
    page.get_by_role("grid", name="Lanes").focus()
    mark = page.locator(MARK)
    expect(mark).to_be_focused()
    return mark


def test_the_keys_go_from_mark_to_mark_and_each_is_a_sentence(at: Callable[..., Page]) -> None:
    page = at("ordinary/timeline")
    mark = begin(page)
    expect(mark).to_have_accessible_name("work-1-1: succeeded, 3 attempts")
    page.keyboard.press("ArrowRight")
    began = r"^work-1-1 attempt 1 on spot-a-1 \(spot\) was interrupted: .+, ran 4m\d\ds, "
    expect(mark).to_have_accessible_name(re.compile(began + r"kept \S+ of it, waited 40s for a node"))
    page.keyboard.press("ArrowRight")
    expect(mark).to_be_focused()
    expect(mark).to_have_accessible_name(re.compile("^work-1-1 attempt 2 on "))
    page.keyboard.press("End")
    expect(mark).to_have_accessible_name(re.compile("^work-1-1 attempt 3 on .* succeeded"))
    page.keyboard.press("ArrowDown")
    expect(mark).to_have_accessible_name(re.compile("^work-1-2 attempt 1 on "))
    page.keyboard.press("Home")
    expect(mark).to_have_accessible_name(re.compile("^work-1-2: succeeded"))
    expect(page.locator(".tip")).to_have_text(re.compile("^work-1-2: succeeded"))


def test_tab_leaves_the_lanes_in_both_directions(at: Callable[..., Page]) -> None:
    page = at("ordinary/timeline")
    mark = begin(page)
    page.keyboard.press("Shift+Tab")
    expect(page.get_by_role("slider", name="End of the window")).to_be_focused()
    page.keyboard.press("Tab")
    expect(mark).to_be_focused()


def test_the_window_is_in_the_address(at: Callable[..., Page]) -> None:
    page = at("ordinary/timeline")
    mark = begin(page)
    page.keyboard.press("+")
    expect(page).to_have_url(re.compile(r"from=[\d.]+&to=[\d.]+"))
    expect(mark).to_be_focused()
    page.keyboard.press("0")
    expect(page).not_to_have_url(re.compile("from="))
    end = page.get_by_role("slider", name="End of the window")
    end.focus()
    page.keyboard.press("Shift+ArrowLeft")
    expect(page).to_have_url(re.compile("from=0&to="))
    expect(end).to_have_attribute("aria-valuetext", re.compile(r"^\+20m"))


def test_a_window_of_an_address_is_shown(at: Callable[..., Page]) -> None:
    page = at("ordinary/timeline?from=60&to=120")
    begins = page.get_by_role("slider", name="Beginning of the window")
    expect(begins).to_have_attribute("aria-valuetext", "+1m00s")
    expect(page.locator(".time-axis")).to_contain_text("+1m30s")


def test_dragging_over_the_overview_selects_the_window(at: Callable[..., Page]) -> None:
    page = at("ordinary/timeline")
    place = page.locator(".strip").bounding_box()
    assert place is not None
    y = place["y"] + 20
    page.mouse.move(place["x"] + place["width"] * 0.25, y)
    page.mouse.down()
    page.mouse.move(place["x"] + place["width"] * 0.5, y, steps=4)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"from=3\d\d(\.\d+)?&to=(6|7)\d\d"))


def test_enter_opens_the_attempt_and_back_returns_to_its_mark(at: Callable[..., Page]) -> None:
    page = at("ordinary/timeline")
    mark = begin(page)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    name = mark.get_attribute("aria-label") or ""
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/attempt\?task=work-1-2&n=\d"))
    page.go_back()
    expect(begin(page)).to_have_accessible_name(re.compile(f"^{re.escape(name[:25])}"))


def test_the_pointer_shows_the_sentence_and_a_click_opens_the_attempt(at: Callable[..., Page]) -> None:
    page = at("ordinary/timeline")
    plot = page.locator(".lane .plot").first
    place = plot.bounding_box()
    assert place is not None
    page.mouse.move(place["x"] + place["width"] * 0.15, place["y"] + 12)
    expect(page.locator(".tip")).to_contain_text(re.compile("work-1-1 attempt 1 on spot-a-1 .* was interrupted: "))
    page.mouse.click(place["x"] + place["width"] * 0.15, place["y"] + 12)
    expect(page).to_have_url(re.compile(r"/attempt\?task=work-1-1&n=1"))


@pytest.mark.parametrize(("by", "lane"), [("node", "spot-a-1"), ("pool", "spot-a")])
def test_lanes_by_node_and_by_pool(at: Callable[..., Page], by: str, lane: str) -> None:
    page = at("ordinary/timeline")
    page.get_by_role("button", name=f"By {by}").click()
    expect(page).to_have_url(re.compile(f"by={by}"))
    expect(page.get_by_role("rowheader", name=lane, exact=True)).to_be_visible()


def test_a_text_and_a_cause_choose_lanes(at: Callable[..., Page]) -> None:
    page = at("failed/timeline")
    lanes = page.get_by_role("grid", name="Lanes")
    page.get_by_label("Cause").select_option("failed")
    expect(page).to_have_url(re.compile("cause=failed"))
    failed = int(lanes.get_attribute("aria-rowcount") or 0)
    assert 0 < failed < 12
    page.get_by_role("searchbox").fill("nothing has this name")
    expect(page.locator("section.view")).to_contain_text("No task matches.")


@pytest.mark.parametrize("by", ["task", "node", "pool"])
def test_a_long_run_has_few_elements(at: Callable[..., Page], by: str) -> None:
    page = at(f"long/timeline?by={by}")
    expect(page.locator(".lane").first).to_be_visible()
    page.locator(".scroller").evaluate("(box) => (box.scrollTop = 12000)")
    if by == "task":
        expect(page.get_by_role("rowheader", name="work-505-1")).to_be_visible()
    assert page.locator("*").count() < 1500


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("width", [320, 1280])
def test_a_view_scrolls_never_sideways(at: Callable[..., Page], view: str, width: int) -> None:
    page = at(f"interrupted/{view}", viewport={"width": width, "height": 700})
    assert page.locator("html").evaluate("(root) => root.scrollWidth") <= width


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("settings", [{}, {"color_scheme": "dark"}, {"viewport": {"width": 360, "height": 740}}])
def test_axe_finds_nothing(at: Callable[..., Page], view: str, settings: dict[str, Any]) -> None:
    page = at(f"interrupted/{view}", **settings)
    assert axe(page) == []


def test_paper_has_all_lanes_with_their_bars(at: Callable[..., Page]) -> None:
    page = at("interrupted/timeline", viewport={"width": 700, "height": 700})
    expect(page.locator(".lane").first).to_be_visible()
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator(".lane")).to_have_count(144)
    expect(page.locator(".lane").last.locator(".m-bar").first).to_be_visible()
    assert page.locator("html").evaluate("(root) => root.scrollWidth") <= 700
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    expect(page.locator(".lane")).not_to_have_count(144)


def test_a_node_names_the_attempts_that_ended_with_it(at: Callable[..., Page]) -> None:
    page = at("ordinary/nodes")
    row = page.get_by_role("row", name=re.compile("^spot-a-1 "))
    expect(row).to_contain_text("spot-a (spot)")
    row.get_by_role("link", name="work-1-1 1").click()
    expect(page).to_have_url(re.compile(r"/attempt\?task=work-1-1&n=1"))


def test_the_shapes_of_marks(at: Callable[..., Page]) -> None:
    page = at("ordinary/timeline")
    module = page.locator("script[type=module]").get_attribute("src")
    assert module is not None
    facts = page.evaluate(FACTS.read_text("utf-8"), module.replace("app.js", "parts/marks.js"))
    assert [name for name, _ in facts["merged"]["paths"]] == ["bar c:interrupted"]  # fifty marks nearer than two pixels
    assert facts["merged"]["labels"][0]["text"] == "50"
    assert facts["taken"] == ["bar c:interrupted", "wasted", "outline spot", "notch"]
    assert facts["unsure"] == ["bar c:interrupted", "unsure c:interrupted", "wasted", "outline spot", "notch"]
    assert facts["backoff"] == ["backoff", "bar c:interrupted", "wasted", "outline spot", "notch", "notice"]
    assert facts["waiting"] == ["wait", "tick"]
    assert facts["stacked"] == 3  # three attempts at once lie one above the other
    assert facts["counted"][0] == "area spot"  # five are counted
    assert facts["counts"] == [1, 2, 1, 1]
    assert facts["ticks"] == ["start", "+10m", "+20m", "+30m"]
    assert facts["hour"] == "+1h"


def test_tasks_are_sorted_by_what_they_cost(at: Callable[..., Page]) -> None:
    page = at("interrupted/tasks")
    page.get_by_role("button", name="Cost").click()
    expect(page).to_have_url(re.compile("sort=-cost"))
    cells = page.locator(".grid-tasks .row .cell:nth-child(11)")
    expect(cells.first).to_have_text(re.compile(r"^0\.\d+$"))
    costs = [float(text) for text in cells.all_text_contents()[:8]]
    assert costs == sorted(costs, reverse=True)
    assert len(set(costs)) > 1
