"""A process of an earlier attempt still writes, as after a freeze: its checkpoint does not count, and mixes with no other."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from tests.torch.frameworks import FRAMEWORKS, Framework
from tests.torch.training_scripts import Forge

from spotwright.checkpoint.marked_folder import fault_of

HUGGINGFACE, LIGHTNING, ACCELERATE = FRAMEWORKS

FREEZES = """
import os, signal, torch
save = torch.save
def freeze_after(checkpoint, file):
    save(checkpoint, file)
    if checkpoint.get("global_step") == int(os.environ.get("FROZEN_AT", "0")):
        os.kill(os.getpid(), signal.SIGSTOP)
torch.save = freeze_after
"""

FREEZES_INSIDE = """
import os, signal, torch
save = torch.save
def freeze_before(content, file, *values, **options):
    if f"checkpoint-{os.environ.get('FROZEN_AT')}/" in str(file):
        torch.save = save
        os.kill(os.getpid(), signal.SIGSTOP)
    save(content, file, *values, **options)
torch.save = freeze_before
"""
"""Before an example: its process freezes when a part of the files of a checkpoint is written."""

TWO_WRITERS = """
import os, torch
from spotwright.checkpoint.lightning import SpotCheckpointIO
checkpoint_io = SpotCheckpointIO()
for number in range(40):
    checkpoint_io.save_checkpoint({"all": torch.full((50_000,), int(os.environ["RANK"]))}, "place/one.ckpt")
    found = checkpoint_io.load_checkpoint("place/one.ckpt")["all"]
    assert bool((found == found[0]).all())
"""

TAKEN_OVER = """
import os, torch
from spotwright.checkpoint.lightning import SpotCheckpointIO
checkpoint_io, asked = SpotCheckpointIO(), []
def taken_over_while_it_is_moved(path):
    asked.append(path)
    if len(asked) == 2:
        raise RuntimeError("another attempt has taken over")
for before in ({"of": "the successor"}, None):
    if before:
        checkpoint_io.save_checkpoint(before, "place/one.ckpt")
    checkpoint_io.check = taken_over_while_it_is_moved
    try:
        checkpoint_io.save_checkpoint({"of": "an earlier attempt"}, "place/one.ckpt")
    except RuntimeError:
        print("refused")
    if before:
        assert checkpoint_io.load_checkpoint("place/one.ckpt") == before
        os.unlink("place/one.ckpt")
    assert os.listdir("place") == [], os.listdir("place")
    asked.clear()
    checkpoint_io.check = lambda path: None
"""

LEFT_BEHIND = """
import os, time, torch
from spotwright.checkpoint.lightning import SpotCheckpointIO
os.mkdir("place")
old, young, other = "place/a.ckpt.17-0123abcd.part", "place/b.ckpt.18-0123abcd.part", "place/film.part"
for name in (old, young, other):
    open(name, "w").close()
for name in (old, other):
    os.utime(name, (time.time() - 7200,) * 2)
SpotCheckpointIO().save_checkpoint({}, "place/c.ckpt")
assert sorted(os.listdir("place")) == ["b.ckpt.18-0123abcd.part", "c.ckpt", "film.part"], os.listdir("place")
"""


def test_two_processes_that_write_one_checkpoint_do_not_mix(trainings: Forge, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(TWO_WRITERS)
    training = trainings.start(tmp_path / "script.py", tmp_path, ranks=2, pace=0)

    assert training.end() == [0, 0], training.log()
    assert [path.name for path in (tmp_path / "place").iterdir()] == ["one.ckpt"]


def test_a_checkpoint_that_takes_its_place_too_late_is_taken_back(trainings: Forge, tmp_path: Path) -> None:
    """Its process was frozen between the check and the move."""
    (tmp_path / "script.py").write_text(TAKEN_OVER)
    assert trainings.run(tmp_path / "script.py", tmp_path).log().count("refused") == 2


def test_files_that_a_killed_process_left_are_removed_when_they_are_old(trainings: Forge, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(LEFT_BEHIND)
    trainings.run(tmp_path / "script.py", tmp_path)


@pytest.mark.parametrize("removed", [True, False], ids=["its file is gone", "its file is there"])
def test_a_frozen_process_commits_nothing_after_the_next_attempt_has_begun(
    trainings: Forge, tmp_path: Path, removed: bool
) -> None:
    text = LIGHTNING.script.read_text().replace("[SpotCheckpoint()]", "[SpotCheckpoint(every=0)]")
    script = tmp_path / "train_lightning.py"
    script.write_text(FREEZES + text)
    frozen = trainings.start(script, tmp_path, pace=0, FROZEN_AT="20")
    until_stopped(frozen.pids[0])
    (part,) = (tmp_path / "place").glob("*.part")
    written = part.read_bytes()
    again = trainings.start(script, tmp_path, pace=0)
    assert again.end() == [0], again.log()
    weights = (tmp_path / LIGHTNING.output).read_bytes()
    assert not part.exists()
    if not removed:  # as if it had opened it after the next attempt looked
        part.write_bytes(written)
    frozen.send(signal.SIGCONT)

    assert frozen.end() == [1], frozen.log()
    assert LIGHTNING.steps(tmp_path) == [47, 48]
    assert (tmp_path / LIGHTNING.output).read_bytes() == weights
    assert not list((tmp_path / "place").glob("*.part"))


def files_below(folder: Path) -> dict[Path, tuple[int, int]]:
    """Each file of a folder, with its identity and the time of its last change."""
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("framework", [HUGGINGFACE, ACCELERATE], ids=lambda framework: framework.name)
def test_a_process_that_was_frozen_inside_a_save_writes_into_no_checkpoint_of_the_next_attempt(
    framework: Framework, trainings: Forge, tmp_path: Path
) -> None:
    script = tmp_path / framework.script.name
    script.write_text(FREEZES_INSIDE + framework.script.read_text())
    frozen = trainings.start(script, tmp_path, pace=0, FROZEN_AT="48")
    until_stopped(frozen.pids[0])
    assert 48 not in framework.steps(tmp_path)
    again = trainings.start(script, tmp_path, pace=0)
    assert again.end() == [0], again.log()
    assert "checkpoint-48 is torn (its save did not finish); moved it to torn-checkpoint-48" in again.log()
    (checkpoint,) = (path for path in (tmp_path / "place").rglob("checkpoint-48") if path.is_dir())
    before = files_below(checkpoint)
    frozen.send(signal.SIGCONT)

    assert frozen.end() == [1], frozen.log()
    assert files_below(checkpoint) == before
    assert fault_of(checkpoint) is None
    assert not list((tmp_path / "place").rglob("spotwright-writing-*"))


def until_stopped(pid: int) -> None:
    """Wait until a process has stopped itself."""
    end = time.monotonic() + 60
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < end
        time.sleep(0.01)
