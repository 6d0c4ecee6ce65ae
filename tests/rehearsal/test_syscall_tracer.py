"""The tracer records file operations of a process and holds it at exactly one of them."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.rehearsal.conftest import Rehearse
from tests.rehearsal.sample_steps import by_hand, by_hand_and_reports, starts_over_and_reports
from tests.sampling import every

from spotwright.local.supervisor import process_identity
from spotwright.local.supervisor.kernel import FileCall
from spotwright.rehearsal import syscall_tracer
from spotwright.rehearsal.attempt_trace import FileOperation, OnSigterm
from spotwright.rehearsal.report import as_json, as_junit, as_text
from spotwright.rehearsal.syscall_tracer import SyscallTracer
from spotwright.rehearsal.verdict import Verdict

HELD = "import importlib, sys\nfrom spotwright.local.supervisor import kernel\nkernel.hold_for_tracer()\n"


class TracedProgram:
    """A held Python program below this process, with a tracer on a folder."""

    def __init__(self, folder: Path, code: str, must_hold: Callable[[FileOperation], bool] = lambda _: False) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", HELD + code], cwd=folder)
        self.tracer = SyscallTracer(os.getpid(), {folder: "here"}, must_hold)
        self.tracer.start()

    def operations(self) -> list[tuple[str, str]]:
        """Wait for the end; return the operations in the folder. Only the tracer may wait before: each stop is reported once."""
        self.tracer.join(120)
        self.process.wait(120)
        assert not self.tracer.failure
        assert self.tracer.operations[-1].call is FileCall.EXIT
        return [(each.call.value, each.path) for each in self.tracer.operations if each.area == "here"]


def test_file_operations_are_recorded_in_order(tmp_path: Path) -> None:
    code = "import os\nos.mkdir('d')\nopen('d/a', 'w').write('x')\nos.rename('d/a', 'b')\nos.unlink('b')"

    assert TracedProgram(tmp_path, code).operations() == [
        ("make", "d"), ("open", "d/a"), ("write", "d/a"), ("rename", "b"), ("remove", "b"),
    ]  # fmt: skip


def test_the_waits_of_processes_that_have_ended_count_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = TracedProgram(tmp_path, "import subprocess\nfor _ in range(3): subprocess.run(['sleep', '0'])")
    others = (str(os.getpid()), str(program.process.pid))
    monkeypatch.setattr(syscall_tracer, "_thread_delay", lambda thread: float(thread.parts[2] not in ("self", *others)))

    program.operations()

    assert program.tracer.run_delay == pytest.approx(3.0, abs=0.5)


def test_reading_is_not_recorded(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")

    assert TracedProgram(tmp_path, "open('a').read(); import os; os.listdir('.')").operations() == []


def test_operations_of_threads_and_children_are_recorded(tmp_path: Path) -> None:
    code = (
        "import subprocess, threading\n"
        "thread = threading.Thread(target=lambda: open('by-thread', 'w').close())\nthread.start()\nthread.join()\n"
        "subprocess.run(['sh', '-c', 'echo x > by-child'])"
    )

    seen = TracedProgram(tmp_path, code).operations()

    assert ("open", "by-thread") in seen
    assert ("open", "by-child") in seen


def test_a_failed_call_is_not_recorded(tmp_path: Path) -> None:
    assert (
        TracedProgram(tmp_path, "import os\ntry:\n    os.unlink('none')\nexcept OSError:\n    pass").operations() == []
    )


@pytest.mark.parametrize(("call", "size"), [(FileCall.OPEN, 0), (FileCall.WRITE, 3)])
def test_a_process_is_held_right_after_the_operation(tmp_path: Path, call: FileCall, size: int) -> None:
    reached = threading.Event()

    def must_hold(operation: FileOperation) -> bool:
        if operation.call is call and operation.area:
            reached.set()
            return True
        return False

    code = "file = open('a', 'w', buffering=1)\nfile.write('xy\\n')\nfile.close()\nopen('b', 'w').close()"
    program = TracedProgram(tmp_path, code, must_hold)
    assert reached.wait(120)

    assert [(path.name, path.stat().st_size) for path in sorted(tmp_path.iterdir())] == [("a", size)]

    os.kill(program.process.pid, signal.SIGKILL)
    program.tracer.release(resume=False)
    program.tracer.join(120)
    program.process.wait(120)


def test_no_process_is_held_once_the_attempt_is_to_be_killed(tmp_path: Path) -> None:
    reached, seen = threading.Event(), set()

    def must_hold(operation: FileOperation) -> bool:
        seen.add(operation.path)
        if len(seen) == 16:
            reached.set()
        return reached.is_set()

    code = "import os\nfor _ in range(4):\n    os.fork()\nwhile True:\n    open(str(os.getpid()), 'w').close()"
    program = TracedProgram(tmp_path, code, must_hold)
    assert reached.wait(120)
    processes = list(tree(program.process.pid))
    wait_until(lambda: all(stat is None or stat.state == "t" for stat in map(process_identity.stat, processes)))

    held = len(program.tracer.operations)
    program.tracer.release(resume=False)
    wait_until(lambda: len(program.tracer.operations) > held)  # another process stands after its operation, too
    for process in reversed(processes):
        os.kill(process, signal.SIGKILL)
    program.tracer.join(120)

    assert not program.tracer.is_alive(), "another process was held, and nobody releases it"
    program.process.wait(120)


def tree(process: int) -> list[int]:
    return [process, *(each for child in process_identity.children(process) for each in tree(child))]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("handler", "answer"),
    [
        ("signal.SIG_IGN", OnSigterm.IGNORES),
        ("lambda *_: None", OnSigterm.HANDLES),
        ("signal.SIG_DFL", OnSigterm.ENDS),
    ],
)
def test_the_answer_of_a_process_to_sigterm_is_noted(tmp_path: Path, handler: str, answer: OnSigterm) -> None:
    code = f"import signal, time\nsignal.signal(signal.SIGTERM, {handler})\nopen('ready', 'w').close()\ntime.sleep(60)"
    ready = threading.Event()

    def note_ready(_: FileOperation) -> bool:
        ready.set()
        return False

    program = TracedProgram(tmp_path, code, note_ready)
    assert ready.wait(120)

    os.kill(program.process.pid, signal.SIGTERM)
    wait_until(lambda: bool(program.tracer.trace().on_sigterm))

    assert program.tracer.trace().on_sigterm == (answer,)
    program.process.kill()
    program.tracer.join(120)
    program.process.wait(120)


@pytest.mark.parametrize(("is_sent", "answers"), [(True, (OnSigterm.BLOCKS,)), (False, ())])
def test_a_sigterm_that_the_signal_mask_of_a_child_blocks_is_noted(
    tmp_path: Path, *, is_sent: bool, answers: tuple[OnSigterm, ...]
) -> None:
    child = (
        "import signal, time; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}); "
        "open('ready', 'w').close(); time.sleep(60)"
    )
    program = TracedProgram(tmp_path, f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])")
    wait_until((tmp_path / "ready").exists)
    [blocking] = process_identity.children(program.process.pid)

    if is_sent:
        os.kill(blocking, signal.SIGTERM)
    program.tracer.note_blocked_sigterm()

    assert program.tracer.trace().on_sigterm == answers
    os.kill(blocking, signal.SIGKILL)
    program.tracer.join(120)
    program.process.wait(120)


def test_connections_to_other_processes_are_noted_with_address_and_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = TracedProgram(tmp_path, f"import socket\nsocket.create_connection(('127.0.0.1', {port})).close()")
        program.operations()

    assert program.tracer.trace().connections == (f"127.0.0.1:{port}",)


MEETS_ITSELF = """
import os, socket
made = os.pipe()
if os.fork():
    address = os.read(made[0], 100).decode()
    for host in ("127.0.0.1", "::ffff:127.0.0.1", socket.gethostbyname(socket.gethostname())):
        socket.create_connection((host, int(address))).close()
    os.wait()
else:
    server = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    os.write(made[1], str(server.getsockname()[1]).encode())
    for _ in range(3):
        server.accept()[0].close()
"""


def test_connections_of_the_attempt_to_itself_are_not_noted(tmp_path: Path) -> None:
    program = TracedProgram(tmp_path, MEETS_ITSELF)
    program.operations()

    assert program.tracer.trace().connections == ()


def test_a_writable_memory_map_of_a_watched_file_is_noted(tmp_path: Path) -> None:
    for name in ("read", "written"):
        (tmp_path / name).write_bytes(bytes(8))
    code = (
        "import mmap\nwith open('written', 'r+b') as file:\n    mmap.mmap(file.fileno(), 8)[0] = 1\n"
        "with open('read', 'rb') as file:\n    mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)"
    )

    program = TracedProgram(tmp_path, code)
    program.operations()

    assert program.tracer.trace().mapped == (("here", "written"),)


def test_a_held_process_without_a_tracer_runs_without_a_filter(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HELD + "open('a', 'w').write('x')"], cwd=tmp_path)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    os.kill(process.pid, signal.SIGCONT)

    assert process.wait(120) == 0
    assert (tmp_path / "a").read_text() == "x"


def test_a_process_in_which_no_filter_was_installed_is_not_taken_for_one_that_changes_no_file(tmp_path: Path) -> None:
    code = "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nopen('a', 'w').write('x')"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    tracer = SyscallTracer(os.getpid(), {tmp_path: "here"}, lambda _: False)
    tracer.start()
    tracer.join(120)

    assert process.wait(120) == 0
    assert tracer.trace().failure == "no seccomp filter could be installed"


def test_a_process_that_ends_from_another_thread_is_traced_as_any_other(tmp_path: Path) -> None:
    code = "import os, threading\nopen('a', 'w').close()\nthreading.Thread(target=os._exit, args=(0,)).start()"
    program = TracedProgram(tmp_path, code)
    program.tracer.join(120)

    assert program.process.wait(120) == 0
    assert program.tracer.trace().failure == ""
    assert [each.path for each in program.tracer.operations if each.area] == ["a"]


def refuse(*_: object) -> int:
    """As ptrace(2) answers where a security profile or the kernel forbids it."""
    ctypes.set_errno(errno.EPERM)
    return -1


def test_on_a_machine_whose_system_calls_are_not_known_a_process_runs_untraced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syscall_tracer, "is_supported_machine", lambda: False)
    program = TracedProgram(tmp_path, "open('a', 'w').write('x')")
    program.tracer.join(120)

    assert program.process.wait(120) == 0
    assert (tmp_path / "a").read_text() == "x"
    trace = program.tracer.trace()
    assert trace.failure == f"the system calls of this machine ({platform.machine()}) are not known"
    assert trace.operations == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "verdict"),
    every(
        3,
        [
            (by_hand, Verdict.RESUMES),
            (by_hand_and_reports, Verdict.RESUMES),
            (starts_over_and_reports, Verdict.STARTS_OVER),
        ],
    ),
)
def test_without_permission_to_trace_a_report_says_so_and_claims_nothing_that_only_a_trace_shows(
    step: Callable[..., object], verdict: Verdict, rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syscall_tracer, "_ptrace", refuse)

    rehearsal = rehearse(step)

    text, [data] = as_text(rehearsal), as_json(rehearsal)["steps"]
    why = "ptrace is refused: Operation not permitted"
    assert text.startswith(f"step: {verdict}, as far as it was tried\n"), text
    assert f"; not traced: {why}\n" in text
    assert "unknown whether it survives an interruption inside a save or between outputs" in text
    assert "it saved nothing" not in text
    only_by_trace = (
        "saves",
        "unread",
        "not_passed_on",
        "longest_save",
        "lost_files",
        "connections",
        "mapped_saves",
        "ignores_sigterm",
    )
    assert (data["not_traced"], [data[name] for name in only_by_trace]) == (why, [None] * len(only_by_trace))
    assert {point["kind"] for point in data["points"]} == {"start", "middle", "lives", "end", "several"}
    assert f"not traced: {why}" in as_junit(rehearsal, must_resume=False)
