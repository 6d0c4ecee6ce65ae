"""The findings as one JSON document, for scripts."""

from __future__ import annotations

from typing import Any

from spotwright.lint.formats.report import LintReport
from spotwright.lint.rule import Finding, Severity

__all__ = ["lint_json"]


def lint_json(report: LintReport) -> dict[str, Any]:
    """``findings``: each with ``rule``, ``severity``, ``file``, ``line``, ``field``, ``text``, ``fix`` and ``can_fix``.

    ``severity`` is ``error``, ``warning`` or ``note``; ``field`` is the path of the value, empty in Python files. ``allowed`` has
    findings that a comment allows, ``fixed`` those that ``--fix`` removed, in the same form. ``unread`` has a message for each
    file that could not be read. ``files`` and ``objects`` count what was linted, ``summary`` the findings of each severity.
    """
    return {
        "findings": [_finding(finding) for finding in report.findings],
        "allowed": [_finding(finding) for file in report.files for finding in file.allowed],
        "fixed": [_finding(finding) for finding in report.fixed],
        "unread": report.unread,
        "files": len(report.files),
        "objects": report.documents,
        "summary": {severity.value: report.count(severity) for severity in Severity},
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {**finding._asdict(), "severity": finding.severity.value}
