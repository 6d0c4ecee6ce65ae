"""The tracer sees what a process does to its files, and stops it exactly there."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.rehearse.conftest import Rehearse
from tests.rehearse.zoo import by_hand, starts_over, torn_slowly

from spotwright.local.syscalls import Call
from spotwright.rehearsal import tracer
from spotwright.rehearsal.report import as_text
from spotwright.rehearsal.tracer import Op, Tracer
from spotwright.rehearsal.verdict import Verdict

HELD = "import importlib, sys\nfrom spotwright.local import syscalls\nsyscalls.hold()\n"


class Watched:
    """A held Python program below this process, with a tracer on a folder."""

    def __init__(self, folder: Path, code: str, wanted: Callable[[Op], bool] = lambda _: False) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", HELD + code], cwd=folder)
        self.tracer = Tracer(os.getpid(), {folder: "here"}, wanted)
        self.tracer.start()

    def done(self) -> list[tuple[str, str]]:
        """The operations on the folder until its end. Nobody else may wait for the process before: a stop is told once."""
        self.tracer.join(20)
        self.process.wait(20)
        assert not self.tracer.failed
        assert self.tracer.ops[-1].call is Call.EXIT
        return [(op.call.value, op.path) for op in self.tracer.ops if op.place == "here"]


def test_every_change_of_a_file_is_seen_in_order(tmp_path: Path) -> None:
    code = "import os\nos.mkdir('d')\nopen('d/a', 'w').write('x')\nos.rename('d/a', 'b')\nos.unlink('b')"

    assert Watched(tmp_path, code).done() == [
        ("make", "d"), ("open", "d/a"), ("write", "d/a"), ("rename", "b"), ("remove", "b"),
    ]  # fmt: skip


def test_reading_is_not_seen(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")

    assert Watched(tmp_path, "open('a').read(); import os; os.listdir('.')").done() == []


def test_threads_and_children_are_seen_too(tmp_path: Path) -> None:
    code = (
        "import subprocess, threading\n"
        "thread = threading.Thread(target=lambda: open('by-thread', 'w').close())\nthread.start()\nthread.join()\n"
        "subprocess.run(['sh', '-c', 'echo x > by-child'])"
    )

    seen = Watched(tmp_path, code).done()

    assert ("open", "by-thread") in seen
    assert ("open", "by-child") in seen


def test_a_call_that_fails_is_not_seen(tmp_path: Path) -> None:
    assert Watched(tmp_path, "import os\ntry:\n    os.unlink('none')\nexcept OSError:\n    pass").done() == []


@pytest.mark.parametrize(("call", "size"), [(Call.OPEN, 0), (Call.WRITE, 3)])
def test_it_stands_still_right_after_the_operation(tmp_path: Path, call: Call, size: int) -> None:
    reached = threading.Event()

    def wanted(op: Op) -> bool:
        if op.call is call and op.place:
            reached.set()
            return True
        return False

    code = "file = open('a', 'w', buffering=1)\nfile.write('xy\\n')\nfile.close()\nopen('b', 'w').close()"
    watched = Watched(tmp_path, code, wanted)
    assert reached.wait(20)

    assert [(path.name, path.stat().st_size) for path in sorted(tmp_path.iterdir())] == [("a", size)]

    os.kill(watched.process.pid, signal.SIGKILL)
    watched.tracer.let_go(resume=False)
    watched.tracer.join(10)
    watched.process.wait(20)


def test_without_a_tracer_it_runs_as_it_is(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HELD + "open('a', 'w').write('x')"], cwd=tmp_path)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    os.kill(process.pid, signal.SIGCONT)

    assert process.wait(20) == 0
    assert (tmp_path / "a").read_text() == "x"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("animal", "verdict"),
    [(by_hand, Verdict.RESUMES), (torn_slowly, Verdict.UNSAFE), (starts_over, Verdict.STARTS_OVER)],
)
def test_where_tracing_is_not_allowed_saves_are_seen_from_outside(
    animal: Callable[..., object], verdict: Verdict, rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        ctypes.set_errno(errno.EPERM)
        return -1

    monkeypatch.setattr(tracer, "_ptrace", refuse)

    found = rehearse(animal)

    assert found.steps[0].learnt.looked
    assert not found.steps[0].learnt.traced
    assert found.steps[0].verdict is verdict, as_text(found)
