"""The fork server that starts early, and the modules that a command does not import before it needs them."""

from __future__ import annotations

import os
import select
import selectors
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from spotwright.local.attempt_processes import AttemptProcesses
from spotwright.local.fork_server_client import EarlyServer
from spotwright.local.protocol import Ended, Started, StartOrder
from spotwright.runs.run_options import new_name


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_fork_server_that_was_taken_stays_alive(tmp_path: Path) -> None:
    with EarlyServer(tmp_path / "run") as early:
        server = early.take()
    assert server is not None
    assert is_alive(server.pid)
    server.close()
    assert not is_alive(server.pid)


def test_a_fork_server_that_was_not_taken_ends_with_its_block(tmp_path: Path) -> None:
    pids: list[int] = []
    with EarlyServer(tmp_path / "run") as early:
        pids.extend(children())
    assert early.take() is None
    assert pids
    assert not any(map(is_alive, pids))


def children() -> list[int]:
    return [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]


def test_a_fork_server_has_the_marks_of_its_run(tmp_path: Path) -> None:
    with EarlyServer(tmp_path / "run-x") as early:
        server = early.take()
        assert server is not None
        assert select.select([server.channel], [], [], 120)[0]  # it has said that it is ready
        environment = Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")
        server.close()
    assert b"SPOTWRIGHT_RUN=run-x" in environment


def living(marked: Path) -> list[int]:
    """The processes that carry the mark of a run's folder."""
    mark = f"SPOTWRIGHT_RUN={marked.name}".encode()
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in environment.read_bytes().split(b"\0"):
                found.append(int(environment.parent.name))
    return found


def test_the_shims_of_the_first_tasks_are_ready_before_the_engine(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "run-early"
    run.parent.mkdir()
    with EarlyServer(run, tasks=2) as early, selectors.DefaultSelector() as selector:
        server = early.take()
        assert server is not None
        assert [select.select([channel], [], [], 120)[0] for channel in server.early.values()] == [
            [channel] for channel in server.early.values()
        ]
        with closing(AttemptProcesses(selector, run=run.name, folder=run)) as processes:
            processes.warm(server)
            shims = {pid for pid in living(run) if pid != server.pid}
            processes.order(StartOrder("a#1", folder(run / "a"), run.name, "a", 1, 1, command=("true",)))
            started, ended = events_of(processes, selector, 2)
            assert isinstance(started, Started)
            assert isinstance(ended, Ended)
            assert started.pid in shims
            assert len(shims) == 2
    assert living(run) == []


def folder(path: Path) -> str:
    path.mkdir(parents=True)
    return str(path)


def events_of(processes: AttemptProcesses, selector: selectors.BaseSelector, count: int) -> list[object]:
    events: list[object] = []
    while len(events) < count:
        ready = selector.select(120)
        assert ready
        for key, _ in ready:
            key.data()
        events += processes.pump()
    return events


def test_early_shims_that_no_engine_takes_end_with_the_block(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "run-untaken"
    run.parent.mkdir()
    with EarlyServer(run, tasks=1):
        wait_for(lambda: len(living(run)) == 2)
    assert living(run) == []


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_no_shim_is_made_early_where_the_state_folder_is_not_there_yet(tmp_path: Path) -> None:
    with EarlyServer(tmp_path / "state" / "runs" / "run-new", tasks=2) as early:
        server = early.take()
        assert server is not None
        assert not server.early
        server.close()


def test_a_run_name_is_that_of_the_pipeline_with_random_letters() -> None:
    assert new_name("My Pipeline!").startswith("my-pipeline-")
    assert new_name("x") != new_name("x")


def imported(module: str, names: tuple[str, ...]) -> str:
    """Which of these modules an interpreter has imported once it has imported that one."""
    code = f"import sys, {module}; print(*[name for name in {names} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_the_early_imports_of_a_command_do_not_include_the_engine() -> None:
    heavy = ("config", "engine", "graph", "local.backend", "scheduling", "supply", "views")
    assert imported("spotwright.cli.run", tuple(f"spotwright.{name}" for name in heavy)) == ""


def test_the_engine_imports_neither_kfp_nor_terminal_libraries() -> None:
    assert imported("spotwright.cli.run_session", ("kfp", "google.protobuf", "rich", "asyncio")) == ""
