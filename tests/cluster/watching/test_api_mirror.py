"""A mirror of the API misses no change and no deletion, whatever becomes of its streams."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web
from tests.cluster.watching.small_api_server import SmallApiServer, serving

from spotwright.cluster.api_client import Api, ApiFailed, find_cluster, wait_before
from spotwright.cluster.bounded_json import ListPage
from spotwright.cluster.kept_objects import NamespaceQuota
from spotwright.cluster.mirror import Change, ChangeKind, Mirror, Resource
from spotwright.errors import InputError

PODS = Resource("/api/v1", "pods")
PATH = "/api/v1/pods"


class Watched:
    """A mirror that is followed, with its reports."""

    def __init__(self, server: SmallApiServer, **options: Any) -> None:
        self.server = server
        self.api = Api(httpx2.AsyncClient(base_url=server.url))
        self.mirror = Mirror(self.api, PODS, **options)
        self.seen: list[Change] = []

    async def follow(self) -> None:
        async with aclosing(self.mirror.changes()) as changes:  # type: ignore[type-var]
            async for change in changes:
                self.seen.append(change)

    async def until(self, *kinds_and_names: tuple[ChangeKind, str]) -> None:
        """Wait for these changes, in this order, beside others."""
        async with asyncio.timeout(120):
            while not _contains([(change.kind, _name(change)) for change in self.seen], kinds_and_names):  # noqa: ASYNC110
                await asyncio.sleep(0.005)


def _contains(changes: list[tuple[ChangeKind, str]], wanted: tuple[tuple[ChangeKind, str], ...]) -> bool:
    rest = iter(changes)
    return all(each in rest for each in wanted)


def _name(change: Change) -> str:
    return str(change.data.get("metadata", {}).get("name", ""))


def watch(story: Callable[[Watched], Awaitable[None]], **options: Any) -> Watched:
    async def play() -> Watched:
        async with serving() as server:
            server.put(PATH, "one")
            watched = Watched(server, **options)
            task = asyncio.ensure_future(watched.follow())
            await watched.until((ChangeKind.SYNCED, ""))
            await story(watched)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await watched.api.close()
            return watched

    return asyncio.run(play())


LARGE: dict[str, Any] = {"spec": {"x": [[]] * 300_000}, "status": {"phase": "Failed"}}


def test_an_object_of_too_many_values_stays_as_it_was_known_and_its_deletion_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(watched: Watched) -> None:
        for _ in range(2):
            watched.server.put(PATH, "one", **LARGE)
            watched.server.put(PATH, "two", **LARGE)
        watched.server.put(PATH, "three")
        await watched.until((ChangeKind.PUT, "three"))
        assert "spec" not in watched.mirror.objects["a", "one"]
        assert ("a", "two") not in watched.mirror.objects
        watched.mirror.list_again()
        await watched.server.cut()
        await watched.until((ChangeKind.SYNCED, ""), (ChangeKind.SYNCED, ""))
        assert [name for _, name in watched.mirror.objects] == ["one", "three"]
        watched.server.delete(PATH, "one")
        await watched.until((ChangeKind.DELETED, "one"))

    watch(story)
    assert caplog.text.count("a/one is set aside, because it would need more than 4 MB of memory") == 1


def test_an_update_of_too_many_values_is_no_news_and_the_next_watch_begins_after_it() -> None:
    async def story(watched: Watched) -> None:
        watched.server.put(PATH, "two")
        watched.server.put(PATH, "one", **LARGE)
        newest = watched.server.version
        watched.server.put(PATH, "two", phase="Failed")  # what follows it is seen
        await watched.until((ChangeKind.PUT, "two"), (ChangeKind.PUT, "two"))
        watched.server.put(PATH, "one", **LARGE)
        last = watched.server.version
        async with asyncio.timeout(60):
            while watched.mirror._version != str(last):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        await watched.server.cut()
        watched.server.put(PATH, "three")
        await watched.until((ChangeKind.PUT, "three"))
        begun = [int(each.rpartition("resourceVersion=")[2].partition("&")[0]) for each in watched.server.asked[1:]]
        assert last in begun
        assert begun == sorted(begun), begun
        known = watched.mirror.objects["a", "one"]
        assert int(known["metadata"]["resourceVersion"]) < newest  # a write with this version is refused

    changes = [(change.kind, _name(change)) for change in watch(story).seen]
    assert changes.count((ChangeKind.PUT, "one")) == 1
    assert changes.count((ChangeKind.PUT, "two")) == 2


@pytest.mark.parametrize("room", [None, NamespaceQuota(limit=2_000)], ids=["too large", "no room"])
def test_the_state_of_a_deleted_object_never_stands_for_a_large_one_of_its_name(room: NamespaceQuota | None) -> None:
    async def story(watched: Watched) -> None:
        watched.server.objects[PATH].pop("one")  # deleted and made again in a history that nobody has any more
        watched.server.expire()
        watched.server.put(PATH, "one", uid="another", **({"spec": {"x": "y" * 5_000}} if room else LARGE))
        await watched.server.cut()
        await watched.until((ChangeKind.DELETED, "one"), (ChangeKind.SYNCED, ""))
        assert watched.mirror.objects == {}

    deleted = [each for each in watch(story, room=room).seen if each.kind is ChangeKind.DELETED]
    assert [each.data["metadata"]["uid"] for each in deleted] == ["uid-one"]


def test_of_an_object_of_too_many_values_its_main_fields_are_read_where_they_are_wanted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(watched: Watched) -> None:
        watched.server.put(PATH, "two", **LARGE)
        await watched.until((ChangeKind.PUT, "two"))

    watched = watch(story, shortens=True)
    found = watched.mirror.objects["a", "two"]
    assert (found["metadata"]["uid"], found["spec"], found["status"]) == ("uid-two", {}, {"phase": "Failed"})
    assert "a/two is read without its steps" in caplog.text


def test_changes_and_deletions_come_in_order() -> None:
    async def story(watched: Watched) -> None:
        watched.server.put(PATH, "two")
        watched.server.delete(PATH, "one")
        await watched.until((ChangeKind.PUT, "one"), (ChangeKind.PUT, "two"), (ChangeKind.DELETED, "one"))

    assert {name for _, name in watch(story).mirror.objects} == {"two"}


def test_a_deletion_while_the_history_expired_is_reported_with_the_last_state() -> None:
    async def story(watched: Watched) -> None:
        watched.server.put(PATH, "two", phase="Running")
        await watched.until((ChangeKind.PUT, "two"))
        watched.server.objects[PATH].pop("two")  # in a history that nobody has any more
        watched.server.expire()
        watched.server.put(PATH, "three")
        await watched.server.cut()
        await watched.until((ChangeKind.DELETED, "two"), (ChangeKind.PUT, "three"))

    deleted = [change for change in watch(story).seen if change.kind is ChangeKind.DELETED]
    assert [(change.data["metadata"]["name"], change.data["phase"]) for change in deleted] == [("two", "Running")]


def test_an_object_made_again_under_its_name_is_first_deleted() -> None:
    async def story(watched: Watched) -> None:
        watched.server.put(PATH, "one", uid="another")
        watched.server.expire()
        await watched.server.cut()
        await watched.until((ChangeKind.DELETED, "one"), (ChangeKind.PUT, "one"))

    puts = [change.data["metadata"]["uid"] for change in watch(story).seen if change.kind is ChangeKind.PUT]
    assert puts[-1] == "another"


def test_a_line_that_is_cut_in_the_middle_is_read_again_whole() -> None:
    async def story(watched: Watched) -> None:
        await watched.server.cut(b'{"type":"MODIFIED","object":{"metadata":{"name":"on')
        watched.server.put(PATH, "two")
        await watched.until((ChangeKind.PUT, "two"))

    watched = watch(story)
    assert [_name(change) for change in watched.seen if change.kind is ChangeKind.PUT] == ["one", "two"]
    assert watched.mirror.problem == ""


def test_a_watch_goes_on_from_the_last_bookmark() -> None:
    async def story(watched: Watched) -> None:
        watched.server.bookmark(PATH)
        bookmarked = watched.server.version
        async with asyncio.timeout(120):
            while watched.mirror._version != str(bookmarked):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        await watched.server.cut()
        watched.server.put(PATH, "two")
        await watched.until((ChangeKind.PUT, "two"))
        assert f"resourceVersion={bookmarked}" in watched.server.asked[-1]

    watch(story)


def test_429_and_5xx_are_tried_again_and_lists_come_in_pages() -> None:
    async def story(watched: Watched) -> None:
        server = watched.server
        for number in range(5):
            server.put(PATH, f"more-{number}")
        server.page = 2
        server.answers = [
            web.json_response({}, status=429, headers={"Retry-After": "0"}),
            web.json_response({}, status=503),
        ]
        server.expire()
        await server.cut()
        await watched.until((ChangeKind.SYNCED, ""), (ChangeKind.SYNCED, ""))

    assert len(watch(story).mirror.objects) == 6


def test_a_refusal_is_told_and_names_no_token(tmp_path: Path) -> None:
    async def ask() -> ApiFailed:
        async with serving() as server:
            api = Api(httpx2.AsyncClient(base_url=server.url, headers={"Authorization": "Bearer very-secret"}))
            with pytest.raises(ApiFailed) as caught:
                await api.get("/api/v1/nothing")
            await api.close()
            return caught.value

    error = asyncio.run(ask())
    assert (error.status, error.may_pass, "very-secret" in str(error)) == (404, False, False)


@pytest.mark.parametrize(
    "text", ["users: [{name: u, user: {token: very-secret}}", "token: very-secret", "[very-secret]"]
)
def test_a_broken_kubeconfig_is_named_and_not_quoted(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        find_cluster(kubeconfig=str(file))
    assert str(file) in str(caught.value)
    assert "very-secret" not in str(caught.value)


def test_the_servers_wish_is_obeyed_and_a_day_is_not() -> None:
    assert wait_before(1, 7.0) == 7.0
    assert wait_before(1, 86_400.0) == 120.0
    assert wait_before(9, None) <= 30.0


def test_a_server_that_calls_each_list_too_old_is_not_asked_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spotwright.cluster.mirror.wait_before", lambda *_: 60.0)

    async def scenario() -> int:
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
            server.objects["/api/v1/pods"], server.oldest = {}, 10**9
            mirror = Mirror(Api(client), Resource("/api/v1", "pods"))

            async def follow() -> None:
                async for _ in mirror.changes():
                    pass

            task = asyncio.create_task(follow())
            for _ in range(40):  # as long as forty answers take
                await client.get("/api/v1/other")
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return sum("/api/v1/pods?limit" in line for line in server.asked)

    assert asyncio.run(scenario()) == 2


def test_a_page_of_large_objects_is_read_in_parts() -> None:
    """Who may make 500 pods of 1 MB filled the memory with one page of a list."""

    async def play() -> list[int]:
        largest: list[int] = []
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
            for number in range(40):
                server.put(PATH, f"p{number:02}", spec={"padding": "x" * 1_000_000})
            api = Api(client)
            get_page = api.get_page

            async def counted(*arguments: Any, **more: Any) -> ListPage:
                found = await get_page(*arguments, **more)
                largest.append(sum(memoryview(each).nbytes for each in found.items or ()))
                return found

            api.get_page = counted  # type: ignore[method-assign]
            mirror = Mirror(api, PODS, slim=lambda item: {"metadata": item["metadata"]})
            async with asyncio.timeout(60), aclosing(mirror.changes()) as changes:  # type: ignore[type-var]
                async for change in changes:
                    if change.kind is ChangeKind.SYNCED:
                        break
            assert len(mirror.objects) == 40
        return largest

    assert max(asyncio.run(play())) < 10_000_000
