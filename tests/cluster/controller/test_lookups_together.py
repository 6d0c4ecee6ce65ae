"""The first pods of a pipeline come at once: their owner is read once for all of them."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
from tests.cluster.watching.small_api_server import serving

from spotwright.cluster.api_client import Api
from spotwright.cluster.attempt_lookup import Lookups

JOBS = "/apis/batch/v1/namespaces/a/jobs"


def an_owned_pod(uid: str = "u") -> dict[str, Any]:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid, "controller": True}
    return {"kind": "Pod", "metadata": {"name": "p", "namespace": "a", "ownerReferences": [owner]}}


def test_pods_that_come_at_once_read_their_owner_once() -> None:
    async def scenario() -> None:
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
            server.put(JOBS, "train", "u", apiVersion="batch/v1", kind="Job")
            lookups = Lookups(Api(client))
            found = await asyncio.gather(*(lookups.owners(an_owned_pod()) for _ in range(20)))
            assert all(each.is_complete for each in found)
            assert len(server.asked) == 1

    asyncio.run(scenario())


def test_an_object_that_many_placements_refer_to_is_read_once() -> None:
    async def scenario() -> None:
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
            version = "argoproj.io/v1alpha1"
            server.put(f"/apis/{version}/namespaces/a/workflowtemplates", "steps", kind="WorkflowTemplate")
            lookups = Lookups(Api(client))
            asked = version, "WorkflowTemplate", "steps", "a"
            assert all(await asyncio.gather(*(lookups.find_object(*asked) for _ in range(20))))
            assert len(server.asked) == 1

    asyncio.run(scenario())


def test_a_review_that_waits_no_more_takes_the_reading_from_nobody() -> None:
    async def scenario() -> None:
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
            server.put(JOBS, "train", "u", apiVersion="batch/v1", kind="Job")
            lookups = Lookups(Api(client))
            first, second = (asyncio.create_task(lookups.owners(an_owned_pod())) for _ in range(2))
            await asyncio.sleep(0)
            first.cancel()
            assert (await second).is_complete
            assert (await lookups.owners(an_owned_pod())).is_complete
            assert len(server.asked) == 1
            assert lookups._readings == {}

    asyncio.run(scenario())


def test_an_owner_that_was_made_again_under_its_name_is_not_that_of_the_old_pod() -> None:
    async def scenario() -> None:
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
            server.put(JOBS, "train", "new", apiVersion="batch/v1", kind="Job")
            lookups = Lookups(Api(client))
            old, new = await asyncio.gather(*(lookups.owners(an_owned_pod(uid)) for uid in ("old", "new")))
            assert (old.is_complete, new.is_complete) == (False, True)

    asyncio.run(scenario())
