"""Controllers as processes beside an API server in memory, and the reviews that are sent to them."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx2
import pytest
from aiohttp import ClientSession, TCPConnector
from tests.cluster.admission_objects import a_config
from tests.cluster.json_patches import apply_patch
from tests.cluster.reviews import a_review
from tests.cluster.watching.small_api_server import SmallApiServer

from spotwright.cluster.api_client import Api
from spotwright.cluster.controller import OpenClient, run_controller
from spotwright.cluster.controller_settings import Settings
from spotwright.cluster.install import permissions

MAPS = "/api/v1/configmaps"


REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


POLICY = "{default: {spot: prefer, interruptions: {max: 3}, fall_back_after: 2}}"


PATIENCE = 60.0


async def until(condition: Callable[[], Any]) -> Any:
    async with asyncio.timeout(PATIENCE):
        while not (found := condition()):  # noqa: ASYNC110  # what others do
            await asyncio.sleep(0.01)
    return found


def a_cluster(server: SmallApiServer) -> None:
    """A cluster with one labelled namespace and its ConfigMap."""
    for collection in (MAPS, "/api/v1/namespaces", "/api/v1/nodes", "/api/v1/pods", "/api/v1/events"):
        server.objects[collection] = {}
    server.objects[REGISTRATIONS] = {}
    server.put("/api/v1/namespaces", "team-a", metadata={"labels": {"spotwright.dev/enabled": "true"}})
    configure(server, a_config(POLICY).text)


def configure(server: SmallApiServer, text: str) -> None:
    server.put(MAPS, "spotwright", data={"spotwright.yaml": text}, kind="ConfigMap", metadata={"namespace": "team-a"})


def clients_of(server: SmallApiServer) -> OpenClient:
    def open_client(*, many_streams: bool = False) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=server.url, timeout=60 if many_streams else 300)

    return open_client


@asynccontextmanager
async def running(server: SmallApiServer, state: Path, **settings: Any) -> AsyncIterator[asyncio.Task[None]]:
    """A replica that runs while the block does; what it raises comes out of the block."""
    async with httpx2.AsyncClient(base_url=server.url) as client:
        given = {"port": 0, "where": "https://127.0.0.1:1", **settings}
        task = asyncio.create_task(run_controller(Settings(state=state, **given), Api(client), clients_of(server)))
        try:
            yield task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def registered(server: SmallApiServer) -> Mapping[str, Any] | None:
    found = server.objects[REGISTRATIONS].get("spotwright")
    return None if found is None else found["webhooks"][0]["clientConfig"]


async def review(caplog: pytest.LogCaptureFixture, server: SmallApiServer, data: dict[str, Any]) -> Any:
    """The object after a review by the address that the log names, checked with the registered authority."""
    client_config = await until(lambda: registered(server))
    address = next(line.split(" at ")[1] for line in caplog.messages if "answered at" in line)
    context = ssl.create_default_context(cadata=base64.b64decode(client_config["caBundle"]).decode())
    async with (
        ClientSession(connector=TCPConnector(ssl=context)) as session,
        session.post(f"{address}/mutate", data=a_review(data)) as response,
    ):
        answer = (await response.json())["response"]
    return apply_patch(data, json.loads(base64.b64decode(answer["patch"])))


def is_allowed(line: str) -> bool:
    """Whether the printed rights allow a request, given as method and path with query."""
    method, _, rest = line.partition(" ")
    path, _, query = rest.partition("?")
    parts = path.strip("/").split("/")
    group = "" if parts[0] == "api" else parts[1]
    rest_of = parts[2:] if parts[0] == "api" else parts[3:]
    if not rest_of:
        return True  # what the server has at all: every account may ask
    if rest_of[0] == "namespaces" and len(rest_of) > 2:
        rest_of = rest_of[2:]
    resource, name = "/".join([rest_of[0], *rest_of[2:]]), rest_of[1] if len(rest_of) > 1 else ""
    verb = {"POST": "create", "PUT": "update", "DELETE": "delete"}.get(method) or (
        "get" if name else "watch" if "watch=true" in query else "list"
    )
    fields = parse_qs(query).get("fieldSelector", [""])[0]
    name = name or fields.partition("metadata.name=")[2].partition(",")[0]
    rules = [rule for each in permissions("spotwright", "controller", "spotwright") for rule in each.get("rules", ())]
    return any(
        group in rule["apiGroups"]
        and resource in rule["resources"]
        and verb in rule["verbs"]
        and ("resourceNames" not in rule or name in rule["resourceNames"])
        for rule in rules
    )
