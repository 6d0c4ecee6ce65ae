"""A disk that is full for a time: the save fails with one message and without remains, and the previous checkpoint counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.torch.frameworks import FRAMEWORKS, Framework
from tests.torch.training_scripts import Forge

FULL_DISK = """
import os, resource, signal
from torch.optim.optimizer import register_optimizer_step_post_hook
done = 0
def count(*_):
    global done
    done += 1
    first, last = map(int, os.environ.get("FULL", "0 0").split())
    if done == first:
        resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, resource.RLIM_INFINITY))
    if done == last:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    if str(done) == os.environ.get("SIGTERM_AT"):
        os.kill(os.getpid(), signal.SIGTERM)
register_optimizer_step_post_hook(count)
"""
"""Before each example: from one step to another no file can be longer than 12,000 bytes."""

OFTEN = {
    "huggingface": [("save_steps=8", "save_steps=8, disable_tqdm=True"), ("logging_steps=1,", "logging_steps=100,")],
    "lightning": [
        ("[SpotCheckpoint()]", "[SpotCheckpoint(every=0)]"),
        ("logger=False,", "logger=False, enable_progress_bar=False,"),
    ],
    "accelerate": [("SpotState(accelerator, ", "SpotState(accelerator, every=0, ")],
}


def script_of(framework: Framework, folder: Path) -> Path:
    """An example that saves often and writes little to its log, on such a disk."""
    text = framework.script.read_text()
    for old, new in OFTEN[framework.name]:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    script = folder / f"train_{framework.name}.py"
    script.write_text(FULL_DISK + text)
    return script


def files_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.name.startswith("torn-") or path.suffix == ".part")


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_a_training_outlives_a_full_disk_and_saves_again_afterwards(
    framework: Framework, ranks: int, trainings: Forge, tmp_path: Path
) -> None:
    arguments = framework.of_two if ranks == 2 else ()
    quiet = trainings.run(framework.script, tmp_path / "quiet", *arguments, ranks=ranks)
    script = script_of(framework, tmp_path)
    training = trainings.start(script, tmp_path, *arguments, ranks=ranks, pace=0, FULL="10 42")

    assert training.end() == [0] * ranks, training.log()
    assert "cannot be written (" in training.log()
    assert (
        "; free this place, or name another one; the training continues, and the previous checkpoint" in training.log()
    )
    steps = framework.steps(tmp_path)
    assert steps[-1] == 48
    assert not any(16 <= step <= 40 for step in steps)
    assert files_of(tmp_path / "place") == []
    assert (tmp_path / framework.output).read_bytes() == (quiet.folder / framework.output).read_bytes()


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_sigterm_on_a_full_disk_ends_with_143_and_the_next_attempt_takes_the_checkpoint_before(
    framework: Framework, ranks: int, trainings: Forge, tmp_path: Path
) -> None:
    arguments = framework.of_two if ranks == 2 else ()
    quiet = trainings.run(framework.script, tmp_path / "quiet", *arguments, ranks=ranks)
    script = script_of(framework, tmp_path)
    training = trainings.start(script, tmp_path, *arguments, ranks=ranks, pace=0, FULL="10 0", SIGTERM_AT="20")

    assert training.end() == [143] * ranks, training.log()
    assert (
        "SIGTERM received: this attempt ends, and the next one resumes from the checkpoint before it" in training.log()
    )
    before = framework.steps(tmp_path)[-1]
    assert 8 <= before <= 10

    again = trainings.run(script, tmp_path, *arguments, ranks=ranks)
    assert (again.folder / "steps").stat().st_size == 48 - before
    assert (tmp_path / framework.output).read_bytes() == (quiet.folder / framework.output).read_bytes()


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_a_place_that_was_never_written_ends_the_training_at_its_first_save(
    framework: Framework, trainings: Forge, tmp_path: Path
) -> None:
    training = trainings.start(script_of(framework, tmp_path), tmp_path, pace=0, FULL="1 0")

    assert training.end() == [1], training.log()
    assert "; free this place, or name another one; no earlier save exists" in training.log()
    assert framework.steps(tmp_path) == []
