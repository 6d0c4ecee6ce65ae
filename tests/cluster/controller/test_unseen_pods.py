"""Pods that came and went between two recorders: their numbers were given out, and they count as lost, never as fine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from tests.cluster.controller.controller_process import JOBS, NODES, PODS, a_cluster, moment, show
from tests.cluster.controller.processes import POLICY, recording, until
from tests.cluster.granted_rights import is_allowed
from tests.cluster.records.kind_schemas import misfits
from tests.cluster.records.record_server import RecordServer
from tests.cluster.watching.small_api_server import serving
from tests.cluster.watching.watched_objects import SPOT, job, node, pod

from spotwright.cluster.admit_objects import Admission
from spotwright.cluster.admit_pods import ADMISSION_ANNOTATION
from spotwright.cluster.run_objects import WORKLOAD_LABEL
from spotwright.cluster.task_objects import API_VERSION, Content, bind_in, counters_of, keep_in, note_seen_in

COUNTERS = "/apis/spotwright.dev/v1alpha1/namespaces/team-a/spotcounters"
UID = "uid-train"


def a_job() -> dict[str, Any]:
    made = job("train", uid=UID, backoffLimit=6)
    made["metadata"]["creationTimestamp"] = moment(time.time() - 100)
    return made


def admit(server: RecordServer, number: int, *, is_seen: bool = True, is_refused: bool = False) -> dict[str, Any]:
    """A pod of the Job whose review has got this number, as a webhook that has seen it leaves its SpotCounter."""
    made, review = pod(f"pod-{number}", a_job(), node="n1", phase="Running"), f"review-{number}"
    made["metadata"]["creationTimestamp"] = moment(time.time() - 60 + number)
    place = counters_of("team-a", UID, "train")
    known = server.objects.get(COUNTERS, {}).get(place.name, {"spec": {}})
    content = msgspec.convert(known["spec"], Content)
    token, sheet = content.give(place, review, "train", 0, number, time.time())
    decided = Admission(("spot-a",), is_refused=is_refused, why="as decided", number=number)
    keep_in(content, place, review, sheet, decided, "train")
    if is_seen:
        bind_in(content, {review: made["metadata"]["uid"]})
        note_seen_in(content, [review])
    labels = {WORKLOAD_LABEL: UID}
    found = server.put(
        COUNTERS,
        place.name,
        apiVersion=API_VERSION,
        kind="SpotCounter",
        spec=msgspec.json.decode(msgspec.json.encode(content)),
        metadata={"labels": labels},
    )
    assert misfits(found) == []
    made["metadata"]["annotations"] = {ADMISSION_ANNOTATION: str(token)}
    return made


def attempts(server: RecordServer) -> dict[int, tuple[str, str]]:
    """By number the pod and the cause of each recorded attempt."""
    return {
        each["spec"]["attempt"]: (each["status"].get("pod", ""), each["status"].get("cause", ""))
        for each in server.kept("SpotAttempt")
    }


async def recorded(server: RecordServer, folder: Path, wanted: dict[int, tuple[str, str]]) -> None:
    """A recorder starts, and records this."""
    async with recording(server, folder):
        await until(lambda: attempts(server) == wanted)
        await asyncio.sleep(1.0)
        assert attempts(server) == wanted
    assert [line for line in server.asked if not is_allowed(line, "recorder")] == []


def told(server: RecordServer) -> Sequence[str]:
    return [line for each in server.kept("SpotRun") for line in each["journal"] if "note" in line]


def test_an_attempt_between_two_recorders_is_recorded_before_the_one_that_follows(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(RecordServer) as server:
            begin(server)
            show(server, PODS, admit(server, 1))
            await recorded(server, tmp_path, {1: ("pod-1", "")})
            server.delete(PODS, "pod-1")
            admit(server, 2)
            show(server, PODS, admit(server, 3))
            await recorded(server, tmp_path, {1: ("pod-1", "lost"), 2: ("", "lost"), 3: ("pod-3", "")})
            assert [line for line in told(server) if "attempt 2 of train: the watcher was away when it ended" in line]
            await recorded(server, tmp_path, {1: ("pod-1", "lost"), 2: ("", "lost"), 3: ("pod-3", "")})

    asyncio.run(test())


def test_the_last_attempt_of_a_task_is_recorded_too(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(RecordServer) as server:
            begin(server)
            show(server, PODS, admit(server, 1))
            await recorded(server, tmp_path, {1: ("pod-1", "")})
            admit(server, 2)
            await recorded(server, tmp_path, {1: ("pod-1", ""), 2: ("", "lost")})
            (run,) = server.kept("SpotRun")
            assert run["status"]["phase"] == "running"

    asyncio.run(test())


def test_numbers_of_pods_that_nobody_has_seen_and_of_refused_pods_are_no_attempts(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(RecordServer) as server:
            begin(server)
            show(server, PODS, admit(server, 1))
            await recorded(server, tmp_path, {1: ("pod-1", "")})
            admit(server, 2, is_seen=False)
            admit(server, 3, is_refused=True)
            await recorded(server, tmp_path, {1: ("pod-1", "")})

    asyncio.run(test())


def test_a_workload_of_which_nothing_was_recorded_yet_has_its_first_attempt(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(RecordServer) as server:
            begin(server)
            admit(server, 1)
            show(server, PODS, admit(server, 2))
            await recorded(server, tmp_path, {1: ("", "lost"), 2: ("pod-2", "")})

    asyncio.run(test())


def test_of_a_workload_whose_record_was_perhaps_deleted_nothing_is_concluded(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(RecordServer) as server:
            begin(server)
            admit(server, 1)
            show(server, PODS, admit(server, 2))
            meta = {"annotations": {"spotwright.dev/deleted-until": moment(time.time() - 50)}}
            server.put(COUNTERS, "deleted-runs", apiVersion=API_VERSION, kind="SpotCounter", metadata=meta)
            await recorded(server, tmp_path, {1: ("pod-2", "")})

    asyncio.run(test())


def begin(server: RecordServer) -> None:
    a_cluster(server, POLICY, node("n1", **SPOT))
    server.objects[COUNTERS] = {}
    show(server, JOBS, a_job())
    show(server, NODES, node("n1", **SPOT))
