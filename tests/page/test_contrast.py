"""Every pair of colours that the page shows together can be told apart: text 4.5:1, marks 3:1 (WCAG 2.2, 1.4.3 and 1.4.11)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

import pytest

from spotwright.page.page_files import ASSETS

SHEET = (ASSETS / "page.css").read_text(encoding="utf-8")
GROUNDS = ("back", "raised", "hover")
TEXTS = ("text", "soft", "link")
CAUSES = (
    *("succeeded", "failed", "interrupted", "lost", "disrupted", "out-of-memory", "timed-out", "start-up"),
    *("unschedulable", "cancelled", "running", "pending", "spot", "on-demand"),
)
MARKS = ("line-strong", "focus")

TEXT_PAIRS = [
    *itertools.product((*TEXTS, *CAUSES), ("back",)),
    *itertools.product(TEXTS, ("raised", "hover", "warn-back")),
    *(("on-fill", cause) for cause in CAUSES),
]
MARK_PAIRS = [*itertools.product((*MARKS, *CAUSES), GROUNDS), ("warn-line", "back")]


def themes() -> Mapping[str, dict[str, str]]:
    """The colours of both themes."""
    found = re.findall(r"--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", SHEET)
    return {"light": {name: light for name, light, _ in found}, "dark": {name: dark for name, _, dark in found}}


THEMES = themes()


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("theme", THEMES)
def test_text_and_marks_stand_out_from_what_is_behind_them(theme: str) -> None:
    colours = THEMES[theme]
    found = {
        f"{one} on {other}": round(contrast(colours[one], colours[other]), 2)
        for pairs, least in ((TEXT_PAIRS, 4.5), (MARK_PAIRS, 3.0))
        for one, other in pairs
        if contrast(colours[one], colours[other]) < least
    }
    assert found == {}


def test_the_contrast_of_known_pairs() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


def test_every_colour_is_compared() -> None:
    compared = {name for pair in (*TEXT_PAIRS, *MARK_PAIRS) for name in pair}
    assert set(THEMES["light"]) - {"line"} == compared  # lines between rows are ornament
    assert set(THEMES["light"]) == set(THEMES["dark"])
