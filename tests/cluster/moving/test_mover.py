"""A leader against a small API server: pods without a node are evicted, and pods of dead machines are deleted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.admissions import note_admission
from tests.cluster.granted_rights import is_allowed
from tests.cluster.moving.mover_bed import NODES, PODS, Bed, on_a_bed
from tests.cluster.watching.watched_objects import SPOT, at, node, pod

from spotwright.cluster import descheduler
from spotwright.cluster.signals import LastSeen, why_never_starts
from spotwright.kube.object_fields import seconds
from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import BudgetUse


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descheduler, "_PAUSE", 0.02)
    monkeypatch.setattr(descheduler, "_LOOK_AGAIN", 0.1)


def test_a_pod_that_waits_in_vain_is_evicted_and_nothing_is_charged(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        bed.pod("one")
        async with bed.leader():
            await bed.until(lambda: bed.tally.waiting == {("team-a", "Unschedulable"): 1})
            await bed.until(lambda: [a for a in bed.attempts() if a.cause is Cause.UNSCHEDULABLE])
            await bed.until(lambda: not bed.tally.waiting)
        assert bed.tally.moves == {"taken-back": 1, "evicted": 1, "deleted": 0}
        [(what, body)] = bed.asked
        [attempt] = bed.attempts()
        run = bed.run()
        assert run is not None
        assert (what, body["kind"]) == ("evict", "Eviction")
        assert set(body["deleteOptions"]["preconditions"]) == {"uid", "resourceVersion"}
        assert attempt.cause_why.startswith("no node on gpu-spot for ")
        assert attempt.following == "the next attempt waits on gpu"
        assert run.tasks["train"].spent == BudgetUse()
        assert run.tasks["train"].next_rung == 1
        assert [one.pause.times for one in bed.told.all] == [1]
        assert [line for line in bed.server.asked if not is_allowed(line, "recorder")] == []

    on_a_bed(tmp_path, scenario)


def test_the_decision_is_in_the_journal_before_the_deed_and_the_next_leader_does_it(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        bed.answers = [500]
        bed.pod("one")
        async with bed.leader():
            await bed.until(lambda: bed.asked)
        assert bed.attempts()[0].taken_back is not None
        bed.told.write({})
        async with bed.leader():
            await bed.until(lambda: len(bed.asked) == 2)
            assert [one.pool for one in bed.told.all] == ["gpu-spot"]  # computed from the journal

    on_a_bed(tmp_path, scenario)


def test_a_pod_whose_version_has_changed_is_evicted_by_its_new_one(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        bed.answers = [409]
        bed.pod("one")
        async with bed.leader():
            await bed.until(lambda: bed.asked)
            bed.pod("one")
            await bed.until(lambda: len(bed.asked) == 2)
        first, second = (body["deleteOptions"]["preconditions"]["resourceVersion"] for _, body in bed.asked)
        assert int(second) > int(first)

    on_a_bed(tmp_path, scenario)


def test_a_pod_that_gets_a_node_after_the_decision_stays(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        bed.answers = [409] * 100
        bed.pod("one")
        async with bed.leader():
            await bed.until(lambda: bed.asked)
            bed.pod("one", node="n1", phase="Running")
            await bed.until(lambda: bed.attempts()[0].bound_at)
            count = len(bed.asked)
            await bed.until(lambda: not bed.told.all)
            await asyncio.sleep(0.1)
        assert len(bed.asked) == count
        assert bed.attempts()[0].taken_back is None

    on_a_bed(tmp_path, scenario)


@pytest.mark.parametrize("reason", ["SchedulingGated", ""])
def test_a_pod_that_waits_for_something_else_stays(tmp_path: Path, reason: str) -> None:
    async def scenario(bed: Bed) -> None:
        bed.pod("gated", reason=reason)
        bed.pod("one")
        async with bed.leader():
            await bed.until(lambda: [a for a in bed.attempts() if a.cause is Cause.UNSCHEDULABLE])
            await asyncio.sleep(0.2)
        assert [body["metadata"]["name"] for _, body in bed.asked] == ["one"]

    on_a_bed(tmp_path, scenario)


def test_a_pod_that_waits_for_its_volume_stays(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        volume = pod("one", bed.train, annotations={"spotwright.dev/rung": "gpu-spot"})
        message = '0/1 nodes are available: persistentvolumeclaim "data" not found.'
        volume["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        ]
        note_admission(bed.server, volume)
        bed.put(PODS, volume)
        async with bed.leader():
            await bed.until(lambda: [a for a in bed.attempts() if a.waits])
            await asyncio.sleep(0.3)
        assert bed.asked == []
        assert bed.attempts()[0].waits.startswith("VolumeNotReady: ")

    on_a_bed(tmp_path, scenario)


def silent(*taints: str) -> dict[str, Any]:
    made = node("n1", ready="Unknown", **SPOT)
    made["status"]["conditions"][0]["lastTransitionTime"] = at(20)
    made["spec"] = {"taints": [{"key": key, "effect": "NoExecute"} for key in taints]}
    return made


def test_pods_of_a_deleted_node_are_deleted_without_grace(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        bed.pod("one", node="n1", phase="Running")
        async with bed.leader():
            await bed.until(bed.attempts)
            bed.put(NODES, silent())
            bed.server.delete(NODES, "n1")
            await bed.until(lambda: [a for a in bed.attempts() if a.cause])
        [(first, status), (what, body)] = bed.asked
        [attempt] = bed.attempts()
        assert (first, status["status"]["phase"], status["metadata"]["uid"]) == ("fail", "Failed", "uid-one")
        assert (what, body["gracePeriodSeconds"], body["preconditions"]) == ("delete", 0, {"uid": "uid-one"})
        assert (attempt.released, attempt.cause) == ("the Node object n1 was deleted", Cause.INTERRUPTED)
        assert [line for line in bed.server.asked if not is_allowed(line, "recorder")] == []

    on_a_bed(tmp_path, scenario)


KEPT = {"spotwright.dev/rung": "gpu-spot", "spotwright.dev/replacement": "Failed"}


def test_a_silent_node_holds_no_pod_up_that_kubernetes_alone_would_replace(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        bed.pod("one", node="n1", phase="Running")
        bed.put(NODES, silent("node.kubernetes.io/unreachable"))
        async with bed.leader():
            await bed.until(bed.attempts)
            await asyncio.sleep(0.2)
            assert bed.asked == [], "nobody deletes it yet"
            bed.pod("one", node="n1", phase="Running", deletionTimestamp=at(40))
            await bed.until(lambda: [a for a in bed.attempts() if a.cause])
        assert [what for what, _ in bed.asked] == ["fail", "delete"]
        [attempt] = bed.attempts()
        assert (attempt.released, attempt.cause) == (
            "node n1 does not report, and its Job, which lacks our podFailurePolicy, would not wait for it",
            Cause.LOST,
        )
        assert [line for line in bed.server.asked if not is_allowed(line, "recorder")] == []

    on_a_bed(tmp_path, scenario)


def test_the_deletion_is_tried_again_though_the_pod_has_failed(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        bed.answers = [200, 500]
        bed.pod("one", node="n1", phase="Running", deletionTimestamp=at(40))
        bed.put(NODES, silent())
        async with bed.leader():
            await bed.until(lambda: len(bed.asked) >= 2)
            bed.pod("one", node="n1", phase="Failed", deletionTimestamp=at(40))
            await bed.until(lambda: len(bed.asked) >= 3)
        assert [what for what, _ in bed.asked] == ["fail", "delete", "delete"]

    on_a_bed(tmp_path, scenario)


def test_a_silent_node_holds_a_pod_whose_author_wants_it_until_its_machine_is_gone(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        deleted: dict[str, Any] = {"deletionTimestamp": at(40), "annotations": KEPT}
        bed.pod("one", node="n1", phase="Running", **deleted)
        bed.put(NODES, silent("node.kubernetes.io/unreachable"))
        async with bed.leader():
            await bed.until(lambda: [a for a in bed.attempts() if a.held and a.cause])
            [attempt] = bed.attempts()
            assert attempt.held is not None
            assert (attempt.held.node, attempt.cause) == ("n1", Cause.LOST)
            await asyncio.sleep(0.2)
            assert bed.asked == []
            bed.put(NODES, silent("node.kubernetes.io/out-of-service"))
            await bed.until(lambda: bed.asked)
        [attempt] = bed.attempts()
        assert "out-of-service" in attempt.released
        assert attempt.held is None

    on_a_bed(tmp_path, scenario)


def test_a_node_that_reports_again_holds_nothing(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        bed.pod("one", node="n1", phase="Running", deletionTimestamp=at(40), annotations=KEPT)
        bed.put(NODES, silent())
        async with bed.leader():
            await bed.until(lambda: [a for a in bed.attempts() if a.held])
            bed.put(NODES, node("n1", **SPOT))
            await bed.until(lambda: [a for a in bed.attempts() if not a.held])
        assert bed.asked == []

    on_a_bed(tmp_path, scenario)


LONG_AGO = "2020-01-01T08:00:"


def never_started(*, policy: str = "Never", sandbox: str = "False", **container: Any) -> dict[str, Any]:
    """The status by a kubelet 1.35.4 of a pod whose container was created but not started before its node restarted."""
    main = {
        "name": "main",
        "restartCount": 0,
        "containerID": "containerd://76",
        "state": {"waiting": {}},
        "lastState": {},
    }
    conditions = [("PodScheduled", "True"), ("PodReadyToStartContainers", sandbox)]
    return {
        "spec": {"containers": [{"name": "main"}], "nodeName": "n1", "restartPolicy": policy},
        "status": {
            "phase": "Pending",
            "conditions": [
                {"type": kind, "status": status, "lastTransitionTime": f"{LONG_AGO}02Z"} for kind, status in conditions
            ],
            "containerStatuses": [{**main, **container}],
        },
    }


def ready_since(second: int) -> dict[str, Any]:
    """The pod's node, which reports since a second of that time."""
    made = node("n1", **SPOT)
    made["status"]["conditions"][0]["lastTransitionTime"] = f"{LONG_AGO}{second:02}Z"
    return made


def test_a_pod_that_its_restarted_node_never_starts_is_deleted_and_counts_as_interrupted(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        bed.pod("one", node="n1")
        bed.put(PODS, {**bed.server.objects[PODS]["one"], **never_started()})
        bed.put(NODES, ready_since(30))
        async with bed.leader():
            await bed.until(lambda: [a for a in bed.attempts() if a.cause])
        assert [what for what, _ in bed.asked] == ["fail", "delete"]
        [attempt] = bed.attempts()
        assert attempt.released == (
            "node n1 restarted before it began, and its kubelet will not start it: its node was not ready in between"
        )
        assert attempt.cause is Cause.INTERRUPTED
        assert [line for line in bed.server.asked if not is_allowed(line, "recorder")] == []

    on_a_bed(tmp_path, scenario)


@pytest.mark.parametrize(
    ("pod", "ready", "after"),
    [
        (never_started(), 30, 10),  # its kubelet may be about to look at it
        (never_started(), 1, 60),  # its node did not restart
        (never_started(policy="OnFailure"), 30, 60),  # it gets another sandbox
        (never_started(sandbox="True"), 30, 60),
        (never_started(state={"waiting": {"reason": "ImagePullBackOff"}}), 30, 60),
        (never_started(containerID=""), 30, 60),  # it was not made yet: the kubelet makes it
    ],
)
def test_a_pod_that_its_node_may_still_start_stays(pod: dict[str, Any], ready: int, after: int) -> None:
    now = seconds(f"{LONG_AGO}{ready:02}Z")
    assert now is not None
    assert why_never_starts(LastSeen(pod, ready_since(ready)), now + after) == ""
    assert why_never_starts(LastSeen(never_started(), ready_since(30)), now + 60) != ""
