"""Pools in the API as the recording replica knows them; other replicas skip the ones that it found unavailable."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import yaml
from tests.cluster.records.loops import in_a_loop, until
from tests.cluster.records.record_server import login, recording_server
from tests.cluster.watching.watched_cluster import CONFIG
from tests.cluster.watching.watched_objects import SPOT, node

from spotwright import config as configuration
from spotwright.cluster.api_client import Api, connect, find_cluster
from spotwright.cluster.spot_pools import FollowedPools, PoolObjects, pool_objects
from spotwright.cluster.unavailable_pools import Finding, Findings, PoolsLeftOut, definition_of
from spotwright.scheduling.budgets import Pause

CRDS = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(Path("charts/spotwright/crds").iterdir())]
POOLS = configuration.from_mapping(CONFIG).pools
KEY = definition_of(POOLS["gpu-spot"])
NOW = 1_800_000_000.0


def found(**of: float) -> Findings:
    return {
        KEY: {name.replace("_", "-"): Finding("gpu-spot", Pause(1, NOW - 60.0, until)) for name, until in of.items()}
    }


def told(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {each["spec"]["pool"]: each["status"] for each in objects.values()}


def test_a_pool_says_its_nodes_its_price_and_until_when_it_is_passed_over() -> None:
    nodes = [node("n1", **SPOT), node("n2", **SPOT), node("other", agentpool="strange")]
    objects = pool_objects(POOLS, nodes, found(team_a=NOW + 600.0, team_b=NOW + 300.0), NOW, "home.spotwright")
    by_pool = told(objects)
    assert (by_pool["gpu-spot"]["nodes"], by_pool["gpu-spot"]["capacity"]) == (2, "spot")
    assert by_pool["gpu-spot"]["price"] == "1.00/h"
    assert by_pool["gpu-spot"]["unavailableUntil"] == "2027-01-15T08:05:00Z"  # what two have found
    assert "unavailableUntil" not in by_pool["gpu"]
    assert by_pool["gpu"]["nodes"] == 0
    assert by_pool["strange"]["nodes"] == 1


def test_what_one_namespace_has_found_leaves_the_pool_out_for_itself_alone() -> None:
    objects = pool_objects(POOLS, [], found(team_a=NOW + 600.0), NOW, "home.spotwright")
    assert "unavailableUntil" not in told(objects)["gpu-spot"]
    assert [each["namespace"] for each in told(objects)["gpu-spot"]["found"]] == ["team-a"]


def test_a_namespaces_own_pool_is_shown_while_something_was_found_of_it() -> None:
    objects = pool_objects({}, [], found(team_a=NOW + 600.0), NOW, "home.spotwright")
    assert list(told(objects)) == ["gpu-spot"]
    assert pool_objects({}, [], {}, NOW, "home.spotwright") == {}


def test_the_kinds_in_the_chart_have_every_field_that_is_written() -> None:
    kinds = {
        each["spec"]["names"]["kind"]: each["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        for each in CRDS
    }
    objects = pool_objects(
        POOLS, [node("n1", **SPOT)], found(team_a=NOW + 600.0, team_b=NOW + 300.0), NOW, "home.spotwright"
    )
    fields = kinds["SpotPool"]
    for each in objects.values():
        assert each["spec"].keys() <= fields["spec"]["properties"].keys()
        assert each["status"].keys() <= fields["status"]["properties"].keys()
        for one in each["status"].get("found", ()):
            assert one.keys() == fields["status"]["properties"]["found"]["items"]["properties"].keys()


def fields_of(schema: dict[str, Any]) -> set[str]:
    """Every key of a schema and of those inside it."""
    inner = [*(schema.get("properties") or {}).values(), *([schema["items"]] if "items" in schema else [])]
    return {*schema}.union(*map(fields_of, inner))


def test_schemas_of_the_chart_are_read_as_they_are_meant() -> None:
    """A comma in an unquoted description begins a field, which the API server refuses from the second time on."""
    found = {key for each in CRDS for key in fields_of(each["spec"]["versions"][0]["schema"]["openAPIV3Schema"])}
    limits = {"enum", "maxLength", "minItems", "maxItems", "minLength", "minimum", "pattern", "required"}
    merging = {"x-kubernetes-list-map-keys", "x-kubernetes-list-type", "x-kubernetes-map-type"}
    assert found <= {
        "type",
        "format",
        "description",
        "properties",
        "items",
        "additionalProperties",
        *limits,
        *merging,
    }


@in_a_loop
async def test_another_replica_leaves_out_what_was_found_and_takes_it_back(tmp_path: Path) -> None:
    with recording_server(tmp_path) as (server, kubeconfig), login(kubeconfig) as kubernetes:
        server.objects["/apis/spotwright.dev/v1alpha1/spotpools"] = {}
        writer = PoolObjects(kubernetes, "home.spotwright", lambda: POOLS, lambda: NOW)
        writer.nodes = lambda: [node("n1", **SPOT)]
        api = Api(connect(find_cluster(None, kubeconfig=str(kubeconfig))))
        followed = FollowedPools(api, "home.spotwright")
        task = asyncio.create_task(followed.follow())
        left_out = PoolsLeftOut(followed.findings)
        try:
            await asyncio.to_thread(writer.write, found(team_a=NOW + 600.0))
            await until(lambda: "gpu-spot" in left_out.of("team-a", POOLS, NOW))
            assert left_out.of("team-b", POOLS, NOW) == {}
            asked = len(server.asked)
            await asyncio.to_thread(writer.tell)
            assert len(server.asked) == asked  # nothing has changed
            other = PoolObjects(kubernetes, "other.spotwright", dict, lambda: NOW)
            other.nodes = list
            await asyncio.to_thread(other.tell)
            assert "gpu-spot" in left_out.of("team-a", POOLS, NOW)  # another release has nothing to say of it
            again = PoolObjects(kubernetes, "home.spotwright", lambda: POOLS, lambda: NOW)
            again.nodes = writer.nodes
            await asyncio.to_thread(again.write, {})
            await until(lambda: left_out.of("team-a", POOLS, NOW) == {})
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await api.close()
