"""The invariants of every run, whatever was killed: checked in its journal, its attempts' records and the ledger."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from tests.e2e.project import Project

__all__ = ["assert_sound", "attempts_of", "finished_attempts"]


def assert_sound(project: Project, name: str = "r", *, again: Collection[str] = ()) -> None:
    """All processes have ended, attempts of a task never overlapped, and finished tasks did not run again.

    ``again`` names the tasks that had to run again because their code was changed.
    """
    assert project.processes() == {}
    assert project.ledger("overlap") == []
    for path, attempts in attempts_of(project, name).items():
        causes = [attempt["cause"] for attempt in attempts]
        if path in again:
            continue
        assert causes.count("succeeded") <= 1, (path, causes)
        assert "succeeded" not in causes[:-1], (path, causes)
        finished = finished_attempts(project, path, len(attempts), name)
        assert finished in ([], [len(attempts)]), (path, causes, finished)


def attempts_of(project: Project, name: str = "r") -> dict[str, list[dict[str, Any]]]:
    """The attempts of every task."""
    return {path: task["attempts"] for path, task in project.show(name)["tasks"].items()}


def finished_attempts(project: Project, path: str, count: int, name: str = "r") -> list[int]:
    """The attempts with an exit record of code 0 and an output file."""
    numbers = []
    for number in range(1, count + 1):
        folder = project.attempt(path, number, name)
        record = folder / "exit.jsonl"
        if record.exists() and json.loads(record.read_text().splitlines()[1]).get("exit_code") == 0:
            numbers += [number] if (folder / "out" / "executor_output.json").exists() else []
    return numbers
