"""Training code runs unchanged without an attempt's variables: it saves, reports nothing and sees no notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spotwright.checkpoint import notice, progress

STEP = """
from spotwright.checkpoint import Checkpoint, notice, progress

ckpt = Checkpoint()
state = ckpt.load(default={"total": 0})
progress(ckpt.step / 4)
print("begins at", ckpt.step, "notice", notice())
for step in ckpt.steps(int(STEPS)):
    state["total"] += step
    ckpt.step_done(state)
    progress((step + 1) / 4)
print("total", state["total"])
Checkpoint()
"""


def run(folder: Path, name: str = "train.py", steps: int = 4, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the step as a script in a folder, without any variable of Spotwright."""
    script = folder / name
    script.write_text(STEP.replace("STEPS", str(steps)))
    source = Path(__file__).resolve().parents[2] / "src"
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    command = [sys.executable, str(script)]
    return subprocess.run(command, cwd=folder, env=env, check=False, capture_output=True, text=True)


def test_a_script_saves_below_its_working_directory_and_goes_on_when_it_is_started_again(tmp_path: Path) -> None:
    first, second = run(tmp_path, steps=2), run(tmp_path)

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stdout.splitlines() == ["begins at 0 notice None", "total 1"]
    assert second.stdout.splitlines() == ["begins at 2 notice None", "total 6"]


def test_the_folder_is_named_once_in_a_warning(tmp_path: Path) -> None:
    done = run(tmp_path)

    place = tmp_path / "spotwright-checkpoint" / "train"
    assert place.is_dir()
    assert done.stderr.count("\n") == 1
    assert f"SPOTWRIGHT_CHECKPOINT is not set: checkpoints are saved in {place}; " in done.stderr


def test_of_several_ranks_only_the_first_one_warns(tmp_path: Path) -> None:
    assert run(tmp_path, RANK="0").stderr
    assert not run(tmp_path, RANK="1").stderr


def test_two_scripts_in_one_folder_do_not_load_each_others_state(tmp_path: Path) -> None:
    run(tmp_path, "prepare.py")

    assert "begins at 0" in run(tmp_path, "train.py").stdout


@pytest.mark.usefixtures("attempts_in_one_process")
def test_a_working_directory_that_cannot_be_written_to_is_replaced_by_a_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spotwright.checkpoint import Checkpoint, attempt_environment

    monkeypatch.delenv("SPOTWRIGHT_CHECKPOINT", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(attempt_environment, "_temporary", {})
    monkeypatch.chdir("/proc")  # where nobody may make a folder, root neither
    if os.getuid() == 0:  # access(2) lets root write everywhere, also where the file system refuses
        monkeypatch.setattr(os, "access", lambda *_: False)
    first, second = Checkpoint(), Checkpoint()
    first.load()
    first.save({"step": 1})

    assert second.load() == {"step": 1}
    assert [path.name.startswith("spotwright-checkpoint-") for path in tmp_path.iterdir()] == [True]


def test_progress_goes_to_the_file_that_the_variable_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "progress"
    monkeypatch.setenv("SPOTWRIGHT_PROGRESS_FILE", str(file))
    seen = []
    for share in (0, 0.25, 0.5, 7, -1):
        progress(share)
        seen.append(float(file.read_text()))

    assert seen == [0.0, 0.25, 0.5, 1.0, 0.0]
    assert list(tmp_path.iterdir()) == [file]


def test_a_million_small_reports_write_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "progress"
    monkeypatch.setenv("SPOTWRIGHT_PROGRESS_FILE", str(file))
    written = set()
    for number in range(1000):
        progress(number / 1_000_000)
        written.add(file.read_text())
    progress(1.0)

    assert len(written) < 100
    assert float(file.read_text()) == 1.0


@pytest.mark.parametrize("file", ["", "/nowhere/at/all"])
def test_progress_never_raises_because_of_its_file(monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    monkeypatch.setenv("SPOTWRIGHT_PROGRESS_FILE", file)
    progress(0.5)
    monkeypatch.delenv("SPOTWRIGHT_PROGRESS_FILE")
    progress(float("nan"))


def clear_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPOTWRIGHT_NOTICE_URL", "SPOTWRIGHT_NOTICE_FILE", "SPOTWRIGHT_HOST"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_source_there_is_no_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_sources(monkeypatch)

    assert notice() is None


def test_a_notice_is_seen_by_the_first_call_and_its_withdrawal_by_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clear_sources(monkeypatch)
    file = tmp_path / "notice.json"
    file.write_text(json.dumps({"goes_at": 2_000_000_000, "why": "the node goes"}))
    monkeypatch.setenv("SPOTWRIGHT_NOTICE_FILE", str(file))
    first = notice()
    file.unlink()
    deadline = time.monotonic() + 120
    while notice() is not None and time.monotonic() < deadline:
        time.sleep(0.01)

    assert first is not None
    assert (first.ends_at, first.reason) == (2_000_000_000, "the node goes")
    assert notice() is None


@pytest.mark.parametrize(("name", "value"), [("SPOTWRIGHT_NOTICE_URL", "ftp://x"), ("SPOTWRIGHT_HOST", "127.0.0.1")])
def test_a_source_that_cannot_be_asked_counts_as_no_notice(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    clear_sources(monkeypatch)
    monkeypatch.setenv(name, value)

    assert notice() is None
