"""SIGTERM and notices: the step in hand is finished and saved where it fits, and nothing that was cut off claims success."""

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
from spotwright.checkpoint.leaving import Leaving
from spotwright.notices import Notice

HERE = Path(__file__).parent


class Training:
    """A running ``leaver.py`` and what it has said."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []

    def until(self, start: str) -> str:
        """Read until it says a line that begins so."""
        assert self.process.stdout
        for line in self.process.stdout:
            self.said.append(line.rstrip())
            if line.startswith(start):
                return line.rstrip()
        raise AssertionError(f"it never said {start!r}: {self.said}")

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def end(self) -> int:
        """Its exit code, when it has ended."""
        rest, _ = self.process.communicate(timeout=10)
        self.said += rest.splitlines()
        return self.process.returncode


@contextmanager
def training(mode: str, folder: Path, **environment: str) -> Iterator[Training]:
    kept: Mapping[str, str] = {name: value for name, value in os.environ.items() if not name.startswith("SPOTWRIGHT_")}
    process = subprocess.Popen(
        [sys.executable, HERE / "leaver.py", mode, str(folder / "place")],
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


def test_the_step_in_hand_is_finished_and_saved_and_the_exit_code_is_143(tmp_path: Path) -> None:
    with training("plain", tmp_path) as it:
        it.until("begins 2")
        it.terminate()

        assert it.end() == 143
    assert it.said[-1] == "begins 2"
    assert saved(tmp_path) == {"step": 2}
    assert not (tmp_path / "place" / "output").exists()


def test_a_step_that_is_too_long_is_left_when_a_save_would_come_too_late(tmp_path: Path) -> None:
    with training("long", tmp_path, SPOTWRIGHT_GRACE="1") as it:
        it.until("begins 3")
        it.terminate()
        begun = time.monotonic()

        assert it.end() == 143
    assert time.monotonic() - begun < 1.5
    assert saved(tmp_path) == {"step": 2}


def test_a_step_that_is_known_to_be_too_long_is_left_at_once(tmp_path: Path) -> None:
    with training("plain", tmp_path, SPOTWRIGHT_GRACE="0.3") as it:
        it.until("begins 2")
        it.terminate()
        begun = time.monotonic()

        assert it.end() == 143
    assert time.monotonic() - begun < 0.3
    assert saved(tmp_path) == {"step": 0}


def test_where_no_step_is_in_hand_the_process_ends_at_once(tmp_path: Path) -> None:
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
    assert it.said[-1] == "the user's own handler"
    assert it.said.count("saving") == 3, "state, entry, folder"


def test_a_handler_of_the_user_is_called_too(tmp_path: Path) -> None:
    with training("chained", tmp_path) as it:
        it.until("begins 1")
        it.terminate()

        assert it.end() == 143
    assert it.said.count("the user's own handler") == 1


def test_who_ignores_the_signal_goes_on(tmp_path: Path) -> None:
    with training("ignoring", tmp_path) as it:
        it.until("begins 1")
        it.terminate()
        it.until("begins 3")


def test_a_forked_child_dies_of_the_signal_as_any_other(tmp_path: Path) -> None:
    with training("forked", tmp_path) as it:
        assert it.end() == 0
    assert it.said[0] == f"the child ended with {signal.SIGTERM.value}"
    assert it.said[-1] == "success"


def test_a_loop_that_asks_is_told_to_stop_and_ends_with_143(tmp_path: Path) -> None:
    with training("polled", tmp_path) as it:
        it.until("begins")
        it.terminate()

        assert it.end() == 143
    assert saved(tmp_path) == "in the middle"


def test_a_loop_that_is_broken_off_does_not_claim_success(tmp_path: Path) -> None:
    with training("broken off", tmp_path) as it:
        it.until("begins")
        it.terminate()

        assert it.end() == 143
    assert "success" not in it.said


def test_code_that_catches_the_exit_is_told_again(tmp_path: Path) -> None:
    with training("deaf", tmp_path, SPOTWRIGHT_GRACE="0.3") as it:
        it.until("begins")
        it.terminate()

        assert it.end() == 143
    assert "caught" in it.said


def write_notice(path: Path, seconds: float) -> None:
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps({"goes_at": time.time() + seconds, "why": "taken"}))
    beside.rename(path)


def test_a_notice_is_told_within_a_second_and_the_next_step_is_saved(tmp_path: Path) -> None:
    notice = tmp_path / "notice.json"
    with training("plain", tmp_path, SPOTWRIGHT_NOTICE_FILE=str(notice)) as it:
        it.until("ended 1 False")
        write_notice(notice, 60)
        begun = time.monotonic()

        assert it.until("notice interruption").split()[-1] in {"60.0", "59.9", "59.8", "59.7"}
        assert time.monotonic() - begun < 1
        assert it.until("ended").endswith("True")
        assert it.until("ended").endswith("False"), "there is time for more steps"


def test_a_notice_that_is_withdrawn_changes_nothing(tmp_path: Path) -> None:
    notice = tmp_path / "notice.json"
    with training("plain", tmp_path, SPOTWRIGHT_NOTICE_FILE=str(notice)) as it:
        it.until("begins 1")
        write_notice(notice, 5)
        it.until("notice interruption")
        notice.unlink()
        assert it.until("notice None") == "notice None inf"
        it.until("ended")
        assert it.until("ended").endswith("False")


def test_an_address_of_notices_that_is_none_is_said_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SPOTWRIGHT_NOTICE_URL", "ftp://nowhere")

    with Checkpoint(tmp_path) as ckpt:
        ckpt.load()
    assert "no notices will be seen" in caplog.text


def heard(seconds: float, *, certain: bool = True) -> Leaving:
    leaving = Leaving(lambda left: True, lambda: 0.0)
    leaving._heard(Notice(time.time() + seconds, "interruption", "test", certain, "taken"))
    return leaving


@pytest.mark.parametrize("jump", [-3600, 3600])
def test_a_wall_clock_that_jumps_after_a_notice_changes_nothing(jump: float, monkeypatch: pytest.MonkeyPatch) -> None:
    leaving = heard(60)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + jump)

    assert 59 < leaving.seconds_left() <= 60


def test_a_notice_of_the_past_leaves_no_time() -> None:
    assert heard(-100).seconds_left() == 0


def test_a_notice_that_may_come_to_nothing_is_no_reason_to_stop() -> None:
    assert heard(60).is_certain
    assert not heard(60, certain=False).is_certain


def test_an_error_in_a_callback_keeps_no_other_from_being_called(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Notice | None] = []
    leaving = Leaving(lambda left: True, lambda: 0.0)
    leaving.tell(lambda _: 1 / 0)
    leaving.tell(told.append)

    leaving._heard(None)
    assert told == [None]
    assert "ZeroDivisionError" in caplog.text


def test_a_notice_that_is_known_is_told_to_a_late_callback() -> None:
    told: list[Notice | None] = []
    leaving = heard(60)
    leaving.tell(told.append)

    assert told == [leaving.notice]


def test_the_signal_is_given_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Checkpoint(tmp_path) as ckpt:
        ckpt.load()
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_in_a_thread_everything_but_the_signal_works(tmp_path: Path) -> None:
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
    thread.join(10)
    assert found == [before]
    assert Checkpoint(tmp_path, writer=False).load() == 2
