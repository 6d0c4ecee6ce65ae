"""A process of an earlier attempt still writes, as after a freeze: its checkpoint does not count, and mixes with no other."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from tests.torch.frameworks import FRAMEWORKS
from tests.torch.training_scripts import Forge

LIGHTNING = FRAMEWORKS[1]

FREEZES = """
import os, signal, torch
save = torch.save
def freeze_after(checkpoint, file):
    save(checkpoint, file)
    if checkpoint.get("global_step") == int(os.environ.get("FROZEN_AT", "0")):
        os.kill(os.getpid(), signal.SIGSTOP)
torch.save = freeze_after
"""

TWO_WRITERS = """
import os, torch
from spotwright.checkpoint.lightning import SpotCheckpointIO
checkpoint_io = SpotCheckpointIO()
for number in range(40):
    checkpoint_io.save_checkpoint({"all": torch.full((50_000,), int(os.environ["RANK"]))}, "place/one.ckpt")
    found = checkpoint_io.load_checkpoint("place/one.ckpt")["all"]
    assert bool((found == found[0]).all())
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


def until_stopped(pid: int) -> None:
    """Wait until a process has stopped itself."""
    end = time.monotonic() + 60
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < end
        time.sleep(0.01)
