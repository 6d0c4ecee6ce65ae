"""Make docs/design/README.md: every design decision with its date and status, in the order of the pages.

A decision is a heading of level three, followed by a line ``DATE · STATUS``. Without arguments the script writes the index.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FOLDER", "PAGE", "Decision", "decisions", "page"]

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "design"
PAGE = FOLDER / "README.md"
_ORDER = (
    "structure", "engine", "placement", "lint", "interruptions", "checkpoints", "deadlines", "rehearsal", "pipelines",
    "processes", "money", "page", "tests", "cluster",
)  # fmt: skip
_DECISION = re.compile(r"^### (.+)\n\n(\d{4}-\d\d-\d\d) · (.+)\n\n", re.MULTILINE)

_INTRODUCTION = """\
# Design decisions

Spotwright follows a design that fixes its vocabulary, its configuration, the [table of what happens after an
attempt](../explanation/decisions.md), its layers and its promises. These pages keep the decisions beyond it, each with its
reason and with the alternatives that were rejected. How the parts work together: [architecture](../explanation/architecture.md).

A decision has a date and a status. One that no longer holds stays, with the status *replaced* and a link to its successor.
This index is made by `scripts/make_design_index.py`.
"""


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision: its heading, its date (ISO 8601) and its status."""

    heading: str
    date: str
    status: str

    @property
    def anchor(self) -> str:
        """The anchor of its heading, as GitHub makes it."""
        return re.sub(r"[^\w\- ]", "", self.heading.lower()).replace(" ", "-")


def decisions(path: Path) -> list[Decision]:
    """The decisions of a page."""
    return [Decision(*found) for found in _DECISION.findall(path.read_text(encoding="utf-8"))]


def page() -> str:
    """The index as Markdown."""
    return "\n".join([_INTRODUCTION, *_tables()]) + "\n"


def _tables() -> Iterator[str]:
    for name in _ORDER:
        path = FOLDER / f"{name}.md"
        title = path.read_text(encoding="utf-8").partition("\n")[0].partition(": ")[2]
        yield f"## {title.capitalize()}\n\n| decision | date | status |\n| --- | --- | --- |"
        for each in decisions(path):
            yield f"| [{each.heading}]({name}.md#{each.anchor}) | {each.date} | {each.status.partition(' · ')[0]} |"
        yield ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
