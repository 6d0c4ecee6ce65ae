"""The fixtures of reading: a state folder with recorded workloads of two teams, and controllers that serve such folders."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.live.chart_account import remove_rights_of
from tests.cluster.live.kube import Kube
from tests.cluster.live.recorded import forget_pools
from tests.cluster.reading import on_the_bed as bed_pods
from tests.cluster.reading.recorded import record_two_teams
from tests.cluster.reading.served import Served, make_certificates, serving


@pytest.fixture(scope="module")
def controller(kube: Kube, bed: object) -> Iterator[str]:
    """The namespace of a recorder that runs in a pod and records two teams."""
    namespace = f"spotwright-{uuid.uuid4().hex[:6]}"
    try:
        bed_pods.start_controller(kube, namespace)
        yield namespace
    finally:
        remove_rights_of(kube, namespace)
        forget_pools(kube, f"{namespace}.{namespace}")
        kube.run("delete", "namespace", namespace, "--wait=false", "--ignore-not-found")


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
    """The command line trusts the controller's certificate, and the environment of the tests names no other cluster."""
    monkeypatch.setenv("SPOTWRIGHT_CONTROLLER_CA", str(certificates / "tls.crt"))
    for name in ("KUBECONFIG", "SPOTWRIGHT_CONTROLLER", "SPOTWRIGHT_STATE", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
