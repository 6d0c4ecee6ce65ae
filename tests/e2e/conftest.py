"""A project for every test. After the test, all processes of the project must have ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.project import Project, a_project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project; after the test no process of its commands may be alive."""
    with a_project(tmp_path) as made:
        yield made
