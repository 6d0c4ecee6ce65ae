"""A release of the chart with two replicas on two nodes, which serves two teams."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.cluster.chart.rendered import CHART, PROCESSES, Helm
from tests.cluster.live.chart.releases import RESTRICTED, SOON
from tests.cluster.live.chart.two_teams import config
from tests.cluster.live.kube import Kube, Object

__all__ = ["RELEASE", "TeamsRelease", "installed", "new_home"]

_TRACEBACK = 40  # lines of a log from an error on
RELEASE = "app.kubernetes.io/part-of=spotwright,app.kubernetes.io/instance=spotwright"
"""The labels of all its objects."""


class TeamsRelease:
    """A release with two replicas on two nodes, without a volume, which serves two teams."""

    def __init__(self, helm: Helm, kube: Kube, home: str, teams: tuple[str, str]) -> None:
        self._helm, self._kube, self.home, self.teams = helm, kube, home, teams

    def run(self, command: str, *, verbose: bool = False, **more: Any) -> None:
        """Install or upgrade it, with more values; an upgrade does not wait for its pods."""
        values = {
            "namespaces": list(self.teams),
            "config": config(),
            "replicas": 2,
            "controller": {"verbose": verbose},
        }
        waits = ["--wait", f"--timeout={SOON:.0f}s"] if command == "install" else []
        self._helm.run(command, "spotwright", str(CHART), "-n", self.home, *waits, values=values | more)

    def roll_back(self) -> None:
        """Go back to the revision before, without waiting for its pods."""
        self._helm.run("rollback", "spotwright", "-n", self.home)

    def wait_until_rolled_out(self) -> None:
        """Wait until the pods of both processes belong to the newest revision."""
        for process in PROCESSES:
            command = ("rollout", "status", f"deployment/spotwright-{process}", "-n", self.home)
            self._kube.run(*command, f"--timeout={SOON:.0f}s")

    def uninstall(self) -> None:
        self._helm.run("uninstall", "spotwright", "-n", self.home, "--ignore-not-found", "--wait")

    def pods(self, process: str) -> list[Object]:
        """The pods of a process that are not going."""
        pods = self._kube.list("pods", self.home, f"app.kubernetes.io/component={process}")
        return [each for each in pods if "deletionTimestamp" not in each["metadata"]]

    def errors(self, process: str) -> list[str]:
        """The errors in the logs of a process's pods."""
        names = [each["metadata"]["name"] for each in self.pods(process)]
        lines = [line for name in names for line in self._kube.run("logs", name, "-n", self.home).splitlines()]
        begun = [number for number, line in enumerate(lines) if " ERROR " in line]
        return [each for number in begun for each in lines[number : number + _TRACEBACK]]

    def leader(self) -> str:
        """The identity of the recorder that records; it begins with the name of its pod."""
        (lease,) = self._kube.list("leases", self.home)
        return str(lease["spec"]["holderIdentity"])

    def leading_pod(self) -> Object:
        """The pod that records."""
        leader = self.leader()
        (pod,) = [each for each in self.pods("recorder") if leader.startswith(each["metadata"]["name"])]
        return pod

    def left(self) -> list[str]:
        """All objects with the labels of the release, and the other objects in its namespace."""
        kinds = ",".join(self._kube.run("api-resources", "--verbs=list", "-o", "name").split())
        labelled = self._kube.run("get", kinds, "-A", "-l", RELEASE, "-o", "name", "--ignore-not-found").split()
        quiet = ("event", "pod.metrics", "configmap/kube-root-ca.crt", "serviceaccount/default")
        here = self._kube.run("get", kinds, "-n", self.home, "-o", "name", "--ignore-not-found").split()
        namespaced = set(self._kube.run("api-resources", "--verbs=list", "--namespaced", "-o", "name").split())
        inside = [each for each in here if _plural(each) in namespaced and not each.startswith(quiet)]
        return sorted({*labelled, *inside})


def _plural(name: str) -> str:
    """The resource of an object that kubectl names: ``role.rbac.authorization.k8s.io/x``."""
    kind, dot, group = name.partition("/")[0].partition(".")
    return f"{kind}{'es' if kind.endswith(('s', 'y')) else 's'}{dot}{group}"


@contextmanager
def new_home(kube: Kube) -> Iterator[str]:
    """A namespace for a release, which enforces `restricted`."""
    home = f"spotwright-{uuid.uuid4().hex[:6]}"
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": home, "labels": RESTRICTED}})
    try:
        yield home
    finally:
        kube.run("delete", "namespace", home, "--ignore-not-found", "--wait=false")


@contextmanager
def installed(helm: Helm, kube: Kube, home: str, teams: tuple[str, str], **values: Any) -> Iterator[TeamsRelease]:
    """The release in its namespace, with more values, while the block runs."""
    made = TeamsRelease(helm, kube, home, teams)
    try:
        made.run("install", **values)
        yield made
    finally:
        made.uninstall()
