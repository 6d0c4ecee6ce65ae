"""Shared helpers for tests of releases of the chart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.chart.rendered import Helm, find_helm
from tests.cluster.live.kube import Kube

ARCHIVE = Path(__file__).resolve().parents[4] / "build" / "spotwright-image.tar"
"""The controller's image, as `make image` makes it."""

SOON = 240.0
"""Seconds, on a busy machine."""

RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
"""The labels of a namespace that enforces the strictest profile."""

SPOT = "kubernetes.azure.com/scalesetpriority"
"""The label and the taint of spot nodes of the test bed."""

POOL = "kubernetes.azure.com/agentpool"
"""The label with the name of a node's pool there."""


def helm_with_image(kube: Kube, *nodes: str) -> Helm:
    """Helm with the cluster, on whose nodes of these names the controller's image is; the test is skipped without either."""
    kube.awaited("helm")
    program = find_helm()
    if program is None:
        pytest.skip("helm is not installed")
    if not ARCHIVE.exists():
        pytest.skip("the controller's image is not built: make image")
    for node in nodes:
        command = ["ctr", "--namespace", "k8s.io", "images", "import", str(ARCHIVE)]
        testbed = [sys.executable, "-m", "testbed", "exec", "--node", node, "--"]
        subprocess.run([*testbed, *command], check=True, capture_output=True)
    return Helm(program, kube.kubeconfig)
