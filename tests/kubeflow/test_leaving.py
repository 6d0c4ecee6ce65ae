"""Ctrl-C leaves a run on KFP to go on; ``resume`` follows it again, ``cancel`` ends it there."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest
from tests.kubeflow.conftest import Folder, two_tasks
from tests.kubeflow.flows import Flow, Try
from tests.kubeflow.stand_in import StandIn, Step

from spotwright import open_run
from spotwright.errors import InputError
from spotwright.records.journal import Journal
from spotwright.records.state_folder import StateFolder
from spotwright.runs.resume import resume

TRAINS = Flow()
TRAINS.task("train", Try("Running", host="n1", began=1, ended=None))


def follow_in_a_process(folder: Folder, *words: str) -> subprocess.Popen[str]:
    """The command as a user's shell starts it."""
    command = [sys.executable, "-m", "spotwright", *words]
    return subprocess.Popen(command, cwd=folder.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until(happened: threading.Event) -> None:
    assert happened.wait(60)


def test_ctrl_c_leaves_the_run_and_says_how_to_follow_it_again(folder: Folder, server: StandIn) -> None:
    seen = threading.Event()
    server.steps = [Step("RUNNING", TRAINS), Step("RUNNING", TRAINS, seen.set)]
    words = ("run", str(folder.pipeline), "--on", "kfp", "--host", server.url, "--name", "first")
    command = follow_in_a_process(folder, *words)
    wait_until(seen)
    command.send_signal(signal.SIGINT)
    out, err = command.communicate(timeout=60)
    assert command.returncode == 130
    assert "the run continues there; follow it again with: spotwright resume first" in err
    assert ["train", "1", "n1", "running"] in [line.split()[:4] for line in out.splitlines()]
    assert [run["state"] for run in server.runs.values()] == ["RUNNING"]
    assert "follow    spotwright resume first" in folder("show", "first").out

    server.play(next(iter(server.runs)), two_tasks())
    done = folder("resume", "first")
    assert done.code == 0
    assert "Run first succeeded" in done.out


def test_a_run_that_has_ended_is_not_followed_again(folder: Folder, server: StandIn) -> None:
    folder.run()
    before = len(server.requests)
    done = folder("resume", "first")
    assert (done.code, len(server.requests)) == (0, before)
    assert "Run first succeeded" in done.out


def test_cancel_ends_a_run_that_nobody_follows(folder: Folder, server: StandIn) -> None:
    left_running(folder, server)
    done = folder("cancel", "first")
    assert (done.code, done.out) == (0, "run first: cancelled\n")
    view = folder("show", "first", "--json").json()
    [train, _] = view["tasks"]
    assert (view["status"], train["status"], train["attempts"][0]["cause"]) == ("cancelled", "cancelled", "cancelled")


def left_running(folder: Folder, server: StandIn) -> None:
    """A run that continues after its follower was interrupted."""
    server.steps = [Step("RUNNING", TRAINS), Step("RUNNING", TRAINS, interrupt)]
    assert folder.run().code == 130


def interrupt() -> None:
    """Press Ctrl-C in this process."""
    signal.raise_signal(signal.SIGINT)


@pytest.mark.long
def test_cancel_ends_a_run_that_another_process_follows(folder: Folder, server: StandIn) -> None:
    seen = threading.Event()
    server.steps = [Step("RUNNING", TRAINS, seen.set)]
    words = ("run", str(folder.pipeline), "--on", "kfp", "--host", server.url, "--name", "first")
    command = follow_in_a_process(folder, *words)
    wait_until(seen)
    done = folder("cancel", "first")
    out, _ = command.communicate(timeout=60)
    assert (done.code, done.out) == (0, "run first: cancelled\n")
    assert command.returncode == 130
    assert "Run first was cancelled" in out


def test_a_run_that_was_cancelled_in_kfp_s_pages_is_cancelled(folder: Folder, server: StandIn) -> None:
    server.steps = [Step("RUNNING", TRAINS), Step("CANCELING", TRAINS), Step("FAILED", TRAINS)]
    done = folder.run("--json")
    assert done.code == 130
    assert done.json()["status"] == "cancelled"


def test_a_run_that_has_ended_cannot_be_cancelled(folder: Folder) -> None:
    folder.run()
    done = folder("cancel", "first")
    assert done.code == 2
    assert "run first has ended already: succeeded" in done.err


@pytest.mark.usefixtures("server")
def test_two_processes_do_not_follow_the_same_run(folder: Folder, server: StandIn) -> None:
    left_running(folder, server)
    journal = Journal.open(folder.path / ".spotwright" / "runs" / "first" / "journal.db")
    try:
        journal.take({"name": "another"}, lambda _: True, now=time.time(), lasts=60)
        done = folder("resume", "first")
    finally:
        journal.close()
    assert done.code == 1
    assert "is driven by another engine" in done.err


def test_the_engine_of_this_machine_takes_no_run_on_kfp(folder: Folder) -> None:
    folder.run()
    run = open_run("first", folder.path / ".spotwright")
    with pytest.raises(InputError, match="follow it with: spotwright resume first"):
        resume(StateFolder.existing(folder.path / ".spotwright").find("first"), print)
    with pytest.raises(InputError, match="end it with: spotwright cancel first"):
        run.cancel()
    assert run.status == "succeeded"


def test_the_logs_of_a_run_are_where_kfp_has_them(folder: Folder, server: StandIn) -> None:
    folder.run()
    done = folder("logs", "first")
    [run_id] = server.runs
    assert done.code == 2
    assert f"which has its logs: {server.url}/#/runs/details/{run_id}" in done.err
