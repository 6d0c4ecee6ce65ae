"""The command for people on the test bed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.cluster.live.kube import Kube

__all__ = ["spotwright"]


def spotwright(kube: Kube, *arguments: str) -> Any:
    """The JSON output of a command for people."""
    command = [sys.executable, "-m", "spotwright", *arguments, "--cluster", f"--kubeconfig={kube.kubeconfig}", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
