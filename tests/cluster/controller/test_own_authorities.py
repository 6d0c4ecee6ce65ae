"""Replicas with separate folders have separate authorities: API servers and readers trust all that have not expired."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.cluster.watching.small_api_server import SmallApiServer, serving

from spotwright.cluster.api_client import Api
from spotwright.cluster.certificates import Authority, are_same, united
from spotwright.cluster.install import Registration

NOW = datetime(2026, 11, 29, tzinfo=UTC)
HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


def authority(folder: Path, name: str, made: datetime = NOW) -> bytes:
    folder.joinpath(name).mkdir(parents=True)
    return Authority(folder / name).renew(made)


def test_the_authorities_of_others_stay_and_those_that_have_expired_go(tmp_path: Path) -> None:
    mine, other = authority(tmp_path, "mine"), authority(tmp_path, "other")
    old = authority(tmp_path, "old", NOW - timedelta(days=60))
    assert united(mine, other + old, NOW) == mine + other
    assert united(mine, b"", NOW) == mine
    assert united(mine, mine, NOW) == mine
    assert united(mine, b"no certificate", NOW) == mine


def test_of_many_others_the_newest_stay(tmp_path: Path) -> None:
    mine = authority(tmp_path, "mine")
    others = [authority(tmp_path, f"n{number}", NOW - timedelta(hours=number)) for number in range(10)]
    assert united(mine, b"".join(reversed(others)), NOW) == mine + b"".join(others[:6])


def test_the_order_of_certificates_makes_no_difference(tmp_path: Path) -> None:
    mine, other = authority(tmp_path, "mine"), authority(tmp_path, "other")
    assert are_same(mine + other, other + mine)
    assert not are_same(mine, mine + other)


def bundle_of(server: SmallApiServer) -> bytes:
    (hook,) = server.objects[HOOKS]["spotwright"]["webhooks"]
    return base64.b64decode(hook["clientConfig"].get("caBundle", ""))


@pytest.mark.parametrize("unites", [True, False])
def test_each_replica_writes_its_own_beside_those_of_others_and_they_leave_each_other_alone(
    tmp_path: Path, unites: bool
) -> None:
    mine = authority(tmp_path, "mine", datetime.now(UTC))
    other = authority(tmp_path, "other", datetime.now(UTC))

    async def scenario() -> None:
        async with serving() as server:
            hook: dict[str, Any] = {"name": "pods.spotwright.dev", "clientConfig": {}}
            server.put(HOOKS, "spotwright", webhooks=[hook])
            api = Api(httpx2.AsyncClient(base_url=server.url))
            try:
                first, second = (
                    Registration(api, "spotwright", ("home", "spotwright"), unites=unites) for _ in range(2)
                )
                await first.put(mine)
                await second.put(other)
                assert are_same(bundle_of(server), mine + other if unites else other)
                version = server.version
                await Registration(api, "spotwright", ("home", "spotwright"), unites=unites).put(mine)
                assert (server.version == version) is unites  # nothing is to be written
            finally:
                await api.close()

    asyncio.run(scenario())
