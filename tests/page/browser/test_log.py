"""Logs in a browser: any line of any length of log at once, search, colours, hostile text, and a log that is still written."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.page.browser.chromium_pages import axe
from tests.page.browser.run_addresses import driven, view_address
from tests.page.recorded import a_story, log_of, recorded

Open = Callable[..., Page]
Serve = Callable[..., str]

FORMS: list[dict[str, Any]] = [{}, {"color_scheme": "dark"}, {"viewport": {"width": 360, "height": 640}}]
TALL = 1_200_000  # lines: 21.6 million pixels, more than a browser places exactly


@pytest.fixture
def log_page(tmp_path: Path, page_server: Serve, open_page: Open) -> Callable[..., Page]:
    """Opens the log of an attempt that ended, with its output."""

    def opened(data: bytes, settings: dict[str, Any] | None = None, **asked: object) -> Page:
        reader = recorded(tmp_path / "state", a_story().ends("eval").gives_back("cpu-spot-2"))
        log_of(reader.folder, 2, data)
        printed = page_server(tmp_path / "state")
        return open_page(view_address(printed, "a-run", "log", **{"task": "eval", "n": 2, **asked}), **(settings or {}))

    return opened


def lines_of(page: Page) -> Locator:
    return page.locator(".log-lines .line")


def numbered(page: Page, number: int) -> Locator:
    """The line of a number, where it is in the document."""
    return lines_of(page).filter(has=page.get_by_role("link", name=f"Line {number}", exact=True, include_hidden=True))


def numbers(count: int) -> bytes:
    return b"".join(b"this is %d\n" % number for number in range(1, count + 1))


def long_lines(count: int) -> bytes:
    return b"".join(b"%d " % n + b"word " * 300 + b"\n" for n in range(1, count + 1))


def test_a_log_opens_at_its_end_and_moves_by_keys(log_page: Callable[..., Page]) -> None:
    page = log_page(numbers(5000))
    expect(numbered(page, 5000)).to_be_in_viewport()
    assert lines_of(page).count() < 100

    page.locator(".log-box").focus()
    page.keyboard.press("Home")
    expect(numbered(page, 1)).to_be_in_viewport()
    page.keyboard.press("PageDown")
    expect(numbered(page, 1)).not_to_be_in_viewport()
    page.keyboard.press("PageUp")
    page.keyboard.press("ArrowDown")
    expect(numbered(page, 2)).to_be_in_viewport()
    page.keyboard.press("End")
    expect(numbered(page, 5000)).to_contain_text("this is 5000")


def test_any_line_of_a_log_beyond_the_pixels_of_a_browser_is_reached(log_page: Callable[..., Page]) -> None:
    page = log_page(numbers(TALL), line=777_777)
    expect(numbered(page, 777_777)).to_contain_text("this is 777777")
    expect(numbered(page, 777_777)).to_be_in_viewport()

    page.locator(".log-box").hover()
    first = int(lines_of(page).first.get_by_role("link", include_hidden=True).inner_text())
    page.mouse.wheel(0, 180)
    expect(lines_of(page).first).to_contain_text(f"this is {first + 10}")

    page.locator(".log-box").focus()
    page.keyboard.press("End")
    expect(numbered(page, TALL)).to_be_in_viewport()
    page.keyboard.press("PageUp")
    expect(numbered(page, TALL)).not_to_be_in_viewport()
    page.keyboard.press("Home")
    expect(numbered(page, 1)).to_be_in_viewport()


def test_the_number_of_a_line_puts_it_into_the_address(log_page: Callable[..., Page]) -> None:
    page = log_page(numbers(300))
    numbered(page, 300).get_by_role("link", include_hidden=True).click()

    expect(page).to_have_url(re.compile("line=300"))
    expect(numbered(page, 300)).to_have_class(re.compile(r"\bat\b"))

    page.reload()
    expect(numbered(page, 300)).to_have_class(re.compile(r"\bat\b"))


def test_a_text_is_found_forwards_and_backwards_with_the_keyboard_alone(log_page: Callable[..., Page]) -> None:
    data = b"".join(b"Needle %d\n" % n if n % 1000 == 0 else b"hay %d\n" % n for n in range(1, 5001))
    page = log_page(data)
    expect(numbered(page, 5000)).to_be_visible()

    page.locator(".log-box").focus()
    page.keyboard.press("/")
    page.keyboard.type("needle")
    found = page.locator(".found")
    expect(found).to_contain_text("5")
    page.keyboard.press("Enter")
    expect(found).to_have_text("1 of 5")
    expect(numbered(page, 1000)).to_be_in_viewport()
    expect(numbered(page, 1000).locator("mark")).to_have_text("Needle")
    page.keyboard.press("Enter")
    expect(found).to_have_text("2 of 5")
    page.keyboard.press("Shift+Enter")
    page.keyboard.press("Shift+Enter")
    expect(found).to_have_text("5 of 5")
    expect(page).to_have_url(re.compile("find=needle"))

    page.locator(".log-find input").fill("no such text")
    expect(found).to_have_text("nothing found")


def test_what_drives_terminals_and_browsers_is_text(log_page: Callable[..., Page]) -> None:
    page = log_page(
        b"<script>alert(1)</script><img src=x onerror=alert(2)> https://example.org\n"
        b"\xe2\x80\xaegnp.exe \xff \x07\n"
        b"\x1b[31mred\x1b[0m \x1b[1mbold\x1b[0m \x1b[2J\x1b]0;title\x07plain\n"
        b"\rstep 1\rstep 2\n" + b"x" * 20_000 + b"\nlast\n"
    )
    expect(numbered(page, 1)).to_contain_text(
        "<script>alert(1)</script><img src=x onerror=alert(2)> https://example.org"
    )
    assert page.locator(".log-lines img, .log-lines script, .words a").count() == 0
    expect(numbered(page, 2)).to_contain_text("<U+202E>gnp.exe \N{REPLACEMENT CHARACTER} <U+0007>")
    expect(numbered(page, 3)).to_contain_text("red bold plain")
    expect(numbered(page, 3).locator(".sgr-fg-1")).to_have_text("red")
    expect(numbered(page, 3).locator(".sgr-bold")).to_have_text("bold")
    expect(numbered(page, 4)).to_contain_text("step 2")
    expect(numbered(page, 4)).not_to_contain_text("step 1")
    expect(numbered(page, 5)).to_contain_text("this line has 20 kB")


def test_wrapped_lines_stay_inside_and_the_last_one_stands_at_the_bottom(log_page: Callable[..., Page]) -> None:
    page = log_page(long_lines(200))
    page.get_by_label("Wrap").check()
    expect(numbered(page, 200)).to_be_in_viewport()
    box = page.locator(".log-box")
    assert box.evaluate("element => element.scrollWidth <= element.clientWidth")
    below = "box => box.getBoundingClientRect().bottom - box.querySelector('.line:last-child').getBoundingClientRect().bottom"
    assert -3 < box.evaluate(below) < 40

    box.focus()
    page.keyboard.press("Home")
    expect(numbered(page, 1)).to_be_in_viewport()
    page.keyboard.press("ArrowDown")
    expect(numbered(page, 1)).to_be_in_viewport()  # one of its rows is above the box, the others are not


def test_an_address_that_wraps_lines_opens_the_log_at_its_end(log_page: Callable[..., Page]) -> None:
    page = log_page(long_lines(200), wrap=1)
    expect(numbered(page, 200)).to_be_in_viewport()


def test_wrapped_lines_are_followed_while_they_grow_by_more_than_the_window_shows(
    tmp_path: Path, page_server: Serve, open_page: Open
) -> None:
    with driven(tmp_path / "state", a_story()) as (reader, _):
        log_of(reader.folder, 2, long_lines(100))
        page = open_page(view_address(page_server(tmp_path / "state"), "a-run", "log", task="eval", n=2, wrap=1))
        expect(numbered(page, 100)).to_be_in_viewport()

        log_of(reader.folder, 2, long_lines(700))
        expect(numbered(page, 700)).to_be_in_viewport()


def test_the_download_has_the_bytes_as_they_are(log_page: Callable[..., Page]) -> None:
    data = b"\x1b[31m\xff\x00 raw\r\n" + b"y" * 3_000_000
    page = log_page(data)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()

    assert download.value.path().read_bytes() == data
    assert download.value.suggested_filename == "a-run-eval-2.txt"


def test_all_attempts_stand_one_after_the_other_with_headings(
    tmp_path: Path, page_server: Serve, open_page: Open
) -> None:
    reader = recorded(tmp_path / "state", a_story().ends("eval").gives_back("cpu-spot-2"))
    log_of(reader.folder, 1, b"first\n")
    log_of(reader.folder, 2, b"second\n")
    page = open_page(view_address(page_server(tmp_path / "state"), "a-run", "log", task="eval"))

    texts = [re.sub(r"^\d+\s*", "", text) for text in lines_of(page).filter(has_text=re.compile(".")).all_inner_texts()]
    expect(page.locator(".line.part")).to_have_count(2)
    texts = [re.sub(r"^\d+\s*", "", text) for text in lines_of(page).all_inner_texts()]
    assert [text for text in texts if text in ("first", "second")] == ["first", "second"]
    assert texts.index("first") < texts.index("second")


def test_a_log_is_followed_while_it_grows_until_somebody_looks_elsewhere(
    tmp_path: Path, page_server: Serve, open_page: Open
) -> None:
    with driven(tmp_path / "state", a_story()) as (reader, _):
        log_of(reader.folder, 2, numbers(500))
        page = open_page(view_address(page_server(tmp_path / "state"), "a-run", "log", task="eval", n=2))
        expect(numbered(page, 500)).to_be_in_viewport()

        log_of(reader.folder, 2, numbers(5500))
        expect(numbered(page, 5500)).to_be_in_viewport()

        page.locator(".log-box").focus()
        page.keyboard.press("PageUp")
        expect(page.get_by_label("Follow")).not_to_be_checked()
        log_of(reader.folder, 2, numbers(6000))
        expect(page.locator(".log-bar")).to_contain_text("6,000 lines")
        expect(numbered(page, 6000)).to_have_count(0)

        page.keyboard.press("f")
        expect(numbered(page, 6000)).to_be_in_viewport()


def test_the_log_of_a_new_attempt_stands_below_those_before_it(
    tmp_path: Path, page_server: Serve, open_page: Open
) -> None:
    story = a_story()
    second = next(index for index, event in enumerate(story.events) if event.kind == "placed" and event.attempt == 2)
    later, story.events = story.events[second:], story.events[:second]
    with driven(tmp_path / "state", story) as (reader, journal):
        log_of(reader.folder, 1, b"first\n")
        page = open_page(view_address(page_server(tmp_path / "state"), "a-run", "log", task="eval"))
        expect(page.locator(".log-lines")).to_contain_text("first")

        log_of(reader.folder, 2, b"second\n")
        journal.append(later)

        expect(page.locator(".log-lines")).to_contain_text("second")
        expect(page.locator(".line.part")).to_have_count(2)


@pytest.mark.parametrize("settings", FORMS)
def test_every_form_of_a_log_is_accessible_and_no_wider_than_the_window(
    log_page: Callable[..., Page], settings: dict[str, Any]
) -> None:
    colours = b"".join(
        b"\x1b[3%dmfront\x1b[0m \x1b[4%dmback\x1b[0m \x1b[9%dmbright\x1b[0m\n" % (n, n, n) for n in range(8)
    )
    page = log_page(colours + b"wide " * 200 + b"\n", settings, find="front", line=2)
    expect(page.locator(".found")).to_have_text("2 of 8")

    assert axe(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_colour_on_every_ground_has_the_contrast_of_text(log_page: Callable[..., Page], scheme: str) -> None:
    page = log_page(b"one\n", {"color_scheme": scheme})
    expect(numbered(page, 1)).to_be_visible()
    fronts = {name: colour(page, name) for name in ("text", "soft", *(f"fg-{n}" for n in range(16)))}
    grounds = {name: colour(page, name) for name in ("back", "hit", "mark", "hover", *(f"bg-{n}" for n in range(8)))}

    low = {
        f"{front} on {ground}": round(contrast(fronts[front], grounds[ground]), 2)
        for front, ground in itertools.product(fronts, grounds)
        if contrast(fronts[front], grounds[ground]) < 4.5
    }
    assert low == {}


def colour(page: Page, name: str) -> tuple[int, ...]:
    """The red, green and blue of a variable of the sheet."""
    text = page.evaluate(
        "name => { const part = document.querySelector('.line'); part.style.setProperty('color', `var(--${name})`);"
        " return getComputedStyle(part).color; }",
        name,
    )
    return tuple(map(int, re.findall(r"\d+", text)[:3]))


def contrast(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """As https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio has it."""

    def light(parts: tuple[int, ...]) -> float:
        shares = [part / 255 for part in parts]
        linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, bright = sorted((light(one), light(other)))
    return (bright + 0.05) / (dark + 0.05)
