"""The real processes of a controller on bad days: a clock that is off by minutes, a folder of logs that is full."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import ssl
import subprocess
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, TCPConnector, web
from tests.cli.full_folders import can_mount, fill
from tests.cluster.admission_objects import a_job
from tests.cluster.admissions import note_admission
from tests.cluster.controller.controller_process import (
    JOBS,
    PODS,
    REGISTRATIONS,
    Controller,
    a_cluster,
    controller_process,
    moment,
    show,
    wrong_clock,
)
from tests.cluster.log_keeping.container_log import BILLION, Line, answer
from tests.cluster.records.record_server import RecordServer
from tests.cluster.reviews import a_review
from tests.cluster.watching import watched_objects
from tests.cluster.watching.small_api_server import serving
from tests.cluster.watching.watched_objects import BEGIN, at

pytestmark = pytest.mark.long

POLICY = "{default: {spot: prefer, interruptions: {max: 3}, fall_back_after: 2, pending_timeout: 4s}}"
SPOT = {"kubernetes.azure.com/agentpool": "spot-a", "kubernetes.azure.com/scalesetpriority": "spot"}
MINUTES = 7 * 60
needs_a_disk = pytest.mark.skipif(bool(can_mount()), reason=can_mount() or "-")
needs_a_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="a wrong clock needs a C compiler")


def beginning(began_at: float, made: dict[str, Any]) -> dict[str, Any]:
    """An object of :mod:`watched_objects` with the times that it has if all began at this moment."""
    text = json.dumps(made)
    for second in range(600):
        text = text.replace(at(second), moment(began_at + second))
    return dict(json.loads(text))


def controlled(
    folder: Path,
    test: Callable[[RecordServer, Controller], Awaitable[None]],
    *recorder: str,
    environment: dict[str, str] | None = None,
) -> None:
    """Run a test beside the processes of a controller; ``recorder`` are options of that one."""

    async def run() -> None:
        async with serving(RecordServer) as server:
            a_cluster(server, POLICY, watched_objects.node("n1", **SPOT))
            async with controller_process(folder, server, *recorder, environment=environment) as process:
                await test(server, process)

    asyncio.run(run())


@needs_a_compiler
@pytest.mark.parametrize("wrong_by", [MINUTES, -MINUTES])
def test_a_clock_that_is_off_by_minutes_changes_no_time_no_cost_and_no_wait(tmp_path: Path, wrong_by: int) -> None:
    began = time.time() - 100.0
    train = beginning(began, watched_objects.job("train", uid="uid-train"))
    idle = beginning(began + 99, watched_objects.job("idle", uid="uid-idle", podFailurePolicy=_IGNORES))
    idle["spec"]["template"]["metadata"] = {"labels": {"spotwright.dev/spot": "prefer"}}

    async def test(server: RecordServer, process: Controller) -> None:
        for job in (train, idle):
            show(server, JOBS, job)
        running = watched_objects.pod("one", train, node="n1", phase="Running")
        show(server, PODS, beginning(began, running))
        waiting = beginning(began + 99, watched_objects.pod("two", idle))
        reason = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
        waiting["status"]["conditions"] = [{**reason, "lastTransitionTime": moment(time.time())}]
        waiting["metadata"]["annotations"] = {"spotwright.dev/rung": "spot-a"}
        waiting["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
        note_admission(server, waiting)
        show(server, PODS, waiting)
        server.put("/api/v1/namespaces/team-a/pods", "two", **waiting)
        server.put("/apis/batch/v1/namespaces/team-a/jobs", "idle", **idle)
        waited_from = time.time()
        await process.until(lambda: [line for line in server.asked if "eviction" in line], "it is evicted")
        assert 2.0 <= time.time() - waited_from <= 20.0, "pending_timeout is 4 s"
        shown = await process.read(server, "show", "job/train")
        (attempt,) = shown["tasks"][0]["attempts"]
        assert attempt["bound_at"] == pytest.approx(began + 2, abs=1.5)
        assert attempt["seconds"] == pytest.approx(time.time() - began - 2, abs=10)
        (line,) = [each for each in await process.read(server, "runs") if each["run"] == shown["run"]]
        assert line["seconds"] == pytest.approx(time.time() - began, abs=10)
        ended = watched_objects.pod("one", train, node="n1", phase="Succeeded", exit_code=0, ended=90)
        show(server, PODS, beginning(began, ended))
        show(server, JOBS, {**train, "status": watched_objects.done()})
        await process.until(lambda: "train: ended" in process.log or "ended train" in process.log, "its end")
        shown = await process.read(server, "show", "job/train")
        (attempt,) = shown["tasks"][0]["attempts"]
        assert (attempt["cause"], attempt["seconds"]) == ("succeeded", pytest.approx(88, abs=1.5))

    controlled(tmp_path, test, environment=wrong_clock(tmp_path, wrong_by))


def lines(count: int, since: str) -> bytes:
    """What the log endpoint has of a pod: so many lines, one a second, from a moment on."""
    stamped = [Line((BEGIN + number) * BILLION, f"line {number}\n".encode()) for number in range(count)]
    return answer(stamped, since)


def serve_log(server: RecordServer, pod: str, count: Callable[[], int]) -> None:
    """Let the log of a pod have so many lines by now."""

    async def log(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(lines(count(), request.query.get("sinceTime", "")))
        return response

    server.pages[f"/api/v1/namespaces/team-a/pods/{pod}/log"] = log


def train_on(server: RecordServer, name: str, pod: str, **how: Any) -> None:
    """A Job with one pod; without more the pod runs."""
    job = watched_objects.job(name, uid=f"uid-{name}", status=watched_objects.done() if "exit_code" in how else None)
    made = watched_objects.pod(pod, job, node="n1", **({"phase": "Running"} | how))
    if "exit_code" not in how:
        made["status"]["containerStatuses"][0]["state"] = {"running": {"startedAt": at(2)}}
    show(server, JOBS, job)
    show(server, PODS, made)
    server.put("/api/v1/namespaces/team-a/pods", pod, **made)


async def is_placed(server: RecordServer, process: Controller) -> bool:
    """Whether a Job that is created now is placed."""
    webhook = server.objects[REGISTRATIONS]["spotwright"]["webhooks"][0]["clientConfig"]
    context = ssl.create_default_context(cadata=base64.b64decode(webhook["caBundle"]).decode())
    address = f"{process.address('answered')}/mutate"
    async with (
        ClientSession(connector=TCPConnector(ssl=context)) as session,
        session.post(address, data=a_review(a_job())) as response,
    ):
        reviewed = (await response.json())["response"]
    assert reviewed["allowed"]
    return "patch" in reviewed


@needs_a_disk
def test_while_the_folder_of_logs_is_full_nothing_but_logs_waits_and_an_event_says_so(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(disk)], check=True)
    shown = {"one": 5, "two": 0}

    async def test(server: RecordServer, process: Controller) -> None:
        for pod in ("one", "two"):
            serve_log(server, pod, partial(shown.__getitem__, pod))
        train_on(server, "old", "one")
        await process.until(lambda: list(disk.glob("logs/team-a/*/old/1/00000001")), "its log")
        fill(disk)
        shown.update(one=400, two=400)
        train_on(server, "old", "one", phase="Succeeded", exit_code=0)
        train_on(server, "new", "two", phase="Failed", exit_code=3)
        (event,) = await process.until(lambda: events(server), "an Event")
        assert "logs cannot be stored: file://" in event["message"]
        assert await is_placed(server, process), "what is created is placed all the same"
        await process.until(lambda: len(ended(server)) == 2, "what has ended is recorded all the same")
        assert ended(server) == {"old": "succeeded", "new": "failed"}
        (disk / "filler").unlink()
        await process.until(lambda: len(list(disk.glob("logs/team-a/*/*/1/end"))) == 2, "both logs are complete")
        for name in ("old", "new"):
            (log,) = await process.read(server, "logs", f"job/{name}")
            assert log["text"] == "".join(f"line {number}\n" for number in range(400))
        assert len(events(server)) == 1

    try:
        controlled(tmp_path, test, "--logs", f"file://{disk}/logs")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def events(server: RecordServer) -> list[Any]:
    found = server.objects.get("/api/v1/namespaces/spotwright/events", {}).values()
    return [each for each in found if each["reason"] == "LogsNotKept"]


def ended(server: RecordServer) -> dict[str, str]:
    """The causes that are recorded, by the name of the Job."""
    return {
        each["spec"]["run"].split(".")[1].rpartition("-")[0].removesuffix("-uid"): each["status"]["cause"]
        for each in server.kept("SpotAttempt")
        if each["status"].get("cause")
    }


_IGNORES = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
