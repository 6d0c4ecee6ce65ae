"""Background processes of a cluster: found again, ended for certain, and never mixed up with others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed.errors import TestbedError
from testbed.machine.processes import Processes, marked_pids, run, wait_until
from testbed.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state=tmp_path)


@pytest.fixture
def processes(settings: Settings) -> Iterator[Processes]:
    processes = Processes(settings)
    yield processes
    for name in processes.names():
        processes.end(name, kill=True)


def test_a_process_is_found_by_its_name_and_by_its_mark(settings: Settings, processes: Processes) -> None:
    pid = processes.start("sleeper", ["sleep", "600"])
    assert Processes(settings).pid("sleeper") == pid
    wait_until(lambda: list(marked_pids(settings.folder)) == [pid], "Linux shows its environment", 60)
    processes.end("sleeper")
    assert processes.pid("sleeper") is None
    assert list(marked_pids(settings.folder)) == []
    assert processes.names() == []


def test_a_process_that_ignores_sigterm_can_be_killed(processes: Processes) -> None:
    pid = processes.start("deaf", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"])
    wait_until(lambda: "ready" in processes.log("deaf").read_text(), "it ignores SIGTERM", 120)
    processes.end("deaf", kill=True)
    assert not Path(f"/proc/{pid}").exists()


def test_the_id_of_another_process_is_not_taken_for_ours(settings: Settings, processes: Processes) -> None:
    (settings.folder / "run").mkdir(parents=True)
    (settings.folder / "run" / "old.pid").write_text(f"{os.getpid()} 1")
    assert processes.pid("old") is None
    processes.end("old")  # would end the test
    assert processes.names() == []


def test_a_command_that_fails_is_an_error_with_what_it_printed() -> None:
    with pytest.raises(TestbedError, match=r"`sh -c .*failed \(3\): no such thing"):
        run(["sh", "-c", "echo no such thing >&2; exit 3"])


def test_waiting_ends_with_the_name_of_what_did_not_happen() -> None:
    with pytest.raises(TestbedError, match="timed out after 0 s: the impossible"):
        wait_until(lambda: False, "the impossible", 0)
