"""One replica against a small API server: it reads ConfigMaps, registers, answers reviews over TLS, watches, and ends cleanly."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
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
from tests.cluster.watching.small_api_server import serving

from spotwright.cluster import admission_server as admission
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
                return placed, registered(server), server.asked

    placed, client_config, asked = asyncio.run(scenario())
    assert placed["spec"]["template"]["spec"]["tolerations"]
    assert client_config["url"] == "https://127.0.0.1:1/mutate"
    assert not [line for line in asked if not is_allowed(line, "webhook")]


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
    assert is_allowed(f"GET /api/v1/{kind}{named}", "recorder")
    assert not is_allowed(f"GET /api/v1/{path}", "recorder")
