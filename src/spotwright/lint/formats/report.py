"""The result of one lint command: what was found in which files, and what could not be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from spotwright.lint.linting import LintedFile
from spotwright.lint.rule import Finding, Severity

__all__ = ["LintReport"]


@dataclass(slots=True)
class LintReport:
    """The linted files in the order of the command. ``fixed`` are the findings that ``--fix`` has removed.

    ``unread`` has a message for each file that could not be read.
    """

    files: list[LintedFile] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    fixed: list[Finding] = field(default_factory=list)

    @property
    def findings(self) -> Iterator[Finding]:
        """Every finding that is not allowed, by file and line."""
        return (finding for file in self.files for finding in file.findings)

    @property
    def documents(self) -> int:
        """How many objects, pipelines and Python files were linted."""
        return sum(file.documents for file in self.files)

    def count(self, severity: Severity) -> int:
        """How many findings have a severity."""
        return sum(finding.severity is severity for finding in self.findings)
