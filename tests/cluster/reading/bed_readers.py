"""A controller on the test bed, and commands that read from it."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.live.kube import Kube
from tests.cluster.reading.served import Printed, spotwright


def read(kube: Kube, controller: str, *words: str, kubeconfig: Path | None = None) -> Printed:
    """Run a command against the controller, as an admin with a client certificate unless a kubeconfig is given."""
    login = str(kubeconfig or kube.kubeconfig)
    return spotwright(*words, "--cluster", "--kubeconfig", login, "--controller", controller)
