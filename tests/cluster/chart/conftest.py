"""The real Helm, where there is one: `make cluster` builds it."""

from __future__ import annotations

import pytest
from tests.cluster.chart.rendered import Helm, find_helm


@pytest.fixture(scope="session")
def helm() -> Helm:
    """Helm without a cluster."""
    program = find_helm()
    if program is None:
        pytest.skip("helm is not installed")
    return Helm(program)
