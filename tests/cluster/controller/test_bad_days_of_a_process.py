"""The real controller process on bad days: a clock that is off by minutes, a store that is full or read-only."""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import ClientSession, TCPConnector
from tests.cli.full_folders import can_mount, fill
from tests.cluster.admission_objects import a_job
from tests.cluster.admissions import note_admission
from tests.cluster.controller.controller_process import (
    JOBS,
    PODS,
    REGISTRATIONS,
    Process,
    a_cluster,
    broken_store,
    controller_process,
    moment,
    show,
    wrong_clock,
)
from tests.cluster.reviews import a_review
from tests.cluster.watching import watched_objects
from tests.cluster.watching.small_api_server import SmallApiServer, serving
from tests.cluster.watching.watched_objects import at

pytestmark = pytest.mark.long

POLICY = "{default: {spot: prefer, interruptions: {max: 3}, fall_back_after: 2, pending_timeout: 4s}}"
SPOT = {"kubernetes.azure.com/agentpool": "spot-a", "kubernetes.azure.com/scalesetpriority": "spot"}
MINUTES = 7 * 60
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
}
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
    test: Callable[[SmallApiServer, Process], Awaitable[None]],
    environment: dict[str, str] | None = None,
) -> None:
    """Run a test beside a controller process."""

    async def run() -> None:
        async with serving() as server:
            a_cluster(server, POLICY, watched_objects.node("n1", **SPOT))
            async with controller_process(folder, server, environment=environment) as process:
                await test(server, process)

    asyncio.run(run())


@needs_a_compiler
@pytest.mark.parametrize("wrong_by", [MINUTES, -MINUTES])
def test_a_clock_that_is_off_by_minutes_changes_no_time_no_cost_and_no_wait(tmp_path: Path, wrong_by: int) -> None:
    began = time.time() - 100.0
    train = beginning(began, watched_objects.job("train", uid="uid-train"))
    idle = beginning(began + 99, watched_objects.job("idle", uid="uid-idle", podFailurePolicy=_IGNORES))
    idle["spec"]["template"]["metadata"] = {"labels": {"spotwright.dev/spot": "prefer"}}

    async def test(server: SmallApiServer, process: Process) -> None:
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
        shown = await process.read("show", "job/train")
        (attempt,) = shown["tasks"][0]["attempts"]
        assert attempt["bound_at"] == pytest.approx(began + 2, abs=1.5)
        assert attempt["seconds"] == pytest.approx(time.time() - began - 2, abs=10)
        (line,) = [each for each in await process.read("runs") if each["run"] == shown["run"]]
        assert line["seconds"] == pytest.approx(time.time() - began, abs=10)
        ended = watched_objects.pod("one", train, node="n1", phase="Succeeded", exit_code=0, ended=90)
        show(server, PODS, beginning(began, ended))
        show(server, JOBS, {**train, "status": watched_objects.done()})
        await process.until(lambda: "train: ended" in process.log or "ended train" in process.log, "its end")
        shown = await process.read("show", "job/train")
        (attempt,) = shown["tasks"][0]["attempts"]
        assert (attempt["cause"], attempt["seconds"]) == ("succeeded", pytest.approx(88, abs=1.5))

    controlled(tmp_path, test, wrong_clock(tmp_path, wrong_by))


def train_on(server: SmallApiServer, name: str, pod: str, **how: Any) -> None:
    """A Job with one pod; without more the pod runs."""
    job = watched_objects.job(name, uid=f"uid-{name}", status=watched_objects.done() if "exit_code" in how else None)
    made = watched_objects.pod(pod, job, node="n1", **({"phase": "Running"} | how))
    if "exit_code" not in how:
        made["status"]["containerStatuses"][0]["state"] = {"running": {"startedAt": at(2)}}
    show(server, JOBS, job)
    show(server, PODS, made)


async def is_placed(server: SmallApiServer, process: Process) -> bool:
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


def survive(
    server: SmallApiServer, process: Process, break_it: Callable[[], object], mend: Callable[[], object]
) -> Any:
    """A Job ends, and another one comes and ends, while the store is broken; afterwards both are recorded."""

    async def test() -> None:
        train_on(server, "old", "one")
        await process.until(lambda: list(process.state.glob("runs/*old*/journal.db")), "its run")
        async with asyncio.timeout(60):
            while not (await process.read("show", "job/old"))["tasks"][0]["attempts"]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        break_it()
        train_on(server, "old", "one", phase="Succeeded", exit_code=0)
        train_on(server, "new", "two", phase="Failed", exit_code=3)
        await process.until(lambda: "is kept until it can be written" in process.log, "the problem is said")
        assert await is_placed(server, process), "what is created is placed all the same"
        assert (await process.read("show", "job/old"))["tasks"][0]["attempts"][0]["cause"] is None
        server.delete(PODS, "one")  # Kubernetes forgets it; the controller has seen how it ended
        await asyncio.sleep(1)
        mend()
        await process.until(lambda: "the runs can be written again" in process.log, "the end of the problem is said")
        for name, cause in (("old", "succeeded"), ("new", "failed")):
            (attempt,) = (await process.read("show", f"job/{name}"))["tasks"][0]["attempts"]
            assert attempt["cause"] == cause
        assert process.log.count("is kept until it can be written") == 1

    return test()


@needs_a_disk
def test_what_happens_while_the_disk_is_full_is_recorded_when_it_has_room(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(state)], check=True)

    async def test(server: SmallApiServer, process: Process) -> None:
        await survive(server, process, lambda: fill(state), (state / "filler").unlink)

    try:
        controlled(tmp_path, test)
    finally:
        subprocess.run(["umount", str(state)], check=True)


@needs_a_compiler
@pytest.mark.parametrize("error", [errno.EROFS, errno.EIO])
def test_what_happens_while_the_store_is_read_only_or_broken_is_recorded_when_it_works(
    tmp_path: Path, error: int
) -> None:
    flag = tmp_path / "broken"

    async def test(server: SmallApiServer, process: Process) -> None:
        await survive(server, process, flag.touch, flag.unlink)

    controlled(tmp_path, test, broken_store(tmp_path, tmp_path / "state", flag, error))


@needs_a_disk
def test_a_store_that_is_read_only_at_the_start_is_named(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,ro", "none", str(state)], check=True)
    try:
        command = [sys.executable, "-m", "spotwright", "controller", "--state", str(state), "--no-watch"]
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(KUBECONFIG))
        command += ["--kubeconfig", str(tmp_path / "kubeconfig"), "--webhook-url", "https://127.0.0.1:1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    finally:
        subprocess.run(["umount", str(state)], check=True)
    assert done.returncode == 2
    assert str(state) in done.stderr
    assert "Read-only file system" in done.stderr
    assert "Traceback" not in done.stderr


_IGNORES = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
