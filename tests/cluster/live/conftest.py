"""Fixtures for faults of a test bed's control plane."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from testbed.settings import Settings
from tests.cluster.live.stopped_control_plane import bring_back


@pytest.fixture
def control(bed: Settings) -> Iterator[Settings]:
    """The control plane, whose processes may be ended; afterwards everything that needs it runs again."""
    yield bed
    bring_back(bed)
