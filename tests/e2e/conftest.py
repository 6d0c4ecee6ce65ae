"""A project for every test; after it nothing that came of the project may be alive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.project import Project, a_project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project whose commands have left no process behind when the test has ended."""
    with a_project(tmp_path) as made:
        yield made
