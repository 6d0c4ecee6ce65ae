"""A state folder with recorded workloads of two teams, and a controller that serves it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.reading.recorded import record_two_teams
from tests.cluster.reading.served import Served, make_certificates, serving


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with certificates for the loopback."""
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with a Job and a Workflow of team-a, and a Job of team-b."""
    state = tmp_path_factory.mktemp("controller") / "state"
    record_two_teams(state)
    return state


@pytest.fixture(scope="module")
def served(certificates: Path, recorded: Path) -> Iterator[Served]:
    """A controller that serves these runs."""
    with serving(certificates, recorded) as controller:
        yield controller


@pytest.fixture(autouse=True)
def trusted(certificates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line trusts the controller's certificate, and nothing around the tests names another cluster."""
    monkeypatch.setenv("SPOTWRIGHT_CONTROLLER_CA", str(certificates / "tls.crt"))
    for name in ("KUBECONFIG", "SPOTWRIGHT_CONTROLLER", "SPOTWRIGHT_STATE", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
