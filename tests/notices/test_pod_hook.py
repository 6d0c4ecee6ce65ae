"""A pod's preStop hook waits only for the processes that save, as long as they need."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spotwright.checkpoint import Checkpoint
from spotwright.cluster.admit_pods import hook_script
from spotwright.notices.pod_hook import PodHook
from spotwright.notices.sources import FileSource

PROGRAM = Path(__file__).resolve().parents[1] / "checkpoint" / "terminated_program.py"
LONG = 6000  # seconds for which the hook would wait; these tests last for at most a minute
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the hook runs in Linux containers")


def run_hook(folder: Path, seconds: int = LONG) -> None:
    """Run the hook to its end, which must come long before its own limit."""
    subprocess.run(["sh", "-c", hook_script(seconds, str(folder))], check=True, timeout=60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the container."""
    (tmp_path / "grace").mkdir()
    return tmp_path / "grace"


@contextmanager
def training(mode: str, place: Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPOTWRIGHT_")}
    pod = {"SPOTWRIGHT_GRACE_FOLDER": str(folder), "SPOTWRIGHT_NOTICE_FILE": str(folder / "notice")}
    process = subprocess.Popen(
        [sys.executable, PROGRAM, mode, str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**kept, **pod},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout
    assert any(said.startswith(line) for said in process.stdout), f"it never said {line!r}"


def saved_step(place: Path) -> int:
    state = Checkpoint(place, writer=False).load()
    return int(state["step"])


def test_where_nobody_saves_the_hook_returns_at_once(folder: Path) -> None:
    run_hook(folder)
    assert FileSource(folder / "notice").wait(0) is not None


def test_the_hook_says_when_the_pod_ends(folder: Path) -> None:
    run_hook(folder, 28)
    notice = FileSource(folder / "notice").wait(0)
    assert notice is not None
    assert (notice.kind, notice.certain, notice.reason) == ("disruption", True, "this pod is ending")
    assert abs(notice.ends_at - (folder / "notice").stat().st_mtime - 28) <= 2


def test_the_hook_waits_until_the_step_in_hand_is_saved(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    with training("plain", place, folder) as process:
        until(process, "begins 3")
        run_hook(folder)
        assert saved_step(place) >= 3  # the only save before was after step 0
        assert process.poll() is None  # it goes on until SIGTERM


def test_the_hook_waits_for_each_process(folder: Path, tmp_path: Path) -> None:
    places = [tmp_path / "one", tmp_path / "two"]
    with training("plain", places[0], folder) as one, training("plain", places[1], folder) as two:
        for process in (one, two):
            until(process, "begins 3")
        assert len(list(folder.glob("saver.*"))) == 2
        run_hook(folder)
        assert min(map(saved_step, places)) >= 3


def test_a_process_that_was_killed_is_not_waited_for(folder: Path, tmp_path: Path) -> None:
    with training("plain", tmp_path / "place", folder) as process:
        until(process, "begins 3")
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert list(folder.glob("saver.*"))
        run_hook(folder)


def test_a_process_without_a_step_under_way_is_not_waited_for(folder: Path, tmp_path: Path) -> None:
    with training("idle", tmp_path / "place", folder) as process:
        until(process, "begins")
        run_hook(folder)


def test_code_that_asks_whether_to_stop_is_waited_for(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    with training("polled", place, folder) as process:
        until(process, "begins")
        run_hook(folder, 1)  # so that the end is near enough to stop
        assert process.wait(60) in (0, 143)
        assert Checkpoint(place, writer=False).load() == "in the middle"


def test_the_hook_waits_no_longer_than_its_limit(folder: Path) -> None:
    file = folder / f"saver.{os.getpid()}"
    file.touch()
    run_hook(folder, 1)
    assert file.exists()


def test_an_attempt_that_only_reads_or_has_ended_does_not_hold_its_pod(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOTWRIGHT_GRACE_FOLDER", str(folder))
    with Checkpoint(tmp_path / "place", writer=False) as reader:
        reader.load()
        assert not list(folder.iterdir())
    with Checkpoint(tmp_path / "place") as one, Checkpoint(tmp_path / "other") as two:
        one.load()
        two.load()
        assert [path.name for path in folder.iterdir()] == [f"saver.{os.getpid()}"]
        two.close()
        assert list(folder.iterdir())
    assert not list(folder.iterdir())


def test_a_folder_that_is_not_there_is_a_warning_and_the_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SPOTWRIGHT_GRACE_FOLDER", str(tmp_path / "absent"))
    with Checkpoint(tmp_path / "place") as ckpt:
        ckpt.load()
        ckpt.save({"step": 1})
    assert "this pod ends without waiting for a save" in caplog.text


def test_a_forked_child_lets_nobody_go(folder: Path) -> None:
    code = (
        "import os, sys; from spotwright.notices.pod_hook import PodHook\n"
        "hook = PodHook(sys.argv[1]); hook.register(); child = os.fork()\n"
        "if child == 0: hook.release(); os._exit(0)\n"
        "os.waitpid(child, 0); print(os.listdir(sys.argv[1]), os.getpid()); hook.release(); print(os.listdir(sys.argv[1]))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first.startswith("['saver.")
    assert second == "[]"


@pytest.mark.parametrize("value", [None, "", " "])
def test_without_the_variable_there_is_no_hook(value: str | None) -> None:
    environ = {} if value is None else {"SPOTWRIGHT_GRACE_FOLDER": value}
    assert PodHook.from_environment(environ) is None
