"""One replica against a small API server: it reads ConfigMaps, registers, answers reviews over TLS, watches, and ends cleanly."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, TCPConnector, web
from tests.cluster.admission_objects import a_config, a_job
from tests.cluster.controller.processes import (
    PATIENCE,
    POLICY,
    a_cluster,
    configure,
    registered,
    review,
    running,
    until,
)
from tests.cluster.granted_rights import is_allowed
from tests.cluster.watching import watched_objects
from tests.cluster.watching.small_api_server import serving

from spotwright.cluster import admission_server as admission
from spotwright.cluster.log_client import reading_name
from spotwright.errors import InputError

EVENTS = "/api/v1/namespaces/team-a/events"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("ANSWER_AFTER", "LOOK_UP", "FACTS"):
        monkeypatch.setattr(admission, limit, PATIENCE)


def test_a_replica_registers_itself_and_places_what_is_created(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async def scenario() -> Any:
        async with serving() as server:
            a_cluster(server)
            async with running(server, tmp_path):
                placed = await review(caplog, server, a_job())
                await until(lambda: server.objects.get("/apis/coordination.k8s.io/v1/namespaces/spotwright/leases"))
                return placed, registered(server), server.asked

    placed, client_config, asked = asyncio.run(scenario())
    assert placed["spec"]["template"]["spec"]["tolerations"]
    assert client_config["url"] == "https://127.0.0.1:1/mutate"
    assert not [line for line in asked if not is_allowed(line)]


def test_without_the_webhook_nothing_is_registered_and_without_watching_no_lease_is_taken(tmp_path: Path) -> None:
    async def asked(**settings: bool) -> list[str]:
        async with serving() as server:
            a_cluster(server)
            async with running(server, tmp_path, **settings):
                await until(lambda: any(line.startswith(("POST", "PUT")) for line in server.asked))
            return server.asked

    watching, answering = (asyncio.run(asked(**{each: False})) for each in ("has_webhook", "watches"))
    assert not [line for line in watching if "mutatingwebhook" in line]
    assert not [line for line in answering if "coordination" in line and not line.startswith("GET")]


def test_the_replica_that_watches_keeps_the_log_of_each_attempt(tmp_path: Path) -> None:
    async def log(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"2026-01-01T00:00:02.000000001Z epoch 1 of 3\n")

    async def test() -> None:
        async with serving() as server:
            a_cluster(server)
            owner = watched_objects.job("train")
            owned = watched_objects.pod("train-1", owner, node="n1", phase="Succeeded", exit_code=0)
            server.served = {"/apis/batch/v1": ["jobs"]}
            server.objects["/apis/batch/v1/jobs"] = {}
            for collection, each in (("/apis/batch/v1/jobs", owner), ("/api/v1/pods", owned)):
                server.put(collection, each["metadata"]["name"], uid=each["metadata"]["uid"], **each)
            server.pages["/api/v1/namespaces/team-a/pods/train-1/log"] = log
            async with running(server, tmp_path, has_webhook=False):
                await until(lambda: [log for log in tmp_path.rglob("log.txt") if b"epoch 1 of 3\n" in log.read_bytes()])
            assert [line for line in server.asked if not is_allowed(line)] == []

    asyncio.run(test())


def test_a_wrong_config_map_changes_nothing_and_an_event_says_line_and_fix(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async def scenario() -> tuple[Any, list[dict[str, Any]]]:
        async with serving() as server:
            a_cluster(server)
            async with running(server, tmp_path):
                await review(caplog, server, a_job())
                configure(server, a_config(POLICY).text.replace("spot: prefer", "spot: sometimes"))
                await until(lambda: server.objects.get(EVENTS))
                placed = await review(caplog, server, a_job())
                configure(server, a_config(POLICY).text)
                await until(lambda: len(server.objects[EVENTS]) == 2)
                return placed, list(server.objects[EVENTS].values())

    placed, events = asyncio.run(scenario())
    assert placed["spec"]["template"]["spec"]["tolerations"]
    wrong, good = sorted(events, key=lambda each: each["type"], reverse=True)
    assert (wrong["type"], wrong["reason"], wrong["involvedObject"]["kind"]) == ("Warning", "NotInForce", "ConfigMap")
    assert "ConfigMap team-a/spotwright: spotwright.yaml:7: policy.default.spot" in wrong["message"]
    assert "require" in wrong["message"]
    assert (good["type"], good["reason"]) == ("Normal", "InForce")


def test_an_address_that_is_in_use_ends_the_replica_with_the_fix(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving() as server:
            a_cluster(server)
            async with running(server, tmp_path, port=int(server.url.rpartition(":")[2])) as task:
                await asyncio.wait({task}, timeout=PATIENCE)

    with pytest.raises(InputError, match=r"cannot listen there .* see --listen"):
        asyncio.run(scenario())


@pytest.mark.parametrize(
    "path", ["namespaces/a", "nodes/n1", "namespaces/a/events/one", "namespaces/a/configmaps/other"]
)
def test_what_is_followed_is_not_read_one_by_one(path: str) -> None:
    kind = path.split("/")[-2]
    named = "?fieldSelector=metadata.name=spotwright" if kind == "configmaps" else ""
    assert is_allowed(f"GET /api/v1/{kind}{named}")
    assert not is_allowed(f"GET /api/v1/{path}")


def test_people_read_beside_the_webhook_with_the_published_authority(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    maps = "/api/v1/namespaces/spotwright/configmaps"

    async def scenario() -> tuple[int, str, list[str]]:
        async with serving() as server:
            a_cluster(server)
            async with running(server, tmp_path, read_port=0):
                await until(lambda: server.objects[maps]["spotwright-reading"].get("data"))
                published = server.objects[maps]["spotwright-reading"]
                address = next(line.split(" at ")[1] for line in caplog.messages if "runs are read at" in line)
                context = ssl.create_default_context(cadata=published["data"]["ca.crt"])
                async with (
                    ClientSession(connector=TCPConnector(ssl=context)) as session,
                    session.get(f"{address}/v1/runs", server_hostname=reading_name("spotwright")) as response,
                ):
                    return response.status, (await response.json())["message"], server.asked

    status, message, asked = asyncio.run(scenario())
    assert status == 401
    assert message.startswith("the request has neither a token nor a client certificate of this cluster")
    assert not [line for line in asked if not is_allowed(line)]
