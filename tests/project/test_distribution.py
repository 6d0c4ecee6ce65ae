"""Tests that share a fixture of their module run in one process of the suite; all others run anywhere."""

from __future__ import annotations

import pytest
from tests.conftest import QUICK, SLOW, TESTS
from tests.distribution import ROOT, KeepFixturesTogether, shares_a_fixture


def scope(nodeid: str) -> str:
    made: str = KeepFixturesTogether._split_scope(object.__new__(KeepFixturesTogether), nodeid)
    return made


def test_tests_of_a_file_that_shares_a_fixture_stay_together() -> None:
    file = "tests/examples/test_demo.py"
    assert scope(f"{file}::test_a") == scope(f"{file}::test_b[x::y]") == file


def test_other_tests_are_sent_one_by_one() -> None:
    assert scope("tests/project/test_skips.py::test_a") == "tests/project/test_skips.py::test_a"


@pytest.mark.parametrize("file", ["tests/nothing.py", "tests/project/test_layers.py"])
def test_a_file_without_such_a_fixture_shares_none(file: str) -> None:
    assert not shares_a_fixture(file)


def test_the_suite_has_files_of_both_sorts() -> None:
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    assert {shares_a_fixture(file) for file in files} == {True, False}


def test_every_place_of_slow_tests_exists() -> None:
    assert [name for name in (*SLOW, *QUICK) if not (TESTS / name).exists()] == []
