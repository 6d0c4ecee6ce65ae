"""On the test bed: a gang loses a node, and all its pods start again on one rung and go on from their checkpoint."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from testbed.faults import Faults
from testbed.settings import Settings
from tests.cluster.conftest import Measured, Require
from tests.cluster.live.admission.claimed_folders import POOLS, claimed_folder
from tests.cluster.live.controllers import Controller, controller
from tests.cluster.live.kube import Kube, Object, has_condition, pod_spec
from tests.cluster.live.test_workloads import training_runtime

from spotwright.model.attempts import Cause

pytestmark = pytest.mark.cluster

STARTS = 180.0  # seconds until pods run, on a busy machine
FOLLOWED = 300.0  # seconds until a lost node, its pods and the next ones are through
CONFIGURATION = {
    "version": 1,
    "target": {"kubernetes": "1.35", "trainer": "2.1"},
    "pools": POOLS,
    "policy": {
        "default": {"spot": "prefer", "checkpoint": "pvc://saves", "fall_back_after": 1, "interruptions": {"max": 3}}
    },
}
SAVE = """\
mine="$SPOTWRIGHT_CHECKPOINT/step-$JOB_COMPLETION_INDEX"
step=$(cat "$mine" 2>/dev/null || echo 0)
echo "begins at step $step"
if [ "$step" -ge 5 ]; then exit 0; fi
echo 5 >"$mine"
sleep 3600
"""
CRDS = {"JobSet": "jobsets.jobset.x-k8s.io", "TrainJob": "trainjobs.trainer.kubeflow.org"}
DONE = {"JobSet": "Completed", "TrainJob": "Complete"}


@pytest.fixture
def leader(bed: Settings, kube: Kube, tmp_path: Path, namespace: str) -> Iterator[Controller]:
    with controller(kube, bed, tmp_path, yaml.safe_dump(CONFIGURATION)) as made:
        made.enable(namespace)
        yield made


@pytest.fixture
def saves(kube: Kube, namespace: str, tmp_path: Path) -> Iterator[Path]:
    """A folder that all nodes see, as the volume of the claim ``saves``."""
    with claimed_folder(kube, namespace, tmp_path / "saves") as folder:
        yield folder


def a_gang(kube: Kube, kind: str, namespace: str) -> list[Object]:
    """A gang of two pods, and the runtime that a TrainJob needs."""
    meta = {"name": "gang", "namespace": namespace}
    if kind == "TrainJob":
        runtime = training_runtime(kube, namespace, SAVE)
        spec: Object = {"runtimeRef": {"name": "plain", "kind": "TrainingRuntime"}, "trainer": {"numNodes": 2}}
        return [
            runtime,
            {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": meta, "spec": spec},
        ]
    spec = {"completions": 2, "parallelism": 2, "template": {"spec": pod_spec(kube.container(SAVE))}}
    jobs = [{"name": "workers", "template": {"spec": spec}}]
    return [
        {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta, "spec": {"replicatedJobs": jobs}}
    ]


@pytest.mark.parametrize("kind", CRDS)
def test_a_gang_that_loses_a_node_goes_on_whole_on_the_next_rung_at_its_saved_step(
    kube: Kube,
    faults: Faults,
    leader: Controller,
    saves: Path,
    namespace: str,
    require: Require,
    measured: Measured,
    kind: str,
) -> None:
    require(CRDS[kind])
    for made in a_gang(kube, kind, namespace):
        kube.apply(made)
    first = kube.wait(lambda: running(kube, namespace, "0"), "both pods run", STARTS)
    assert {rung(each) for each in first} == {"spot"}
    kube.wait(lambda: len(list(saves.rglob("step-*"))) == 2, "both pods have saved", 60)
    node = int(first[0]["spec"]["nodeName"].removeprefix("n"))
    faults.cut_power(node)
    faults.delete(node)  # the word of the provider
    cut = time.monotonic()
    second = kube.wait(lambda: created(kube, namespace, "1"), "the set has restarted", FOLLOWED)
    measured(
        f"{kind} of two pods, from a power cut with its Node object deleted until both are made again",
        time.monotonic() - cut,
    )
    kube.wait(lambda: has_condition(kube.get(kind, "gang", namespace), DONE[kind]), "it has completed", FOLLOWED)
    assert {rung(each) for each in second} == {"system"}
    whys = {each["metadata"]["annotations"]["spotwright.dev/why"] for each in second}
    assert whys == {"interruption 1 of 3: falls back to system"}
    kube.wait(lambda: leader.has_ended("gang"), "its end is recorded", 60)
    run = leader.run("gang")
    assert run is not None
    causes = [[attempt.cause for attempt in task.attempts] for task in run.tasks.values()]
    assert [each[1:] for each in causes] == [[Cause.SUCCEEDED]] * 2, causes
    assert {each[0] for each in causes} & {Cause.LOST, Cause.INTERRUPTED}, causes
    logs = [kube.run("logs", "-n", namespace, each["metadata"]["name"], "-c", container(each)) for each in second]
    assert logs == ["begins at step 5\n"] * 2


def of_restart(kube: Kube, namespace: str, restart: str) -> list[Object]:
    """The pods of one restart of the set."""
    pods = kube.list("pods", namespace, "jobset.sigs.k8s.io/jobset-name=gang")
    return [each for each in pods if each["metadata"]["labels"].get("jobset.sigs.k8s.io/restart-attempt") == restart]


def running(kube: Kube, namespace: str, restart: str) -> list[Object] | None:
    pods = of_restart(kube, namespace, restart)
    return pods if [each["status"].get("phase") for each in pods] == ["Running"] * 2 else None


def created(kube: Kube, namespace: str, restart: str) -> list[Object] | None:
    pods = of_restart(kube, namespace, restart)
    return pods if len(pods) == 2 else None


def rung(made: Object) -> str:
    return str(made["metadata"]["annotations"]["spotwright.dev/rung"])


def container(made: Object) -> str:
    return str(made["spec"]["containers"][0]["name"])
