"""A namespace that is labelled while others are recorded does not delay them, and all its objects are found."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
from aiohttp import web
from tests.cluster.watching.days import JOBS, LABELS, NAMESPACES, PODS, Day, day
from tests.cluster.watching.small_api_server import SmallApiServer, serving
from tests.cluster.watching.watched_objects import job, pod

from spotwright.cluster.api_client import Api
from spotwright.cluster.mirror import Change, ChangeKind, Mirror, Resource
from spotwright.model.attempts import Cause

OF_B = "/apis/batch/v1/namespaces/b/jobs"


def put_in_b(made: Day, collection: str, data: dict[str, Any]) -> None:
    meta = {**data["metadata"], "namespace": "b"}
    made.server.put(collection, meta["name"], uid=meta["uid"], **{**data, "metadata": meta})


def label_b(made: Day) -> None:
    made.server.put(NAMESPACES, "b", kind="Namespace", metadata={"labels": LABELS})


def test_others_are_recorded_while_what_is_in_it_is_listed(tmp_path: Path) -> None:
    async def test(made: Day) -> None:
        may_answer = asyncio.Event()

        async def slowly(request: web.Request) -> web.StreamResponse:
            if request.query.get("watch") == "true":
                return await made.server._watch(request)
            await may_answer.wait()
            made.server.pages.clear()
            return await made.server._handle(request)

        train = await made.start_with_a_running_job("train")
        late = job("late", uid="uid-late")
        put_in_b(made, JOBS, late)
        put_in_b(made, PODS, pod("two", late, node="n1", phase="Failed", exit_code=4))
        made.server.pages |= {JOBS: slowly, OF_B: slowly}
        label_b(made)
        await made.until(
            lambda: any("/pods?" in line and "limit" in line for line in made.server.asked[-20:]), "a list"
        )
        made.put(PODS, pod("one", train, node="n1", phase="Failed", exit_code=3))
        await made.until(lambda: made.cause("train") is Cause.FAILED, "the end in the other namespace")
        assert not made.is_recorded("late")
        may_answer.set()
        await made.until(lambda: made.cause("late") is Cause.FAILED, "what was in the new namespace")
        made.server.delete(NAMESPACES, "b")

    day(tmp_path / "state", test)


def test_a_namespace_that_is_labelled_again_is_recorded_again(tmp_path: Path) -> None:
    async def test(made: Day) -> None:
        train = await made.start_with_a_running_job("train")
        label_b(made)
        for number in range(3):
            made.unlabel()
            await made.until(lambda: not made.watcher.watched.namespaces.get("a"), "it is left")
            made.label(uid=f"uid-{number}")
            await made.until(lambda: made.watcher.watched.namespaces.get("a"), "it is entered")
        made.put(PODS, pod("one", train, node="n1", phase="Failed", exit_code=3))
        await made.until(lambda: made.cause("train") is Cause.FAILED, "the end")
        assert len(made.runs()["train"].tasks["train"].attempts) == 1

    day(tmp_path / "state", test)


def mirrored(story: Callable[[SmallApiServer, Mirror], Awaitable[None]]) -> None:
    async def play() -> None:
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
            kept = {"a"}
            server.objects[PODS] = {}
            mirror = Mirror(
                Api(client), Resource("/api/v1", "pods"), keep=lambda each: each["metadata"]["namespace"] in kept
            )
            server.kept = kept
            await story(server, mirror)

    asyncio.run(play())


def test_what_goes_or_changes_while_a_namespace_is_listed_is_not_told_as_it_was() -> None:
    async def story(server: SmallApiServer, mirror: Mirror) -> None:
        heard: list[Change] = []

        async def follow() -> None:
            async for change in mirror.changes():
                heard.append(change)  # noqa: PERF401  # it is read meanwhile

        def told(kind: ChangeKind, name: str) -> bool:
            return any(each.kind is kind and each.data["metadata"].get("name") == name for each in heard if each.data)

        server.page = 1
        for name in ("gone", "changed", "same"):
            server.put(PODS, name, phase="first", metadata={"namespace": "b"})
        following = asyncio.create_task(follow())
        await _until(lambda: any(each.kind is ChangeKind.SYNCED for each in heard))
        assert [each.kind for each in heard] == [ChangeKind.SYNCED]
        server.kept.add("b")  # type: ignore[attr-defined]
        found = mirror.catch_up("b")
        listing = asyncio.ensure_future(anext(found))
        await _until(lambda: sum("/namespaces/b/pods" in line for line in server.asked) >= 1)
        server.delete(PODS, "gone")
        server.put(PODS, "changed", phase="second", metadata={"namespace": "b"})
        await _until(lambda: told(ChangeKind.DELETED, "gone") and told(ChangeKind.PUT, "changed"))
        rest = [await listing, *[each async for each in found]]
        assert [each.data["metadata"]["name"] for each in rest] in (["same"], ["gone", "same"], ["changed", "same"])
        assert ("b", "gone") not in mirror.objects
        assert mirror.objects["b", "changed"]["phase"] == "second"
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following

    mirrored(story)


def test_a_change_that_was_being_taken_when_its_reader_was_ended_is_told_to_the_next_one() -> None:
    async def story(server: SmallApiServer, mirror: Mirror) -> None:
        for name in ("one", "two"):
            server.put(PODS, name, metadata={"namespace": "a"})

        async def take() -> None:
            async for _ in mirror.changes():
                await asyncio.Event().wait()  # there is no room for it

        first = asyncio.create_task(take())
        await _until(lambda: mirror._untaken is not None)
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        mirror.list_again()
        names: list[str] = []
        async with asyncio.timeout(20):
            async for change in mirror.changes():
                if change.kind is ChangeKind.SYNCED:
                    break
                names.append(change.data["metadata"]["name"])
        assert names == ["one", "two"]

    mirrored(story)


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  # what streams tell
            await asyncio.sleep(0.01)
