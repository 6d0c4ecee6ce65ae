"""`spotwright controller check`, which `helm test` runs: whether a pod would be placed, or why not."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from aiohttp import web
from click.testing import CliRunner
from tests.cluster.watching.small_api_server import SmallApiServer, serving

from spotwright.cli import controller as module
from spotwright.cli.controller import controller
from spotwright.cluster.api_client import Api
from spotwright.cluster.install import Obstacle, obstacle

REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
PODS = "/api/v1/namespaces/team-a/pods"


def checked(prepare: Callable[[SmallApiServer], None]) -> Obstacle | None:
    async def scenario() -> Obstacle | None:
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
            server.objects[REGISTRATIONS] = {}
            prepare(server)
            found = await obstacle(Api(client), "spotwright", "team-a")
            assert [line for line in server.asked if line.startswith("POST") and "dryRun=All" not in line] == []
            return found

    return asyncio.run(scenario())


def register(server: SmallApiServer, bundle: str = "cGVt") -> None:
    client = {"service": {"name": "spotwright"}, **({"caBundle": bundle} if bundle else {})}
    server.put(REGISTRATIONS, "spotwright", webhooks=[{"name": "pods.spotwright.dev", "clientConfig": client}])


def answering(status: int = 201, **annotations: str) -> Callable[[SmallApiServer], None]:
    async def create(request: web.Request) -> web.StreamResponse:
        pod: dict[str, Any] = await request.json()
        if status >= 400:
            return web.json_response({"kind": "Status", "message": "exceeded quota: pods"}, status=status)
        pod["metadata"]["annotations"] = annotations
        return web.json_response(pod, status=status)

    def prepare(server: SmallApiServer) -> None:
        register(server)
        server.pages[PODS] = create

    return prepare


def test_a_pod_that_the_controller_has_placed_is_proof() -> None:
    assert checked(answering(201, **{"spotwright.dev/admitted": json.dumps({})})) is None


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda _: None, "MutatingWebhookConfiguration spotwright is missing"),
        (lambda server: register(server, ""), "has no caBundle yet"),
        (answering(), "stays unchanged. Three common reasons: the namespace is not served"),
        (answering(403), "pods cannot be created in namespace team-a: .* exceeded quota"),
        (answering(404), "pods cannot be created in namespace team-a"),
    ],
    ids=["no registration", "no authority", "not placed", "a quota", "no namespace"],
)
def test_what_is_missing_is_a_sentence(prepare: Callable[[SmallApiServer], None], words: str) -> None:
    found = checked(prepare)
    assert found is not None
    assert re.search(words, found.text)


def command(prepare: Callable[[SmallApiServer], None]) -> tuple[int, int]:
    """The exit code of the check, and how often it has looked."""

    async def scenario() -> tuple[int, int]:
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
            server.objects[REGISTRATIONS] = {}
            prepare(server)
            code = await module._check(Api(client), "spotwright", "team-a")
            return code, sum(REGISTRATIONS in line for line in server.asked)

    return asyncio.run(scenario())


def test_a_missing_registration_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(lambda _: None) == (1, 1)
    assert capsys.readouterr().out.count("MutatingWebhookConfiguration spotwright is missing") == 1


def test_what_is_waited_for_is_said_before_the_wait_and_each_thing_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "_CHECK_FOR", 0.6)
    monkeypatch.setattr(module, "_CHECK_AGAIN", 0.1)
    code, looks = command(lambda server: register(server, ""))
    assert code == 1
    assert looks > 1
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("team-a: not yet, and looked at again for up to 1 s: the MutatingWebhookConfiguration")
    assert last.startswith("the MutatingWebhookConfiguration spotwright has no caBundle yet")


def test_a_namespace_that_can_be_none_is_refused_before_anything_is_asked() -> None:
    refused = CliRunner().invoke(controller, ["check", "../team-b"])
    assert refused.exit_code == 2
    assert "'../team-b' is not the name of a namespace" in refused.output


def test_a_certificate_of_one_s_own_is_needed_where_nothing_is_registered() -> None:
    refused = CliRunner().invoke(controller, ["webhook", "--no-registration"])
    assert refused.exit_code == 2
    assert "give --certificate" in refused.output
