"""Every design decision is dated, has a status, and stands in the index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripts.make_design_index import FOLDER, PAGE, decisions

PAGES = sorted(path for path in FOLDER.glob("*.md") if path != PAGE)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_decision_has_a_date_and_a_status(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    headings = re.findall(r"^### (.+)$", text, re.MULTILINE)

    assert [each.heading for each in decisions(path)] == headings
    assert all(re.match(r"in force|decided, not built|replaced by \[", each.status) for each in decisions(path))


def test_the_index_lists_every_page() -> None:
    index = PAGE.read_text(encoding="utf-8")

    assert [path.name for path in PAGES if f"({path.name}#" not in index] == []
