"""The processes of a controller beside an API server in memory, and the reviews that are sent to them."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, TCPConnector
from tests.cluster.admission_objects import a_config
from tests.cluster.controller.controller_process import REGISTRATIONS, kubeconfig, made_beforehand
from tests.cluster.json_patches import apply_patch
from tests.cluster.reviews import a_review
from tests.cluster.watching.small_api_server import SmallApiServer

from spotwright.cluster.api_client import Api, connect, find_cluster
from spotwright.cluster.controller_settings import RecorderSettings, WebhookSettings
from spotwright.cluster.recorder_process import run_recorder
from spotwright.cluster.webhook_process import run_webhook

MAPS = "/api/v1/configmaps"


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
    for collection, name in made_beforehand().items():
        server.put(collection, name, metadata={"namespace": "spotwright"})
    server.put("/api/v1/namespaces", "team-a", metadata={"labels": {"spotwright.dev/enabled": "true"}})
    configure(server, a_config(POLICY).text)


def configure(server: SmallApiServer, text: str) -> None:
    server.put(MAPS, "spotwright", data={"spotwright.yaml": text}, kind="ConfigMap", metadata={"namespace": "team-a"})


def running(server: SmallApiServer, folder: Path, **settings: Any) -> AbstractAsyncContextManager[asyncio.Task[None]]:
    """A webhook that runs during the block, which raises its errors."""
    given = {"port": 0, "where": "https://127.0.0.1:1", **settings}
    return _running(server, folder, lambda common: partial(run_webhook, WebhookSettings(**common, **given)))


def recording(server: SmallApiServer, folder: Path, **settings: Any) -> AbstractAsyncContextManager[asyncio.Task[None]]:
    """A recorder that runs while the block does."""
    return _running(server, folder, lambda common: partial(run_recorder, RecorderSettings(**common, **settings)))


@asynccontextmanager
async def _running(
    server: SmallApiServer,
    folder: Path,
    made: Callable[[dict[str, Any]], Callable[[Api], Coroutine[Any, Any, None]]],
) -> AsyncIterator[asyncio.Task[None]]:
    with tempfile.TemporaryDirectory() as private:
        path = str(kubeconfig(Path(private), server))
        work = made({"authority_folder": folder, "kubeconfig": path, "metrics_port": 0})
        api = Api(connect(find_cluster(kubeconfig=path)))
        task = asyncio.create_task(work(api))
        try:
            yield task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await api.close()


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
