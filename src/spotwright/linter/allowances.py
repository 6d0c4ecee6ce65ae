"""Comments that allow a finding: ``# spotwright: allow RULE: REASON``.

At the end of a line, or on the line above it, a comment allows findings of this line. Above the first line of an object (or of
a Python file) it allows findings of the whole object. A comment without a reason has no effect and is itself a finding, because
later readers need the reason. So are unknown rules, and comments that match no finding.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from spotwright.linter.rule import Finding, Severity

__all__ = ["ALLOW_RULES", "Allowances", "Extent"]

_COMMENT = re.compile(r"#\s*spotwright:\s*allow\b(.*)$")
_SPLIT = re.compile(r"\s*([\w-]+(?:\s*,\s*[\w-]+)*)\s*(?::\s*(.*))?$")
_WITHOUT_REASON, _UNKNOWN, _UNUSED = "allow-without-reason", "allow-unknown-rule", "allow-unused"

ALLOW_RULES = {
    _WITHOUT_REASON: (Severity.ERROR, "A comment allows a finding without a reason"),
    _UNKNOWN: (Severity.WARNING, "A comment allows a rule that does not exist"),
    _UNUSED: (Severity.NOTE, "A comment matches no finding"),
}
"""The findings about comments that allow others."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The lines of an object, counted from 1."""

    first: int
    last: int


@dataclass(slots=True)
class _Comment:
    line: int
    rules: tuple[str, ...]
    reason: str
    first: int
    last: int
    used: set[str] = field(default_factory=set)


class Allowances:
    """The comments of one file that allow findings."""

    def __init__(self, text: str, objects: Sequence[Extent], known: Collection[str]) -> None:
        self._known = known
        self._comments = list(_comments(text, objects)) if "spotwright:" in text else []

    def allows(self, finding: Finding) -> bool:
        """Whether a comment with a reason allows a finding; the comment then counts as used."""
        found = False
        for comment in self._comments:
            if comment.reason and finding.rule in comment.rules and comment.first <= finding.line <= comment.last:
                comment.used.add(finding.rule)
                found = True
        return found

    def findings(self, file: str, checked: Collection[str]) -> Iterator[Finding]:
        """The findings about the comments themselves; ``checked`` are the rules that were not switched off."""
        for comment in self._comments:
            if not comment.reason:
                text = f"no reason is given for allowing {', '.join(comment.rules) or 'something'} here"
                fix = (
                    f"Write the reason behind a colon: # spotwright: allow {', '.join(comment.rules) or 'RULE'}: REASON"
                )
                yield _finding(_WITHOUT_REASON, file, comment.line, text, fix)
                continue
            for rule in comment.rules:
                if rule not in self._known:
                    text = f"no rule has the name {rule}"
                    yield _finding(_UNKNOWN, file, comment.line, text, "spotwright lint --rules lists the names.")
                elif rule not in comment.used and rule in checked:
                    text = f"{rule} no longer has a finding here"
                    yield _finding(_UNUSED, file, comment.line, text, "Remove the comment.")


def _finding(rule: str, file: str, line: int, text: str, fix: str) -> Finding:
    return Finding(rule, ALLOW_RULES[rule][0], file, line, "", text, fix)


def _comments(text: str, objects: Iterable[Extent]) -> Iterator[_Comment]:
    extents, lines = list(objects), text.splitlines()
    for number, line in enumerate(lines, 1):
        match = _COMMENT.search(line)
        if match is None:
            continue
        parts = _SPLIT.match(match[1])
        names = tuple(name.strip() for name in parts[1].split(",")) if parts else ()
        reason = ((parts[2] or "") if parts else "").strip()
        first, last = _covered(line, number, lines, extents)
        yield _Comment(number, names, reason, first, last)


def _covered(line: str, number: int, lines: Sequence[str], extents: Sequence[Extent]) -> tuple[int, int]:
    """The lines for which a comment holds."""
    if not line.lstrip().startswith("#"):
        return number, number
    following = number + 1
    while following <= len(lines) and lines[following - 1].lstrip().startswith("#"):
        following += 1  # stacked comments apply to the same line
    for extent in extents:
        if not _has_content(lines[extent.first - 1 : following - 1]) and extent.first - 1 <= following <= extent.last:
            return extent.first, extent.last
    return number, following


def _has_content(lines: Sequence[str]) -> bool:
    stripped = (line.strip() for line in lines)
    return any(line and not line.startswith(("#", "---")) for line in stripped)
