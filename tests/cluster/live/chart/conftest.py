"""Fixtures for releases of the chart on several nodes of the test bed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from testbed.settings import Settings
from tests.cluster.chart.rendered import Helm, find_helm
from tests.cluster.live.chart.releases import ARCHIVE, POOL, SPOT
from tests.cluster.live.kube import Kube


@pytest.fixture
def helm_for_two(kube: Kube, bed: Settings) -> Iterator[Helm]:
    """Helm, with the controller's image on all nodes, of which n2 alone is a spot node meanwhile."""
    kube.awaited("helm")
    program = find_helm()
    if program is None:
        pytest.skip("helm is not installed")
    if not ARCHIVE.exists():
        pytest.skip("the controller's image is not built: make image")
    for node in ("n1", "n2", "n3"):
        command = ["ctr", "--namespace", "k8s.io", "images", "import", str(ARCHIVE)]
        testbed = [sys.executable, "-m", "testbed", "exec", "--node", node, "--"]
        subprocess.run([*testbed, *command], check=True, capture_output=True)
    kube.run("label", "node", "n3", f"{SPOT}-", f"{POOL}=system", "--overwrite")
    kube.run("taint", "node", "n3", f"{SPOT}-")
    yield Helm(program, kube.kubeconfig)
    kube.run("label", "node", "n3", f"{SPOT}=spot", f"{POOL}=spot", "--overwrite")
    kube.run("taint", "node", "n3", f"{SPOT}=spot:NoSchedule", "--overwrite")
