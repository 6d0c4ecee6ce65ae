"""On the test bed: behind its cut network, a given-up node and its pod run on, but the pod's saves no longer count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from testbed.faults import Faults
from testbed.settings import Settings
from tests.cluster.live.admission.claimed_folders import POOLS, claimed_folder
from tests.cluster.live.controllers import Controller, controller
from tests.cluster.live.kube import Kube, has_condition, job, pod_spec
from tests.cluster.reading import on_the_bed

from spotwright.checkpoint import Checkpoint

pytestmark = pytest.mark.cluster

SOON = 240.0  # seconds, on a busy machine
GIVEN_UP = "node.kubernetes.io/out-of-service"
POLICY = {"spot": "prefer", "checkpoint": "pvc://saves", "interruptions": {"max": 3}}
CONFIGURATION = {"version": 1, "target": {"kubernetes": "1.35"}, "pools": POOLS, "policy": {"default": POLICY}}
COUNT = """
import os, pathlib, time
from spotwright.checkpoint import Checkpoint, StaleWriter
mine = "/outside/" + os.environ["SPOTWRIGHT_ATTEMPT"]
ckpt = Checkpoint(program="count/1", every=0.2)
state = ckpt.load(default={"sum": 0})
pathlib.Path(mine + ".begins").write_text(str(ckpt.step))
try:
    for step in ckpt.steps(ckpt.step + 10 if ckpt.step else 10**6):
        time.sleep(0.5)
        state["sum"] += step
        ckpt.step_done(state)
except StaleWriter as refused:
    pathlib.Path(mine + ".refused").write_text(str(refused))
    time.sleep(3600)
"""


@pytest.fixture
def leader(bed: Settings, kube: Kube, tmp_path: Path, namespace: str) -> Iterator[Controller]:
    with controller(kube, bed, tmp_path, yaml.safe_dump(CONFIGURATION), "--log-limit", "0") as made:
        made.enable(namespace)
        yield made


@pytest.fixture
def folders(kube: Kube, namespace: str, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """The folder of the checkpoints, and one in which each attempt logs what it saw."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o777)
    with claimed_folder(kube, namespace, tmp_path / "saves") as saves:
        yield saves, outside


def test_a_pod_that_comes_back_from_the_dead_cannot_save_and_the_successor_goes_on_undisturbed(
    kube: Kube, faults: Faults, leader: Controller, folders: tuple[Path, Path], namespace: str
) -> None:
    saves, outside = folders
    ours = on_the_bed.with_our_code(
        {"name": "main", "command": on_the_bed.python("-c", f"'{COUNT}'")},
        outside={"hostPath": {"path": str(outside)}},
    )
    count = job("count", namespace, {**pod_spec({}), **ours})
    del count["spec"]["backoffLimit"]
    kube.apply(count)
    kube.wait(lambda: list(saves.rglob("state-*")), "the first attempt has saved", SOON)
    (first,) = kube.list("pods", namespace)
    node = first["spec"]["nodeName"]
    number = int(node.removeprefix("n"))
    faults.unplug(number)
    try:
        kube.wait(
            lambda: "deletionTimestamp" in kube.pod(first["metadata"]["name"], namespace)["metadata"],
            "it is marked",
            SOON,
        )
        kube.run("taint", "nodes", node, f"{GIVEN_UP}=nodeshutdown:NoExecute")
        kube.wait(lambda: has_condition(kube.get("job", "count", namespace), "Complete"), "the successor is done", SOON)
        kube.wait((outside / "1.refused").exists, "the save of the first attempt is refused", SOON)
    finally:
        faults.plug(number)
        kube.run("taint", "nodes", node, f"{GIVEN_UP}-")
    began = int((outside / "2.begins").read_text())
    assert began > 0
    assert not (outside / "2.refused").exists()
    (place,) = {entry.parent for entry in saves.rglob("entry-*")}
    ckpt = Checkpoint(place, program="count/1")
    state = ckpt.load(default={"sum": -1})
    assert (ckpt.step, state["sum"]) == (began + 10, sum(range(began + 10)))
    kube.wait(lambda: leader.has_ended("count"), "the end is recorded", SOON)
    assert len(leader.attempts("count")) == 2
