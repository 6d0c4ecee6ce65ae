"""On the test bed: a workload that survives an event without Spotwright survives it with Spotwright, and no later.

Each event strikes the same workloads in three namespaces at once: as their users wrote them, placed by ``spotwright place`` on
the file, and under the controller. They share the struck node, so the only difference is Spotwright.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from testbed.faults import Faults
from testbed.settings import Settings
from tests.cluster.live.admission.claimed_folders import claimed_folder
from tests.cluster.live.controllers import Controller, configuration, controller
from tests.cluster.live.kube import Kube, Object
from tests.cluster.live.no_harm.conftest import Compared
from tests.cluster.live.no_harm.workloads_of_users import (
    GANGS,
    KINDS,
    SINGLE,
    WORK,
    Outcome,
    Program,
    make,
    outcomes,
    pods_of,
)

pytestmark = pytest.mark.cluster

NOTHING, FILE, CONTROLLER = "without Spotwright", "placed file", "controller"
WAYS = (NOTHING, FILE, CONTROLLER)
STRUCK, OTHER, ON_DEMAND = 2, 3, 1
STARTS = 180.0  # seconds until pods run
ENDS = 420.0  # seconds until a workload has ended after an event
SILENCE = 150.0  # seconds of a node that says nothing and comes back
SLACK = 30.0  # seconds that a workload may end later than without Spotwright: pods of three namespaces start one after another


class Scene(NamedTuple):
    """The target of an event: the namespaces by the way in which their workloads run, and the faults of nodes."""

    kube: Kube
    faults: Faults
    leader: Controller
    namespaces: Mapping[str, str]
    kinds: tuple[str, ...]

    def struck(self) -> list[Object]:
        """The pods on the node that is struck."""
        pods = [pod for namespace in self.namespaces.values() for pod in self.kube.list("pods", namespace)]
        return [pod for pod in pods if pod["spec"].get("nodeName") == f"n{STRUCK}"]


def drain(scene: Scene) -> None:
    scene.faults.drain(STRUCK)


def cut(scene: Scene) -> None:
    """The machine goes for good; the cloud's controller deletes its Node object after Kubernetes has noticed the loss."""
    scene.faults.cut_power(STRUCK)
    scene.kube.wait(partial(given_up, scene), "Kubernetes has given up the pods", 90)
    scene.faults.delete(STRUCK)


def given_up(scene: Scene) -> bool:
    return all("deletionTimestamp" in pod["metadata"] for pod in scene.struck())


def reboot(scene: Scene) -> None:
    scene.faults.cut_power(STRUCK)
    scene.faults.restore(STRUCK)


def reboot_anew(scene: Scene) -> None:
    """The Node object is deleted between the power cut and the boot."""
    scene.faults.cut_power(STRUCK)
    scene.faults.delete(STRUCK)
    scene.faults.restore(STRUCK)


def silence(scene: Scene) -> None:
    """The machine is silent for minutes, its Node object stays, and then it boots."""
    scene.faults.cut_power(STRUCK)
    time.sleep(SILENCE)
    scene.faults.restore(STRUCK)


def delete_node(scene: Scene) -> None:
    scene.faults.delete(STRUCK)


def evict(scene: Scene) -> None:
    at_once(partial(evict_pod, scene.kube), scene.struck())


def evict_pod(kube: Kube, pod: Object) -> None:
    meta = {key: pod["metadata"][key] for key in ("name", "namespace")}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
    kube.run("create", "--raw", path, "-f", "-", text=json.dumps(body))


def at_once(do: Callable[[Any], object], all_of: Iterable[Any]) -> None:
    """Do something to each, so that no namespace is struck long before another."""
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(do, each) for each in all_of]:
            done.result()


def suspend(scene: Scene) -> None:
    resources = {"job": "job", "job-gang": "job", "jobset": "jobset", "trainjob": "trainjob", "workflow": "workflow"}
    for suspended in (True, False):
        patch = json.dumps({"spec": {"suspend": suspended}})
        objects = [(resources[kind], kind, "-n", name) for kind in scene.kinds for name in scene.namespaces.values()]
        commands = [("patch", *each, "--type=merge", "-p", patch) for each in objects]
        at_once(lambda command: scene.kube.run(*command), commands)
        time.sleep(10 if suspended else 0)


def cut_while_away(scene: Scene) -> None:
    """The controller does not answer from before the loss until half a minute after it."""
    with stopped(scene.leader):
        cut(scene)
        time.sleep(30)


def nothing(scene: Scene) -> None:
    """The event is the error of the code itself."""


@contextmanager
def stopped(leader: Controller) -> Iterator[None]:
    """Let both processes of the controller stand still while the block runs."""
    for pid in leader.pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in leader.pids:
            os.kill(pid, signal.SIGCONT)


EVENTS: dict[str, Callable[[Scene], object]] = {
    "drain": drain,
    "power cut": cut,
    "reboot": reboot,
    "reboot, Node object deleted": reboot_anew,
    "silent for minutes": silence,
    "Node object deleted": delete_node,
    "eviction": evict,
    "suspension": suspend,
    "power cut, controller away": cut_while_away,
    "two errors that a third try mends": nothing,
}


@pytest.fixture(scope="module")
def leader(kube: Kube, bed: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    """One controller for all events."""
    with controller(kube, bed, tmp_path_factory.mktemp("no-harm"), configuration("10m")) as made:
        yield made


@pytest.fixture
def namespaces(kube: Kube, leader: Controller, tmp_path: Path) -> Iterator[dict[str, str]]:
    """A namespace for each way, with a folder that all its pods share."""
    with ExitStack() as stack:
        made = {way: f"harm-{uuid.uuid4().hex[:8]}" for way in WAYS}
        for way, name in made.items():
            kube.run("create", "namespace", name)
            stack.callback(kube.run, "delete", "namespace", name, "--wait=false", "--ignore-not-found")
            kube.wait(partial(kube.get, "serviceaccount", "default", name), "the service account", 60)
            stack.enter_context(claimed_folder(kube, name, tmp_path / name))
            if way == CONTROLLER:
                leader.enable(name)
        yield made


@pytest.mark.parametrize("event", EVENTS)
def test_what_ends_well_without_spotwright_ends_well_with_it(
    kube: Kube,
    faults: Faults,
    leader: Controller,
    namespaces: dict[str, str],
    tmp_path: Path,
    compared: Compared,
    event: str,
) -> None:
    kinds = start(kube, namespaces, Program(errors=2 if EVENTS[event] is nothing else 0), tmp_path)
    scene = Scene(kube, faults, leader, namespaces, kinds)
    for namespace in namespaces.values():
        (tmp_path / namespace / "go").touch()
    began = time.monotonic()
    ends = follow(scene, began, EVENTS[event])
    for (way, kind), result in ends.items():
        compared(event, kind, way, result)
    worse = [
        f"{kind}, {way}: {ends[way, kind]}; {NOTHING}: {ends[NOTHING, kind]}"
        for kind in kinds
        for way in (FILE, CONTROLLER)
        if is_worse(kind, ends[way, kind], ends[NOTHING, kind], SLACK + (WORK if waits(way, EVENTS[event]) else 0))
    ]
    assert not worse, "\n".join([event, *worse])


def waits(way: str, event: Callable[[Scene], object]) -> bool:
    """Whether Kubernetes is not told that pods on a silent node failed, so that their successors wait for its collector."""
    return way == FILE or (way == CONTROLLER and event is cut_while_away)


def is_worse(kind: str, ours: Outcome, alone: Outcome, slack: float) -> bool:
    """Whether a workload failed, hung or ended later than by ``slack`` seconds, although it ended well without Spotwright.

    The time of a Workflow does not count: Argo 3.7.3 waits minutes for the WorkflowTaskResult of a pod whose node restarted,
    or none at all, however it runs.
    """
    is_late = kind != "workflow" and ours.seconds > alone.seconds + slack
    return bool(alone.well) and (not ours.well or is_late)


def start(kube: Kube, namespaces: Mapping[str, str], program: Program, folder: Path) -> tuple[str, ...]:
    """Create the workloads, and wait until those of one pod run on the node to be struck and each gang on both spot nodes."""
    kube.run("cordon", f"n{ON_DEMAND}")
    kube.run("cordon", f"n{OTHER}")
    started: list[str] = []
    try:
        for kinds in (SINGLE, GANGS):
            for kind in kinds:
                for way, namespace in namespaces.items():
                    objects = make(kube, kind, namespace, program)
                    kube.apply(*(placed(objects, folder) if way == FILE else objects))
                    started += [kind] if objects and kind not in started else []
            if kinds == SINGLE and not program.errors:
                for namespace in namespaces.values():
                    for kind in started:
                        kube.wait(partial(runs, kube, kind, namespace), f"the {kind} runs", STARTS)
            kube.run("uncordon", f"n{OTHER}")
        if not program.errors:
            for namespace in namespaces.values():
                for kind in started:
                    kube.wait(partial(runs, kube, kind, namespace), f"the {kind} runs", STARTS)
    finally:
        kube.run("uncordon", f"n{ON_DEMAND}")
        kube.run("uncordon", f"n{OTHER}")
    return tuple(kind for kind in KINDS if kind in started)


def runs(kube: Kube, kind: str, namespace: str) -> bool:
    pods = pods_of(kube, kind, namespace)
    phases = [pod["status"].get("phase") for pod in pods]
    return phases == ["Running"] * (2 if kind in GANGS else 1)


def placed(objects: list[Object], folder: Path) -> list[Object]:
    """The objects as the command writes them."""
    target = yaml.safe_dump({"target": {"kubernetes": "1.35", "trainer": "2.2", "argo": "3.7"}})
    (folder / "spotwright.yaml").write_text(configuration("10m") + target, encoding="utf-8")
    file = folder / f"{uuid.uuid4().hex}.yaml"
    file.write_text(yaml.safe_dump_all(objects, sort_keys=False), encoding="utf-8")
    command = [sys.executable, "-m", "spotwright", "place", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def follow(scene: Scene, began: float, event: Callable[[Scene], object]) -> dict[tuple[str, str], Outcome]:
    """Let the event happen, and follow every workload to its end."""
    cells = [(way, kind) for way in scene.namespaces for kind in scene.kinds]
    ends: dict[tuple[str, str], Outcome] = {}
    seen: dict[tuple[str, str], set[str]] = {cell: set() for cell in cells}
    with ThreadPoolExecutor(1) as beside:
        happening = beside.submit(event, scene)
        while len(ends) < len(cells) and time.monotonic() < began + ENDS:
            for way, namespace in scene.namespaces.items():
                for kind, (now, pods) in outcomes(scene.kube, scene.kinds, namespace, began).items():
                    seen[way, kind] |= pods
                    if now.well is not None:
                        ends.setdefault((way, kind), now._replace(pods=len(seen[way, kind])))
            time.sleep(2)
        happening.result()
    hangs = {cell: Outcome(None, time.monotonic() - began, len(seen[cell])) for cell in cells}
    return {**hangs, **ends}
