"""``kill -9`` of the engine's helper processes: the shim of an attempt, the fork server, both, and everything at once."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.building import Of, step
from tests.e2e.crashes.soundness import assert_sound
from tests.e2e.inside import alone, attempt, hold, note, raise_file, the_time_of, until
from tests.e2e.project import QUICK, Project, RunningCommand, alive, eventually


def holds_at_first() -> int:
    """Holds in its first attempt, with a daemon in a new session beside it."""
    with alone():
        if attempt() == 1:
            child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
            note("daemon", daemon=child.pid, started=the_time_of(child.pid))
            raise_file("holding")
            hold()
        return 1


def waits() -> int:
    with alone():
        raise_file("waiting")
        until("go on")
        return 1


def adds_one(number: int) -> int:
    with alone():
        return number + 1


def holding(project: Project) -> RunningCommand:
    """A run whose first task holds; the second is downstream of it."""
    steps = {"first": step(holds_at_first), "second": step(adds_one, {"number": Of("first")})}
    started = project.start("run", str(project.pipeline(steps)), "--name", "r")
    eventually((project.playground / "holding").exists)
    return started


def kill(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def assert_daemon_has_gone(project: Project) -> None:
    [daemon] = project.ledger("daemon")
    assert not alive(daemon["daemon"], daemon["started"])


def test_an_attempt_whose_shim_is_killed_ends_with_all_its_processes_and_is_retried(project: Project) -> None:
    started = holding(project)
    kill(project.shim("first"))
    assert started.wait().code == 0
    assert project.causes("first") == ["lost", "succeeded"]
    assert_daemon_has_gone(project)
    assert_sound(project)


def test_attempts_go_on_when_the_fork_server_is_killed_and_later_ones_get_a_new_one(project: Project) -> None:
    steps = {"first": step(waits), "second": step(adds_one, {"number": Of("first")})}
    started = project.start("run", str(project.pipeline(steps)), "--name", "r")
    eventually((project.playground / "waiting").exists)
    [server] = project.fork_servers()
    kill(server)
    eventually(lambda: not alive(server))
    project.raise_file("go on")
    assert started.wait().code == 0
    assert [project.causes(task) for task in ("first", "second")] == [["succeeded"], ["succeeded"]]
    assert_sound(project)


def test_an_attempt_whose_shim_and_fork_server_are_killed_is_tried_again(project: Project) -> None:
    started = holding(project)
    kill(*project.fork_servers(), project.shim("first"))
    assert started.wait().code == 0
    assert project.causes("first") == ["lost", "succeeded"]
    assert_daemon_has_gone(project)
    assert_sound(project)


@pytest.mark.long
def test_the_next_engine_ends_running_attempts_before_it_retries_them(project: Project) -> None:
    started = holding(project)
    shim = project.shim("first")
    assert started.kill().code == -9
    assert alive(shim)
    assert project.spotwright("resume", "r").code == 0
    assert project.causes("first") == ["lost", "succeeded"]
    assert_daemon_has_gone(project)
    assert_sound(project)


@pytest.mark.long
@pytest.mark.parametrize("order", ["engine first", "engine last"])
def test_a_run_can_be_resumed_after_all_of_its_processes_were_killed(project: Project, order: str) -> None:
    started = holding(project)
    everything = sorted(project.processes(), key=lambda pid: (pid == started.pid) == (order == "engine last"))
    started.send(signal.SIGSTOP)  # or it may already begin the next attempt while the others are killed
    kill(*everything)
    started.wait()
    assert project.spotwright("resume", "r").code == 0
    assert project.causes("first") == ["lost", "succeeded"]
    assert_daemon_has_gone(project)
    assert_sound(project)


@pytest.mark.long
def test_an_attempt_that_finished_without_an_engine_is_not_run_again(project: Project) -> None:
    steps = {"first": step(waits), "second": step(adds_one, {"number": Of("first")})}
    started = project.start("run", str(project.pipeline(steps)), "--name", "r")
    eventually((project.playground / "waiting").exists)
    started.kill()
    project.raise_file("go on")
    eventually((project.attempt("first") / "exit.jsonl").exists)
    assert project.spotwright("resume", "r").code == 0
    assert [project.causes(task) for task in ("first", "second")] == [["succeeded"], ["succeeded"]]
    assert project.noted("start", "first") == [1]
    assert_sound(project)


@pytest.mark.long
def test_the_log_of_an_attempt_continues_after_the_end_of_its_engine(project: Project) -> None:
    steps = {"first": step(waits_and_prints)}
    started = project.start("run", str(project.pipeline(steps)), "--name", "r")
    eventually((project.playground / "waiting").exists)
    started.kill()
    project.raise_file("go on")
    eventually((project.attempt("first") / "exit.jsonl").exists)
    assert project.here("logs", "r", "first", "1").out == "written later\n"
    assert project.spotwright("resume", "r").code == 0


def waits_and_prints() -> int:
    raise_file("waiting")
    until("go on")
    sys.stdout.write("written later\n")
    return 1


@pytest.mark.long
def test_a_run_of_the_same_name_in_another_folder_is_left_alone(project: Project, tmp_path: Path) -> None:
    """Its attempts are not this run's, though the names of run, task and attempt are the same."""
    beside = Project(tmp_path / "beside")
    beside.config(QUICK)
    other = holding(beside)
    holding(project).kill()
    assert project.spotwright("resume", "r").code == 0
    beside.raise_file("go on")
    other.send(signal.SIGTERM)
    assert other.wait().code == 130
    assert beside.causes("first") == ["cancelled"]
    assert beside.processes() == {}


@pytest.mark.long
def test_one_run_is_driven_by_one_engine(project: Project) -> None:
    started = holding(project)
    second = project.spotwright("resume", "r")
    assert (second.code, second.out) == (2, "")
    assert second.error_lines == [
        f"spotwright: run r is driven by another engine (process {started.pid}): wait for it or cancel it"
    ]
    assert project.spotwright("cancel", "r").code == 0
    started.wait()


@pytest.mark.long
def test_of_two_engines_that_take_up_a_run_at_once_one_drives_it(project: Project) -> None:
    holding(project).kill()
    both = [project.start("resume", "r") for _ in range(2)]
    codes = sorted(each.wait().code for each in both)
    assert codes in ([0, 0], [0, 2])  # the later one finds it driven, or finds that it has succeeded
    assert project.causes("first") == ["lost", "succeeded"]
    assert_sound(project)


@pytest.mark.long
def test_a_process_with_the_pid_of_a_dead_engine_does_not_hold_the_lease(project: Project) -> None:
    """The lease identifies a process by its start time too: here it names another process's pid."""
    holding(project).kill()
    with contextlib.closing(sqlite3.connect(project.state / "runs" / "r" / "journal.db")) as journal, journal:
        journal.execute("UPDATE lease SET owner = json_set(owner, '$.pid', ?)", (os.getpid(),))
    assert project.spotwright("resume", "r").code == 0
