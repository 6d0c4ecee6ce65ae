"""The recorder records while it holds the Lease, beside a thread that renews it, and retries after failures."""

from __future__ import annotations

import asyncio
import ssl
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, TCPConnector, web
from tests.cluster.controller.controller_process import JOBS, LEASES, MAPS, NODES, PODS, a_cluster, kubeconfig, show
from tests.cluster.controller.processes import recording, until
from tests.cluster.granted_rights import is_allowed
from tests.cluster.records.record_server import RecordServer
from tests.cluster.watching import watched_objects
from tests.cluster.watching.small_api_server import serving

from spotwright.cluster import recorder_process
from spotwright.cluster.api_client import Api, connect, find_cluster
from spotwright.cluster.controller_settings import RecorderSettings
from spotwright.cluster.health import Health
from spotwright.cluster.recorder_process import Recorder
from spotwright.errors import StateError

POLICY = "{default: {spot: prefer, interruptions: {max: 3}, fall_back_after: 2}}"


def with_train(server: RecordServer, **how: Any) -> None:
    """A cluster with a Job and its pod, which runs, or has ended."""
    a_cluster(server, POLICY, watched_objects.node("n1"))
    train = watched_objects.job("train", uid="uid-train")
    show(server, JOBS, train)
    show(server, PODS, watched_objects.pod("one", train, node="n1", **({"phase": "Running"} | how)))
    show(server, NODES, watched_objects.node("n1"))


def fails_more_than(recorder: Recorder, times: int) -> bool:
    return recorder._failures > times


def holder(server: RecordServer) -> str:
    return str((server.objects.get(LEASES, {}).get("spotwright") or {}).get("spec", {}).get("holderIdentity", ""))


def test_it_records_an_attempt_with_the_end_of_its_log_and_gives_up_the_lease(tmp_path: Path) -> None:
    async def log(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"2026-01-01T00:00:02.000000001Z epoch 1 of 3\n")

    async def test() -> None:
        async with serving(RecordServer) as server:
            with_train(server, phase="Succeeded", exit_code=0)
            server.pages["/api/v1/namespaces/team-a/pods/one/log"] = log
            async with recording(server, tmp_path):
                [attempt] = await until(lambda: server.kept("SpotAttempt"))
                name = attempt["metadata"]["name"]
                await until(lambda: "epoch 1 of 3" in _of(server, name).get("status", {}).get("logTail", ""))
                assert holder(server)
            assert holder(server) == ""
            assert [line for line in server.asked if not is_allowed(line, "recorder")] == []

    asyncio.run(test())


def _of(server: RecordServer, name: str) -> dict[str, Any]:
    return next(each for each in server.kept("SpotAttempt") if each["metadata"]["name"] == name)


def test_logs_are_read_with_the_published_authority(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def scenario() -> tuple[int, str, list[str]]:
        async with serving(RecordServer) as server:
            with_train(server)
            async with recording(server, tmp_path, read_port=0):
                found = await until(lambda: server.objects[MAPS]["spotwright-reading"].get("data"))
                address = next(line.split(" at ")[1] for line in caplog.messages if "logs are read at" in line)
                context = ssl.create_default_context(cadata=found["ca.crt"])
                async with (
                    ClientSession(connector=TCPConnector(ssl=context)) as session,
                    session.get(f"{address}/v1/runs/team-a.train-uid/log?task=train&attempt=1") as response,
                ):
                    return response.status, (await response.json())["message"], server.asked

    status, message, asked = asyncio.run(scenario())
    assert status == 401
    assert message.startswith("the request has neither a token nor a client certificate of this cluster")
    assert not [line for line in asked if not is_allowed(line, "recorder")]


class Recording:
    """A :class:`Recorder` whose recording a test decides on."""

    def __init__(self, folder: Path, server: RecordServer, record: Any, clock: Any = time.monotonic) -> None:
        settings = RecorderSettings(authority_folder=folder, kubeconfig=str(kubeconfig(folder, server)))
        self.recorder = Recorder(settings, clock)
        self.recorder._record = record  # type: ignore[method-assign]

    async def __aenter__(self) -> Recorder:
        self._api = Api(connect(find_cluster(kubeconfig=self.recorder._settings.kubeconfig)))
        self._task = asyncio.create_task(self.recorder.run(self._api))
        return self.recorder

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._api.close()


def test_a_recording_that_fails_is_tried_again_and_after_minutes_the_process_counts_as_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder_process, "_FIRST_WAIT", 0.01)
    monkeypatch.setattr(recorder_process, "_LONGEST_WAIT", 0.02)
    now, fails = 100.0, [StateError("no room"), ValueError("a defect")]

    async def record(_lease: object) -> None:
        raise fails[len(caplog.records) % 2]

    async def test() -> None:
        nonlocal now
        async with serving(RecordServer) as server:
            server.objects[LEASES] = {}
            async with Recording(tmp_path, server, record, lambda: now) as recorder:
                await until(lambda: recorder._failures >= 4)
                assert recorder.health.problem == "", "it may soon be well"
                for number in range(1, 6):
                    now += 80.0
                    await until(partial(fails_more_than, recorder, 3 + number))
                await until(lambda: recorder.health.problem)
                assert recorder.health.problem.startswith("the recording has failed ")

    asyncio.run(test())
    assert "recording failed: no room" in caplog.messages
    assert any(each.exc_info for each in caplog.records), "a defect is logged with its place"


def test_a_look_that_takes_long_holds_up_no_renewal_of_the_lease(tmp_path: Path) -> None:
    """The recording holds its own thread for longer than a Lease lasts."""

    async def record(_lease: object) -> None:
        ends = time.monotonic() + 17
        while time.monotonic() < ends:
            sum(range(10_000))  # work, of which the interpreter lets others in between
        await asyncio.Event().wait()

    async def test() -> None:
        async with serving(RecordServer) as server:
            server.objects[LEASES] = {}
            async with Recording(tmp_path, server, record) as recorder:
                await until(lambda: holder(server))
                first = server.objects[LEASES]["spotwright"]["spec"]
                await asyncio.sleep(16)
                spec = server.objects[LEASES]["spotwright"]["spec"]
                assert spec["renewTime"] > first["renewTime"]
                assert (spec["leaseTransitions"], spec["holderIdentity"]) == (
                    first["leaseTransitions"],
                    first["holderIdentity"],
                )
                assert recorder.health.problem == ""

    asyncio.run(test())


def test_a_recording_that_stands_still_makes_the_process_unwell() -> None:
    now = 0.0
    health = Health(120.0, lambda: now)

    async def beats() -> None:
        task = asyncio.create_task(health.beat())
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(beats())
    now = 119.0
    assert health.problem == ""
    now = 121.0
    assert health.problem == "no progress for 121 s"


def test_a_recorder_that_loses_the_lease_ends_its_recording_and_waits_for_the_next(tmp_path: Path) -> None:
    began, ended = [], []

    async def record(_lease: object) -> None:
        began.append(time.monotonic())
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(time.monotonic())

    async def test() -> None:
        async with serving(RecordServer) as server:
            server.objects[LEASES] = {}
            async with Recording(tmp_path, server, record):
                await until(lambda: began)
                lease = server.objects[LEASES]["spotwright"]
                spec = {**lease["spec"], "holderIdentity": "another", "leaseTransitions": 7}
                server.put(LEASES, "spotwright", **{**lease, "spec": spec})
                await until(lambda: ended)
                assert len(began) == 1
                spec = {**server.objects[LEASES]["spotwright"]["spec"], "holderIdentity": ""}
                server.put(LEASES, "spotwright", **{**server.objects[LEASES]["spotwright"], "spec": spec})
                await until(lambda: len(began) == 2)

    asyncio.run(test())


def test_what_cannot_be_written_is_told_in_an_event_and_a_metric(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    events = "/api/v1/namespaces/spotwright/events"

    async def test() -> None:
        async with serving(RecordServer) as server:
            with_train(server, phase="Succeeded", exit_code=0)
            server.objects[events] = {}
            server.refuse = lambda _method, path: 500 if "spotruns" in path else None
            async with recording(server, tmp_path), ClientSession() as session:
                told = await until(
                    lambda: [one for one in server.objects[events].values() if one["reason"] == "NotRecorded"]
                )
                assert told[0]["message"].startswith("recording waits until writes succeed")
                address = next(
                    line.split(" at ")[1] for line in caplog.messages if line.startswith("metrics are served")
                )
                async with session.get(address) as answer:
                    assert "spotwright_not_recorded 1\n" in await answer.text()
                server.refuse = lambda _method, _path: None
                await until(
                    lambda: [each for each in server.kept("SpotAttempt") if each["status"].get("cause") == "succeeded"]
                )

    asyncio.run(test())
