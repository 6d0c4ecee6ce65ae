"""SIGTERM and notices: the current step is finished and saved if there is time, and interrupted work never claims success."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from spotwright.checkpoint import Checkpoint
from spotwright.checkpoint.termination import Termination
from spotwright.notices import Notice

HERE = Path(__file__).parent


class Training:
    """A running ``terminated_program.py`` and the lines of its output."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def until(self, start: str) -> str:
        """Read until it says a line that begins so."""
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if line.startswith(start):
                return line.rstrip()
        raise AssertionError(f"no line begins with {start!r}: {self.lines}")

    def terminate(self) -> None:
        """Send SIGTERM, then close its input, so that the program can wait for that."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stdin
        self.process.stdin.close()
        self.process.stdin = None

    def end(self) -> int:
        """Its exit code, when it has ended."""
        rest, _ = self.process.communicate(timeout=600)
        self.lines += rest.splitlines()
        return self.process.returncode


@contextmanager
def training(mode: str, folder: Path, **environment: str) -> Iterator[Training]:
    kept: Mapping[str, str] = {name: value for name, value in os.environ.items() if not name.startswith("SPOTWRIGHT_")}
    process = subprocess.Popen(
        [sys.executable, HERE / "terminated_program.py", mode, str(folder / "place")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**kept, **environment},
    )
    try:
        yield Training(process)
    finally:
        process.kill()
        process.communicate()


def saved(folder: Path) -> object:
    return Checkpoint(folder / "place", writer=False).load()


def test_the_step_under_way_is_finished_and_saved_and_the_exit_code_is_143(tmp_path: Path) -> None:
    with training("plain", tmp_path) as it:
        it.until("begins 2")
        it.terminate()

        assert it.end() == 143
    begins, step = it.lines[-1].split()
    assert begins == "begins"
    assert saved(tmp_path) == {"step": int(step)}
    assert not (tmp_path / "place" / "output").exists()


def test_a_step_that_is_too_long_is_left_when_a_save_would_come_too_late(tmp_path: Path) -> None:
    with training("long", tmp_path, SPOTWRIGHT_GRACE="1") as it:
        it.until("begins 3")
        it.terminate()

        assert it.end() == 143
    assert it.lines[-1] == "begins 3", "the step takes a minute"
    assert saved(tmp_path) == {"step": 2}


def test_a_step_that_is_known_to_be_too_long_is_left_at_once(tmp_path: Path) -> None:
    with training("known too long", tmp_path, SPOTWRIGHT_GRACE="0.5") as it:
        assert it.end() == 143
    assert it.lines == ["begins 0", "begins 1"]
    assert saved(tmp_path) == {"step": 0}


def test_without_a_step_under_way_the_process_ends_at_once(tmp_path: Path) -> None:
    with training("idle", tmp_path) as it:
        it.until("begins")
        it.terminate()

        assert it.end() == 143


def test_a_save_that_has_begun_is_finished(tmp_path: Path) -> None:
    with training("slow save", tmp_path) as it:
        it.until("saving")
        it.terminate()

        assert it.end() == 143
    assert saved(tmp_path) == {"step": 0}


def test_a_save_outside_of_steps_is_finished_too_and_the_users_handler_is_called_after_it(tmp_path: Path) -> None:
    with training("lone save", tmp_path) as it:
        it.until("saving")
        it.terminate()

        assert it.end() == 143
    assert saved(tmp_path) == "whole"
    assert it.lines[-1] == "the user's own handler"
    assert it.lines.count("saving") == 3, "state, entry, folder"


def test_a_handler_of_the_user_that_exits_ends_the_process_after_the_save_and_never_with_0(tmp_path: Path) -> None:
    with training("exiting", tmp_path) as it:
        it.until("begins 1")
        it.terminate()

        assert it.end() == 143
    assert saved(tmp_path) == {"step": 1}


def test_a_handler_of_the_user_is_called_too(tmp_path: Path) -> None:
    with training("chained", tmp_path) as it:
        it.until("begins 1")
        it.terminate()

        assert it.end() == 143
    assert it.lines.count("the user's own handler") == 1


def test_a_program_that_ignores_sigterm_goes_on(tmp_path: Path) -> None:
    with training("ignoring", tmp_path) as it:
        it.until("begins 1")
        it.terminate()
        it.until("begins 3")


def test_a_forked_child_is_ended_by_sigterm_as_usual(tmp_path: Path) -> None:
    with training("forked", tmp_path) as it:
        assert it.end() == 0
    assert it.lines[0] == f"the child ended with {signal.SIGTERM.value}"
    assert it.lines[-1] == "success"


def test_should_stop_is_true_after_sigterm_and_stop_exits_with_143(tmp_path: Path) -> None:
    with training("polled", tmp_path) as it:
        it.until("begins")
        it.terminate()

        assert it.end() == 143
    assert saved(tmp_path) == "in the middle"


def test_a_loop_left_early_does_not_exit_with_success(tmp_path: Path) -> None:
    with training("broken off", tmp_path) as it:
        it.until("begins")
        it.terminate()

        assert it.end() == 143
    assert "success" not in it.lines


def test_code_that_catches_the_exit_gets_sigterm_again(tmp_path: Path) -> None:
    with training("deaf", tmp_path, SPOTWRIGHT_GRACE="0.3") as it:
        it.until("begins")
        it.terminate()

        assert it.end() == 143
    assert "caught" in it.lines


def write_notice(path: Path, seconds: float) -> None:
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps({"goes_at": time.time() + seconds, "why": "taken"}))
    beside.rename(path)


def test_a_notice_reaches_the_callback_and_the_next_step_is_saved(tmp_path: Path) -> None:
    notice = tmp_path / "notice.json"
    with training("plain", tmp_path, SPOTWRIGHT_NOTICE_FILE=str(notice)) as it:
        it.until("ended 1 False")
        begun, earlier = time.monotonic(), len(it.lines)
        write_notice(notice, 600)
        left = float(it.until("notice interruption").split()[-1])
        seconds = time.monotonic() - begun
        assert 600 - seconds - 0.1 <= left <= 600
        it.until("ended")
        it.until("ended")
    saves = [line.split()[-1] for line in it.lines[earlier:] if line.startswith("ended")]
    assert (saves.count("True"), saves[-1]) == (1, "False"), "there is time for more steps"


def test_a_notice_that_is_withdrawn_changes_nothing(tmp_path: Path) -> None:
    notice = tmp_path / "notice.json"
    with training("plain", tmp_path, SPOTWRIGHT_NOTICE_FILE=str(notice)) as it:
        it.until("begins 1")
        write_notice(notice, 60)
        it.until("notice interruption")
        notice.unlink()
        assert it.until("notice None") == "notice None inf"
        it.until("ended")
        assert it.until("ended").endswith("False")


def test_a_wrong_address_of_notices_is_logged_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SPOTWRIGHT_NOTICE_URL", "ftp://nowhere")

    with Checkpoint(tmp_path) as ckpt:
        ckpt.load()
    assert "no notices will be seen" in caplog.text


def noticed(seconds: float, *, certain: bool = True) -> Termination:
    termination = Termination(lambda left: True, lambda: 0.0)
    termination._on_notice(Notice(time.time() + seconds, "interruption", "test", certain, "taken"))
    return termination


@pytest.mark.parametrize("jump", [-3600, 3600])
def test_a_wall_clock_that_jumps_after_a_notice_changes_nothing(jump: float, monkeypatch: pytest.MonkeyPatch) -> None:
    termination = noticed(1000)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + jump)

    assert 0 < termination.seconds_left() <= 1000


def test_a_notice_of_the_past_leaves_no_time() -> None:
    assert noticed(-100).seconds_left() == 0


def test_an_uncertain_notice_is_no_reason_to_stop() -> None:
    assert noticed(60).is_certain
    assert not noticed(60, certain=False).is_certain


def test_after_an_error_in_a_callback_the_others_are_called(caplog: pytest.LogCaptureFixture) -> None:
    notices: list[Notice | None] = []
    termination = Termination(lambda left: True, lambda: 0.0)
    termination.add_callback(lambda _: 1 / 0)
    termination.add_callback(notices.append)

    termination._on_notice(None)
    assert notices == [None]
    assert "ZeroDivisionError" in caplog.text


def test_a_late_callback_gets_the_present_notice() -> None:
    notices: list[Notice | None] = []
    termination = noticed(60)
    termination.add_callback(notices.append)

    assert notices == [termination.notice]


def test_the_previous_handler_is_restored(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Checkpoint(tmp_path) as ckpt:
        ckpt.load()
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_in_a_thread_everything_but_sigterm_works(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    found = []

    def train() -> None:
        with Checkpoint(tmp_path) as ckpt:
            ckpt.load()
            for step in ckpt.steps(3):
                ckpt.step_done(step)
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join(120)
    assert found == [before]
    assert Checkpoint(tmp_path, writer=False).load() == 2
