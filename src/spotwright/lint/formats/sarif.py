"""The findings as SARIF 2.1.0, which code hosting shows beside the lines of a change.

Source: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0": sarifLog (3.13), run (3.14), tool (3.18),
reportingDescriptor (3.49), result (3.27), suppression (3.35), invocation (3.20), notification (3.58).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from spotwright.lint.allowances import ALLOW_RULES
from spotwright.lint.formats.report import LintReport
from spotwright.lint.registry import RULES
from spotwright.lint.rule import Finding

__all__ = ["sarif"]

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(report: LintReport, version: str) -> dict[str, Any]:
    """The log of one run; ``version`` is that of Spotwright. Findings that comments allow are results with a suppression."""
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
                "invocations": [_invocation(report.unread)],
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
    """A file as a URI: relative where it was named so, since services compare it with the files of a repository."""
    path = PurePath(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


def _invocation(unread: Sequence[str]) -> dict[str, Any]:
    notes = [{"level": "error", "message": {"text": message}} for message in unread]
    return {"executionSuccessful": not unread, "toolExecutionNotifications": notes}
