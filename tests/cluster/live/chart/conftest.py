"""Fixtures for releases of the chart on several nodes of the test bed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from testbed.settings import Settings
from tests.cluster.chart.rendered import Helm
from tests.cluster.live.chart.releases import POOL, SPOT, helm_with_image
from tests.cluster.live.kube import Kube


@pytest.fixture
def helm_for_two(kube: Kube, bed: Settings) -> Iterator[Helm]:
    """Helm, with the controller's image on all nodes, of which n2 alone is a spot node meanwhile."""
    helm = helm_with_image(kube, "n1", "n2", "n3")
    kube.run("label", "node", "n3", f"{SPOT}-", f"{POOL}=system", "--overwrite")
    kube.run("taint", "node", "n3", f"{SPOT}-")
    yield helm
    kube.run("label", "node", "n3", f"{SPOT}=spot", f"{POOL}=spot", "--overwrite")
    kube.run("taint", "node", "n3", f"{SPOT}=spot:NoSchedule", "--overwrite")
