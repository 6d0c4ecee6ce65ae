"""The real Helm installs the chart on the test bed with the image of `make image`, upgrades it under load, and takes it out."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed.settings import Settings
from tests.cluster.chart.rendered import CHART, PROCESSES, Helm
from tests.cluster.conftest import Measured
from tests.cluster.live.chart.releases import RESTRICTED, SOON, helm_with_image
from tests.cluster.live.controllers import configuration
from tests.cluster.live.kube import Kube, Object, job, pod_spec

from spotwright.cluster.api_client import Api, ApiFailed, connect, find_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.cluster_ci]

USER = 65532
RATE = 50  # pods a second
OURS = (
    "clusterrole,clusterrolebinding,role,rolebinding,serviceaccount,configmap,service,deployment,lease,networkpolicy,"
    "resourcequota,flowschema,mutatingwebhookconfiguration,persistentvolumeclaim,pod,secret"
)


@pytest.fixture(scope="module")
def helm(kube: Kube, bed: Settings) -> Helm:
    """Helm with the cluster, on whose first node the image is."""
    return helm_with_image(kube, "n1")


class Release:
    """A release in a separate namespace, which serves one team."""

    def __init__(self, helm: Helm, kube: Kube, home: str, team: str) -> None:
        self.helm, self.kube, self.home, self.team = helm, kube, home, team

    def run(self, *command: str, note: str = "", keep: bool = True) -> str:
        """The output of a Helm command for this release. ``note`` changes the pod's template."""
        common = ["-n", self.home, f"--timeout={SOON:.0f}s"]
        if command[0] not in ("install", "upgrade"):
            return self.helm.run(command[0], "spotwright", *command[1:], *common)
        given = {
            "namespaces": [self.team],
            "config": configuration("10m"),
            "nodeSelector": {"kubernetes.io/hostname": "n1"},
            "podAnnotations": {"note": note},
            "logs": {"volume": {"size": "20Gi", "keep": keep}},
        }
        return self.helm.run(command[0], "spotwright", str(CHART), *command[1:], *common, values=given)

    def left(self) -> set[str]:
        """All objects of the release, in the whole cluster."""
        selector = "app.kubernetes.io/part-of=spotwright,app.kubernetes.io/instance=spotwright"
        text = self.kube.run("get", OURS, "-A", "-l", selector, "--no-headers", "-o", "name")
        return set(text.split())


@pytest.fixture
def release(helm: Helm, kube: Kube, namespace: str, tmp_path: Path) -> Iterator[Release]:
    """A release that is not installed yet, with a volume for its claim; it leaves nothing behind."""
    home = f"spotwright-{uuid.uuid4().hex[:6]}"
    os.chown(tmp_path, USER, USER)
    spec = {
        "capacity": {"storage": "20Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": str(tmp_path)},
        "claimRef": {"namespace": home, "name": "spotwright-logs"},
    }
    kube.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": home, "labels": RESTRICTED}},
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": home}, "spec": spec},
    )
    made = Release(helm, kube, home, namespace)
    try:
        yield made
    finally:
        helm.run("uninstall", "spotwright", "-n", home, "--ignore-not-found")
        kube.run("delete", "namespace", home, "--ignore-not-found", "--wait=false")
        kube.run("delete", "persistentvolume", home, "--ignore-not-found", "--wait=false")


def is_placed(made: Object | None) -> bool:
    return made is not None and "spotwright.dev/admitted" in made["metadata"].get("annotations", {})


def test_from_one_command_to_the_first_placed_job_and_out_again(
    kube: Kube, release: Release, measured: Measured
) -> None:
    began = time.monotonic()
    release.run("install")
    number = iter(range(1000))

    def first() -> Object | None:
        name = f"first-{next(number)}"
        kube.apply(job(name, release.team, pod_spec(kube.container("sleep 600"))))
        made = kube.get("job", name, release.team)
        return made if is_placed(made) else None

    placed = kube.wait(first, "a Job is placed", SOON)
    measured("from helm install to the first placed Job", time.monotonic() - began)
    said = release.run("test", "--logs")
    assert f"{release.team}: a pod that is created there is placed" in said
    kube.wait(lambda: runs(kube, release.team, placed), "its pod runs", SOON)

    for process in PROCESSES:
        log = kube.run("logs", f"deployment/spotwright-{process}", "-n", release.home)
        assert not [line for line in log.splitlines() if "answers 403" in line or "orbidden" in line]

    release.run("uninstall", "--wait")
    kube.wait(lambda: release.left() <= {"persistentvolumeclaim/spotwright-logs"}, "it is taken out", SOON)
    assert runs(kube, release.team, placed)
    assert kube.get("namespace", release.home) is not None
    assert kube.get("persistentvolumeclaim", "spotwright-logs", release.home) is not None

    release.run("install", "--wait", keep=False)  # it takes the claim that was kept over
    release.run("uninstall", "--wait")
    kube.wait(lambda: release.left() == set(), "nothing is left", SOON)


def runs(kube: Kube, team: str, made: Object) -> bool:
    pods = kube.list("pods", team, f"job-name={made['metadata']['name']}")
    return [pod["status"].get("phase") for pod in pods] == ["Running"]


class Load(threading.Thread):
    """Creates pods by dry run, so many a second, until it is stopped: API servers ask the webhook about each."""

    def __init__(self, kubeconfig: Path, team: str) -> None:
        super().__init__(name="load")
        self._kubeconfig, self._team = str(kubeconfig), team
        self._is_over = threading.Event()
        self.admitted, self.failed = 0, 0
        self.unplaced: list[float] = []  # when each pod was created that stayed as it was, in seconds
        self.began = time.monotonic()

    def run(self) -> None:
        asyncio.run(self._run())

    def end(self) -> None:
        """Stop, and wait for the last answers."""
        self._is_over.set()
        self.join()

    @property
    def rate(self) -> float:
        """Pods a second that were admitted."""
        return (self.admitted + len(self.unplaced)) / (time.monotonic() - self.began)

    async def _run(self) -> None:
        api = Api(connect(find_cluster(None, kubeconfig=self._kubeconfig), many_streams=True))
        asked: set[asyncio.Task[None]] = set()
        began = time.monotonic()
        for number in range(10**9):
            if self._is_over.is_set():
                break
            task = asyncio.create_task(self._create(api))
            asked.add(task)
            task.add_done_callback(asked.discard)
            await asyncio.sleep(max(0.0, began + (number + 1) / RATE - time.monotonic()))
            if len(asked) > 4 * RATE:  # the machine does not keep up: fewer a second, not more at once
                await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*asked)
        await api.close()

    async def _create(self, api: Api) -> None:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "load-", "labels": {"spotwright.dev/spot": "prefer"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]},
        }
        try:
            made = await api.send("POST", f"/api/v1/namespaces/{self._team}/pods?dryRun=All", pod)
        except ApiFailed:
            self.failed += 1
            return
        if is_placed(made):
            self.admitted += 1
        else:
            self.unplaced.append(time.monotonic() - self.began)


def test_no_pod_is_unplaced_while_the_release_is_upgraded_and_rolled_back(
    kube: Kube, release: Release, measured: Measured
) -> None:
    release.run("install", "--wait", note="one")
    kube.wait(lambda: "is placed" in release.run("test", "--logs"), "pods are placed", SOON)
    load = Load(kube.kubeconfig, release.team)
    load.start()
    marks = []
    try:
        time.sleep(5)
        for command in (("upgrade", "two"), ("rollback", ""), ("upgrade", "three")):
            began = time.monotonic()
            release.run(command[0], "--wait", note=command[1])
            marks.append((command[0], round(began - load.began, 1), round(time.monotonic() - load.began, 1)))
            time.sleep(12)  # the pod before ends after its preStop
    finally:
        load.end()
    measured("pods a second that were admitted during upgrades", load.rate)
    seconds = Counter(int(at) for at in load.unplaced)  # by the second in which they were created
    assert (seconds, load.failed) == (Counter(), 0), (marks, load.admitted)
    assert load.admitted > 100
