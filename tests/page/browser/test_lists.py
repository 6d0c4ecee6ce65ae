"""Lists in narrow windows and on paper: a row folds, so that its name and every figure can be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.page.browser.views import address_of, make_runs, wait_until_drawn
from tests.page.made_runs import KINDS, make_run

ROW = ".grid [data-row='0']"
_CUT = """(row) => {
  const box = row.getBoundingClientRect();
  return [...row.querySelectorAll(".cell")].filter((cell) => {
    const own = cell.getBoundingClientRect();
    return cell.textContent.trim() && (own.width < 4 || own.bottom > box.bottom + 1 || own.right > box.right + 1);
  }).map((cell) => cell.dataset.title ?? cell.textContent);
}"""


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with a run of 12 tasks that failed, and one of 600 tasks."""
    folder = tmp_path_factory.mktemp("lists") / "state"
    make_runs(folder, "failed")
    make_run(folder, "long", KINDS["many"]._replace(chains=600, nodes=40))
    return folder


@pytest.mark.parametrize("view", ["runs", "tasks", "nodes", "history"])
@pytest.mark.parametrize("width", [320, 700, 1280])
def test_a_row_shows_its_name_and_every_figure(
    view: str, width: int, state: Path, page_server: Callable[..., str], open_page: Callable[..., Page]
) -> None:
    url = page_server(state)
    page = open_page(url, viewport={"width": width, "height": 800})
    page.goto(url.partition("?")[0] + address_of(view, "failed", ("work-2-2", 1)))
    wait_until_drawn(page, view)
    row = page.locator(ROW)
    assert row.evaluate(_CUT) == []
    first = row.locator(".cell").first
    assert first.evaluate("(cell) => cell.scrollWidth <= cell.clientWidth")


def test_a_folded_table_tells_titles_and_can_be_sorted(
    state: Path, page_server: Callable[..., str], open_page: Callable[..., Page]
) -> None:
    page = open_page(page_server(state), viewport={"width": 320, "height": 640})
    row = page.locator(ROW)
    expect(row.get_by_role("gridcell", name="Interruptions ")).to_be_visible()
    page.get_by_label("Order by").select_option("run")
    expect(row.get_by_role("link")).to_have_text("failed")
    page.get_by_role("button", name="Ascending").click()
    expect(row.get_by_role("link")).to_have_text("long")


def test_paper_has_500_rows_and_says_how_many_are_left_out(
    state: Path, page_server: Callable[..., str], open_page: Callable[..., Page]
) -> None:
    url = page_server(state)
    page = open_page(url, viewport={"width": 718, "height": 900})
    page.goto(url.partition("?")[0] + address_of("tasks", "long", ("work-1-1", 1)))
    wait_until_drawn(page, "tasks")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator(".grid [data-row]")).to_have_count(500)
    expect(page.get_by_text("100 more rows are left out.")).to_be_visible()
    assert page.locator(".grid [data-row='499']").evaluate(_CUT) == []
    assert page.locator("html").evaluate("(root) => root.scrollWidth") <= 718
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    assert page.locator(".grid [data-row]").count() < 60
