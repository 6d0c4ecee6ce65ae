"""The fork server that starts early, and the modules that a command does not import before it needs them."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

from spotwright.local.processes.prestart import EarlyServer
from spotwright.runs.run_names import new_name


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


def test_a_run_name_is_that_of_the_pipeline_with_random_letters() -> None:
    assert new_name("My Pipeline!").startswith("my-pipeline-")
    assert new_name("x") != new_name("x")


def imported(module: str, names: tuple[str, ...]) -> str:
    """Which of these modules an interpreter has imported once it has imported that one."""
    code = f"import sys, {module}; print(*[name for name in {names} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_the_early_imports_of_a_command_do_not_include_the_engine() -> None:
    heavy = ("config", "engine", "graph", "local.world", "scheduling", "supply", "views")
    assert imported("spotwright.cli.run", tuple(f"spotwright.{name}" for name in heavy)) == ""


def test_the_engine_imports_neither_kfp_nor_terminal_libraries() -> None:
    assert imported("spotwright.cli.run_session", ("kfp", "google.protobuf", "rich", "asyncio")) == ""
