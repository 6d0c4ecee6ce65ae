"""Real processes for the tests of the local world."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.local.lab import Lab, laboratory


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with laboratory(tmp_path) as made:
        yield made
