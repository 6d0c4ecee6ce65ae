"""A kind whose controller is installed later is recorded from then on; one that is removed ends nothing; both are reported."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web
from tests.cluster.watching.days import JOBS, PODS, Day, day
from tests.cluster.watching.small_api_server import serving
from tests.cluster.watching.watched_objects import at, job, pod

from spotwright.cluster import mirror, served_kinds, watch_streams
from spotwright.cluster.api_client import Api, EventWriter
from spotwright.cluster.controller_events import UnreadKinds
from spotwright.cluster.served_kinds import NOT_SERVED
from spotwright.cluster.unavailable_pools import Tally
from spotwright.engine.events import RunStatus
from spotwright.model.attempts import Cause

JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/jobsets"
GROUP = "/apis/jobset.x-k8s.io/v1alpha2"
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
SENTENCE = (
    "the API server has jobsets.jobset.x-k8s.io in v1, but Spotwright reads v1alpha2; install a release of its controller "
    "that serves v1alpha2, or a Spotwright that reads v1"
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(watch_streams, "_DISCOVERS", 0.1)
    monkeypatch.setattr(mirror, "_REFUSED", (0.05, 0.05))
    caplog.set_level(logging.INFO)


def job_set(name: str) -> dict[str, Any]:
    template = {"spec": {"template": {"spec": {"containers": [{"name": "main"}]}}}}
    meta = {"name": name, "namespace": "a", "uid": f"uid-{name}"}
    return {"kind": "JobSet", "metadata": meta, "spec": {"replicatedJobs": [{"name": "worker", "template": template}]}}


def put_set(made: Day, name: str, phase: str, exit_code: int | None = None) -> None:
    """A JobSet with one Job, whose pod is in this phase."""
    owner = job_set(name)
    reference = {"kind": "JobSet", "name": name, "uid": f"uid-{name}", "controller": True}
    child = job(f"{name}-worker-0", uid=f"uid-{name}-job")
    child["metadata"]["ownerReferences"] = [reference]
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "worker", "jobset.sigs.k8s.io/restart-attempt": "0"}
    made.put(JOBSETS, owner)
    made.put(JOBS, child)
    made.put(PODS, pod(f"pod-{name}", child, node="n1", phase=phase, exit_code=exit_code, labels=labels))


def serve(made: Day) -> None:
    made.server.served[GROUP] = ["jobsets"]
    made.server.objects.setdefault(JOBSETS, {})


def take_away(made: Day) -> None:
    """The CRD is deleted while streams are away: requests for its kind return 404."""

    async def missing(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "message": "not found", "code": 404}, status=404)

    made.server.served.pop(GROUP)
    made.server.pages |= {JOBSETS: missing, "/apis/jobset.x-k8s.io/v1alpha2/namespaces/a/jobsets": missing}


@pytest.mark.parametrize("listed", [(), ("a",)], ids=["label", "list"])
def test_work_of_a_kind_that_comes_later_is_recorded(
    tmp_path: Path, listed: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async def test(made: Day) -> None:
        made.put(JOBS, train := job("train", uid="uid-train"))
        made.put(PODS, pod("one", train, node="n1", phase="Failed", exit_code=3))
        await made.start(*listed)
        await made.until(lambda: made.cause("train") is Cause.FAILED, "a Job")
        assert "does not serve it" in made.watcher.watched.kinds["JobSet"]
        put_set(made, "set", "Failed", 3)
        await asyncio.sleep(0.2)
        assert "set" not in made.runs()
        serve(made)
        await made.until(lambda: made.cause("set") is Cause.FAILED, "the JobSet")
        assert made.watcher.watched.kinds["JobSet"] == "watched"

    day(tmp_path / "state", test)
    assert caplog.text.count("JobSet is served now: starting to watch it") == 1


def test_a_kind_that_goes_away_ends_neither_the_watcher_nor_runs_of_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(made: Day) -> None:
        serve(made)
        put_set(made, "set", "Running")
        await made.start()
        await made.until(lambda: made.is_recorded("set"), "the JobSet")
        monkeypatch.setattr(watch_streams, "_GONE", 1_000_000)  # for now
        take_away(made)
        await made.server.cut()
        await made.until(lambda: "JobSet" in made.watcher.problems, "the problem")
        made.put(JOBS, train := job("train", uid="uid-train"))
        made.put(PODS, pod("one", train, node="n1", phase="Failed", exit_code=3))
        await made.until(lambda: made.cause("train") is Cause.FAILED, "a Job")
        assert made.runs()["set"].status is RunStatus.RUNNING  # perhaps the API server only starts
        monkeypatch.setattr(watch_streams, "_GONE", 2)
        await made.until(lambda: "JobSet is no longer served" in caplog.text, "the kind counts as gone")
        made.server.pages.clear()
        serve(made)
        put_set(made, "next", "Failed", 3)
        await made.until(lambda: made.cause("next") is Cause.FAILED, "a JobSet after the kind has come back")

    day(tmp_path / "state", test)


def test_a_kind_that_may_not_be_read_holds_up_no_other_and_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(made: Day) -> None:
        async def forbidden(_request: web.Request) -> web.StreamResponse:
            return web.json_response({"kind": "Status", "message": "jobsets is forbidden"}, status=403)

        serve(made)
        made.server.pages[JOBSETS] = forbidden
        made.put(JOBS, train := job("train", uid="uid-train"))
        made.put(PODS, pod("one", train, node="n1", phase="Failed", exit_code=3))
        await made.start()
        await made.until(lambda: made.cause("train") is Cause.FAILED, "a Job")
        assert "jobsets is forbidden" in made.watcher.watched.kinds["JobSet"]

    day(tmp_path / "state", test)
    assert caplog.text.count("jobsets is forbidden") == 1


def test_runs_of_a_kind_that_cannot_be_read_go_on(tmp_path: Path) -> None:
    """A watcher that starts beside an API server which does not serve the kind for a moment must not call its runs deleted."""

    async def test(made: Day) -> None:
        serve(made)
        put_set(made, "set", "Running")
        await made.start()
        await made.until(lambda: made.is_recorded("set"), "the JobSet")
        await made.stop()
        take_away(made)
        made.put(JOBS, train := job("train", uid="uid-train"))
        made.put(PODS, pod("one", train, node="n1", phase="Failed", exit_code=3))
        await made.start()
        await made.until(lambda: made.cause("train") is Cause.FAILED, "a Job")
        assert made.runs()["set"].status is RunStatus.RUNNING
        made.server.pages.clear()
        serve(made)
        made.server.objects[JOBSETS].clear()
        made.server.delete(PODS, "pod-set")
        await made.until(lambda: made.runs()["set"].finished_at, "it ends once it is certain that it was deleted")

    day(tmp_path / "state", test)


def test_an_aggregated_api_server_that_is_down_keeps_no_other_kind_from_being_watched(tmp_path: Path) -> None:
    async def test(made: Day) -> None:
        async def down(_request: web.Request) -> web.StreamResponse:
            return web.json_response({"kind": "Status", "message": "no endpoints"}, status=400)

        made.server.pages[GROUP] = down
        made.put(JOBS, train := job("train", uid="uid-train"))
        made.put(PODS, pod("one", train, node="n1", phase="Failed", exit_code=3))
        await made.start()
        await made.until(lambda: made.cause("train") is Cause.FAILED, "a Job")
        assert "no endpoints" in made.watcher.watched.kinds["JobSet"]

    day(tmp_path / "state", test)


@pytest.mark.parametrize("answers", [True, False], ids=["503", "no answer"])
def test_an_aggregated_api_server_that_keeps_people_waiting_holds_up_no_pods(
    tmp_path: Path, answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_kinds, "ANSWERS", 0.5)

    async def test(made: Day) -> None:
        async def down(_request: web.Request) -> web.StreamResponse:
            if not answers:
                await asyncio.sleep(100)
            headers = {"Retry-After": "100"}
            return web.json_response({"kind": "Status", "message": "unavailable"}, status=503, headers=headers)

        made.server.pages[GROUP] = down
        made.put(JOBS, train := job("train", uid="uid-train"))
        made.put(PODS, pod("one", train, node="n1", phase="Failed", exit_code=3))
        await made.start()
        await made.until(lambda: made.cause("train") is Cause.FAILED, "a Job")
        assert "no answer within 0.5 s" in made.watcher.watched.kinds["JobSet"]
        del made.server.pages[GROUP]
        serve(made)
        put_set(made, "set", "Failed", 3)
        await made.until(lambda: made.cause("set") is Cause.FAILED, "the JobSet")

    day(tmp_path / "state", test)


def test_a_kind_in_another_version_is_said_in_one_sentence_and_watched_once_ours_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(made: Day) -> None:
        made.server.served["/apis/jobset.x-k8s.io/v1"] = ["jobsets"]
        made.put(JOBS, train := job("train", uid="uid-train"))
        made.put(PODS, pod("one", train, node="n1", phase="Failed", exit_code=3))
        await made.start()
        await made.until(lambda: made.cause("train") is Cause.FAILED, "a Job")
        assert made.watcher.watched.kinds["JobSet"] == SENTENCE
        serve(made)
        put_set(made, "set", "Failed", 3)
        await made.until(lambda: made.cause("set") is Cause.FAILED, "the JobSet")

    day(tmp_path / "state", test)
    assert caplog.text.count(f"cannot record JobSet: {SENTENCE}") == 1


def test_runs_go_on_whose_kind_is_served_in_another_version_from_now_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its objects still exist, so they were not deleted: they are unknown until they can be read again."""

    async def test(made: Day) -> None:
        serve(made)
        put_set(made, "set", "Running")
        await made.start()
        await made.until(lambda: made.is_recorded("set"), "the JobSet")
        take_away(made)
        made.server.served["/apis/jobset.x-k8s.io/v1"] = ["jobsets"]
        await made.server.cut()
        await made.until(lambda: SENTENCE in caplog.text, "the sentence")
        made.put(JOBS, train := job("train", uid="uid-train"))
        made.put(PODS, pod("one", train, node="n1", phase="Failed", exit_code=3))
        await made.until(lambda: made.cause("train") is Cause.FAILED, "a Job")
        assert made.runs()["set"].status is RunStatus.RUNNING
        made.server.pages.clear()
        serve(made)
        put_set(made, "set", "Failed", 3)
        await made.until(lambda: made.cause("set") is Cause.FAILED, "the end")

    day(tmp_path / "state", test)


def test_a_kind_that_is_read_in_two_versions_is_watched_in_the_one_that_there_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mpi = "/apis/kubeflow.org/v2beta1/mpijobs"

    async def test(made: Day) -> None:
        made.server.served["/apis/kubeflow.org/v2beta1"] = ["mpijobs"]
        meta = {"name": "mpi", "namespace": "a", "uid": "uid-mpi", "creationTimestamp": at(0)}
        owner = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": meta, "spec": {}}
        made.put(mpi, owner)
        made.put(PODS, pod("launcher", owner, node="n1", phase="Running"))
        await made.start()
        await made.until(lambda: made.is_recorded("mpi"), "the MPIJob")
        assert made.watcher.watched.kinds["MPIJob"] == "watched"
        made.server.delete(mpi, "mpi")
        made.server.delete(PODS, "launcher")
        await made.until(lambda: made.runs()["mpi"].finished_at, "its end: it was deleted")

    day(tmp_path / "state", test)
    assert "cannot record MPIJob" not in caplog.text


def test_a_kind_that_cannot_be_read_is_told_by_one_event_and_a_metric() -> None:
    async def test() -> list[dict[str, Any]]:
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
            tally = Tally()
            unread = UnreadKinds(EventWriter(Api(client)), "spotwright", tally)
            unread.hear({"Job": "watched", "JobSet": SENTENCE, "TrainJob": NOT_SERVED})
            await unread.look()
            assert not server.objects, "it may pass"
            for _ in range(3):
                await unread.look()
            assert tally.kinds == {"Job": True, "JobSet": False}
            return list(server.objects["/api/v1/namespaces/spotwright/events"].values())

    (event,) = asyncio.run(test())
    assert event["message"] == f"JobSet cannot be read: {SENTENCE}"
    assert (event["reason"], event["type"]) == ("KindNotRead", "Warning")


def test_node_claims_of_karpenter_are_followed_when_it_is_installed_later(tmp_path: Path) -> None:
    async def test(made: Day) -> None:
        await made.start()
        await made.until(lambda: not made.watcher._streams.waiting, "the streams")
        assert not made.watcher._view.words.sees_claims
        made.server.served["/apis/karpenter.sh/v1"] = ["nodeclaims"]
        made.server.put(CLAIMS, "one", metadata={"labels": {"karpenter.sh/nodepool": "spot"}})
        await made.until(lambda: made.watcher._view.words._claims, "the NodeClaim")
        assert made.watcher.watched.kinds["NodeClaim"] == "watched"

    day(tmp_path / "state", test)
