"""Failures of attempts and of the machine: the supervisor never hangs, and other attempts are not affected."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.local.process_harness import ProcessHarness, until
from tests.local.programs import SLEEP

from spotwright.local.ends import keep_reason
from spotwright.local.fork_server_client import ShimConnection
from spotwright.local.protocol import PythonEnvironment, Started, StartFailed, read_exit
from spotwright.local.recovery import settle
from spotwright.local.supervisor import process_identity
from spotwright.local.supervisor.attempt_supervisor import AttemptSupervisor
from spotwright.local.supervisor.private_folders import PrivateFolders

NOTHING = "def work():\n    pass\n"

# A fork server that cannot fork. It answers after both requests, and makes a file when all answers are sent.
CANNOT_FORK = """#!{python}
import os, socket, sys
from spotwright.local.supervisor.frames import pack
engine = socket.socket(fileno=int(sys.argv[3]))
given = []
while len(given) < 2:
    given += socket.recv_fds(engine, 1 << 16, 8)[1]
for number in (1, 2):
    engine.sendall(pack({{"failed": number, "why": "no room"}}))
for descriptor in given:
    os.close(descriptor)
open({answered!r}, "w").close()
engine.recv(1)
"""

# A shim with two orders; a signal for each attempt comes too late and is still pending after it.
LATE_SIGNAL = """
import os, signal, socket
from spotwright.local.supervisor import fork_server as shim
from spotwright.local.supervisor.frames import pack

class AttemptSupervisor:
    shim_is_reusable = True
    def __init__(self, order, next_signal): pass
    def run(self):
        os.kill(os.getpid(), signal.SIGTERM)
        return {}

shim.AttemptSupervisor = AttemptSupervisor
engine, theirs = socket.socketpair()
for key in ("first", "second"):
    engine.sendall(pack({"key": key, "private": None}))
if os.fork() == 0:
    shim.Shim(theirs.fileno()).serve()
    os._exit(0)
theirs.close()
received = b""
while part := engine.recv(1 << 16):
    received += part
print(b"starttime" in received, b"second" in received)
"""

# A supervisor that may not kill the process that its attempt has left.
CANNOT_KILL = """
import os, subprocess, sys
from spotwright.local.supervisor import attempt_supervisor
from spotwright.local.supervisor.private_folders import PrivateFolders

def refused(*_):
    raise PermissionError

os.kill, kill, attempt_supervisor._UNKILLABLE_TIMEOUT = refused, os.kill, 0.1
left = subprocess.Popen(["sleep", "600"])
order = {"directory": sys.argv[1], "container": None, "mounts": ()}
supervisor = attempt_supervisor.AttemptSupervisor(order, lambda until: None, PrivateFolders())
supervisor._is_started = True
supervisor._kill_below()
kill(left.pid, 9)
print(left.pid, supervisor.shim_is_reusable)
"""


def run(source: str, *arguments: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(source), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout


def test_a_failed_fork_of_a_shim_fails_only_its_order(harness: ProcessHarness, tmp_path: Path) -> None:
    python, answered = tmp_path / "python", tmp_path / "answered"
    python.write_text(CANNOT_FORK.format(python=sys.executable, answered=str(answered)))
    python.chmod(0o755)
    keys = [
        harness.start(NOTHING, name=name, environment=PythonEnvironment(python=str(python))) for name in ("one", "two")
    ]
    until(answered.exists, "the answer")  # so that one call of the selector reports the server and both shims
    assert {"no room" in harness.wait_for(StartFailed, key).reason for key in keys} == {True}


def test_closing_waits_for_a_shim_without_a_pidfd(harness: ProcessHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as limit:
        limit.setattr(ShimConnection, "open_pidfd", lambda _: None)
        harness.play(NOTHING)
    shim = harness.wait_for(Started, "task#1").pid
    os.kill(shim, signal.SIGSTOP)  # a shim that does not end at once
    harness.close()
    assert process_identity.stat(shim) is None or process_identity.stat(shim).state in "ZX"  # type: ignore[union-attr]


def test_attempts_with_secrets_leave_no_descriptors_in_their_shim(harness: ProcessHarness) -> None:
    counts = []
    for name in ("first", "second", "third"):
        harness.play(NOTHING, name=name, secrets=(b"a secret",))
        counts.append(len(os.listdir(f"/proc/{harness.wait_for(Started, f'{name}#1').pid}/fd")))  # noqa: PTH208
    assert len(set(counts)) == 1


def test_a_late_signal_for_an_attempt_does_not_reach_the_next_one() -> None:
    assert run(LATE_SIGNAL) == "True False\n"


def test_an_attempt_with_a_stopped_shim_can_be_ended(harness: ProcessHarness) -> None:
    key = harness.start(SLEEP)
    harness.number("pid")
    os.kill(harness.wait_for(Started, key).pid, signal.SIGSTOP)
    harness.processes.kill(key)
    assert harness.end(key).signal == signal.SIGKILL


def test_a_process_of_another_user_is_logged_and_blocks_nothing(tmp_path: Path) -> None:
    pid, shim_is_reusable = run(CANNOT_KILL, str(tmp_path)).split()
    assert shim_is_reusable == "False"
    assert pid in (tmp_path / "log.txt").read_text()


def test_an_attempt_with_a_read_only_directory_gets_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tested with PermissionError from the kernel call, because the tests may run as root."""
    overwrite = process_identity.overwrite

    def checked(path: str, content: bytes, place: int) -> None:
        if not tmp_path.stat().st_mode & 0o200:
            raise PermissionError
        overwrite(path, content, place)

    monkeypatch.setattr(process_identity, "overwrite", checked)
    process_identity.claim(tmp_path, {})
    supervisor = AttemptSupervisor({"directory": str(tmp_path)}, lambda until: None, PrivateFolders())
    supervisor._claim_line = process_identity.as_line({})
    tmp_path.chmod(0o555)
    supervisor._write({"started_at": 1.0, "ended_at": 2.0, "seconds": 1.0})
    assert read_exit(tmp_path) is not None


def test_a_record_replaces_the_claim_if_no_second_name_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a full tmpfs, which counts names; recovery still reads the record."""
    process_identity.claim(tmp_path, {}, 2048)
    supervisor = AttemptSupervisor({"directory": str(tmp_path)}, lambda until: None, PrivateFolders())
    supervisor._claim_line = process_identity.as_line({})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as machine:
        machine.setattr(os, "link", full)
        supervisor._write({"started_at": 1.0, "ended_at": 2.0, "seconds": 1.0, "exit_code": 4})
    record = settle(tmp_path, folder=tmp_path, run="r", epoch=2)
    assert record is not None
    assert record.exit_code == 4


def test_a_file_that_an_attempt_makes_as_its_record_is_replaced(harness: ProcessHarness) -> None:
    assert harness.play("def work():\n    open('../exit.jsonl', 'w')\n    raise SystemExit(4)\n").exit_code == 4


def test_a_reason_that_cannot_be_logged_is_still_returned(tmp_path: Path) -> None:
    (tmp_path / "log.txt").mkdir()
    assert keep_reason(tmp_path, "first\nlast") == "last"
