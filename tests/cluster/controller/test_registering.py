"""The controller writes only its authority into the chart's registration; by hand it creates the whole object."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Coroutine
from copy import deepcopy
from typing import Any

import httpx2
import pytest
from tests.cluster.controller.controller_process import REGISTRATIONS
from tests.cluster.controller.processes import until
from tests.cluster.watching.small_api_server import SmallApiServer, serving

from spotwright.cluster import install
from spotwright.cluster.api_client import Api
from spotwright.cluster.install import Registration, webhook_configuration

SERVICE, ADDRESS = ("spotwright", "webhook"), "https://127.0.0.1:9443"


def registering(
    test: Callable[[SmallApiServer, Callable[..., Registration]], Coroutine[Any, Any, None]],
) -> None:
    async def within() -> None:
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client, asyncio.timeout(30):
            server.objects[REGISTRATIONS] = {}

            def made(where: Any, **options: Any) -> Registration:
                return Registration(Api(client), "spotwright", where, **options)

            await test(server, made)

    asyncio.run(within())


def render(server: SmallApiServer) -> dict[str, Any]:
    """The object as the chart makes it, without an authority."""
    made = webhook_configuration("spotwright", SERVICE, b"", ("team-a",))
    return server.put(REGISTRATIONS, "spotwright", **made)


def bundles(server: SmallApiServer) -> set[str]:
    found = server.objects[REGISTRATIONS]["spotwright"]["webhooks"]
    return {each["clientConfig"].get("caBundle", "") for each in found}


def of(authority: bytes) -> set[str]:
    return {base64.b64encode(authority).decode()}


def test_only_the_authority_of_the_chart_s_object_is_written() -> None:
    async def test(server: SmallApiServer, made: Callable[..., Registration]) -> None:
        before = deepcopy(render(server))
        await made(SERVICE).put(b"authority")
        after = deepcopy(server.objects[REGISTRATIONS]["spotwright"])
        assert bundles(server) == of(b"authority")
        for webhook in after["webhooks"]:
            del webhook["clientConfig"]["caBundle"]
        assert after["webhooks"] == before["webhooks"]
        assert {line.split()[0] for line in server.asked} == {"GET", "PATCH"}

    registering(test)


def test_a_new_authority_replaces_the_one_before_and_the_same_one_is_not_written_twice() -> None:
    async def test(server: SmallApiServer, made: Callable[..., Registration]) -> None:
        render(server)
        registration = made(SERVICE)
        await registration.put(b"authority")
        await registration.put(b"the next authority")
        await registration.put(b"the next authority")
        assert bundles(server) == of(b"the next authority")
        assert sum(line.startswith("PATCH") for line in server.asked) == 2
        await made(SERVICE).put(b"the next authority")  # another replica finds it there
        assert sum(line.startswith("PATCH") for line in server.asked) == 2

    registering(test)


def test_a_missing_object_of_the_chart_is_said_once_and_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(install, "_AGAIN", 0.02)

    async def test(server: SmallApiServer, made: Callable[..., Registration]) -> None:
        putting = asyncio.create_task(made(SERVICE).put(b"authority"))
        await until(lambda: len(server.asked) >= 3)
        assert not server.objects[REGISTRATIONS]
        render(server)
        await putting
        assert bundles(server) == of(b"authority")

    registering(test)
    said = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert len(said) == 1
    assert "the chart's MutatingWebhookConfiguration spotwright is missing" in said[0]
    assert "helm upgrade" in said[0]


def test_an_authority_that_somebody_has_taken_out_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "_EVERY", 0.02)

    async def test(server: SmallApiServer, made: Callable[..., Registration]) -> None:
        render(server)
        registration = made(SERVICE)
        await registration.put(b"authority")
        following = asyncio.create_task(registration.follow())
        render(server)
        await until(lambda: bundles(server) == of(b"authority"))
        following.cancel()

    registering(test)


def test_an_object_that_changes_while_it_is_patched_is_read_again() -> None:
    async def test(server: SmallApiServer, made: Callable[..., Registration]) -> None:
        found = deepcopy(render(server))
        real = server._patch

        def changed_before(*given: Any) -> Any:
            server.put(REGISTRATIONS, "spotwright", **{**found, "webhooks": found["webhooks"][::-1]})
            server._patch = real  # type: ignore[method-assign]
            return real(*given)

        server._patch = changed_before  # type: ignore[assignment, method-assign]
        await made(SERVICE).put(b"authority")
        assert bundles(server) == of(b"authority")
        names = [each["name"] for each in server.objects[REGISTRATIONS]["spotwright"]["webhooks"]]
        assert names == [each["name"] for each in found["webhooks"]][::-1]

    registering(test)


def test_with_a_certificate_of_somebody_else_s_nothing_is_read_or_written() -> None:
    async def test(server: SmallApiServer, made: Callable[..., Registration]) -> None:
        await made(SERVICE, writes=False).put(b"authority")
        assert server.asked == []

    registering(test)


def test_by_hand_the_whole_object_is_made_for_the_listed_namespaces_and_taken_out_again() -> None:
    async def test(server: SmallApiServer, made: Callable[..., Registration]) -> None:
        registration = made(ADDRESS, namespaces=("team-b", "team-a"))
        await registration.put(b"authority")
        await registration.put(b"the next authority")
        assert bundles(server) == of(b"the next authority")
        (selector,) = {
            str(each["namespaceSelector"]) for each in server.objects[REGISTRATIONS]["spotwright"]["webhooks"]
        }
        assert "kubernetes.io/metadata.name" in selector
        assert "['team-a', 'team-b']" in selector
        assert (await registration.remove(), await registration.remove()) == (True, False)

    registering(test)
