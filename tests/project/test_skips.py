"""A skip is visible, and in CI it needs a listed reason."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from tests.skips import SkipSummary, justification, read

pytest_plugins = "pytester"

LISTED: Mapping[re.Pattern[str], str] = {re.compile(r"no (GPU|TPU) here"): "Few machines have one."}
SKIPPING = """
import pytest

def test_one(): pytest.skip("no GPU here")
@pytest.mark.skipif(True, reason="no TPU here")
def test_two(): pass
def test_three(): pass
"""


def run(pytester: pytest.Pytester, source: str, *, strict: bool) -> pytest.RunResult:
    """Run these tests with the plugin, in this process."""
    pytester.makepyfile(source)
    return pytester.runpytest_inprocess("-p", "no:xdist", plugins=[SkipSummary(LISTED, strict=strict)])


def test_a_run_whose_skips_are_listed_passes_in_ci_and_shows_their_justification(pytester: pytest.Pytester) -> None:
    result = run(pytester, SKIPPING, strict=True)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*skipped tests*", "   1  no GPU here", "      Few machines have one."])


@pytest.mark.parametrize(("strict", "code"), [(True, 1), (False, 0)])
def test_an_unlisted_skip_fails_the_run_in_ci_only(pytester: pytest.Pytester, *, strict: bool, code: int) -> None:
    result = run(pytester, SKIPPING.replace("no GPU here", "not today"), strict=strict)
    assert result.ret == code
    result.stdout.fnmatch_lines(["   1  not today", "      NOT LISTED*"])


def test_a_module_that_skips_itself_counts_too(pytester: pytest.Pytester) -> None:
    result = run(
        pytester, 'import pytest\npytest.skip("broken", allow_module_level=True)\ndef test_x(): pass', strict=True
    )
    result.stdout.fnmatch_lines(["   1  broken", "      NOT LISTED*"])


def test_a_run_without_skips_has_no_such_section(pytester: pytest.Pytester) -> None:
    result = run(pytester, "def test_x(): pass", strict=True)
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*skipped tests*")


def test_a_reason_is_listed_as_a_whole_and_not_by_a_part() -> None:
    assert justification("no GPU here", LISTED) == "Few machines have one."
    assert justification("no GPU here, and no network", LISTED) is None


def test_every_listed_reason_has_a_justification_in_a_sentence() -> None:
    assert [because for because in read().values() if not because.endswith(".")] == []
