"""The fixture with real processes for tests of the local world."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.local.process_harness import ProcessHarness, process_harness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ProcessHarness]:
    with process_harness(tmp_path) as made:
        yield made
