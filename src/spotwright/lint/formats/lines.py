"""The findings as lines for people, with the fix below each, and a summary."""

from __future__ import annotations

from collections.abc import Iterator

from spotwright.lint.formats.report import LintReport
from spotwright.lint.rule import Severity

__all__ = ["report_lines"]


def report_lines(report: LintReport) -> Iterator[str]:
    """``file:line: severity: what was found [rule]``, the fix below it; equal fixes are said once in a row."""
    last = ""
    for finding in report.findings:
        yield f"{finding.file}:{finding.line}: {finding.severity}: {finding.text} [{finding.rule}]"
        is_said = finding.text.endswith(f"w{finding.fix[1:].rstrip('.')}")  # "... is kfp 1; write ..."
        if finding.fix not in ("", last) and not is_said:
            yield f"    fix{' (--fix does it)' if finding.can_fix else ''}: {finding.fix}"
        last = finding.fix
    yield _summary(report)


def _summary(report: LintReport) -> str:
    counts = {severity: report.count(severity) for severity in Severity}
    found = ", ".join(_counted(number, severity.value) for severity, number in counts.items() if number)
    if not found:
        found = "nothing found" if report.files or not report.unread else "nothing linted"
    allowed = sum(len(file.allowed) for file in report.files)
    extras = [f"{allowed} allowed"] if allowed else []
    extras += [f"{len(report.fixed)} fixed"] if report.fixed else []
    extras += [f"{_counted(len(report.unread), 'file')} not read"] if report.unread else []
    inside = f"{_counted(report.documents, 'object')} in {_counted(len(report.files), 'file')}"
    return f"{'; '.join([found, *extras])} ({inside})"


def _counted(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"
