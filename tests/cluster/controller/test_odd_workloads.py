"""An unforeseen object does not end the records of others, and a broken stream ends the watcher."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from tests.cluster.controller.controller_process import a_cluster, show
from tests.cluster.controller.processes import POLICY, recording, until
from tests.cluster.records.record_server import RecordServer
from tests.cluster.watching.days import JOBS, PODS, Day, day
from tests.cluster.watching.small_api_server import serving
from tests.cluster.watching.watched_objects import job, node, pod

from spotwright.cluster.kept_objects import Sharing
from spotwright.cluster.mirror import Mirror
from spotwright.cluster.observer import PodReconciler
from spotwright.cluster.view import SeenPod
from spotwright.model.attempts import Cause


def test_an_odd_workload_ends_the_records_of_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = PodReconciler.record

    def broken(recorder: PodReconciler, pods: Sequence[SeenPod], root: Mapping[str, Any] | None, **how: bool) -> None:
        if any(seen.pod["metadata"]["name"].startswith("odd") for seen in pods):
            raise RuntimeError("nobody has thought of this workload")
        real(recorder, pods, root, **how)

    monkeypatch.setattr(PodReconciler, "record", broken)

    async def test(made: Day) -> None:
        odd = job("odd", uid="odd-uid", parallelism=2)
        made.put(JOBS, odd)
        made.put(PODS, pod("odd-1", odd, node="n1", phase="Running"))
        await made.start()
        await made.until(lambda: "odd-uid is no longer watched" in caplog.text, "the odd one is named")
        good = job("good", uid="good-uid")
        made.put(JOBS, good)
        made.put(PODS, pod("good-1", good, node="n1", phase="Failed", exit_code=3))
        await made.until(lambda: made.cause("good") is Cause.FAILED, "the good one is recorded")
        made.put(PODS, pod("odd-1", odd, node="n1", phase="Failed", exit_code=3))
        await made.until(lambda: made.is_recorded("good"), "it goes on")

    day(tmp_path, test)
    assert caplog.text.count("odd-uid is no longer watched") == 1


def test_a_workload_that_a_defect_sets_aside_is_told_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In an Event on the workload, and in a metric; the records of others go on."""

    def broken(
        _recorder: PodReconciler, _pods: Sequence[SeenPod], root: Mapping[str, Any] | None, **_how: bool
    ) -> None:
        raise RuntimeError(f"nobody has thought of {root}")

    monkeypatch.setattr(PodReconciler, "record", broken)

    async def test() -> None:
        async with serving(RecordServer) as server:
            a_cluster(server, POLICY, node("n1"))
            train = job("train", uid="uid-train")
            show(server, JOBS, train)
            show(server, PODS, pod("one", train, node="n1", phase="Running"))
            caplog.set_level("INFO")
            async with recording(server, tmp_path):
                [event] = await until(lambda: [each for each in _events(server) if each["reason"] == "NotRecorded"])
                address = next(line.split(" at ")[1] for line in caplog.messages if "metrics are served at" in line)
                async with ClientSession() as session, session.get(address) as answer:
                    assert "spotwright_workloads_set_aside_total 1\n" in await answer.text()
            assert (
                event["involvedObject"] | {"kind": "Job", "name": "train", "uid": "uid-train"}
                == event["involvedObject"]
            )
            assert event["message"].startswith("Job train is no longer recorded, because of a defect in Spotwright")

    asyncio.run(test())


def _events(server: RecordServer) -> list[dict[str, Any]]:
    return [each for path, found in server.objects.items() if path.endswith("/events") for each in found.values()]


def test_a_stream_that_ends_by_a_defect_ends_the_watcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller restarts it; a watcher without one of its streams would wait forever."""

    async def broken(_mirror: Mirror, _path: str) -> Any:
        raise RuntimeError("nobody has thought of this list")

    monkeypatch.setattr(Mirror, "_list_pages", broken)

    async def test(made: Day) -> None:
        await made.start()
        assert made.task is not None
        with pytest.raises(RuntimeError, match="nobody has thought of this list"):
            await asyncio.wait_for(made.task, 30)
        made.task = None

    day(tmp_path, test)


def test_a_pod_that_nobody_has_thought_of_is_set_aside_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = Sharing.shared

    def broken(sharing: Sharing, item: dict[str, Any]) -> dict[str, Any]:
        if item["metadata"]["name"] == "odd":
            raise RuntimeError("nobody has thought of this pod")
        return real(sharing, item)

    monkeypatch.setattr(Sharing, "shared", broken)

    async def test(made: Day) -> None:
        good = job("good", uid="good-uid")
        made.put(JOBS, good)
        made.put(PODS, pod("odd", good, node="n1"))
        await made.start()
        made.put(PODS, pod("odd", good, node="n1", phase="Running"))
        made.put(PODS, pod("good-1", good, node="n1", phase="Failed", exit_code=3))
        await made.until(lambda: made.cause("good") is Cause.FAILED, "the good one is recorded")

    day(tmp_path, test)
    assert caplog.text.count("the object a/odd is set aside") == 1
