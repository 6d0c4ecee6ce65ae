"""Fixtures for releases of the chart on several nodes of the test bed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from testbed.settings import Settings
from tests.cluster.chart.rendered import Helm
from tests.cluster.live.chart.releases import POOL, SPOT, helm_with_image
from tests.cluster.live.chart.teams_release import TeamsRelease, installed, new_home
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


@pytest.fixture
def teams(kube: Kube) -> Iterator[tuple[str, str]]:
    """The namespaces of two teams."""
    suffix = uuid.uuid4().hex[:6]
    names = (f"team-a-{suffix}", f"team-b-{suffix}")
    for name in names:
        kube.run("create", "namespace", name)
        kube.wait(lambda name=name: kube.get("serviceaccount", "default", name), "the service account", 60)  # type: ignore[misc]
    yield names
    for name in names:
        kube.run("delete", "namespace", name, "--wait=false", "--ignore-not-found")


@pytest.fixture
def teams_release(helm_for_two: Helm, kube: Kube, teams: tuple[str, str]) -> Iterator[TeamsRelease]:
    """The release that serves them, installed."""
    with new_home(kube) as home, installed(helm_for_two, kube, home, teams) as made:
        yield made
