"""Katib itself: its experiments have the right values and the right best trial, whatever happens to the nodes of trials.

By hand, because Katib is no part of the bed that CI starts: `TESTBED_CONTROLLERS=katib`, with a PostgreSQL of Debian. The
suggestion service is goptuna; early stopping by medianstop is written in Python alone, and is not on the bed.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from testbed.building.images import PYTHON
from testbed.faults import Faults
from testbed.settings import Settings
from tests.cluster.conftest import Require
from tests.cluster.live.controllers import Controller, configuration, controller
from tests.cluster.live.kube import Kube, Object, pod_spec

from spotwright.checkpoint_file import FILE_NAME, checkpoint_file
from spotwright.config import parse
from spotwright.manifests.files import place_text

pytestmark = pytest.mark.cluster

ENDS = 600.0  # seconds for an experiment, on a busy machine
EPOCHS = 10
TRIALS = 2
SPOT = {"kubernetes.azure.com/scalesetpriority": "spot"}
TRAIN = """
import os, sys, time
from spotwright.checkpoint import Checkpoint

lr, keeps = float(sys.argv[1]), sys.argv[2] == "keeps"
folder = f"/saves/{os.environ['KATIB_TRIAL_NAME']}"
with Checkpoint(folder, every=0) as ckpt:
    state = ckpt.load(default={"begun": []})
    state["begun"].append(ckpt.step)
    tell = ckpt.print if keeps else lambda line: print(line, flush=True)
    for epoch in ckpt.steps(10):
        time.sleep(1)
        tell(f"epoch={epoch} accuracy={0.9 + lr - 0.02 * abs(epoch - 2):.6f}")
        ckpt.step_done(state)
        open(f"{folder}.epoch", "w").write(str(epoch))
"""


def experiment(name: str, namespace: str, folder: Path, how: str = "keeps") -> Object:
    """An experiment of two trials, one after the other, whose best epoch is the third."""
    mounts = [{"name": "saves", "mountPath": "/saves"}, {"name": "library", "mountPath": "/library"}]
    container = {
        "name": "main",
        "image": PYTHON,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", _quoted(TRAIN), "${trialParameters.lr}", how],
        "env": [{"name": "PYTHONPATH", "value": f"/library/{FILE_NAME}"}],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "volumeMounts": mounts,
    }
    volumes = [
        {"name": "saves", "hostPath": {"path": str(folder)}},
        {"name": "library", "configMap": {"name": "library"}},
    ]
    spec = pod_spec(container, volumes=volumes)
    spec["nodeSelector"] = SPOT
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": spec}}}
    return {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "objective": {"type": "maximize", "objectiveMetricName": "accuracy"},
            "algorithm": {"algorithmName": "sobol"},
            "parallelTrialCount": 1,
            "maxTrialCount": TRIALS,
            "maxFailedTrialCount": 1,
            "parameters": [{"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0.01", "max": "0.05"}}],
            "trialTemplate": {
                "primaryContainerName": "main",
                "retain": True,
                "trialParameters": [{"name": "lr", "reference": "lr"}],
                "trialSpec": job,
            },
        },
    }


def _quoted(program: str) -> str:
    """A program as an argument of the shell that Katib puts in front: it joins the words of a command by blanks."""
    return f'\'exec(__import__("base64").b64decode("{base64.b64encode(program.encode()).decode()}"))\''


def best_of(lr: float) -> float:
    """The best accuracy of an undisturbed trial, at its third epoch."""
    return round(0.9 + lr, 6)


def values_of(trial: Object) -> tuple[float, float]:
    """The parameter of a trial, and the best accuracy that Katib has of it."""
    [metric] = trial["status"]["observation"]["metrics"]
    return float(trial["spec"]["parameterAssignments"][0]["value"]), float(metric["max"])


def ended(kube: Kube, namespace: str, name: str) -> Object | None:
    """An experiment that is over."""
    found = kube.get("experiment", name, namespace) or {}
    over = [one["type"] for one in found.get("status", {}).get("conditions", ()) if one["status"] == "True"]
    return found if {"Succeeded", "Failed"} & {*over} else None


@pytest.fixture
def tuning(kube: Kube, namespace: str, tmp_path: Path, require: Require) -> Iterator[tuple[str, Path]]:
    """A namespace in which Katib collects metrics, with the library, and a folder that all nodes have."""
    require("experiments.kubeflow.org")
    kube.run("label", "namespace", namespace, "katib.kubeflow.org/metrics-collector-injection=enabled")
    data = {FILE_NAME: base64.b64encode(checkpoint_file()).decode()}
    metadata = {"name": "library", "namespace": namespace}
    kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": data})
    folder = tmp_path / "saves"
    folder.mkdir()
    yield namespace, folder
    kube.run("delete", "experiment", "--all", "-n", namespace, "--wait=false")


@contextmanager
def the_way(way: str, kube: Kube, bed: Settings, namespace: str, folder: Path) -> Iterator[Controller | None]:
    """Without Spotwright, with its file alone, or with its controller."""
    made = controller(kube, bed, folder, configuration("60s")) if way == "controller" else nullcontext()
    with made as running:
        if running is not None:
            running.enable(namespace)
        yield running


def placed(data: Object) -> Object:
    """An experiment as `spotwright place` writes it."""
    text = place_text(yaml.safe_dump(data), "experiment.yaml", parse(configuration("60s"))).text
    return yaml.safe_load(text)


@pytest.mark.parametrize("fault", ["none", "drain", "power-cut"])
@pytest.mark.parametrize("way", ["nothing", "file", "controller"])
def test_an_experiment_has_the_values_of_an_undisturbed_one(  # fixtures
    way: str,
    fault: str,
    kube: Kube,
    bed: Settings,
    faults: Faults,
    tuning: tuple[str, Path],
    tmp_path: Path,
) -> None:
    namespace, folder = tuning
    with the_way(way, kube, bed, namespace, tmp_path) as running:
        data = experiment("tune", namespace, folder)
        kube.apply(placed(data) if way == "file" else data)
        if fault != "none":
            interrupt(kube, faults, namespace, folder, fault)
        over = kube.wait(lambda: ended(kube, namespace, "tune"), "the experiment is over", ENDS)
        if running is not None:
            kube.wait(lambda: running.has_ended("tune"), "its end is recorded", 60)
            check_record(running)
    check_experiment(kube, namespace, over)
    check_suggestion(kube, namespace)


@pytest.mark.parametrize("how", ["keeps", "prints"])
def test_without_the_lines_of_earlier_attempts_katib_takes_a_wrong_value(
    how: str, kube: Kube, faults: Faults, tuning: tuple[str, Path]
) -> None:
    namespace, folder = tuning
    kube.apply(experiment("tune", namespace, folder, how))
    interrupt(kube, faults, namespace, folder, "drain")
    kube.wait(lambda: ended(kube, namespace, "tune"), "the experiment is over", ENDS)
    values = [values_of(trial) for trial in kube.list("trials", namespace)]
    right = [accuracy == pytest.approx(best_of(lr)) for lr, accuracy in values]
    assert right.count(False) == (1 if how == "prints" else 0), values


def interrupt(kube: Kube, faults: Faults, namespace: str, folder: Path, fault: str) -> None:
    """Take the node of the first trial once its best epoch is behind it; a node that lost its power boots again."""
    kube.wait(lambda: any(int(each.read_text() or 0) >= 4 for each in folder.glob("*.epoch")), "epoch 4", ENDS)
    [pod] = [each for each in kube.list("pods", namespace) if is_of_a_trial(each)]
    node = int(pod["spec"]["nodeName"][1:])
    if fault == "drain":
        faults.drain(node)
    else:
        faults.cut_power(node)
        uid = pod["metadata"]["uid"]
        kube.wait(lambda: kube.list("pods", namespace) and is_let_go(kube, namespace, uid), "the pod is let go", 120)
    faults.restore(node)


def is_of_a_trial(pod: Object) -> bool:
    return "katib.kubeflow.org/trial" in pod["metadata"]["labels"] and pod["status"]["phase"] == "Running"


def is_let_go(kube: Kube, namespace: str, uid: str) -> bool:
    """Whether a pod is marked for deletion, or gone."""
    found = [each for each in kube.list("pods", namespace) if each["metadata"]["uid"] == uid]
    return not found or bool(found[0]["metadata"].get("deletionTimestamp"))


def check_experiment(kube: Kube, namespace: str, over: Object) -> None:
    """Every trial has the value of an undisturbed one, and the best of them is the experiment's."""
    assert over["status"].get("trialsSucceeded") == TRIALS, over["status"]
    values = [values_of(trial) for trial in kube.list("trials", namespace)]
    assert [accuracy for _, accuracy in values] == pytest.approx([best_of(lr) for lr, _ in values])
    best = over["status"]["currentOptimalTrial"]
    [metric] = best["observation"]["metrics"]
    assert float(metric["max"]) == pytest.approx(max(accuracy for _, accuracy in values))


def check_suggestion(kube: Kube, namespace: str) -> None:
    """Nothing of ours is on what Katib has made for its suggestions."""
    made: list[Any] = [*kube.list("suggestions", namespace), *kube.list("deployments", namespace)]
    assert made
    assert not any("spotwright" in str(each["metadata"]) for each in made)


def check_record(running: Controller) -> None:
    """The record has the parameters and metrics of each trial, and the lines that it printed."""
    run = running.run("tune")
    assert run is not None
    trials = [task for task in run.tasks.values() if task.attempts]
    assert len(trials) == TRIALS
    for task in trials:
        assert float(task.parameters["accuracy"]) == pytest.approx(best_of(float(task.parameters["lr"])))
    logs = [path.read_text(encoding="utf-8") for path in running.state.rglob("log") if path.is_file()]
    assert any("accuracy=" in text and "metrics-logger-and-collector" in text for text in logs)
