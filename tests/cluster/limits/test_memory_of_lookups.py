"""Lookups for reviews take bounded memory, however many come at once and whatever they refer to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web
from tests.cluster.admission_objects import a_config
from tests.cluster.admitted_pods import a_pod
from tests.cluster.watching import small_api_server
from tests.cluster.webhook_servers import POLICY, Cluster, a_certificate, a_webhook, mutate, serving

from spotwright.cluster.api_client import Api
from spotwright.cluster.attempt_lookup import Lookups

TEAMS = [f"team-{letter}" for letter in "abcdefghij"]
ARGO = "argoproj.io/v1alpha1"


def a_workflow(number: int) -> dict[str, Any]:
    """A Workflow whose steps are in templates of the same namespace."""
    steps = [{"name": f"s{step}", "templateRef": {"name": f"t-{number}-{step}", "template": "x"}} for step in range(20)]
    spec = {"entrypoint": "a", "templates": [{"name": "a", "steps": [steps]}]}
    return {"apiVersion": ARGO, "kind": "Workflow", "metadata": {"name": f"w{number}"}, "spec": spec}


def an_unplaced_pod(number: int) -> dict[str, Any]:
    """A pod without a policy, of a separate Workflow that has to be read."""
    owner = {"apiVersion": ARGO, "kind": "Workflow", "name": f"w{number}", "uid": f"u{number}", "controller": True}
    pod = a_pod()
    return {**pod, "metadata": {"generateName": "w-", "ownerReferences": [owner]}}


@pytest.mark.parametrize("an_object", [a_workflow, an_unplaced_pod])
def test_few_reviews_at_once_hold_what_they_have_read(tmp_path: Path, an_object: Any) -> None:
    reading: set[str] = set()
    most = 0

    async def find_object(_version: str, _kind: str, name: str, namespace: str) -> Mapping[str, Any] | None:
        nonlocal most
        reading.add(namespace)
        most = max(most, len(reading))
        await asyncio.sleep(0.05)
        reading.discard(namespace)
        return None

    async def scenario() -> None:
        webhook = a_webhook(Cluster())
        webhook.find_object = find_object
        for team in TEAMS:
            webhook.configurations.apply(team, {"data": {"spotwright.yaml": a_config(POLICY).text}})
        async with serving(a_certificate(tmp_path), webhook=webhook) as (session, address):
            asking = (mutate(session, address, an_object(number), namespace=team) for number, team in enumerate(TEAMS))
            answers = await asyncio.gather(*asking)
            assert all(answer["allowed"] for answer in answers)

    asyncio.run(scenario())
    assert 1 <= most <= 4


def test_what_is_read_once_for_many_is_kept_for_seconds_and_is_no_large_object() -> None:
    async def scenario() -> None:
        async with small_api_server.serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
            clock = 0.0
            lookups = Lookups(Api(client), lambda: clock)
            values = {"small": 10, "large": 20_000}
            for name, count in values.items():
                text = json.dumps({"metadata": {"name": name}, "spec": {"x": [{"a": 1}] * count}})

                async def page(_request: web.Request, text: str = text) -> web.Response:
                    return web.Response(text=text)

                server.pages[f"/apis/{ARGO}/namespaces/a/workflowtemplates/{name}"] = page
            found = [await lookups.find_object(ARGO, "WorkflowTemplate", name, "a") for name in values]
            assert [one is not None for one in found] == [True, False]
            clock = 4.0
            await asyncio.sleep(3.2)
            assert not lookups._answers

    asyncio.run(scenario())
