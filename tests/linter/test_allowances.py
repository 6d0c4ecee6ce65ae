"""Comments allow findings where they say why; those that do not, or that allow nothing, are findings."""

from __future__ import annotations

import pytest
from tests.linter.linting import linted

from spotwright.linter.linting import LintedFile
from spotwright.linter.rule import ON_SPOT, job

REASON = "one node has the licence"


def with_comment(at_end: str = "", above: str = "", top: str = "") -> LintedFile:
    return linted(f"{top}{job(ON_SPOT + above + 'nodeName: a' + at_end)}")


@pytest.mark.parametrize(
    "result",
    [
        with_comment(at_end=f"  # spotwright: allow node-name-set: {REASON}\n"),
        with_comment(at_end="\n", above=f"# spotwright: allow node-name-set: {REASON}\n"),
        with_comment(at_end="\n", top=f"# spotwright: allow node-name-set: {REASON}\n"),
        with_comment(
            at_end="\n", top=f"---\n# my job\n# spotwright: allow no-retries, node-name-set: {REASON}\n# x\n\n"
        ),
    ],
    ids=["end of line", "above the line", "above the object", "between comments"],
)
def test_a_comment_with_a_reason_allows_a_finding(result: LintedFile) -> None:
    assert [finding.rule for finding in result.allowed] == ["node-name-set"]
    assert {finding.rule for finding in result.findings} <= {"allow-unused"}


def test_a_comment_without_a_reason_allows_nothing_and_is_an_error() -> None:
    result = with_comment(at_end="  # spotwright: allow node-name-set\n")

    assert {finding.rule for finding in result.findings} == {"node-name-set", "allow-without-reason"}


def test_a_comment_about_an_unknown_rule_is_a_warning() -> None:
    result = with_comment(at_end=f"  # spotwright: allow node-named: {REASON}\n")

    assert {finding.rule for finding in result.findings} == {"node-name-set", "allow-unknown-rule"}


def test_a_comment_that_allows_nothing_any_more_is_a_note() -> None:
    [finding] = linted(f"# spotwright: allow node-name-set: {REASON}\n{job(ON_SPOT)}").findings

    assert (finding.rule, finding.line, finding.severity.value) == ("allow-unused", 1, "note")


def test_a_comment_above_one_object_says_nothing_about_the_next() -> None:
    bound = job(ON_SPOT + "nodeName: a\n")
    result = linted(f"# spotwright: allow node-name-set: {REASON}\n{bound}---\n{bound}")

    assert (len(result.allowed), [finding.rule for finding in result.findings]) == (1, ["node-name-set"])


def test_a_comment_allows_a_finding_in_python() -> None:
    text = "import kfp.gcp as gcp  # spotwright: allow kfp1-module: the old branch is kept until May\n"

    assert linted(text, python=True).findings == []


def test_a_comment_at_the_top_of_a_python_file_is_for_the_file() -> None:
    text = "# spotwright: allow kfp1-module: the old branch is kept until May\n\nimport os\nimport kfp.gcp as gcp\n"

    assert linted(text, python=True).findings == []
