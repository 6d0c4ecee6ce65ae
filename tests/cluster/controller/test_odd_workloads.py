"""An object that nobody has thought of ends the records of no other, and a stream that breaks ends the watcher."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.watching.days import JOBS, PODS, Day, day
from tests.cluster.watching.watched_objects import job, pod

from spotwright.cluster.mirror import Sharing
from spotwright.model.attempts import Cause


def test_an_odd_workload_ends_the_records_of_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(made: Day) -> None:
        odd = job("odd", uid="odd-uid", parallelism=2)
        labels = {"jobset.sigs.k8s.io/replicatedjob-name": "x", "jobset.sigs.k8s.io/job-index": "first"}
        made.put(JOBS, odd)
        made.put(PODS, pod("odd-1", odd, node="n1", phase="Running", labels=labels))
        await made.start()
        await made.until(lambda: "odd-uid is not watched any more" in caplog.text, "the odd one is named")
        good = job("good", uid="good-uid")
        made.put(JOBS, good)
        made.put(PODS, pod("good-1", good, node="n1", phase="Failed", exit_code=3))
        await made.until(lambda: made.cause("good") is Cause.FAILED, "the good one is recorded")
        made.put(PODS, pod("odd-1", odd, node="n1", phase="Failed", exit_code=3, labels=labels))
        await made.until(lambda: made.is_recorded("good"), "it goes on")

    day(tmp_path, test)
    assert caplog.text.count("odd-uid is not watched any more") == 1


def test_a_stream_that_ends_by_a_defect_ends_the_watcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever started it starts it again; a watcher without one of its streams would wait for ever."""

    def broken(_sharing: Sharing, _item: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("nobody has thought of this pod")

    monkeypatch.setattr(Sharing, "shared", broken)

    async def test(made: Day) -> None:
        made.put(PODS, pod("one", job(), node="n1"))
        await made.start()
        assert made.task is not None
        with pytest.raises(RuntimeError, match="nobody has thought of this pod"):
            await asyncio.wait_for(made.task, 30)
        made.task = None

    day(tmp_path, test)
