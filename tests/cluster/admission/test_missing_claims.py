"""A default checkpoint whose claim is missing holds up no pod whose workload did not ask for one."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web
from tests.cluster.admission_objects import a_config, a_job
from tests.cluster.json_patches import apply_patch
from tests.cluster.watching.small_api_server import SmallApiServer
from tests.cluster.watching.small_api_server import serving as serving_api
from tests.cluster.webhook_servers import a_certificate, a_webhook, mutate, serving

from spotwright.cluster import admission_server
from spotwright.cluster.api_client import Api
from spotwright.cluster.missing_claims import ClaimLookup, without_claims
from spotwright.placing.environment import CHECKPOINT_PATH

CLAIMS = "/api/v1/namespaces/team-a/persistentvolumeclaims"
POLICY = "{default: {spot: prefer, checkpoint: 'pvc://saves/team-a'}}"
PREFER = "{default: {spot: prefer}}"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("ANSWER_AFTER", "LOOK_UP", "FACTS"):
        monkeypatch.setattr(admission_server, limit, 60.0)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_certificate(tmp_path_factory.mktemp("tls"))


def there(server: SmallApiServer) -> None:
    server.put(CLAIMS, "saves")


def missing(server: SmallApiServer) -> None:
    server.objects[CLAIMS] = {}


def forbidden(server: SmallApiServer) -> None:
    async def refuse(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "message": "forbidden"}, status=403)

    server.pages[f"{CLAIMS}/saves"] = refuse


def reviewed(
    certificate: Path, prepare: Callable[[SmallApiServer], None], data: dict[str, Any], **request: Any
) -> tuple[dict[str, Any], list[str]]:
    """The object as it is created, and the warnings for its author."""

    async def scenario() -> tuple[dict[str, Any], list[str]]:
        async with serving_api() as server, httpx2.AsyncClient(base_url=server.url) as client:
            prepare(server)
            webhook = a_webhook()
            webhook.configurations.apply("team-a", {"data": {"spotwright.yaml": a_config(POLICY).text}})
            webhook.missing_claims = ClaimLookup(Api(client)).missing
            async with serving(certificate, webhook=webhook) as (session, address):
                answer = await mutate(session, address, data, **request)
        patch = json.loads(base64.b64decode(answer["patch"]))
        return dict(apply_patch(data, patch)), answer.get("warnings", [])

    return asyncio.run(scenario())


def mounts(job: dict[str, Any]) -> list[str]:
    container = job["spec"]["template"]["spec"]["containers"][0]
    return [one["mountPath"] for one in container.get("volumeMounts", ())]


def test_the_mount_is_left_out_with_one_warning_that_says_what_to_do(certificate: Path) -> None:
    placed, warnings = reviewed(certificate, missing, a_job())
    assert CHECKPOINT_PATH not in mounts(placed)
    assert "SPOTWRIGHT_CHECKPOINT" not in json.dumps(placed)
    assert placed["spec"]["template"]["spec"]["tolerations"]
    text = "".join(warnings)
    assert text.count("names the claim saves, which does not exist in namespace team-a") == 1
    assert "checkpoints.claimSize" in text


@pytest.mark.parametrize("prepare", [there, forbidden], ids=["it is there", "it may not be read"])
def test_a_claim_that_is_there_or_cannot_be_read_is_mounted(certificate: Path, prepare: Any) -> None:
    placed, warnings = reviewed(certificate, prepare, a_job())
    assert CHECKPOINT_PATH in mounts(placed)
    assert "names the claim" not in "".join(warnings)


def test_whoever_asks_for_the_claim_itself_waits_for_it(certificate: Path) -> None:
    asking = a_job()
    asking["metadata"]["annotations"] = {
        "spotwright.dev/policy": '{"spot": "prefer", "checkpoint": "pvc://saves/team-a"}'
    }
    placed, warnings = reviewed(certificate, missing, asking)
    assert CHECKPOINT_PATH in mounts(placed)
    assert "names the claim" not in "".join(warnings)


@pytest.mark.parametrize(("created", "updated"), [(missing, there), (there, missing)], ids=["made since", "gone since"])
def test_the_same_file_applied_again_keeps_the_mounts_that_it_had(
    certificate: Path, created: Any, updated: Any
) -> None:
    placed, _ = reviewed(certificate, created, a_job())
    again = a_job()
    again["metadata"]["annotations"] = {}
    kept, warnings = reviewed(certificate, updated, again, operation="UPDATE", oldObject=placed)
    assert mounts(kept) == mounts(placed)
    assert warnings == []


def test_a_claim_that_was_made_counts_from_a_few_seconds_on_and_one_answer_serves_many_reviews() -> None:
    async def scenario() -> tuple[list[list[str]], int]:
        now = [0.0]
        async with serving_api() as server, httpx2.AsyncClient(base_url=server.url) as client:
            missing(server)
            lookup, found = ClaimLookup(Api(client), lambda: now[0]), []
            config = a_config(POLICY)
            for moment in (0.0, 1.0):
                now[0] = moment
                found.append(list(await lookup.missing(config, "team-a")))
            there(server)
            now[0] = 4.0
            found.append(list(await lookup.missing(config, "team-a")))
            return found, len(server.asked)

    assert asyncio.run(scenario()) == ([["saves"], ["saves"], []], 2)


def test_reviews_at_once_and_reviews_without_time_ask_once() -> None:
    async def scenario() -> tuple[list[list[str]], int]:
        go_on = asyncio.Event()
        asked: list[str] = []

        async def slowly(request: web.Request) -> web.StreamResponse:
            asked.append(request.path)
            await go_on.wait()
            return web.json_response({"kind": "Status"}, status=404)

        async with serving_api() as server, httpx2.AsyncClient(base_url=server.url) as client:
            server.pages[f"{CLAIMS}/saves"] = slowly
            lookup, config = ClaimLookup(Api(client)), a_config(POLICY)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(lookup.missing(config, "team-a"), 0.3)
            many = [asyncio.create_task(lookup.missing(config, "team-a")) for _ in range(20)]
            await asyncio.sleep(0.3)
            go_on.set()
            return [list(each) for each in await asyncio.gather(*many)], len(asked)

    assert asyncio.run(scenario()) == ([["saves"]] * 20, 1)


def test_only_policies_with_a_missing_claim_lose_their_checkpoint() -> None:
    policy = "{default: {spot: prefer, checkpoint: 'pvc://a'}, tasks: {x: {checkpoint: 'pvc://b'}, y: {checkpoint: 's3://c/d'}}}"
    changed = without_claims(a_config(policy), ["b"])
    assert changed.policy_default is not None
    assert changed.policy_default.values["checkpoint"] == "pvc://a"
    assert [layer.values.get("checkpoint") for _, layer in changed.policy_tasks] == [None, "s3://c/d"]
    config = a_config(PREFER)
    assert without_claims(config, ["a"]) == config
