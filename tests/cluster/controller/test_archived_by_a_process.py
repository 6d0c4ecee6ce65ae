"""A recorder archives a run whose time has passed; killed before it deletes the records, its successor loses nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

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
from tests.cluster.log_keeping.keepers import WHOLE, Endpoint
from tests.cluster.log_keeping.stores import keys
from tests.cluster.reading.archiving import LONG_AGO
from tests.cluster.records.record_server import RecordServer
from tests.cluster.watching import watched_objects
from tests.cluster.watching.small_api_server import serving

from spotwright.cluster.run_objects import RUN

POLICY = "{default: {spot: prefer, interruptions: {max: 3}, fall_back_after: 2}}"


async def read(process: Controller, server: RecordServer, *command: str) -> Any:
    return await process.read(server, *command, "--controller", process.address("logs are read"))


async def an_ended_run(process: Controller, server: RecordServer, url: str) -> str:
    """Let a Job end whose log is kept, and be forgotten. Returns the name of its run."""
    train = watched_objects.job("train", uid="uid-train")
    Endpoint(server, "one", pods="/api/v1/namespaces/team-a/pods")
    show(server, NODES, watched_objects.node("n1"))
    show(server, JOBS, {**train, "status": watched_objects.done()})
    show(server, PODS, watched_objects.pod("one", train, node="n1", phase="Succeeded", exit_code=0))
    await process.until(
        lambda: [each for each in server.kept(RUN) if each["status"].get("finishedAt")], "the end is recorded"
    )
    async with asyncio.timeout(60):
        while not [key for key in await keys(url) if key.endswith("/train/1/end")]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    server.delete(PODS, "one")
    server.delete(JOBS, "train")
    return str(server.kept(RUN)[0]["metadata"]["name"])


def test_a_run_is_archived_and_read_as_before_though_its_recorder_was_killed(tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'store'}"

    async def test() -> None:
        async with serving(RecordServer) as server:
            a_cluster(server, POLICY, watched_objects.node("n1"))
            async with controller_process(tmp_path, server, "--logs", url) as process:
                run = await an_ended_run(process, server, url)
                before = [await read(process, server, what, run) for what in ("show", "report", "logs")]
                assert before[0]["tasks"][0]["attempts"][0]["cause"] == "succeeded"
                recorder = process.processes["recorder"]
                recorder.terminate()
                await asyncio.to_thread(recorder.wait, 20)
                server.kept(RUN)[0]["status"]["finishedAt"] = LONG_AGO

                reached, killed = asyncio.Event(), asyncio.Event()

                async def hold(method: str, path: str) -> None:
                    if method == "DELETE" and "spotruns" in path:
                        reached.set()
                        await killed.wait()

                server.hold, server.refuse = hold, lambda method, _path: 500 if method == "DELETE" else None
                process.start("recorder", *READING, "--logs", url)
                await process.until(reached.is_set, "it deletes the run")
                process.processes["recorder"].kill()
                process.processes["recorder"].wait()
                killed.set()
                assert len(server.kept(RUN)) == 1
                assert len([key for key in await keys(url) if key.startswith("+archive/")]) == 1

                server.hold, server.refuse = None, lambda _method, _path: None
                process.start("recorder", *READING, "--logs", url)
                await process.until(lambda: not server.kept(RUN) and not server.kept("SpotAttempt"), "it is deleted")
                await process.until(lambda: process.log.count("logs are read at") == 3, "it serves")
                (archive,) = [key for key in await keys(url) if key.startswith("+archive/")]
                assert f"/team-a/{server.objects['/api/v1/namespaces']['team-a']['metadata']['uid']}/{run}/" in archive
                after = [await read(process, server, what, run) for what in ("show", "report", "logs")]
                assert json.dumps(after) == json.dumps(before)
                assert after[2][0]["text"] == WHOLE.decode()
                (line,) = await read(process, server, "runs", "--archived", "-n", "team-a")
                assert (line["run"], line["attempts"], line["status"]) == (run, 1, "succeeded")
                assert "Traceback" not in process.log

    asyncio.run(test())
