"""The tutorial is true: its blocks, written and typed in order, print what the page shows."""

from __future__ import annotations

import pytest
from tests.docs.pages import ROOT, Step, same, walk

pytestmark = pytest.mark.long

Walked = list[tuple[Step, str]]


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Walked:
    """The tutorial on a fast enough machine.

    If an engine stalls for a second while its tasks continue, a task ends before its node is reclaimed, and the page shows
    another run. Then the tutorial is followed again.
    """
    for _ in range(4):
        steps = list(walk(ROOT / "docs" / "tutorial.md", tmp_path_factory.mktemp("tutorial")))
        if all(same(step.output, printed) for step, printed in steps):
            break
    return steps


def test_the_tutorial_prints_what_it_shows(walked: Walked) -> None:
    wrong = [
        f"docs/tutorial.md, $ {step.command}\n{printed}" for step, printed in walked if not same(step.output, printed)
    ]

    assert not wrong, "mend the page, or: python scripts/refresh_tutorial.py\n" + "\n".join(wrong)


def test_the_tutorial_was_followed_to_its_end(walked: Walked) -> None:
    assert [step.command.split()[1] for step, _ in walked[1:]] == ["run"] * 6 + ["show", "logs", "report"]
