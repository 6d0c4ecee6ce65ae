"""A slow API server: status updates and re-reads leave time for recording."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.records.bad_days import Recording, There, quick
from tests.cluster.records.record_server import RecordServer, login, recording_server
from tests.cluster.watching.watched_objects import job, pod

from spotwright.cluster import workload_recorder
from spotwright.cluster.kubernetes_login import Kubernetes

RUNS = 6
SLOW = 0.15  # seconds for an answer


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[RecordServer, Kubernetes]]:
    quick(monkeypatch.setattr)
    monkeypatch.setattr(workload_recorder, "_TELLING", SLOW)
    monkeypatch.setattr(workload_recorder, "_MENDING", SLOW)
    with recording_server(tmp_path) as (server, kubeconfig), login(kubeconfig) as kubernetes:
        yield server, kubernetes


def jobs() -> There:
    there = There()
    for number in range(RUNS):
        made = job(f"job-{number}", uid=f"uid-{number}")
        there.take([("put", "Job", made), ("put", "Pod", pod(f"pod-{number}", made, node="n1", phase="Running"))])
    return there


def asked(server: RecordServer, method: str) -> set[str]:
    """The runs that were asked for or written."""
    return {line.rpartition("/")[2] for line in server.asked if line.startswith(method) and "/spotruns/" in line}


def test_what_people_are_shown_is_written_bit_by_bit(tmp_path: Path, served: tuple[RecordServer, Kubernetes]) -> None:
    server, kubernetes = served
    made = Recording(kubernetes, tmp_path, jobs())

    async def slowly(_method: str, _path: str) -> None:
        await asyncio.sleep(SLOW)

    server.hold = slowly
    server.asked.clear()
    made.made.recorder.tell_people(RUNS)
    assert len(asked(server, "PATCH")) == 1
    while any(not run.is_shown for run in made.made.store.runs.values()):
        made.made.recorder.tell_people(RUNS)
    assert len(asked(server, "PATCH")) == RUNS


def test_runs_that_cannot_be_written_are_tried_one_after_the_other(
    tmp_path: Path, served: tuple[RecordServer, Kubernetes]
) -> None:
    server, kubernetes = served
    made = Recording(kubernetes, tmp_path, jobs())
    recorder = made.made.recorder

    async def slowly(_method: str, _path: str) -> None:
        await asyncio.sleep(SLOW)

    server.refuse = lambda _method, _path: 500
    for number in range(RUNS):
        name = f"pod-{number}"
        made.made.put(
            "Pod", pod(name, job(f"job-{number}", uid=f"uid-{number}"), node="n1", phase="Failed", exit_code=1)
        )
    assert len(recorder._unwritten) == RUNS
    server.hold = slowly
    tried = []
    for _ in range(RUNS):
        server.asked.clear()
        recorder.mend()
        tried.append(asked(server, "GET"))
    assert max(map(len, tried)) == 1, "between two of them others are recorded"
    assert len(set().union(*tried)) == RUNS, "none waits for one that fails"
    server.refuse, server.hold = lambda *_: None, None
    made.catch_up()
    assert not recorder._unwritten
