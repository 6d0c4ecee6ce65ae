"""Components that misbehave: the run ends correctly, says why, and leaves no process behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.building import step
from tests.e2e.inside import alone, hold, note, raise_file, the_time_of, until
from tests.e2e.project import Project, alive, eventually
from tests.sampling import every


def prints_binary() -> int:
    sys.stdout.buffer.write(b"\xff\xfe\x00 and \xc3\x28 no text\n")
    return 1


def prints_a_lot(megabytes: int) -> int:
    for _ in range(megabytes):
        sys.stdout.write("x" * ((1 << 20) - 1) + "\n")
    return megabytes


def writes_garbage_as_progress(text: str) -> int:
    Path(os.environ["SPOTWRIGHT_PROGRESS_FILE"]).write_bytes(text.encode("latin-1"))
    return 1


def leaves_garbage_as_output(text: str) -> int:
    Path.cwd().parent.joinpath("out", "executor_output.json").write_bytes(text.encode("latin-1"))
    os._exit(0)


def leaves_a_pipe_as_output() -> int:
    os.mkfifo(Path.cwd().parent / "out" / "executor_output.json")
    os._exit(0)


def deletes_its_folder() -> int:
    """The SDK writes its outputs afterwards: it creates the folders that it needs."""
    shutil.rmtree(Path.cwd().parent)
    return 1


def deletes_its_folder_and_goes() -> int:
    shutil.rmtree(Path.cwd().parent)
    os._exit(0)


def deletes_its_folder_and_holds() -> int:
    with alone():
        shutil.rmtree(Path.cwd().parent)
        raise_file("deleted")
        hold()


def leaves_daemons() -> int:
    """Start a child in a new session with an empty environment; the child starts a daemon."""
    script = "import os, signal; os.setsid(); os.fork(); signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", script], env={}, start_new_session=True)
        note("daemon", daemon=child.pid, started=the_time_of(child.pid))
    return 1


def forks_and_leaves_the_child_in_charge() -> int:
    if os.fork() == 0:
        os.setsid()
        note("daemon", daemon=os.getpid(), started=the_time_of(os.getpid()))
        raise_file("noted")
        hold()
    until("noted")
    return 1


def ignores_everything() -> int:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    raise_file("ignoring")
    hold()


def prints_to_a_closed_output() -> int:
    os.close(1)
    os.close(2)
    return 1


def changes_its_folder() -> int:
    os.chdir("/")
    return 1


def one_ended(project: Project, cause: str) -> str:
    """The reason of the only attempt's end."""
    [attempt] = project.show()["tasks"]["it"]["attempts"]
    assert attempt["cause"] == cause
    return str(attempt["why"])


def test_bytes_that_are_not_utf8_are_kept_and_shown(project: Project) -> None:
    assert project.run(project.pipeline({"it": step(prints_binary)})).code == 0
    assert b"\xff\xfe\x00 and \xc3\x28 no text\n" in (project.attempt("it") / "log.txt").read_bytes()
    assert "and \ufffd( no text" in project.here("logs", "r", "it", "1").out
    assert "no text" in project.here("logs", "r", "--json").json()[0]["text"]


def test_a_log_of_100_megabytes_is_kept_whole(project: Project) -> None:
    assert project.run(project.pipeline({"it": step(prints_a_lot, {"megabytes": 100})})).code == 0
    assert (project.attempt("it") / "log.txt").stat().st_size >= 100 << 20
    started = project.start("logs", "r", "it", "1")
    started.wait()
    assert started.out.stat().st_size >= 100 << 20


@pytest.mark.parametrize("text", every(2, ["nan", "", "12 percent", "-inf", "\xff" * 5000, "1e999", "0.5\n0.6"]))
def test_an_invalid_progress_file_is_no_progress(project: Project, text: str) -> None:
    assert project.run(project.pipeline({"it": step(writes_garbage_as_progress, {"text": text})})).code == 0
    progress = project.show()["tasks"]["it"]["attempts"][0]["progress"]
    assert progress is None or 0 <= progress <= 1


@pytest.mark.parametrize("text", every(2, ["", "[]", "{", "null", "\xff\xfe", "[" * 100000, '{"parameterValues": 3}']))
def test_an_invalid_output_file_is_no_output(project: Project, text: str) -> None:
    assert project.run(project.pipeline({"it": step(leaves_garbage_as_output, {"text": text})})).code == 1
    assert "Output" in one_ended(project, "failed")


def test_the_reason_why_an_output_is_invalid_is_in_the_cause_and_the_log(project: Project) -> None:
    done = project.run(project.pipeline({"it": step(leaves_garbage_as_output, {"text": "{"})}))
    log = (project.attempt("it") / "log.txt").read_text()
    assert log.startswith("spotwright: executor_output.json cannot be read: ")
    assert f"it: its log ends with: {log.strip()}" in done.out


def test_a_pipe_in_place_of_the_output_file_does_not_block(project: Project) -> None:
    assert project.run(project.pipeline({"it": step(leaves_a_pipe_as_output)})).code == 1
    one_ended(project, "failed")


def test_a_component_that_deletes_its_own_folder_is_judged_by_its_remaining_files(project: Project) -> None:
    assert project.run(project.pipeline({"it": step(deletes_its_folder)})).code == 0
    one_ended(project, "succeeded")


def test_a_component_that_deletes_its_own_folder_and_its_outputs_has_failed(project: Project) -> None:
    assert project.run(project.pipeline({"it": step(deletes_its_folder_and_goes)})).code == 1
    assert "Output" in one_ended(project, "failed")


def test_a_component_that_deleted_its_own_folder_is_still_found_by_the_next_engine(project: Project) -> None:
    started = project.start("run", str(project.pipeline({"it": step(deletes_its_folder_and_holds)})), "--name", "r")
    eventually((project.playground / "deleted").exists)
    started.kill()
    assert project.spotwright("cancel", "r").code == 0
    assert project.processes() == {}


@pytest.mark.parametrize("component", [leaves_daemons, forks_and_leaves_the_child_in_charge])
def test_processes_that_a_component_leaves_running_end_with_its_attempt(project: Project, component: object) -> None:
    assert callable(component)
    assert project.run(project.pipeline({"it": step(component)})).code == 0
    daemons = project.ledger("daemon")
    assert daemons
    assert [line for line in daemons if alive(line["daemon"], line["started"])] == []


def test_a_component_that_ignores_every_signal_ends_with_its_node(project: Project) -> None:
    project.config("policy:\n  default: {timeout: 300ms, grace_period: 100ms}\n")
    assert project.run(project.pipeline({"it": step(ignores_everything)})).code == 1
    one_ended(project, "timed out")


@pytest.mark.parametrize("component", [prints_to_a_closed_output, changes_its_folder])
def test_outputs_count_even_if_the_component_changed_its_process(project: Project, component: object) -> None:
    assert callable(component)
    assert project.run(project.pipeline({"it": step(component)})).code == 0
    assert json.dumps(project.show()["outputs"]["it.Output"]["value"]) == "1"
