"""What tests of releases of the chart share."""

from __future__ import annotations

from pathlib import Path

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
