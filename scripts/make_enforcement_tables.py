"""Make the section "Who enforces the policy" of the pages in docs/kinds from the table of enforcement.

A page has the text of this section between two marks; the rest of the page is written by hand. Pages of kinds that retry as
another one does have a link to its page. Without arguments the script writes the sections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from spotwright.kinds.kind import Kind, all_kinds
from spotwright.placing.enforcement import CONTROLLER_TEXT, Enforcer, Fact

__all__ = ["FOLDER", "PAGES", "kinds_of", "section"]

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "kinds"
_BEGIN = "<!-- Written by scripts/make_enforcement_tables.py from the table of enforcement; change that. -->"
_END = "<!-- End of the written part. -->"
_HEADING = "## Who enforces the policy"

_KATIB = "katib"
_TRIALS = "As on the page of the trials' kind: Katib itself retries nothing."


def kinds_of(page: str) -> list[Kind]:
    """The kinds of a page, first the one that it is named after."""
    kinds = [kind for kind in all_kinds().values() if kind.page == page]
    return sorted(kinds, key=lambda kind: not page.endswith(kind.name.lower()))


def section(name: str) -> str:
    """The section of a page, with its marks."""
    text = _TRIALS if name == _KATIB else _link(kinds_of(name)[0].page_of_retries) or "\n".join(_tables(name))
    tried = "".join(f"\n{kind.tried}\n" for kind in kinds_of(name) if kind.tried)
    return f"{_BEGIN}\n{_HEADING}\n\n{text}\n{tried}\n{_END}\n"


def _link(page: str) -> str:
    """That the table of another page holds; empty without one."""
    return f"As in a [{kinds_of(page)[0].name}]({page}.md#who-enforces-the-policy)." if page else ""


def _tables(name: str) -> Iterator[str]:
    """The table of the first way to retry, and of each other way the rows that differ from it."""
    ways = list(dict.fromkeys(way for kind in kinds_of(name) for way in kind.mechanisms))
    first = ways[0]
    yield "This stands beside each value in `spotwright explain`" + (f" ({first.title}):" if first.title else ":")
    yield ""
    yield from _table(first.facts)
    for way in ways[1:]:
        facts = {row: fact for row, fact in way.facts.items() if first.facts.get(row) != fact}
        yield f"\nThe rows that differ ({way.title}):\n"
        yield from _table(facts)


def _table(facts: Mapping[str, Fact]) -> Iterator[str]:
    """The rows of a table; consecutive fields with one fact are one row."""
    yield "| value | enforced by |"
    yield "|---|---|"
    rows: list[tuple[list[str], str]] = []
    for field, fact in facts.items():
        text = _cell(fact)
        if rows and rows[-1][1] == text:
            rows[-1][0].append(f"`{field}`")
        else:
            rows.append(([f"`{field}`"], text))
    for fields, text in rows:
        yield f"| {', '.join(fields)} | {text} |"


def _cell(fact: Fact) -> str:
    if fact.by is Enforcer.CONTROLLER:
        return f"{CONTROLLER_TEXT}, {fact.note}" if fact.note else CONTROLLER_TEXT
    if fact.by is Enforcer.KIND:
        return fact.note
    if fact.by is Enforcer.NOTHING:
        return f"nothing: {fact.note}" if fact.note else "nothing"
    labels, otherwise = [_label(fact)], fact.absent
    while otherwise is not None and otherwise.by is Enforcer.OBJECT and otherwise.note == fact.note:
        labels.append(_label(otherwise))
        otherwise = otherwise.absent
    text = " or ".join(labels) + (f", {fact.note}" if fact.note else "")
    return text if otherwise is None else f"{text}; if that is missing: {_cell(otherwise)}"


def _label(fact: Fact) -> str:
    return fact.label if " " in fact.label else f"`{fact.label}`"


def page(name: str) -> str:
    """A page with its section; one without marks gets the section at its end."""
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    if _BEGIN not in text:
        return f"{text.rstrip()}\n\n{section(name)}"
    before, _, rest = text.partition(_BEGIN)
    return before + section(name) + rest.partition(f"{_END}\n")[2]


PAGES: Mapping[Path, Callable[[], str]] = {
    FOLDER / f"{name}.md": partial(page, name)
    for name in sorted({_KATIB, *(kind.page for kind in all_kinds().values() if kind.page)})
}
"""Every page with what makes it."""


if __name__ == "__main__":
    for path, make in PAGES.items():
        path.write_text(make(), encoding="utf-8")
