"""Ctrl-C at the moments at which Python loses it or prints a traceback: forks, starting interpreters, destructors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spotwright.interrupts import interrupts_held
from spotwright.local.supervisor.mounts import try_in_child

DESTRUCTOR = """
import signal, time
from spotwright.interrupts import lost_interrupts_repeated

class Interrupted:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

try:
    with lost_interrupts_repeated():
        Interrupted()
        time.sleep(120)
except KeyboardInterrupt:
    print("interrupted")
"""

COMMAND = """
import signal
import spotwright.cli

class Field:
    def __set_name__(self, owner, name):
        signal.raise_signal(signal.SIGINT)

def interrupted(**_):
    INTERRUPTED

spotwright.cli.cli.main = interrupted
spotwright.cli.main()
"""


def interrupt_parent() -> bytes:
    os.kill(os.getppid(), signal.SIGINT)
    return b"+"


def test_an_interrupt_is_raised_after_the_block_that_holds_it() -> None:
    steps = []

    def interrupted() -> None:
        with interrupts_held():
            os.kill(os.getpid(), signal.SIGINT)
            steps.append("in the block")
        steps.append("after the block")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert steps == ["in the block"]


def test_an_interrupt_in_a_destructor_is_repeated_until_it_arrives() -> None:
    done = subprocess.run([sys.executable, "-c", DESTRUCTOR], capture_output=True, text=True, timeout=600, check=False)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


def test_an_interrupt_while_a_child_tries_something_waits_for_the_childs_end() -> None:
    results = []

    def interrupted() -> None:
        with interrupts_held():
            results.append(try_in_child(interrupt_parent))

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert results == [b"+"]
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_an_interrupt_that_another_thread_receives_is_held_too() -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)  # it does not block SIGINT, so the kernel chooses it
    thread.start()
    try:
        test_an_interrupt_is_raised_after_the_block_that_holds_it()
    finally:
        ended.set()
        thread.join()


def test_the_compilers_process_ends_silently_when_it_is_interrupted_at_its_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "spotwright.kfp.compiler_process", "absent.py", str(tmp_path / "result")]
    with interrupts_held():
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert (process.returncode, errors) == (-signal.SIGINT, "")


@pytest.mark.parametrize("module", ["spotwright.runs.engine_process", "spotwright.rehearsal.process"])
def test_the_process_of_the_python_api_ends_silently_when_it_is_interrupted_at_its_start(module: str) -> None:
    with interrupts_held():
        process = subprocess.Popen(
            [sys.executable, "-m", module], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert (process.returncode, errors) == (130, "")


@pytest.mark.parametrize("code", ["exec('signal.raise_signal(signal.SIGINT)')", "type('Made', (), {'field': Field()})"])
def test_a_command_ends_with_130_where_the_interrupt_comes_while_a_class_is_made(tmp_path: Path, code: str) -> None:
    (tmp_path / "interrupted_command.py").write_text(COMMAND.replace("INTERRUPTED", code))
    command = [sys.executable, "-m", "interrupted_command"]  # as "python -m spotwright"; a script is not affected
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (130, "")
