"""The pages of kinds match their records, and their examples match the command's output."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts.make_kinds import PAGES, kinds_of
from tests.docs.pages import made, same, walk

from spotwright.kinds.kind import Kind, all_kinds

NAMES = [path.removeprefix("kinds/").removesuffix(".md") for path in PAGES if path != "kinds/index.md"]


def test_every_kind_that_is_placed_is_in_the_index() -> None:
    index = made("kinds/index.md")

    assert [kind.name for kind in all_kinds().values() if kind.place and f"{kind.name}](" not in index] == [
        "ConfigMap", "ResourceFlavor"  # they hold the work of others, or describe nodes
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_what_its_records_say(name: str) -> None:
    page = made(f"kinds/{name}.md")
    headings = (
        "What is placed where",
        "What an interruption does",
        "Who enforces the policy",
        "On a cluster with the controller",
    )

    assert [each for each in headings if f"\n## {each}\n" not in page] == []
    for kind in kinds_of(name):
        assert kind.name in page
        assert all(note in page for note in (*kind.notes.splitlines(), kind.tried, kind.harm))


@pytest.mark.parametrize("kind", [kind for kind in all_kinds().values() if kind.notes], ids=lambda kind: kind.name)
def test_the_notes_of_a_record_are_short(kind: Kind) -> None:
    assert len(kind.notes.split()) <= 150


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_what_a_page_shows_is_what_is_printed(name: str, tmp_path: Path) -> None:
    steps = list(walk(made(f"kinds/{name}.md"), tmp_path))

    assert steps
    for step, printed in steps:
        assert same(step.output, printed), f"line {step.line}: {step.command}\n{printed}"
