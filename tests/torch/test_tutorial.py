"""The tutorial for Hugging Face is true: its blocks, written and typed in order, print what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.pages import ROOT, same, walk

pytestmark = pytest.mark.long

PAGE = ROOT / "docs" / "tutorial-torch.md"


def test_the_tutorial_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    steps = list(walk(PAGE, tmp_path))

    wrong = [f"$ {step.command}\n{printed}" for step, printed in steps if not same(step.output, printed)]
    assert not wrong, "mend the page docs/tutorial-torch.md\n" + "\n".join(wrong)
    assert [step.command.split()[0] for step, _ in steps] == [
        "python3", "mv", "spotwright", "spotwright", "cmp", "spotwright", "spotwright",
    ]  # fmt: skip
