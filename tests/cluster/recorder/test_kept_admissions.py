"""The recorder's knowledge of pods' reviews: read once, in the background, from the objects that their tokens name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import httpx2
import pytest
from aiohttp import web
from tests.cluster.admissions import note_admission
from tests.cluster.watching.small_api_server import SmallApiServer, serving
from tests.cluster.watching.watched_objects import job, pod

from spotwright.cluster import kept_admissions
from spotwright.cluster.admit_objects import Admission
from spotwright.cluster.api_client import Api
from spotwright.cluster.kept_admissions import Admissions

TASKS = "/apis/spotwright.dev/v1alpha1/namespaces/team-a/spotcounters"
JOB = "job-uid"


class Beside:
    """The known admissions, beside an API server; ``looked`` are the UIDs of pods that are to be looked at."""

    def __init__(self, server: SmallApiServer, admissions: Admissions, looked: list[str]) -> None:
        self.server, self.admissions, self.looked = server, admissions, looked

    def pod(self, name: str, owner: str = JOB, **marks: str) -> dict[str, Any]:
        """A pod that a review has made precise."""
        made = pod(name, job(uid=owner), annotations={"spotwright.dev/rung": "spot-a", **marks})
        note_admission(self.server, made)
        return made

    async def known(self, made: dict[str, Any], root: str = JOB) -> Admission | None:
        async with asyncio.timeout(20):
            while not self.admissions.is_known(made, root):  # noqa: ASYNC110  # it is read in the background
                await asyncio.sleep(0.01)
        return self.admissions.of(made, root)


def run(scenario: Callable[[Beside], Awaitable[None]]) -> None:
    async def within() -> None:
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
            looked: list[str] = []

            def look(pods: Iterable[str]) -> None:
                looked.extend(pods)

            admissions = Admissions(Api(client), look)
            task = asyncio.create_task(admissions.run())
            try:
                await scenario(Beside(server, admissions, looked))
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    asyncio.run(within())


def test_the_records_of_many_pods_are_read_with_one_request_and_each_pod_is_looked_at_again() -> None:
    async def scenario(beside: Beside) -> None:
        pods = [beside.pod("same") for _ in range(3)]
        for number, made in enumerate(pods):
            made["metadata"] |= {"uid": f"pod-{number}"}
        pods[1]["metadata"]["annotations"] = {}
        assert [beside.admissions.is_known(made, JOB) for made in pods] == [False, True, False]
        assert (await beside.known(pods[0])) == Admission(("spot-a",), why="first attempt")
        assert sorted(beside.looked) == ["pod-0", "pod-2"]
        assert sum(line.startswith("GET") for line in beside.server.asked) == 1
        assert beside.admissions.of(pods[2], JOB) is None, "a token counts for the first pod that is seen with it"
        beside.admissions.forget("pod-0")
        assert not beside.admissions.is_known(pods[0], JOB)

    run(scenario)


def test_a_token_counts_in_its_own_namespace_and_workload_alone() -> None:
    async def scenario(beside: Beside) -> None:
        made = beside.pod("one")
        assert await beside.known(made, "another") is None
        moved = {**made, "metadata": {**made["metadata"], "namespace": "team-b", "uid": "moved"}}
        assert await beside.known(moved) is None
        assert await beside.known(made) is not None

    run(scenario)


def test_a_pod_that_was_bound_to_a_token_by_the_webhook_is_the_only_one_that_it_counts_for() -> None:
    async def scenario(beside: Beside) -> None:
        made = beside.pod("one")
        [(name, found)] = beside.server.objects[TASKS].items()
        for record in found["spec"]["records"].values():
            record["pod"] = "uid-one"
        beside.server.put(TASKS, name, **found)
        copy = {**made, "metadata": {**made["metadata"], "uid": "copy"}}
        assert await beside.known(copy) is None

    run(scenario)


def test_a_pod_waits_for_an_api_server_that_is_away_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_admissions, "_AGAIN", 0.05)

    async def scenario(beside: Beside) -> None:
        made = beside.pod("one")
        [name] = beside.server.objects[TASKS]

        async def refused(_request: web.Request) -> web.Response:
            return web.json_response({"message": "not now"}, status=403)

        beside.server.pages[f"{TASKS}/{name}"] = refused
        assert not beside.admissions.is_known(made, JOB)
        await asyncio.sleep(0.3)
        assert not beside.admissions.is_known(made, JOB)
        assert "not now" in beside.admissions.problem
        del beside.server.pages[f"{TASKS}/{name}"]
        assert await beside.known(made) is not None
        assert not beside.admissions.problem
        monkeypatch.setattr(kept_admissions, "_HELD", 0.1)
        beside.server.pages[f"{TASKS}/{name}"] = refused
        late = beside.pod("two")
        late["metadata"]["annotations"]["spotwright.dev/admission"] = f"review-of-uid-two/{name}"
        assert await beside.known(late) is None

    run(scenario)


def test_a_record_that_nobody_answers_for_holds_up_no_pod_of_another_workload() -> None:
    async def scenario(beside: Beside) -> None:
        waiting, other = beside.pod("one"), beside.pod("two", owner="another")
        [silent, _] = beside.server.objects[TASKS]

        async def silence(_request: web.Request) -> web.Response:
            await asyncio.sleep(60)
            return web.Response(status=500)

        beside.server.pages[f"{TASKS}/{silent}"] = silence
        assert not beside.admissions.is_known(waiting, JOB)
        async with asyncio.timeout(kept_admissions._ANSWER / 2):
            assert await beside.known(other, "another") is not None
        assert beside.looked == ["uid-two"]

    run(scenario)
