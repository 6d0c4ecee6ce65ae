"""What ``place`` writes has no finding: neither without a configuration, nor beside pools as they were placed for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.linter.linting import found_in
from tests.placing.placed import a_config

GOLDEN = Path(__file__).parents[1] / "kinds" / "golden"
CASES = sorted(path.name for path in GOLDEN.iterdir())


@pytest.mark.parametrize("configuration", ["", a_config("{default: {spot: prefer}}").text], ids=["none", "pools"])
@pytest.mark.parametrize("case", CASES)
def test_what_place_writes_has_no_finding(case: str, configuration: str) -> None:
    assert found_in((GOLDEN / case / "out.yaml").read_text(), configuration) == []


def test_placing_takes_findings_away() -> None:
    placed = (GOLDEN / "tfjob" / "out.yaml").read_text()
    without = placed.replace("restartPolicy: ExitCode", "restartPolicy: Never")

    assert {finding.rule for finding in found_in(without)} == {"role-never-restarts"}
