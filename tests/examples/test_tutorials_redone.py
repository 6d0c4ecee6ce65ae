"""The other tutorials in current APIs: their manifests are placed, their pipeline runs and resumes after preemptions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spotwright.config import load
from spotwright.manifests.files import place_text, unplace_text
from spotwright.placing.documents import parse

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CHARMED = EXAMPLES / "charmed"
PREEMPTIBLE = EXAMPLES / "preemptible"
KEY = "kubernetes.azure.com/scalesetpriority"


def placed(name: str) -> str:
    text = (CHARMED / name).read_text()
    result = place_text(text, name, load(CHARMED / "spotwright.yaml")).text
    assert unplace_text(result, name).text == text
    return result


@pytest.mark.long
def test_the_workers_of_the_training_job_go_to_gpu_spot_nodes() -> None:
    document = parse(placed("tfjob.yaml"), "tfjob.yaml")[0]
    worker = document.get(("spec", "tfReplicaSpecs", "Worker", "template", "spec"))
    assert [t["key"] for t in worker["tolerations"]] == [KEY]


@pytest.mark.long
def test_its_parameter_servers_stay_on_on_demand() -> None:
    document = parse(placed("tfjob.yaml"), "tfjob.yaml")[0]
    assert "tolerations" not in document.get(("spec", "tfReplicaSpecs", "PS", "template", "spec"))


@pytest.mark.long
def test_a_worker_that_is_interrupted_is_started_again() -> None:
    document = parse(placed("tfjob.yaml"), "tfjob.yaml")[0]
    assert document.get(("spec", "tfReplicaSpecs", "Worker", "restartPolicy")) == "ExitCode"


@pytest.mark.long
def test_the_trials_of_the_experiment_do_not_pay_for_interruptions() -> None:
    document = parse(placed("experiment.yaml"), "experiment.yaml")[0]
    rules = document.get(("spec", "trialTemplate", "trialSpec", "spec", "podFailurePolicy", "rules"))
    assert rules[0]["action"] == "Ignore"


@pytest.fixture(scope="module")
def preempted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    command = [sys.executable, "-m", "spotwright", "run", str(PREEMPTIBLE / "pipeline.py"), "--seed", "58"]
    done = subprocess.run(
        [*command, "--json"], cwd=tmp_path_factory.mktemp("run"), capture_output=True, text=True, check=True
    )
    view: dict[str, object] = json.loads(done.stdout)
    return view


@pytest.mark.long
def test_the_training_is_preempted_three_times_and_goes_on(preempted: dict[str, object]) -> None:
    train = next(task for task in preempted["tasks"] if task["path"] == "train")  # type: ignore[attr-defined]
    assert [attempt["cause"] for attempt in train["attempts"]] == ["interrupted"] * 3 + ["succeeded"]


@pytest.mark.long
def test_it_ends_where_an_undisturbed_one_would(preempted: dict[str, object], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "spotwright", "run", str(PREEMPTIBLE / "pipeline.py"), "--json"]
    still = (PREEMPTIBLE / "spotwright.yaml").read_text().replace(", interrupt_every: 4s", "")
    (tmp_path / "still.yaml").write_text(still)
    done = subprocess.run(
        [*command, "--config", "still.yaml"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    undisturbed = json.loads(done.stdout)

    assert [len(task["attempts"]) for task in undisturbed["tasks"]] == [1, 1]
    assert preempted["outputs"] == undisturbed["outputs"]


@pytest.mark.long
def test_it_never_runs_beside_the_gpus(preempted: dict[str, object]) -> None:
    copied = next(task for task in preempted["tasks"] if task["path"] == "copy-data")  # type: ignore[attr-defined]
    assert [attempt["pool"] for attempt in copied["attempts"]] == ["default-pool"]


def rehearsed(file: str, task: str, folder: Path) -> tuple[int, dict[str, object]]:
    """Rehearse a training step of the example, small: exit code and report."""
    size = ["--arg", "epochs=12", "--arg", "seconds_per_epoch=0.02", "--interruptions", "2", "--seed", "3"]
    command = [sys.executable, "-m", "spotwright", "rehearse", str(PREEMPTIBLE / file), "--task", task, *size]
    done = subprocess.run(
        [*command, "--must-resume", "--json"], cwd=folder, capture_output=True, text=True, check=False
    )
    (step,) = json.loads(done.stdout)["steps"]
    return done.returncode, step


@pytest.mark.long
def test_its_training_passes_the_rehearsal(tmp_path: Path) -> None:
    code, step = rehearsed("pipeline.py", "train", tmp_path)

    assert (code, step["verdict"]) == (0, "safe and resumes")


@pytest.mark.long
def test_its_first_form_which_wipes_what_it_saved_fails_the_rehearsal(tmp_path: Path) -> None:
    code, step = rehearsed("first_form.py", "copy-and-train", tmp_path)

    assert (code, step["verdict"]) == (1, "safe but starts over")
    done_again = step["done_again"]
    assert isinstance(done_again, float)
    assert done_again > 0.9  # measured by its time, of which its start takes a part
