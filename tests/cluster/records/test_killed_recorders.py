"""If a recorder is killed before or after any of its writes, the next one loses nothing and counts nothing twice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.records.bad_days import WHOLE, ended_runs, recorded, states, twins
from tests.cluster.records.record_server import login, recording_server
from tests.sampling import every

Killed = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def killed() -> Iterator[Killed]:
    """Runs one command of :mod:`tests.cluster.records.killed_recorder`."""
    command = [sys.executable, "-m", "tests.cluster.records.killed_recorder"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None

        def run(**asked: Any) -> dict[str, Any]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(asked, default=str) + "\n")
            process.stdin.flush()
            found: dict[str, Any] = json.loads(process.stdout.readline())
            return found

        yield run
        process.stdin.close()


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("write", every(3, range(1, 31)))
def test_a_kill_at_any_write_of_the_history(tmp_path: Path, killed: Killed, write: int, when: str) -> None:
    with recording_server(tmp_path) as (server, kubeconfig), login(kubeconfig) as kubernetes:
        told = killed(what="history", kubeconfig=kubeconfig, folder=tmp_path, write=write, when=when)
        assert told["is_killed"]
        found = recorded(kubernetes, tmp_path)
        assert found.keys() == WHOLE.keys()
        for name, attempts in found.items():
            for attempt, expected in zip(attempts, WHOLE[name], strict=True):
                assert attempt._replace(cause="") == expected._replace(cause="")
                assert attempt.cause in (expected.cause, "lost")
        for state in states(kubernetes, tmp_path):
            assert not any("deleted from outside" in note for note in state.notes)
            for task in state.tasks.values():
                assert all(attempt.cause_why for attempt in task.attempts)
        assert ended_runs(server) == {"train", "serve", "iris"}
        assert twins(server) == []


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("write", every(4, range(1, 17)))
def test_a_kill_at_any_write_of_numbers(tmp_path: Path, killed: Killed, write: int, when: str) -> None:
    with recording_server(tmp_path) as (_, kubeconfig):
        told = killed(what="numbers", kubeconfig=kubeconfig, folder=tmp_path, write=write, when=when)
        assert told["is_killed"]
        before, after = told["numbers"]
        assert before == [*range(1, len(before) + 1)]
        assert after == [*range(after[0], after[0] + len(after))]
        assert after[0] in (len(before) + 1, len(before) + 2)  # the review that was killed may have had one
