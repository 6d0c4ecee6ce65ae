"""The pages of kinds show what the commands print."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.pages import ROOT, same, walk

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "kind", ["argo", "cronjob", "job", "jobset", "katib", "kfp", "pod", "pytorchjob", "tfjob", "trainjob"]
)
def test_what_a_page_shows_is_what_is_printed(kind: str, tmp_path: Path) -> None:
    steps = list(walk(ROOT / "docs" / "kinds" / f"{kind}.md", tmp_path))

    assert steps
    for step, printed in steps:
        assert same(step.output, printed), f"line {step.line}: {step.command}\n{printed}"
