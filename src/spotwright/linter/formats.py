"""What ``lint`` prints: lines for people with the fix below each, JSON for scripts, and SARIF 2.1.0.

Code hosting shows SARIF beside the lines of a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from spotwright.linter.allowances import ALLOW_RULES
from spotwright.linter.linting import RULES, LintedFile
from spotwright.linter.rule import Finding, Severity
from spotwright.model.not_judged import NotJudged, counted, not_judged_json, not_judged_lines

__all__ = ["LintReport", "lint_json", "report_lines", "sarif"]


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

    @property
    def not_judged(self) -> list[NotJudged]:
        """What no rule could check, and the pools of which it is unknown whether the work fits."""
        every = (finding for file in self.files for finding in (*file.findings, *file.allowed))
        found = [finding.not_judged for finding in every if finding.not_judged is not None]
        return [*found, *(pool for file in self.files for pool in file.pools)]

    def count(self, severity: Severity) -> int:
        """How many findings have a severity."""
        return sum(finding.severity is severity for finding in self.findings)


def report_lines(report: LintReport) -> Iterator[str]:
    """``file:line: severity: what was found [rule]``, where else in the file, and the fix; a repeated fix is printed once."""
    last = ""
    for finding, *others in _alike(report.findings):
        yield f"{finding.file}:{finding.line}: {finding.severity}: {finding.text} [{finding.rule}]"
        yield from _also(finding, others)
        is_said = finding.text.endswith(f"w{finding.fix[1:].rstrip('.')}")  # "... is kfp 1; write ..."
        if finding.fix not in ("", last) and not is_said:
            yield f"    fix{' (--fix does it)' if finding.can_fix else ''}: {finding.fix}"
        last = finding.fix
    yield _summary(report)


_MOST_PLACES = 10
_LONGEST_NAME = 3  # words at the beginning of a text that name the object


def _alike(findings: Iterable[Finding]) -> Iterable[list[Finding]]:
    """Findings of one rule in one file that differ only in the name of the object, each group at its first one's place."""
    groups: list[list[Finding]] = []
    by_rule: dict[tuple[str, str, str, Severity], list[list[Finding]]] = {}
    for finding in findings:
        of_rule = by_rule.setdefault((finding.file, finding.rule, finding.fix, finding.severity), [])
        group = next((each for each in of_rule if _says_the_same(finding.text, each[0].text)), None)
        if group is None:
            group = []
            groups.append(group)
            of_rule.append(group)
        group.append(finding)
    return groups


def _says_the_same(one: str, other: str) -> bool:
    """Whether two texts differ only in the few leading words that name the object."""
    return all(len(name.split()) <= _LONGEST_NAME for name in _names(one, other)) and one[-1:] == other[-1:]


def _names(one: str, other: str) -> tuple[str, str]:
    """The differing beginnings of two texts; empty for equal ones."""
    words, others = one.split(" "), other.split(" ")
    same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(reversed(words), reversed(others), strict=False))))
    return " ".join(words[: len(words) - same]), " ".join(others[: len(others) - same])


def _also(first: Finding, others: Sequence[Finding]) -> Iterator[str]:
    """The further places of a finding, each with the name of its object if that differs."""
    if others:
        named = ((one.line, _names(one.text, first.text)[0]) for one in others[:_MOST_PLACES])
        places = [f"line {line} ({name})" if name else f"line {line}" for line, name in named]
        more = f" and {len(others) - _MOST_PLACES} more" if len(others) > _MOST_PLACES else ""
        yield f"    also {', '.join(places)}{more}"


def _summary(report: LintReport) -> str:
    counts = {severity: report.count(severity) for severity in Severity}
    found = ", ".join(_counted(number, severity.value) for severity, number in counts.items() if number)
    if not found:
        found = "nothing found" if report.files or not report.unread else "nothing linted"
    allowed = sum(len(file.allowed) for file in report.files)
    extras = [f"{allowed} allowed"] if allowed else []
    extras += [f"{len(report.fixed)} fixed"] if report.fixed else []
    extras += [f"{_counted(len(report.unread), 'file')} not read"] if report.unread else []
    left = counted(report.not_judged)
    extras += [left] if left else []
    inside = f"{_counted(report.documents, 'object')} in {_counted(len(report.files), 'file')}"
    return f"{'; '.join([found, *extras])} ({inside})"


def _counted(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def lint_json(report: LintReport) -> dict[str, Any]:
    """``findings``: each with ``rule``, ``severity``, ``file``, ``line``, ``field``, ``text``, ``fix`` and ``can_fix``.

    ``severity`` is ``error``, ``warning`` or ``note``; ``field`` is the path of the value, empty in Python files. ``allowed`` has
    findings that a comment allows, ``fixed`` those that ``--fix`` removed, in the same form. ``unread`` has a message for each
    file that could not be read. ``not_judged`` has what no rule could look at, and pools of unknown size. ``files``
    and ``objects`` count what was linted, ``summary`` the findings of each severity.
    """
    return {
        "findings": [_finding(finding) for finding in report.findings],
        "allowed": [_finding(finding) for file in report.files for finding in file.allowed],
        "fixed": [_finding(finding) for finding in report.fixed],
        "unread": report.unread,
        "not_judged": not_judged_json(report.not_judged),
        "files": len(report.files),
        "objects": report.documents,
        "summary": {severity.value: report.count(severity) for severity in Severity},
    }


def _finding(finding: Finding) -> dict[str, Any]:
    told = {**finding._asdict(), "severity": finding.severity.value}
    del told["not_judged"]  # one list has all of them
    return told


_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(report: LintReport, version: str) -> dict[str, Any]:
    """The log of one run; ``version`` is Spotwright's. Findings that comments allow are suppressed results."""
    rules = [*_rules()]
    order = {rule["id"]: index for index, rule in enumerate(rules)}
    results = [_result(finding, order) for finding in report.findings]
    allowed = (finding for file in report.files for finding in file.allowed)
    results += [{**_result(finding, order), "suppressions": [{"kind": "inSource"}]} for finding in allowed]
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "spotwright", "semanticVersion": version, "rules": rules}},
                "columnKind": "unicodeCodePoints",
                "invocations": [_invocation(report)],
                "results": results,
            }
        ],
    }


def _rules() -> Iterable[dict[str, Any]]:
    for rule in RULES:
        yield {
            "id": rule.id,
            "shortDescription": {"text": rule.title},
            "fullDescription": {"text": rule.why},
            "help": {"text": rule.fix},
            "defaultConfiguration": {"level": rule.severity.value},
        }
    for name, (severity, title) in ALLOW_RULES.items():
        yield {"id": name, "shortDescription": {"text": title}, "defaultConfiguration": {"level": severity.value}}


def _result(finding: Finding, order: dict[str, int]) -> dict[str, Any]:
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": {"uri": _uri(finding.file)}, "region": {"startLine": finding.line}}
    }
    if finding.field:
        location["logicalLocations"] = [{"fullyQualifiedName": finding.field}]
    return {
        "ruleId": finding.rule,
        "ruleIndex": order[finding.rule],
        "level": finding.severity.value,
        "message": {"text": f"{finding.text}. {finding.fix}"},
        "locations": [location],
    }


def _uri(file: str) -> str:
    """A file as a URI: relative if it was named so, because services match it with a repository's files."""
    path = PurePath(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


def _invocation(report: LintReport) -> dict[str, Any]:
    notes = [{"level": "error", "message": {"text": message}} for message in report.unread]
    notes += [{"level": "note", "message": {"text": line}} for line in not_judged_lines(report.not_judged)]
    return {"executionSuccessful": not report.unread, "toolExecutionNotifications": notes}
