"""Fixtures for tests on a real Kubernetes: the cluster, a separate namespace, faults of nodes, and measured times.

The test bed is the cluster by default: a running one is used, else one is started for these tests and taken down afterwards. A
bed with fewer controllers is enough: tests that need an absent one are skipped. Tests that need one which is still being built
beside the bed wait for it.

With `SPOTWRIGHT_CLUSTER=external` the tests run on the cluster of `KUBECONFIG`, for example kind or minikube; tests that kill
a node are skipped there. `SPOTWRIGHT_CLUSTER_IMAGE` then names an image with a shell.
"""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _pytest.capture import CaptureManager
from testbed import builder
from testbed.building.builds import Cache
from testbed.building.images import BUSYBOX
from testbed.building.requirements import obstacle
from testbed.cluster import bring_down, bring_up, build_first
from testbed.control.api import Api
from testbed.faults import Faults
from testbed.machine.processes import Processes
from testbed.settings import Settings
from testbed.suite import SECONDS
from tests.cluster.live.kube import Kube

Measured = Callable[[str, float], None]
"""Notes a time in seconds under a name; all are shown at the end of the suite."""

Say = Callable[[str], None]
"""Shows a line at once, although pytest keeps what tests print."""

Require = Callable[[str], None]
"""Skips the test on a cluster without the kind of a CRD, for which it waits where that is still to come.

A test bed on which its controller runs must have it."""

_CONTROLLERS = {
    "workflows.argoproj.io": "argo",
    "jobsets.jobset.x-k8s.io": "jobset",
    "trainjobs.trainer.kubeflow.org": "trainer",
    "clusterqueues.kueue.x-k8s.io": "kueue",
    "nodepools.karpenter.sh": "karpenter",
    "experiments.kubeflow.org": "katib",
    "trials.kubeflow.org": "katib",
}
_TIMES = pytest.StashKey[dict[str, float]]()
_UNTIL = pytest.StashKey[float]()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that would start after CI's time for tests on a cluster."""
    seconds = float(os.environ.get(SECONDS) or math.inf)
    until = item.session.stash.setdefault(_UNTIL, time.monotonic() + seconds)
    if item.get_closest_marker("cluster") and time.monotonic() >= until:
        pytest.skip("the time of CI for tests on a cluster is over")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show the measurements of the tests."""
    times = config.stash.get(_TIMES, {})
    if times:
        terminalreporter.section("seconds measured on the cluster")
        for name, seconds in times.items():
            terminalreporter.write_line(f"{seconds:7.1f}  {name}")


@pytest.fixture
def measured(pytestconfig: pytest.Config) -> Measured:
    """Notes a time for the end of the suite."""
    times = pytestconfig.stash.setdefault(_TIMES, {})

    def note(name: str, seconds: float) -> None:
        times[name] = seconds

    return note


@pytest.fixture(scope="session")
def external() -> bool:
    """Whether the tests run on a cluster that is not the test bed."""
    return os.environ.get("SPOTWRIGHT_CLUSTER") == "external"


@pytest.fixture(scope="session")
def say(pytestconfig: pytest.Config) -> Say:
    """Shows a line at once, although pytest keeps what tests print."""
    capture: CaptureManager = pytestconfig.pluginmanager.getplugin("capturemanager")

    def show(line: str) -> None:
        with capture.global_and_fixture_disabled():
            sys.stdout.write(f"\n{line}\n")
            sys.stdout.flush()

    return show


@pytest.fixture(scope="session")
def bed(external: bool, say: Say) -> Iterator[Settings]:
    """The settings of a test bed that is up. Tests that ask for it are skipped on other clusters."""
    if external:
        pytest.skip("nodes of an external cluster cannot be ended from here")
    settings = Settings.from_environment()
    if reason := obstacle(building=bool(Cache(settings.cache).missing(()))):
        pytest.skip(reason)
    if is_up(settings):
        running = tuple(name for name in Processes(settings).names() if name in _CONTROLLERS.values())
        to_come = tuple(name for name in builder.coming(settings) if name in _CONTROLLERS.values())
        yield dataclasses.replace(settings, controllers=running + to_come)
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # pytest then tears down, as after Ctrl-C
    try:
        bring_up(settings, say, build_first(settings, say))
        yield settings
    finally:
        bring_down(settings)
        signal.signal(signal.SIGTERM, before)


def is_up(settings: Settings) -> bool:
    """Whether a test bed of this name serves its API."""
    return settings.kubeconfig.exists() and Api(settings).ready()


@pytest.fixture(scope="session")
def kube(external: bool, say: Say, request: pytest.FixtureRequest) -> Kube:
    """The cluster: the test bed, or the one that KUBECONFIG names."""
    if not external:
        return kube_of(request.getfixturevalue("bed"), say)
    program, kubeconfig = shutil.which("kubectl"), os.environ.get("KUBECONFIG")
    assert program, "SPOTWRIGHT_CLUSTER=external needs kubectl on the PATH"
    assert kubeconfig, "SPOTWRIGHT_CLUSTER=external needs KUBECONFIG"
    return Kube(Path(program), Path(kubeconfig), os.environ.get("SPOTWRIGHT_CLUSTER_IMAGE", "busybox"))


def kube_of(settings: Settings, say: Say) -> Kube:
    """A test bed as tests use it."""

    def awaited(part: str) -> str:
        return builder.wait_for(settings, _CONTROLLERS.get(part, part), say)

    return Kube(Api(settings).kubectl_path, settings.kubeconfig, BUSYBOX, awaited)


@pytest.fixture
def require(kube: Kube, external: bool, request: pytest.FixtureRequest) -> Require:
    """Waits for a kind that is still to come, and skips without one that the cluster need not have."""

    def check(crd: str) -> None:
        if reason := kube.lacks(crd):
            runs = not external and Processes(request.getfixturevalue("bed")).pid(_CONTROLLERS[crd]) is not None
            if not runs:
                pytest.skip(reason)

    return check


@pytest.fixture
def namespace(kube: Kube) -> Iterator[str]:
    """A namespace of the test's own, removed with all that is in it."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    kube.run("create", "namespace", name)
    kube.wait(lambda: kube.get("serviceaccount", "default", name), "the namespace's service account", 60)
    yield name
    kube.run("delete", "namespace", name, "--wait=false", "--ignore-not-found")


@pytest.fixture
def faults(bed: Settings) -> Iterator[Faults]:
    """Faults of nodes, which are undone after the test."""
    faults = Faults(bed)
    yield faults
    for number in bed.numbers:
        faults.restore(number)
