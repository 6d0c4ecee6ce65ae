"""Every design decision is one page of the same form, and stands in the index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, links

FOLDER = ROOT / "docs" / "design"
INDEX = FOLDER / "README.md"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path != INDEX)
SECTIONS = ["Context", "Decision", "Rejected", "Consequences"]
MOST_WORDS = 450


def faults(text: str) -> list[str]:
    """The missing or superfluous parts of a decision's page."""
    found = []
    if not re.match(r"# .+\n\nDate: \d{4}-\d\d-\d\d[^\n]* · Status: accepted\b", text):
        found.append("title, date and status")
    if re.findall(r"^## (.+)$", text, re.MULTILINE) != SECTIONS:
        found.append("sections")
    if len(text.split()) > MOST_WORDS:
        found.append("words")
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_decision_is_one_page_with_date_status_and_what_was_rejected(path: Path) -> None:
    assert faults(path.read_text(encoding="utf-8")) == []


def test_a_page_of_another_form_would_be_found() -> None:
    assert faults("# A title\n\n## Context\n" + "word " * MOST_WORDS) == ["title, date and status", "sections", "words"]


def test_there_are_at_most_twelve_decisions() -> None:
    assert len(PAGES) <= 12


def test_the_index_lists_every_decision_by_its_title() -> None:
    index = INDEX.read_text(encoding="utf-8")
    titles = {path.name: path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for path in PAGES}

    assert [name for name, title in titles.items() if f"[{title}]({name})" not in index] == []
    assert len(links(INDEX)) == len(PAGES) + 1  # and the page about the architecture
