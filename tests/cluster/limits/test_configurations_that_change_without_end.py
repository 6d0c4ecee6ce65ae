"""A tenant may change a ConfigMap without end: other configurations and the processor do not wait for that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest
from tests.cluster.watching.small_api_server import serving

from spotwright.cluster.api_client import Api
from spotwright.cluster.configurations import ConfigMaps, Configurations

HOME = "version: 1\npools:\n  spot: {capacity: spot, provider: aks}\n  regular: {capacity: on-demand, provider: aks}\n"


def path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def text(interruptions: int) -> dict[str, str]:
    return {
        "spotwright.yaml": f"version: 1\npolicy: {{default: {{spot: prefer, interruptions: {{max: {interruptions}}}}}}}\n"
    }


def read_maximum(found: Configurations, namespace: str) -> Any:
    config = found.of(namespace)
    layer = None if config is None else config.policy_default
    return None if layer is None else layer.values.get("interruptions.max")


def test_a_namespace_that_writes_again_and_again_is_read_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    applied, real = list[str](), Configurations.apply

    def apply(self: Configurations, namespace: str, config_map: Mapping[str, Any] | None) -> None:
        applied.append(namespace)
        time.sleep(0.1 if namespace == "hostile" else 0.0)  # as long as the longest text takes
        real(self, namespace, config_map)

    monkeypatch.setattr(Configurations, "apply", apply)

    async def scenario() -> None:
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
            server.put(path("spotwright"), "spotwright", data={"spotwright.yaml": HOME})
            for namespace in ("hostile", "team-a"):
                server.put(path(namespace), "spotwright", data=text(1))
            made = ConfigMaps(Api(client), Configurations("spotwright"), None, ("hostile", "team-a"))
            task = asyncio.ensure_future(made.follow())
            async with asyncio.timeout(60):
                while not made.is_complete:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert read_maximum(made.configurations, "hostile") == 1, "complete: each was read once"
            for number in range(2, 42):
                server.put(path("hostile"), "spotwright", data=text(number))
            server.put(path("team-a"), "spotwright", data=text(9))
            before = len(applied)
            async with asyncio.timeout(60):
                while read_maximum(made.configurations, "team-a") != 9:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                assert applied[before:].count("hostile") <= 3, "all forty would be read before it"
                while read_maximum(made.configurations, "hostile") != 41:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert applied[before:].count("hostile") <= 5
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())
