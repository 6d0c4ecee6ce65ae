"""A process that returns in the middle of its work after a notice exits with 143, and leaves a message in its pod."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.local.attempt_orders import NOTICE, write_notice
from spotwright.notices.early_exit import leave_early, progress_in

REPORTS = """
import atexit, sys
from spotwright.checkpoint import progress
atexit.register(print, "others ran")
progress(0.2)
progress(float(sys.argv[1]))
print("returned")
sys.exit(int(sys.argv[2]))
"""

FORKS = """
import os, sys
from spotwright.checkpoint import progress
progress(0.2)
if (child := os.fork()) == 0:
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

LEAVES = """
import os, sys
from spotwright.notices.early_exit import leave_early
leave_early(0.25, os.environ, sys.argv[1])
print("stayed")
"""


def ran(
    program: str, *arguments: str, notice: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("SPOTWRIGHT_")}
    named = {} if notice is None else {"SPOTWRIGHT_NOTICE_FILE": str(notice)}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(
        command, env={**environ, **named, **variables}, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture
def notice(tmp_path: Path) -> Path:
    """A notice of this node, as a file."""
    write_notice(tmp_path, time.time(), time.time() + 30, "taken")
    return tmp_path / NOTICE


def test_a_process_that_returns_with_work_left_after_a_notice_ends_with_143(notice: Path) -> None:
    done = ran(REPORTS, "0.5", "0", notice=notice)
    assert (done.returncode, done.stdout) == (143, "returned\nothers ran\n")
    assert "50% of the work is done" in done.stderr


@pytest.mark.parametrize(("share", "code"), [("1", 0), ("1", 3)])
def test_a_process_whose_work_is_done_ends_as_it_wants(notice: Path, share: str, code: int) -> None:
    assert ran(REPORTS, share, str(code), notice=notice).returncode == code


def test_without_a_notice_a_process_ends_as_it_wants(tmp_path: Path) -> None:
    assert ran(REPORTS, "0.5", "0", notice=tmp_path / "none").returncode == 0
    assert ran(REPORTS, "0.5", "0").returncode == 0


def test_a_source_that_does_not_answer_ends_no_process() -> None:
    done = ran(REPORTS, "0.5", "0", SPOTWRIGHT_NOTICE_URL="http://127.0.0.1:1/notice")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_fork_ends_as_it_wants(notice: Path) -> None:
    done = ran(FORKS, notice=notice)
    assert (done.stdout, done.returncode) == ("7\n", 143)


def test_the_word_in_the_pod_is_read_back_and_replaces_no_other(notice: Path, tmp_path: Path) -> None:
    message = tmp_path / "termination-log"
    message.touch()
    assert ran(LEAVES, str(message), notice=notice).returncode == 143
    assert progress_in(message.read_text()) == 0.25
    message.write_text("a message of the user's")
    assert ran(LEAVES, str(message), notice=notice).returncode == 143
    assert message.read_text() == "a message of the user's"
    assert ran(LEAVES, str(tmp_path / "missing"), notice=notice).returncode == 143


def test_nothing_happens_without_a_notice(tmp_path: Path) -> None:
    message = tmp_path / "termination-log"
    message.touch()
    leave_early(0.25, {}, str(message))
    assert message.read_text() == ""


@pytest.mark.parametrize(
    ("message", "share"),
    [
        ("spotwright.dev/progress: 0.25", 0.25),
        ("Traceback\nspotwright.dev/progress: 0.25\nmore", 0.25),
        ("spotwright.dev/progress: 1", 1.0),
        ("spotwright.dev/progress: 1.5", 1.0),
        ("spotwright.dev/progress: nan", None),
        ("spotwright.dev/progress: -1", None),
        ("x spotwright.dev/progress: 0.25", None),
        ("", None),
    ],
)
def test_a_message_of_any_form_is_read(message: str, share: float | None) -> None:
    assert progress_in(message) == share


@given(st.text() | st.text(alphabet="spotwright.dev/progress: 01\n"))
def test_whatever_a_pod_says_is_a_share_or_nothing(message: str) -> None:
    share = progress_in(message)
    assert share is None or 0.0 <= share <= 1.0
