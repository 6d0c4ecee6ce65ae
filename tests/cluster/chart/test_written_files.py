"""The chart's files that are made from the code are those that the code gives."""

from __future__ import annotations

import pytest
from scripts import make_chart

from spotwright.cluster import permissions

AGAIN = "make written"


@pytest.mark.parametrize("name", make_chart.FILES)
def test_a_file_of_the_chart_is_what_the_code_gives(name: str) -> None:
    assert (make_chart.FOLDER / name).read_text(encoding="utf-8") == make_chart.FILES[name], AGAIN


def test_the_chart_has_no_other_written_files() -> None:
    assert {path.name for path in make_chart.FOLDER.iterdir()} == {*make_chart.FILES}


def test_the_page_on_security_has_every_right_with_its_reason() -> None:
    tables = make_chart.rights_tables()
    reasons = [
        right.reason
        for rights in (permissions.SERVED, permissions.CLUSTER, permissions.HOME, permissions.REGISTRATION)
        for right in rights
    ]
    assert len(reasons) > 10
    assert [reason for reason in reasons if reason not in tables] == []
