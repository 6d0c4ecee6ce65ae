"""Twelve views look as in their pictures, which somebody looked at: ``scripts/page_pictures.py --golden`` makes them again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser
from tests.page.browser.page_process import served_page
from tests.page.browser.pictures import GOLDEN, differing, fonts_of, opened, small_png
from tests.page.browser.views import GOLDEN_VIEWS, GOLDEN_WINDOW, address_of, make_golden_runs

MOST = 0.005  # of all pixels may differ

Draw = Callable[[str], bytes]


@pytest.fixture(scope="module")
def draw(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Draw]:
    """Draws a view. Skipped if the browser or fonts differ from those of the golden pictures."""
    folder = tmp_path_factory.mktemp("pictures")
    attempts = make_golden_runs(folder / "state")
    made_with = json.loads((GOLDEN / "made_with.json").read_text())
    with ExitStack() as stack:
        url = stack.enter_context(served_page(folder / "state", folder))

        def drawn(view: str) -> bytes:
            run = GOLDEN_VIEWS[view]
            page = opened(chromium, url, address_of(view, run, attempts[run]), view, **GOLDEN_WINDOW)
            try:
                return small_png(page.screenshot())
            finally:
                page.context.close()

        run = GOLDEN_VIEWS["log"]
        page = opened(chromium, url, address_of("log", run, attempts[run]), "log", **GOLDEN_WINDOW)
        here = {"chromium": chromium.version, "fonts": fonts_of(page)}
        page.context.close()
        if here != made_with:
            pytest.skip(f"the golden pictures were made with Chromium {made_with['chromium']} and {made_with['fonts']}")
        yield drawn


@pytest.mark.parametrize("view", GOLDEN_VIEWS)
def test_a_view_looks_as_in_its_golden_picture(view: str, draw: Draw, tmp_path: Path) -> None:
    drawn = draw(view)
    share = differing((GOLDEN / f"{view}.png").read_bytes(), drawn)
    if share > MOST:
        (tmp_path / f"{view}.png").write_bytes(drawn)
    renew = f"look at {tmp_path}/{view}.png; if it is right: scripts/page_pictures.py --golden {view}"
    assert share <= MOST, f"{share:.1%} of the pixels differ: {renew}"


def test_every_golden_picture_is_compared_and_small() -> None:
    pictures = {path.stem: path.stat().st_size for path in GOLDEN.glob("*.png")}
    assert set(pictures) == set(GOLDEN_VIEWS)
    assert {name: size for name, size in pictures.items() if size > 60_000} == {}


def test_pixels_that_differ_are_counted() -> None:
    def png(colour: str, size: tuple[int, int] = (10, 10)) -> bytes:
        out = BytesIO()
        picture = Image.new("RGB", size, "#ffffff")
        picture.paste(colour, (0, 0, 5, 1))
        picture.save(out, "PNG")
        return out.getvalue()

    assert differing(png("#ffffff"), png("#ffffff")) == 0
    assert differing(png("#ffffff"), png("#fafafa")) == 0  # smoothing
    assert differing(png("#ffffff"), png("#000000")) == 0.05
    assert differing(png("#ffffff"), png("#ffffff", (10, 11))) == 1
