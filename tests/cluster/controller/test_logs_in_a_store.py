"""A controller with its logs in a store: what it says while the store refuses, and how a killed recorder's successor goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.checkpoint.s3_server import s3_server
from tests.cluster.controller.controller_process import (
    JOBS,
    NODES,
    PODS,
    READING,
    Controller,
    a_cluster,
    controller_process,
    show,
)
from tests.cluster.log_keeping.keepers import LINES, WHOLE, Endpoint
from tests.cluster.log_keeping.stores import BUCKET, FailingStore, keys
from tests.cluster.records.record_server import RecordServer
from tests.cluster.watching import watched_objects
from tests.cluster.watching.small_api_server import SmallApiServer, serving

EVENTS = "/api/v1/namespaces/spotwright/events"
POLICY = "{default: {spot: prefer, interruptions: {max: 3}, fall_back_after: 2}}"
URL = f"s3://{BUCKET}/prod"


def events(server: SmallApiServer) -> list[Any]:
    return [each for each in server.objects.get(EVENTS, {}).values() if each["reason"] == "LogsNotKept"]


async def text(process: Controller, server: SmallApiServer) -> str:
    (run,) = await process.read(server, "runs")
    return "".join(log["text"] for log in await process.read(server, "logs", run["run"]))


def test_a_log_survives_a_store_that_refuses_and_a_recorder_that_is_killed(tmp_path: Path, monkeypatch: Any) -> None:
    async def test(store: FailingStore) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
        async with serving(RecordServer) as server:
            a_cluster(server, POLICY, watched_objects.node("n1"))
            train = watched_objects.job("train", uid="uid-train")
            endpoint = Endpoint(server, "one", pods="/api/v1/namespaces/team-a/pods")
            endpoint.shown = 15
            show(server, JOBS, train)
            running = watched_objects.pod("one", train, node="n1", phase="Running")
            running["status"]["containerStatuses"][0]["state"] = {"running": {"startedAt": watched_objects.at(3)}}
            show(server, PODS, running)
            show(server, NODES, watched_objects.node("n1"))
            store.fault = (403, "InvalidAccessKeyId")
            async with controller_process(tmp_path, server, "--logs", URL) as process:
                await process.until(lambda: events(server), "an Event")
                (event,) = events(server)
                assert (
                    f"logs cannot be stored: {URL}: the credentials do not allow this (403 Forbidden"
                    in event["message"]
                )
                assert event["involvedObject"]["name"] == "spotwright"
                store.fault = None
                await process.until(lambda: f"{URL}: accepts logs again" in process.log, "it takes logs again")
                async with asyncio.timeout(60):
                    while not [key for key in await keys(URL) if key.endswith("/train/1/00000001")]:  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
                assert await text(process, server) == "".join(line.text.decode() for line in LINES[:15])
                endpoint.shown = 30
                process.processes["recorder"].kill()
                process.processes["recorder"].wait()
                process.start("recorder", *READING, "--logs", URL)
                show(server, PODS, watched_objects.pod("one", train, node="n1", phase="Succeeded", exit_code=0))
                endpoint.shown = len(LINES)
                async with asyncio.timeout(60):
                    while not [key for key in await keys(URL) if key.endswith("/train/1/end")]:  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
                assert await text(process, server) == WHOLE.decode()
                assert "hidden-value" not in process.log
                assert "AKIDSECRET" not in process.log
                assert "Traceback" not in process.log

    with s3_server(BUCKET) as url, FailingStore(url).running() as store:
        asyncio.run(test(store))
