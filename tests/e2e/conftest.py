"""A project for every test; after it nothing that came of the project may be alive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.project import QUICK, Project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project whose commands have left no process behind when the test has ended."""
    made = Project(tmp_path)
    made.config(QUICK)
    yield made
    left = made.processes()
    made.end_all()
    assert not left, f"left behind: {left}"
