"""What ``place`` writes has no finding, except what no manifest can mend: an autoscaler that does not read a preference."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.linter.linting import found_in
from tests.placing.placed import a_config

GOLDEN = Path(__file__).parents[1] / "kinds" / "golden"
CASES = sorted(path.name for path in GOLDEN.iterdir())


@pytest.mark.parametrize("case", CASES)
def test_what_place_writes_has_no_finding(case: str) -> None:
    assert found_in((GOLDEN / case / "out.yaml").read_text()) == []


@pytest.mark.parametrize("case", CASES)
def test_beside_the_pools_it_has_no_other_finding_than_that_the_autoscaler_does_not_read_a_preference(
    case: str,
) -> None:
    """It is a warning of ``place`` too, and the next reader of the file has not seen that."""
    found = found_in((GOLDEN / case / "out.yaml").read_text(), a_config("{default: {spot: prefer}}").text)
    assert {finding.rule for finding in found} <= {"preference-ignored"}


def test_that_the_autoscaler_does_not_read_a_preference_is_said_of_placed_files_too() -> None:
    found = found_in((GOLDEN / "job" / "out.yaml").read_text(), a_config("{default: {spot: prefer}}").text)
    assert [finding.rule for finding in found] == ["preference-ignored"]


def test_placing_takes_findings_away() -> None:
    placed = (GOLDEN / "tfjob" / "out.yaml").read_text()
    without = placed.replace("restartPolicy: ExitCode", "restartPolicy: Never")

    assert {finding.rule for finding in found_in(without)} == {"role-never-restarts"}
