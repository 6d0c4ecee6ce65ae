"""Attempts and machines that do their worst to the shim above them: nobody waits for ever, and no other attempt pays for it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.local.lab import Lab, until
from tests.local.test_shim import SLEEP

from spotwright.local import identity
from spotwright.local.attending import Attended
from spotwright.local.endings import keep_reason
from spotwright.local.lines import Line
from spotwright.local.orders import Environment, Started, StartFailed, read_exit
from spotwright.local.recovery import settle

NOTHING = "def work():\n    pass\n"

# A fork server that cannot fork. It answers when both requests are there, and says so when all is sent.
CANNOT_FORK = """#!{python}
import os, socket, sys
from spotwright.local.frames import pack
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

# A shim that is given two orders, and whose attempts leave a signal behind that came too late for them.
LATE_SIGNAL = """
import os, signal, socket
from spotwright.local import shim
from spotwright.local.frames import pack

class Attended:
    left_nothing = True
    def __init__(self, order, listen): pass
    def attend(self):
        os.kill(os.getpid(), signal.SIGTERM)
        return {}

shim.Attended = Attended
engine, theirs = socket.socketpair()
for key in ("first", "second"):
    engine.sendall(pack({"key": key}))
if os.fork() == 0:
    shim.Shim(theirs.fileno()).serve()
    os._exit(0)
theirs.close()
said = b""
while part := engine.recv(1 << 16):
    said += part
print(b"here" in said, b"second" in said)
"""

# What an attempt leaves below its shim, where the shim may kill nothing.
CANNOT_KILL = """
import os, subprocess, sys
from spotwright.local import attending

def refused(*_):
    raise PermissionError

os.kill, kill, attending._OTHERS_PATIENCE = refused, os.kill, 0.1
left = subprocess.Popen(["sleep", "600"])
attended = attending.Attended({"directory": sys.argv[1], "container": None, "mounts": ()}, lambda until: None)
attended._has_begun = True
attended._kill_below()
kill(left.pid, 9)
print(left.pid, attended.left_nothing)
"""


def run(source: str, *arguments: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(source), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout


def test_shims_that_cannot_be_forked_fail_their_orders_and_not_the_engine(lab: Lab, tmp_path: Path) -> None:
    python, answered = tmp_path / "python", tmp_path / "answered"
    python.write_text(CANNOT_FORK.format(python=sys.executable, answered=str(answered)))
    python.chmod(0o755)
    keys = [lab.start(NOTHING, name=name, environment=Environment(python=str(python))) for name in ("one", "two")]
    until(answered.exists, "the answer")  # so that one look at the selector tells of the server and of both shims
    assert {"no room" in lab.wait_for(StartFailed, key).reason for key in keys} == {True}


def test_closing_waits_also_for_shims_that_no_descriptor_was_left_for(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as limit:
        limit.setattr(Line, "hold", lambda _: None)
        lab.play(NOTHING)
    shim = lab.wait_for(Started, "task#1").pid
    os.kill(shim, signal.SIGSTOP)  # a shim that takes its time
    lab.close()
    assert identity.stat(shim) is None or identity.stat(shim).state in "ZX"  # type: ignore[union-attr]


def test_attempts_with_secrets_leave_no_descriptors_in_their_shim(lab: Lab) -> None:
    counts = []
    for name in ("first", "second", "third"):
        lab.play(NOTHING, name=name, mask=(b"a secret",))
        counts.append(len(os.listdir(f"/proc/{lab.wait_for(Started, f'{name}#1').pid}/fd")))  # noqa: PTH208
    assert len(set(counts)) == 1


def test_a_signal_that_came_too_late_for_an_attempt_reaches_no_other() -> None:
    assert run(LATE_SIGNAL) == "True False\n"


def test_an_attempt_whose_shim_somebody_has_stopped_can_be_ended(lab: Lab) -> None:
    key = lab.start(SLEEP)
    lab.number("pid")
    os.kill(lab.wait_for(Started, key).pid, signal.SIGSTOP)
    lab.processes.kill(key)
    assert lab.end(key).signal == signal.SIGKILL


def test_a_process_that_may_not_be_killed_is_named_and_holds_nobody_up(tmp_path: Path) -> None:
    pid, left_nothing = run(CANNOT_KILL, str(tmp_path)).split()
    assert left_nothing == "False"
    assert pid in (tmp_path / "log.txt").read_text()


def test_an_attempt_whose_directory_has_lost_its_rights_has_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an ordinary user meets it: whoever runs the tests may have all rights."""
    overwrite = identity.overwrite

    def checked(path: str, content: bytes, place: int) -> None:
        if not tmp_path.stat().st_mode & 0o200:
            raise PermissionError
        overwrite(path, content, place)

    monkeypatch.setattr(identity, "overwrite", checked)
    identity.claim(tmp_path, {})
    attended = Attended({"directory": str(tmp_path)}, lambda until: None)
    attended._line = identity.as_line({})
    tmp_path.chmod(0o555)
    attended._write({"started_at": 1.0, "ended_at": 2.0, "seconds": 1.0})
    assert read_exit(tmp_path) is not None


def test_a_record_for_which_there_is_no_second_name_takes_that_of_the_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a full tmpfs, which counts names; whoever recovers the run finds the record all the same."""
    identity.claim(tmp_path, {}, 2048)
    attended = Attended({"directory": str(tmp_path)}, lambda until: None)
    attended._line = identity.as_line({})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as machine:
        machine.setattr(os, "link", full)
        attended._write({"started_at": 1.0, "ended_at": 2.0, "seconds": 1.0, "exit_code": 4})
    record = settle(tmp_path, run="r", epoch=2)
    assert record is not None
    assert record.exit_code == 4


def test_what_an_attempt_puts_in_the_place_of_its_record_does_not_stay(lab: Lab) -> None:
    assert lab.play("def work():\n    open('../exit.jsonl', 'w')\n    raise SystemExit(4)\n").exit_code == 4


def test_a_reason_that_no_log_has_room_for_is_given_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "log.txt").mkdir()
    assert keep_reason(tmp_path, "first\nlast") == "last"
