"""A controller that may not write numbers yet: pods are admitted as they are, one sentence says why, and it is tried again."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, TCPConnector, web
from tests.cluster.admitted_pods import a_pod
from tests.cluster.controller.findings import JOBS, TASKS
from tests.cluster.controller.processes import a_cluster, registered, running, until
from tests.cluster.json_patches import apply_patch
from tests.cluster.reviews import a_review
from tests.cluster.watching.small_api_server import SmallApiServer, serving

EVENTS = "/api/v1/namespaces/spotwright/events"


async def reviewed(caplog: pytest.LogCaptureFixture, server: SmallApiServer, uid: str) -> Any:
    """A pod after its review."""
    client_config = await until(lambda: registered(server))
    address = next(line.split(" at ")[1] for line in caplog.messages if "answered at" in line)
    context = ssl.create_default_context(cadata=base64.b64decode(client_config["caBundle"]).decode())
    async with (
        ClientSession(connector=TCPConnector(ssl=context)) as session,
        session.post(f"{address}/mutate", data=a_review(a_pod(), uid=uid)) as response,
    ):
        answer = (await response.json())["response"]
    assert answer["allowed"]
    return apply_patch(a_pod(), json.loads(base64.b64decode(answer.get("patch", b"W10="))))


@pytest.mark.parametrize("status", [403, 404])
def test_pods_are_admitted_without_numbers_until_the_rights_and_the_kind_are_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    caplog.set_level("INFO")

    async def refused(_request: web.Request) -> web.Response:
        return web.json_response({"message": "not yet"}, status=status)

    async def scenario() -> str:
        async with serving() as server:
            a_cluster(server)
            server.objects[EVENTS] = {}
            server.put(JOBS, "train", "1", apiVersion="batch/v1", kind="Job", spec={})
            server.pages[TASKS] = refused
            async with running(server, tmp_path):
                for number in range(3):
                    assert await reviewed(caplog, server, f"early-{number}") == a_pod()
                told = await until(lambda: list(server.objects[EVENTS].values()))
                assert [(each["reason"], each["type"]) for each in told] == [("NumbersNotGivenOut", "Warning")]
                del server.pages[TASKS]
                found = await reviewed(caplog, server, "later")
                assert found["metadata"]["annotations"]["spotwright.dev/attempt"] == "1"
                [(name, made)] = server.objects[TASKS].items()
                assert found["metadata"]["annotations"]["spotwright.dev/admission"] == f"later/{name}"
                assert made["spec"]["records"]["later"]["number"] == 1
                return str(told[0]["message"])

    message = asyncio.run(scenario())
    assert message.startswith("attempt numbers cannot be assigned, so pods are left unchanged")
    assert "installs the kind SpotCounter, and helm upgrade grants the rights on it" in message
    assert caplog.messages.count(message) == 1
