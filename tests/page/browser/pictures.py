"""Pictures of views as PNG files of few bytes, and how much two of them differ."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageChops
from playwright.sync_api import Browser, Page, Route
from tests.page.browser.views import wait_until_drawn

__all__ = ["GOLDEN", "differing", "fonts_of", "opened", "small_png"]

GOLDEN = Path(__file__).parent / "golden"
"""The golden pictures, and ``made_with.json``: the browser and the fonts that drew them."""

_COLOURS = 128
_ALIKE = 24  # of 255: less is a matter of smoothing


def opened(
    browser: Browser, url: str, path: str, view: str, place: str = "~/iris/.spotwright", **settings: object
) -> Page:
    """A view in a separate window, drawn and at rest. ``place``: its text about where the runs are."""
    context = browser.new_context(**settings, reduced_motion="reduce", timezone_id="UTC", locale="en-GB")  # type: ignore[arg-type]
    page = context.new_page()

    def tell(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=json.dumps({**answer.json(), "place": place}))

    page.route("**/api/v1/about", tell)
    page.goto(url)
    page.goto(url.partition("?")[0] + path)
    wait_until_drawn(page, view)
    page.mouse.move(0, 0)
    page.wait_for_timeout(700)  # a graph is laid out, an account is asked for once more
    return page


def fonts_of(page: Page) -> str:
    """The fonts in which the machine draws the page's text."""
    session = page.context.new_cdp_session(page)
    session.send("DOM.enable")
    session.send("CSS.enable")
    root = session.send("DOM.getDocument")["root"]["nodeId"]
    names = set()
    for selector in ("h1", "code, .mono, .log-lines", ".bar nav a"):
        node = session.send("DOM.querySelector", {"nodeId": root, "selector": selector})["nodeId"]
        if node:
            found = session.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
            names |= {font["familyName"] for font in found}
    return ", ".join(sorted(names))


def small_png(picture: bytes) -> bytes:
    """The same picture with at most 128 colours: a fourth of the bytes, without a visible difference."""
    with Image.open(BytesIO(picture)) as whole:
        few = whole.convert("RGB").quantize(_COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    out = BytesIO()
    few.save(out, "PNG", optimize=True)
    return out.getvalue()


def differing(one: bytes, other: bytes) -> float:
    """The share of pixels that differ by more than smoothing; 1 for pictures of different sizes."""
    with Image.open(BytesIO(one)) as first, Image.open(BytesIO(other)) as second:
        if first.size != second.size:
            return 1.0
        apart = ImageChops.difference(first.convert("RGB"), second.convert("RGB"))
    bands = [band.point([0] * _ALIKE + [255] * (256 - _ALIKE)) for band in apart.split()]
    most = ImageChops.lighter(ImageChops.lighter(bands[0], bands[1]), bands[2])
    return most.histogram()[255] / (most.size[0] * most.size[1])
