"""A training step runs in a stock Python image as a Job, a TrainJob and an Argo step, as ``place`` writes them.

The pod is put together as the kubelet does it: variables from values and fields, ``$(NAME)`` expanded, a ConfigMap as a folder.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.stock_image import StockImage
from tests.placing.placed import Outcome, at_path, place

pytestmark = pytest.mark.slow

STEP = """
from spotwright.checkpoint import Checkpoint, notice, progress

ckpt = Checkpoint()
state = ckpt.load(default={"total": 0})
print("begins at", ckpt.step)
for step in ckpt.steps(4):
    state["total"] += step
    progress(step / 4)
    ckpt.step_done(state)
    if step == 1 and state["total"] == 1 and notice() is None and PODS == 1:
        ckpt.save(state)
        raise SystemExit(143)
print("total", state["total"])
"""
POLICY = "{default: {spot: prefer, checkpoint: 'VOLUME'}}"
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      containers:
      - {name: main, image: "python:3.11"}
"""
TRAINJOB = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: train}
spec:
  runtimeRef: {name: torch}
  trainer: {numNodes: 1}
"""
RUNTIME = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch, labels: {trainer.kubeflow.org/framework: torch}}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec: {template: {spec: {containers: [{name: node, image: "python:3.11"}]}}}
"""
WORKFLOW = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: train}
spec:
  entrypoint: step
  templates:
  - name: step
    container: {name: main, image: "python:3.11"}
"""
FIELDS = {
    "metadata.name": "train-abc",
    "metadata.uid": "5f0c-77",
    "status.hostIP": "127.0.0.1",
}


@pytest.fixture(scope="module")
def image() -> Iterator[StockImage]:
    made = StockImage()
    try:
        yield made
    finally:
        made.remove()


def parts(kind: str, outcome: Outcome) -> tuple[list[Any], list[Any], list[Any]]:
    """The variables and mounts of the container that runs the step, and the volumes of its pod."""
    value = outcome.value
    if kind == "Job":
        container, volumes = at_path(value, "spec.template.spec.containers.0"), "spec.template.spec.volumes"
        return container["env"], container["volumeMounts"], at_path(value, volumes)
    if kind == "Workflow":
        container = at_path(value, "spec.templates.0.container")
        volumes = at_path(value, "spec.templates.0.volumes") or at_path(value, "spec.volumes")
        return container["env"], container["volumeMounts"], volumes
    [patch] = value["spec"]["runtimePatches"]
    [job] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    return value["spec"]["trainer"]["env"], container["volumeMounts"], pod["volumes"]


def environment(env: list[Any], folders: dict[str, str]) -> dict[str, str]:
    """Variables as the kubelet makes them, with mounted folders where they are on this machine."""
    made: dict[str, str] = {}
    for item in env:
        text = str(item.get("value", ""))
        if "valueFrom" in item:
            path = item["valueFrom"]["fieldRef"]["fieldPath"]
            text = FIELDS.get(path, "train" if path.startswith("metadata.labels") else "")
        text = re.sub(r"\$\((\w+)\)", lambda name: made.get(name[1], name[0]), text)
        for mount, folder in folders.items():
            text = text.replace(mount, folder)
        made[item["name"]] = text.replace("{{workflow.name}}", "train")
    return made


@pytest.mark.parametrize(
    ("kind", "text", "beside"), [("Job", JOB, ""), ("TrainJob", TRAINJOB, RUNTIME), ("Workflow", WORKFLOW, "")]
)
def test_the_step_saves_and_the_next_pod_goes_on(image: StockImage, kind: str, text: str, beside: str) -> None:
    store = image.volume / kind
    store.mkdir()
    image.give(store)
    target = "{kubernetes: '1.33', argo: '4.0', trainer: '2.3', package: embedded}"
    outcome = place(text, POLICY.replace("VOLUME", str(store)), beside=beside, target=target)
    [config_map] = [document for document in outcome.added if document["kind"] == "ConfigMap"]
    env, mounts, volumes = parts(kind, outcome)
    [volume] = [each for each in volumes if "configMap" in each]
    assert volume["configMap"]["name"] == config_map["metadata"]["name"]
    [mount] = [each["mountPath"] for each in mounts if each["name"] == volume["name"]]
    folder = image.folder / f"mounted-{kind}"
    folder.mkdir()
    for name, data in config_map["binaryData"].items():
        (folder / name).write_bytes(base64.b64decode(data))
    variables = environment(env, {mount: str(folder)})
    assert variables["SPOTWRIGHT_POD_UID"] == "5f0c-77"
    assert "SPOTWRIGHT_ATTEMPT" not in variables

    first, second = (image.start(["python3", "-c", STEP.replace("PODS", str(pod))], variables) for pod in (1, 2))

    assert (first.returncode, second.returncode) == (143, 0), first.stderr + second.stderr
    assert first.stdout.split() == ["begins", "at", "0"]
    assert second.stdout.splitlines() == ["begins at 2", "total 6"]
    assert list(store.rglob("state-*"))
