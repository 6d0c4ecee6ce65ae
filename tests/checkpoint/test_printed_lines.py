"""Lines of `Checkpoint.print`: the last attempt prints the lines of an undisturbed training, each once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from spotwright.checkpoint import Checkpoint, NotLoaded

PROGRAM = """\
import os, sys
from spotwright.checkpoint import Checkpoint

place, every, dies_in = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
with Checkpoint(place, every=every, print_to=sys.argv[4] if len(sys.argv) > 4 else None) as ckpt:
    state = ckpt.load(default={"seen": []})
    for epoch in ckpt.steps(5):
        state["seen"].append(epoch)
        ckpt.print(f"epoch {epoch} accuracy={[0.5, 0.92, 0.8, 0.7, 0.75][epoch]}")
        if epoch == dies_in:
            os._exit(137)
        ckpt.step_done(state)
"""
UNDISTURBED = [f"epoch {epoch} accuracy={value}" for epoch, value in enumerate([0.5, 0.92, 0.8, 0.7, 0.75])]
KATIB_S_FILTER = re.compile(r"([\w|-]+)\s*=\s*([+-]?\d*(\.\d+)?([Ee][+-]?\d+)?)")
"""The filter of Katib for lines of text (``pkg/metricscollector/v1beta1/common/const.go`` of v0.19.0)."""


def attempt(place: Path, *, every: float = 0, dies_in: int = -1, print_to: Path | None = None) -> list[str]:
    """One attempt of the training, as a process; the lines that it printed."""
    arguments = [str(place), str(every), str(dies_in), *([str(print_to)] if print_to else [])]
    ended = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == (137 if dies_in >= 0 else 0), ended.stderr
    return ended.stdout.splitlines()


def best(lines: list[str]) -> float:
    """The metric of a trial by the strategy `max`, as Katib computes it from the output of one attempt."""
    return max(float(found[2]) for line in lines for found in KATIB_S_FILTER.finditer(line) if found[1] == "accuracy")


def test_the_attempt_that_resumes_has_printed_what_an_undisturbed_one_prints(tmp_path: Path) -> None:
    attempt(tmp_path, dies_in=3)

    last = attempt(tmp_path)

    assert last == UNDISTURBED
    assert best(last) == 0.92, "which the attempt before has printed"


def test_a_line_of_a_step_that_is_done_again_is_there_once(tmp_path: Path) -> None:
    attempt(tmp_path, every=3600, dies_in=3)  # the first step alone is saved

    assert attempt(tmp_path) == UNDISTURBED


def test_an_attempt_with_nothing_left_to_do_prints_all_lines(tmp_path: Path) -> None:
    attempt(tmp_path)

    assert attempt(tmp_path) == UNDISTURBED


def test_the_lines_outlive_several_attempts(tmp_path: Path) -> None:
    for dies_in in (1, 2, 4):
        attempt(tmp_path, dies_in=dies_in)

    assert attempt(tmp_path) == UNDISTURBED


def test_a_file_is_written_anew_by_each_attempt(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.log"
    attempt(tmp_path / "saves", dies_in=3, print_to=metrics)
    assert metrics.read_text().splitlines() == UNDISTURBED[:4]

    assert attempt(tmp_path / "saves", print_to=metrics) == []
    assert metrics.read_text().splitlines() == UNDISTURBED


def test_a_process_that_is_no_writer_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    attempt(tmp_path)
    reader = Checkpoint(tmp_path, writer=False)
    reader.load()
    reader.print("accuracy=1")

    assert capsys.readouterr().out == ""


def test_a_second_load_of_one_attempt_prints_nothing_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    attempt(tmp_path)
    with Checkpoint(tmp_path) as ckpt:
        ckpt.load()
        ckpt.load()

    assert capsys.readouterr().out.splitlines() == UNDISTURBED


def test_a_line_before_the_load_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotLoaded, match=r"load\(\) first"):
        Checkpoint(tmp_path).print("accuracy=1")
