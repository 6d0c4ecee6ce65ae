"""The fork server that boots before anybody needs it; and what a command does not import before it has to."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

from spotwright.runs.early import EarlyServer, new_name


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_server_that_was_taken_lives_on(tmp_path: Path) -> None:
    with EarlyServer(tmp_path / "run") as early:
        server = early.take()
    assert server is not None
    assert is_alive(server.pid)
    server.close()
    assert not is_alive(server.pid)


def test_a_server_that_nobody_took_has_ended_with_the_block(tmp_path: Path) -> None:
    pids: list[int] = []
    with EarlyServer(tmp_path / "run") as early:
        pids.extend(children())
    assert early.take() is None
    assert pids
    assert not any(map(is_alive, pids))


def children() -> list[int]:
    return [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]


def test_it_carries_the_marks_of_the_run(tmp_path: Path) -> None:
    with EarlyServer(tmp_path / "run-x") as early:
        server = early.take()
        assert server is not None
        assert select.select([server.channel], [], [], 30)[0]  # it has said that it is ready
        environment = Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")
        server.close()
    assert b"SPOTWRIGHT_RUN=run-x" in environment


def test_a_name_is_the_pipelines_with_letters_of_its_own() -> None:
    assert new_name("My Pipeline!").startswith("my-pipeline-")
    assert new_name("x") != new_name("x")


def imported(module: str, names: tuple[str, ...]) -> str:
    """Which of these modules an interpreter has imported once it has imported that one."""
    code = f"import sys, {module}; print(*[name for name in {names} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_what_a_command_needs_first_imports_nothing_of_the_engine() -> None:
    heavy = ("spotwright.engine.loop", "spotwright.local.world", "spotwright.views.facts")
    assert imported("spotwright.cli.running", heavy) == ""


def test_the_engine_imports_neither_kfp_nor_what_only_a_terminal_needs() -> None:
    assert imported("spotwright.cli.driving", ("kfp", "google.protobuf", "rich", "asyncio")) == ""
