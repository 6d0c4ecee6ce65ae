"""What lint prints: every format says the same, and SARIF has what its standard requires."""

from __future__ import annotations

import json
from typing import Any

from tests.linter.linting import linted

from spotwright.linter.formats import LintReport, lint_json, report_lines, sarif
from spotwright.linter.linting import ALL_IDS
from spotwright.linter.rule import ON_SPOT, PREFERS_SPOT, job

ALLOWED = job(ON_SPOT + "nodeName: a  # spotwright: allow node-name-set: one node has the licence\n")


def a_report() -> LintReport:
    return LintReport([linted(job(PREFERS_SPOT)), linted(ALLOWED)], unread=["x.yaml:1: not valid YAML"])


def test_lines_name_the_place_the_rule_and_the_fix() -> None:
    lines = list(report_lines(a_report()))

    assert lines[0].startswith("work.yaml:11: error: Job train asks for spot nodes without tolerating their taint")
    assert lines[0].endswith("[affinity-without-toleration]")
    assert lines[1] == "    fix (--fix does it): Add the toleration beside the selector."
    assert lines[-1] == "1 error; 1 allowed; 1 file not read (2 objects in 2 files)"


def test_a_finding_that_a_file_has_several_times_is_printed_once_with_its_places() -> None:
    other = job(PREFERS_SPOT).replace("name: train", "name: eval")
    report = LintReport([linted(f"{job(PREFERS_SPOT)}---\n{other}---\n{job(PREFERS_SPOT)}")])
    lines = list(report_lines(report))

    found = [line for line in lines if "[affinity-without-toleration]" in line]
    assert [line.split(" asks")[0] for line in found] == ["work.yaml:11: error: Job train"]
    assert lines[lines.index(found[0]) + 1] == "    also line 32 (Job eval), line 53"
    assert sum(line.startswith("    fix") for line in lines) == 1
    assert lines[-1] == "3 errors (3 objects in 1 file)"
    assert len(lint_json(report)["findings"]) == 3


def test_json_has_the_findings_and_the_counts() -> None:
    found = json.loads(json.dumps(lint_json(a_report())))

    assert [(one["rule"], one["line"], one["severity"], one["can_fix"]) for one in found["findings"]] == [
        ("affinity-without-toleration", 11, "error", True)
    ]
    assert [one["rule"] for one in found["allowed"]] == ["node-name-set"]
    assert (found["files"], found["objects"], found["summary"]) == (2, 2, {"error": 1, "warning": 0, "note": 0})
    assert found["unread"] == ["x.yaml:1: not valid YAML"]


def run_of(log: dict[str, Any]) -> dict[str, Any]:
    [run] = log["runs"]
    return dict(run)


def test_sarif_has_the_properties_that_its_standard_requires() -> None:
    """SARIF 2.1.0: sarifLog needs version and runs, run a tool with a driver's name, result a message, rule an id."""
    log = json.loads(json.dumps(sarif(a_report(), "0.1.0")))
    run = run_of(log)

    assert log["version"] == "2.1.0"
    assert run["tool"]["driver"]["name"] == "spotwright"
    assert {rule["id"] for rule in run["tool"]["driver"]["rules"]} == set(ALL_IDS)
    assert all(
        rule["defaultConfiguration"]["level"] in ("error", "warning", "note") for rule in run["tool"]["driver"]["rules"]
    )
    for result in run["results"]:
        region = result["locations"][0]["physicalLocation"]["region"]
        assert result["message"]["text"]
        assert region["startLine"] >= 1
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")


def test_sarif_marks_what_a_comment_allows_and_says_what_could_not_be_read() -> None:
    run = run_of(sarif(a_report(), "0.1.0"))
    [invocation] = run["invocations"]

    assert [("suppressions" in one, one["ruleId"]) for one in run["results"]] == [
        (False, "affinity-without-toleration"),
        (True, "node-name-set"),
    ]
    assert invocation["executionSuccessful"] is False
    assert invocation["toolExecutionNotifications"][0]["message"]["text"] == "x.yaml:1: not valid YAML"


def test_files_are_uris_in_sarif() -> None:
    report = LintReport([linted(job(PREFERS_SPOT))])
    report.files[0].findings[0] = report.files[0].findings[0]._replace(file="my jobs/a.yaml")

    location = run_of(sarif(report, "0.1.0"))["results"][0]["locations"][0]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "my%20jobs/a.yaml"
