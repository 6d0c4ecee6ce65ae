"""The page about rehearsals prints what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.pages import ROOT, same, walk

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_the_page_prints_what_it_shows(tmp_path: Path) -> None:
    steps = list(walk(ROOT / "docs" / "how-to" / "rehearse.md", tmp_path))

    assert len(steps) == 3
    wrong = [f"$ {step.command}\n{printed}" for step, printed in steps if not same(step.output, printed)]
    assert not wrong, "\n".join(wrong)
