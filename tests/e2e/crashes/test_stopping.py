"""Stopping a run: Ctrl-C, SIGTERM, a second Ctrl-C, and ``cancel`` from another process, with an engine and without."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.building import Of, step
from tests.e2e.crashes.soundness import assert_sound
from tests.e2e.inside import alone, attempt, hold, note, progress, raise_file
from tests.e2e.project import QUICK, Project, RunningCommand, eventually
from tests.sampling import every

PATIENT = """
from spotwright.cli import main
from spotwright.local import backend
backend.HALT_GRACE = 600.0
main()
"""
"""The command, with an engine that waits ten minutes for attempts that it halts, where it would wait ten seconds."""

STUBBORN = f"{QUICK.rstrip().removesuffix('default: {spot: prefer}')}default: {{spot: prefer, grace_period: 20m}}\n"


def adds_one(number: int) -> int:
    with alone():
        return number + 1


def holds_at_first(number: int) -> int:
    with alone():
        if attempt() == 1:
            raise_file("holding")
            hold()
        return number


def saves_when_told() -> int:
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    raise_file("holding")
    if attempt() == 1:
        while not told:
            time.sleep(0.005)
        note("told")
        time.sleep(0.2)  # what it takes to save
        note("saved")
    return attempt()


def saves_half_way_when_told() -> int:
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    progress(0.5)
    raise_file("holding")
    while attempt() == 1 and not told:
        time.sleep(0.005)
    return attempt()


def never_ends() -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise_file("holding")
    hold()


def running(project: Project, *options: str) -> RunningCommand:
    """A run whose first task has succeeded and whose second one holds; the third is downstream of it."""
    steps = {
        "first": step(adds_one, {"number": 1}),
        "second": step(holds_at_first, {"number": Of("first")}),
        "third": step(adds_one, {"number": Of("second")}),
    }
    return held(project, project.pipeline(steps), *options)


def held(project: Project, pipeline: Path, *options: str) -> RunningCommand:
    started = project.start("run", str(pipeline), "--name", "r", *options)
    eventually((project.playground / "holding").exists)
    return started


@contextmanager
def silent_index() -> Iterator[str]:
    """The address of a package index that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/simple"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_run_ends_every_process_and_prints_how_to_resume(
    project: Project, number: signal.Signals
) -> None:
    started = running(project)
    started.send(number)
    done = started.wait()
    assert project.processes() == {}
    assert done.code == 130
    assert done.error_lines == ["stopped; go on with: spotwright resume r"]
    assert project.show()["status"] == "stopped"
    assert project.causes("second") == ["cancelled"]


def test_a_stopped_run_goes_on_where_it_was(project: Project) -> None:
    started = running(project)
    started.send(signal.SIGINT)
    started.wait()
    assert project.spotwright("resume", "r").code == 0
    assert project.show()["outputs"]["third.Output"]["value"] == 3
    assert [project.causes(task) for task in ("first", "second", "third")] == [
        ["succeeded"],
        ["cancelled", "succeeded"],
        ["succeeded"],
    ]
    assert_sound(project)


def test_an_attempt_has_time_to_save_when_its_run_is_stopped(project: Project) -> None:
    started = held(project, project.pipeline({"it": step(saves_when_told)}))
    started.send(signal.SIGINT)
    assert started.wait().code == 130
    assert [line["what"] for line in project.ledger()] == ["told", "saved"]


def test_an_attempt_that_finishes_while_its_run_is_stopped_is_not_run_again(project: Project) -> None:
    started = held(project, project.pipeline({"it": step(saves_when_told)}))
    started.send(signal.SIGINT)
    assert started.wait().code == 130
    assert project.spotwright("resume", "r").code == 0
    assert project.causes("it") == ["succeeded"]
    assert project.noted("saved") == [1]


def test_an_attempt_that_returns_with_work_left_while_its_run_is_stopped_is_run_again(project: Project) -> None:
    started = held(project, project.pipeline({"it": step(saves_half_way_when_told)}))
    started.send(signal.SIGINT)
    assert started.wait().code == 130
    assert project.spotwright("resume", "r").code == 0
    assert project.causes("it") == ["cancelled", "succeeded"]
    assert project.show()["outputs"]["it.Output"]["value"] == 2


def test_an_attempt_that_finishes_while_its_run_is_cancelled_is_cancelled(project: Project) -> None:
    started = held(project, project.pipeline({"it": step(saves_when_told)}))
    assert project.spotwright("cancel", "r").code == 0
    assert started.wait().code == 130
    assert project.causes("it") == ["cancelled"]


def test_a_second_ctrl_c_does_not_wait_for_grace_periods(project: Project) -> None:
    project.config(STUBBORN)
    pipeline = project.pipeline({"it": step(never_ends)})
    started = project.start("run", str(pipeline), "--name", "r", program=("-c", PATIENT))
    eventually((project.playground / "holding").exists)
    started.send(signal.SIGINT)
    eventually(lambda: "halt" in project.kinds())
    started.send(signal.SIGINT)
    assert started.wait().code == 130  # long before the ten minutes that it waits after the first alone


def test_a_signal_to_the_whole_group_as_a_terminal_sends_it_stops_as_cleanly(project: Project) -> None:
    started = running(project)
    for pid in [started.pid, *(pid for pid in project.processes() if os.getpgid(pid) == os.getpgid(started.pid))]:
        os.kill(pid, signal.SIGINT)
    assert started.wait().code == 130
    assert project.causes("second") == ["cancelled"]


def test_ctrl_c_while_packages_are_installed_stops_the_installer_too(project: Project) -> None:
    with silent_index() as index:
        project.extra |= {"PIP_INDEX_URL": index, "PIP_RETRIES": "0", "UV_DEFAULT_INDEX": index}
        pipeline = project.pipeline({"it": step(adds_one, {"number": 1}, packages=["nothing-of-this-name"])})
        started = project.start("run", str(pipeline), "--name", "r")
        eventually(lambda: any("install" in command for command in project.processes().values()))
        started.send(signal.SIGINT)
        assert started.wait().code == 130
    assert project.processes() == {}


@pytest.mark.long
def test_a_run_survives_kill_9_while_packages_are_installed(project: Project) -> None:
    with silent_index() as index:
        project.extra |= {"PIP_INDEX_URL": index, "PIP_RETRIES": "0", "UV_DEFAULT_INDEX": index}
        pipeline = project.pipeline({"it": step(adds_one, {"number": 1}, packages=["nothing-of-this-name"])})
        started = project.start("run", str(pipeline), "--name", "r")
        eventually(lambda: any("install" in command for command in project.processes().values()))
        started.kill()
        assert project.spotwright("cancel", "r").code == 0
    assert project.processes() == {}


def test_cancel_from_another_process_waits_until_every_attempt_has_ended(project: Project) -> None:
    started = running(project)
    done = project.spotwright("cancel", "r")
    assert (done.code, done.out) == (0, "run r: cancelled\n")
    assert [pid for pid in project.processes() if pid != started.pid] == []
    assert started.wait().code == 130
    assert project.show()["status"] == "cancelled"
    assert project.causes("second") == ["cancelled"]


def test_cancel_ends_the_attempts_of_a_dead_engine(project: Project) -> None:
    running(project).kill()
    assert project.processes() != {}
    done = project.spotwright("cancel", "r", "--json")
    assert done.code == 0
    assert done.json()["status"] == "cancelled"
    assert project.processes() == {}
    assert project.noted("start", "third") == []


def test_a_cancelled_run_can_be_resumed(project: Project) -> None:
    running(project).kill()
    project.spotwright("cancel", "r")
    assert project.spotwright("resume", "r").code == 0
    assert project.noted("start", "first") == [1]
    assert_sound(project)


def test_a_run_that_has_ended_cannot_be_cancelled(project: Project) -> None:
    assert project.run(project.pipeline({"it": step(adds_one, {"number": 1})})).code == 0
    done = project.spotwright("cancel", "r")
    assert (done.code, done.error_lines) == (2, ["spotwright: run r has ended already: it succeeded"])


@pytest.mark.parametrize("reached", every(2, ["both", "the command", "the compiler"]))
def test_ctrl_c_during_compilation_prints_nothing_and_starts_no_run(project: Project, reached: str) -> None:
    pipeline = project.write(
        "slow.py", "import pathlib, time; from kfp import dsl\npathlib.Path('compiling').touch()\ntime.sleep(60)\n"
    )
    started = project.start("run", str(pipeline))
    eventually((project.folder / "compiling").exists)
    compiler = [pid for pid in project.processes() if pid != started.pid]
    pids = {"both": [*compiler, started.pid], "the command": [started.pid], "the compiler": compiler}
    for pid in pids[reached]:
        os.kill(pid, signal.SIGINT)
    done = started.wait()
    assert (done.code, done.out, done.err.strip()) == (130, "", "")
    assert not project.state.exists()
