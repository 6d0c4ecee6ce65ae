"""The controller creates the library's ConfigMap and the claims of policies where it may, and leaves existing objects alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest
from aiohttp import web
from click.testing import CliRunner
from tests.cluster.watching.small_api_server import SmallApiServer, serving

from spotwright.checkpoint_file import config_map_name
from spotwright.cli.controller import controller
from spotwright.cluster.api_client import Api
from spotwright.cluster.checkpoint_objects import CheckpointObjects, ClaimForm
from spotwright.cluster.configurations import Configurations
from spotwright.cluster.missing_claims import claims_of

NAMESPACES = "/api/v1/namespaces"
POOLS = "version: 1\npools: {a: {capacity: spot}, b: {capacity: on-demand}}\n"


def config_maps_of(namespace: str) -> str:
    return f"{NAMESPACES}/{namespace}/configmaps"


def claims_in(namespace: str) -> str:
    return f"{NAMESPACES}/{namespace}/persistentvolumeclaims"


def configurations(**policies: str) -> Configurations:
    found = Configurations("home")
    found.apply("home", {"data": {"spotwright.yaml": POOLS}})
    for namespace, policy in policies.items():
        found.apply(namespace.replace("_", "-"), {"data": {"spotwright.yaml": f"version: 1\npolicy: {policy}\n"}})
    return found


class Made:
    """The created objects, look by look, in the labelled namespaces team-a and team-b; ``seconds`` is the clock."""

    def __init__(self, server: SmallApiServer, api: Api, found: Configurations, *listed: str, **more: Any) -> None:
        self.server, self.seconds = server, 0.0
        self.objects = CheckpointObjects(api, found, listed, clock=lambda: self.seconds, **more)

    async def look(self, after: float = 0.0) -> Sequence[str]:
        """Look again, and return the paths to which objects were sent."""
        self.seconds += after
        self.server.asked.clear()
        await self.objects.make()
        return [each.removeprefix("POST ") for each in self.server.asked if each.startswith("POST ")]


def looking(scenario: Any, found: Configurations, *listed: str, **more: Any) -> None:
    async def run() -> None:
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
            for name in ("team-a", "team-b"):
                server.put(NAMESPACES, name, f"uid-{name}")
            await scenario(Made(server, Api(client), found, *listed, **more))

    asyncio.run(run())


@pytest.mark.parametrize("listed", [(), ("team-a", "team-b")])
def test_the_library_is_made_once_in_each_served_namespace(listed: tuple[str, ...]) -> None:
    async def scenario(made: Made) -> None:
        assert await made.look() == [config_maps_of("team-a"), config_maps_of("team-b")]
        made_here = made.server.objects[config_maps_of("team-a")][config_map_name()]
        assert made_here["immutable"] is True
        assert made_here["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "spotwright"}
        assert await made.look(30) == []
        assert any("labelSelector=spotwright.dev" in each for each in made.server.asked) is (not listed)

    looking(scenario, configurations(), *listed)


def test_what_is_there_stays_as_it_is() -> None:
    async def scenario(made: Made) -> None:
        made.server.put(config_maps_of("team-a"), config_map_name(), data={"own": "1"})
        await made.look()
        assert made.server.objects[config_maps_of("team-a")][config_map_name()]["data"] == {"own": "1"}
        assert not [each for each in made.server.asked if not each.startswith(("POST", "GET"))]

    looking(scenario, configurations(), "team-a")


def test_what_was_deleted_comes_back_in_ten_minutes() -> None:
    async def scenario(made: Made) -> None:
        await made.look()
        made.server.delete(config_maps_of("team-a"), config_map_name())
        assert await made.look(300) == []
        assert await made.look(301) == [config_maps_of("team-a")]

    looking(scenario, configurations(), "team-a")


def test_a_new_namespace_of_an_old_name_gets_its_own() -> None:
    async def scenario(made: Made) -> None:
        await made.look()
        made.server.put(NAMESPACES, "team-a", "another-uid")
        assert await made.look(30) == [config_maps_of("team-a")]

    looking(scenario, configurations())


def test_a_missing_right_is_said_and_stops_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(made: Made) -> None:
        async def forbidden(_: web.Request) -> web.Response:
            return web.json_response({"kind": "Status", "message": "configmaps is forbidden"}, status=403)

        made.server.pages[config_maps_of("team-a")] = forbidden
        assert len(await made.look()) == 2
        assert await made.look(30) == []
        assert "configmaps is forbidden" in caplog.text
        assert config_map_name() in made.server.objects[config_maps_of("team-b")]

    looking(scenario, configurations())


def test_claims_of_the_policies_are_made_with_the_size_that_was_set() -> None:
    found = configurations(
        team_a="{default: {checkpoint: 'pvc://saves/a'}, tasks: {train: {checkpoint: 'pvc://more'}}}",
        team_b="{default: {checkpoint: 'gs://saves'}}",
    )

    async def scenario(made: Made) -> None:
        assert await made.look() == [claims_in("team-a")] * 2
        saves, more = (made.server.objects[claims_in("team-a")][name] for name in ("saves", "more"))
        storage = {"requests": {"storage": "20Gi"}}
        assert saves["spec"] == {"accessModes": ["ReadWriteMany"], "resources": storage, "storageClassName": "shared"}
        assert more["spec"] == saves["spec"]

    looking(scenario, found, library=False, claims=ClaimForm("20Gi", "shared"))


def test_names_that_are_none_and_more_than_ten_are_left_out() -> None:
    tasks = ", ".join(f"t{number}: {{checkpoint: 'pvc://c{number}'}}" for number in range(30))
    found = configurations(team_a=f"{{default: {{checkpoint: 'pvc://../../nodes'}}, tasks: {{{tasks}}}}}")
    claims = claims_of(found.of("team-a"))
    assert len(claims) == 10
    assert ".." not in claims
    assert claims_of(None) == []


def test_a_namespace_that_names_more_claims_than_ten_is_told_which_are_left_out() -> None:
    tasks = [f"t{number}: {{checkpoint: 'pvc://c{number}'}}" for number in range(15)]
    ten, eleven, fifteen = (f"{{tasks: {{{', '.join(tasks[:number])}}}}}" for number in (10, 11, 15))
    found = configurations(team_a=ten, team_b=eleven, team_c=fifteen)
    told = {each.namespace: each.message for each in found.without_effect}
    assert list(told) == ["team-b", "team-c"]
    assert told["team-b"].startswith(
        "the policies name 11 checkpoint claims; Spotwright creates only the first 10, and pods"
    )
    assert "until the others exist (c10); use folders of one claim" in told["team-b"]
    assert "(c10, c11, c12 and 2 more)" in told["team-c"]


@pytest.mark.parametrize("size", ["much", "1Xi", "0", "-5Gi"])
def test_a_claim_needs_a_size(size: str) -> None:
    told = CliRunner().invoke(controller, [f"--make-claims={size}"])
    assert told.exit_code == 2
    assert "--make-claims" in told.output
