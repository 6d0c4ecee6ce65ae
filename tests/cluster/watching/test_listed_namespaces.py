"""Listed namespaces are watched one by one: others are never read, and they do not delay each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from aiohttp import web
from tests.cluster.watching.days import JOBS, NAMESPACES, PODS, Day, day
from tests.cluster.watching.watched_objects import at, job, pod

from spotwright.cluster import mirror, watcher
from spotwright.engine.events import RunStatus
from spotwright.model.attempts import Cause


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "_CLOSES", 0.2)
    monkeypatch.setattr(mirror, "_REFUSED", (0.05, 0.1))


def in_namespace(made: dict[str, Any], namespace: str) -> dict[str, Any]:
    return {**made, "metadata": {**made["metadata"], "namespace": namespace}}


def put(made: Day, namespace: str, name: str) -> None:
    """A Job of this name whose only pod has failed."""
    train = in_namespace(job(name, uid=f"uid-{name}"), namespace)
    failed = in_namespace(pod(f"pod-{name}", train, node="n1", phase="Failed", exit_code=3), namespace)
    made.server.put(JOBS, name, **{**train, "uid": f"uid-{name}"})
    made.server.put(PODS, f"pod-{name}", **{**failed, "uid": f"uid-pod-{name}"})


def namespace(made: Day, name: str, uid: str, **metadata: Any) -> None:
    made.server.put(NAMESPACES, name, uid=uid, kind="Namespace", metadata=metadata)


def test_only_listed_namespaces_are_read_and_need_no_label(tmp_path: Path) -> None:
    async def test(made: Day) -> None:
        made.unlabel()
        namespace(made, "b", "uid-b", labels={"spotwright.dev/enabled": "true"})
        put(made, "a", "mine")
        put(made, "b", "theirs")
        await made.start("a")
        await made.until(lambda: made.cause("mine") is Cause.FAILED, "the run of the listed namespace")
        assert list(made.runs()) == ["mine"]
        for line in made.server.asked:
            url = urlsplit(line.split()[1])
            named = parse_qs(url.query).get("fieldSelector", [""])[0]
            is_of_the_cluster = url.path == "/api/v1/nodes" or (url.path == NAMESPACES and named == "metadata.name=a")
            is_of_the_cluster = is_of_the_cluster or url.path.endswith("/spotwright-node-events")  # a policy
            is_discovery = url.path.startswith("/apis/") and len(url.path.split("/")) in (3, 4)
            home = [f"/namespaces/{name}/" for name in ("a", "default", "kube-system")]
            assert is_of_the_cluster or is_discovery or any(each in url.path for each in home), line

    day(tmp_path / "state", test)


def test_a_listed_namespace_that_does_not_exist_yet_is_taken_up_when_it_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(made: Day) -> None:
        put(made, "a", "mine")
        await made.start("a", "later")
        await made.until(lambda: made.cause("mine") is Cause.FAILED, "the run of the namespace that exists")
        assert not [line for line in made.server.asked if "/namespaces/later/" in line]
        namespace(made, "later", "uid-later")
        put(made, "later", "next")
        await made.until(lambda: made.cause("next") is Cause.FAILED, "the run of the namespace that came")

    day(tmp_path / "state", test)
    assert caplog.text.count("namespace later does not exist yet") == 1


def test_a_namespace_whose_pods_may_not_be_read_holds_up_no_other(tmp_path: Path) -> None:
    allowed: list[bool] = []

    async def test(made: Day) -> None:
        async def pods(request: web.Request) -> web.StreamResponse:
            if not allowed:
                return web.json_response({"kind": "Status", "message": "forbidden"}, status=403)
            del made.server.pages["/api/v1/namespaces/b/pods"]
            return await made.server._handle(request)

        made.server.pages["/api/v1/namespaces/b/pods"] = pods
        namespace(made, "b", "uid-b")
        put(made, "a", "mine")
        put(made, "b", "theirs")
        await made.start("a", "b")
        await made.until(lambda: made.cause("mine") is Cause.FAILED, "the run of the other namespace")
        assert "forbidden" in made.watcher.problems["Pod in b"]
        allowed.append(True)
        await made.until(lambda: made.cause("theirs") is Cause.FAILED, "its run, once a Role is bound")

    day(tmp_path / "state", test)


def test_a_namespace_that_is_deleted_and_made_again_is_another_one(tmp_path: Path) -> None:
    async def test(made: Day) -> None:
        await made.start_with_a_running_job("old", "a")
        first = str(made.runs()["old"].meta.arguments["namespace_uid"])
        namespace(made, "a", first, deletionTimestamp=at(60))
        made.server.delete(NAMESPACES, "a")
        await made.until(lambda: made.runs()["old"].status is RunStatus.CANCELLED, "its end")
        for collection in (PODS, JOBS):
            made.server.objects[collection].clear()
        namespace(made, "a", "the-second-uid")
        put(made, "a", "new")
        await made.until(lambda: made.cause("new") is Cause.FAILED, "the run of the new namespace")
        assert made.runs()["new"].meta.arguments["namespace_uid"] == "the-second-uid" != first
        assert made.watcher.watched.namespaces == {"a": "the-second-uid"}

    day(tmp_path / "state", test)


def test_what_began_before_the_namespace_of_its_name_is_not_of_it(tmp_path: Path) -> None:
    """Objects of an old namespace may be seen only after another one has its name."""

    async def test(made: Day) -> None:
        namespace(made, "a", "the-second-uid", creationTimestamp=at(30), labels={"spotwright.dev/enabled": "true"})
        put(made, "a", "late")  # made at second 0
        await made.start("a")
        await made.until(lambda: made.cause("late") is Cause.FAILED, "the run")
        assert "namespace_uid" not in made.runs()["late"].meta.arguments

    day(tmp_path / "state", test)


def test_runs_of_a_listed_namespace_that_is_gone_end_when_the_watcher_starts(tmp_path: Path) -> None:
    async def test(made: Day) -> None:
        await made.start_with_a_running_job("old", "a")
        await made.stop()
        for collection in (PODS, JOBS, NAMESPACES):
            made.server.objects[collection].clear()
        await made.start("a")
        await made.until(lambda: made.runs()["old"].status is RunStatus.CANCELLED, "its end")

    day(tmp_path / "state", test)


@pytest.mark.parametrize("listed", [(), ("b",)], ids=["label", "list"])
def test_a_namespace_that_is_no_longer_served_when_the_watcher_starts_ends_no_run(
    tmp_path: Path, listed: tuple[str, ...]
) -> None:
    async def test(made: Day) -> None:
        namespace(made, "b", "uid-b", labels={"spotwright.dev/enabled": "true"})
        await made.start_with_a_running_job("train")
        await made.stop()
        made.unlabel()
        put(made, "b", "other")
        await made.start(*listed)
        await made.until(lambda: made.cause("other") is Cause.FAILED, "a run of another namespace")
        assert made.runs()["train"].status is RunStatus.RUNNING

    day(tmp_path / "state", test)
